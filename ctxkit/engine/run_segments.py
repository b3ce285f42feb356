"""Segments of a run between compactions, compactions, and blocked compactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from ctxkit.policies.base import apply_policy, split_pruning
from ctxkit.policies.history.history import History
from ctxkit.policies.schedules.layers import select_changes_between
from ctxkit.policies.schedules.pruning_schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.policies.base import BasePolicy
    from ctxkit.policies.context_rules import Rules
    from ctxkit.policies.history.history_view import HistoryEdit
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.policies.schedules.layers import StateChange
    from ctxkit.session.messages import Edit
    from ctxkit.tokens.counter_protocol import ContextBudget


class PrunedHistory:
    """A history under a pruning, from its call on, or from an earlier one that a part refers to.

    Args:
        history: the history in force, before any pruning.
        pruning: a part, or a chain of parts; None: nothing is pruned.
        budget: the limit, the reserve and the counter.
    """

    def __init__(self, history: History, pruning: BasePolicy | None, budget: ContextBudget) -> None:
        scheduled, self.rest = split_pruning(pruning)
        """`rest`: the parts from the first one without a schedule on; they are run at each call."""
        first = min((part.begin(history) for part in scheduled), default=history.call)
        self.schedule = Schedule(history.at(first), scheduled, budget)
        """What the other parts change, and from which call on."""
        self._budget = budget

    def prompt_at(self, call: int) -> History:
        """Return the pruned history that a call is sent."""
        view = self.schedule.prompt_at(call)
        for part in self.rest:
            view = apply_policy(part, view, self._budget)
        return view


class RunLike(Protocol):
    """The fields of a run that its segments and prompts are derived from."""

    log: MessageLog
    rules: Rules
    budget: ContextBudget
    compactions: list[Compaction]
    begin: int
    call: int

    def pruned(self, call: int) -> PrunedHistory:
        """Return the history in force at a call, pruned."""


class RunSegment(NamedTuple):
    """The calls from one compaction to the next."""

    run: RunLike
    start: int
    """Its first call."""
    stop: int
    """One past its last call."""
    history: History
    """The history in force, before any pruning."""
    compaction: Compaction | None
    """The compaction that it begins with; None at the run's beginning."""

    @property
    def rest(self) -> tuple[BasePolicy, ...]:
        """Parts of the pruning from the first without a schedule on; they run at each call."""
        return split_pruning(self.run.rules.pruning)[1]

    @property
    def schedule(self) -> Schedule | None:
        """What the other parts change, and from which call on; None without a pruning."""
        if self.run.rules.pruning is None:
            return None
        return self.run.pruned(self.start).schedule.extend(self.stop)

    def changes(self) -> Iterator[StateChange]:
        """Yield the changes of the schedule at its calls, in order."""
        if self.schedule is not None and self.stop > self.start:
            yield from select_changes_between(self.schedule.top.events, self.start, self.stop)

    def prompt_at(self, call: int) -> History:
        """Return the pruned history that one of its calls was sent."""
        return self.run.pruned(call).prompt_at(call)


def iter_segments(run: RunLike) -> Iterator[RunSegment]:
    """Yield the segments of a run; of several compactions before one call, the last has calls."""
    first = History.start(run.log, run.begin)
    starts: list[tuple[int, History, Compaction | None]] = [(run.begin, first, None)]
    starts += [(c.call, c.new, c) for c in run.compactions]
    stops = [*(call for call, _, _ in starts[1:]), run.call]
    for (start, history, compaction), stop in zip(starts, stops, strict=True):
        yield RunSegment(run, start, max(stop, start), history, compaction)


_replace = msgspec.structs.replace


class Compaction(msgspec.Struct, frozen=True):
    """A compaction: the call before which it happened, and the history without and with it."""

    call: int
    was: History
    new: History
    trigger: str
    by: str = ""
    """Name of what did it, where that is not the policy of the rules."""
    pruned_sizes: tuple[int, int] | None = None
    """Under a pruning: tokens of the pruned prompt of its call, without it and with it."""

    @property
    def steps(self) -> tuple[HistoryEdit, ...]:
        """The edits of the history that it consists of."""
        return self.new.steps

    @property
    def before(self) -> int:
        """Tokens that its call would have been sent without it, pruned as the rules do."""
        return self.was.tokens if self.pruned_sizes is None else self.pruned_sizes[0]

    @property
    def after(self) -> int:
        """Tokens that its call was sent with it, pruned as the rules do."""
        return self.new.tokens if self.pruned_sizes is None else self.pruned_sizes[1]

    @property
    def messages_before(self) -> int:
        """Messages of the prompt without it."""
        return len(self.was)

    @property
    def messages_after(self) -> int:
        """Messages of the prompt with it."""
        return len(self.new)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The same as edits that a session can hold; built at each access.

        The first has the size without the compaction, the last that with it.
        """
        edits = [_replace(e, trigger=self.trigger) for e in self.new.edits]
        if edits and self.pruned_sizes is not None:
            edits[0] = _replace(edits[0], tokens_before=self.before)
            edits[-1] = _replace(edits[-1], tokens_after=self.after)
        return tuple(edits)


class BlockedCompaction(NamedTuple):
    """A compaction that was due and did not happen."""

    call: int
    guard: str
    """Name of the guard that suppressed it or refused its result, or of a policy that failed."""
    why: str

    @property
    def outcome(self) -> Literal["skipped", "failed", "refused"]:
        """`skipped`: a guard suppressed it; `failed`; `refused`: its result was not taken."""
        if self.why.startswith("suppressed: "):
            return "skipped"
        return "failed" if self.why.startswith("failed: ") else "refused"

    @property
    def reason_text(self) -> str:
        """The reason as a phrase for a person to read; of a refusal with the guard."""
        return f"{self.guard}: {self.why}" if self.outcome == "refused" else self.why


class PolicyRunEvent(NamedTuple):
    """The start or the end of a policy's run, for hooks and logs."""

    kind: str
    """`start` or `end`."""
    call: int
    policy: str
    messages: int
    tokens: int
    outcome: str = ""
    """At the end: `compacted`, `nothing`, `refused` or `failed`."""
    error: str | None = None
