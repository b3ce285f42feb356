"""A run between compactions: the history in force, the compactions, and those that were blocked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from ctxkit.policies.base import apply_policy, split_pruning
from ctxkit.policies.history.history import History
from ctxkit.policies.schedules.layers import changes_between
from ctxkit.policies.schedules.pruning_schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.policies.base import BasePolicy
    from ctxkit.policies.history.log import MessageLog
    from ctxkit.policies.history.view import HistoryEdit
    from ctxkit.policies.rules import Rules
    from ctxkit.policies.schedules.layers import StateChange
    from ctxkit.session.messages import Edit
    from ctxkit.tokens.counters import ContextBudget


class PrunedHistory:
    """What a pruning leaves of a history, from its call on, or an earlier one that a part goes by.

    Args:
        history: what is in force, before any pruning.
        pruning: a part, or a chain of parts; None: all is left.
        room: the limit, the reserve and the counter.
    """

    def __init__(self, history: History, pruning: BasePolicy | None, room: ContextBudget) -> None:
        known, self.rest = split_pruning(pruning)
        """`rest`: parts behind the first that says no schedule: they are asked call by call."""
        first = min((part.begin(history) for part in known), default=history.call)
        self.schedule = Schedule(history.at(first), known, room)
        """What the other parts change when."""
        self._room = room

    def left(self, call: int) -> History:
        """Return what a call is sent."""
        view = self.schedule.left(call)
        for part in self.rest:
            view = apply_policy(part, view, self._room)
        return view


class RunLike(Protocol):
    """What a run tells of itself."""

    log: MessageLog
    rules: Rules
    room: ContextBudget
    cuts: list[Compaction]
    begin: int
    call: int

    def pruned(self, call: int) -> PrunedHistory:
        """Return what is left of the history in force at a call."""


class Segment(NamedTuple):
    """The calls from one compaction to the next."""

    run: RunLike
    start: int
    """Its first call."""
    stop: int
    """One past its last call."""
    history: History
    """What is in force, before any pruning."""
    cut: Compaction | None
    """The compaction that it begins with; None: the run's beginning."""

    @property
    def rest(self) -> tuple[BasePolicy, ...]:
        """Parts of the pruning that are asked call by call."""
        return split_pruning(self.run.rules.pruning)[1]

    @property
    def schedule(self) -> Schedule | None:
        """What the other parts change when; None without a pruning."""
        if self.run.rules.pruning is None:
            return None
        return self.run.pruned(self.start).schedule.extend(self.stop)

    def changes(self) -> Iterator[StateChange]:
        """Yield what they change at its calls, in order."""
        if self.schedule is not None and self.stop > self.start:
            yield from changes_between(self.schedule.top.events, self.start, self.stop)

    def left(self, call: int) -> History:
        """Return what one of its calls was sent."""
        return self.run.pruned(call).left(call)


def iter_segments(run: RunLike) -> Iterator[Segment]:
    """Yield the stretches of a run; of compactions before one call only the last has calls."""
    first = History.start(run.log, run.begin)
    begin: list[tuple[int, History, Compaction | None]] = [(run.begin, first, None)]
    begin += [(cut.call, cut.new, cut) for cut in run.cuts]
    stops = [*(call for call, _, _ in begin[1:]), run.call]
    for (start, history, cut), end in zip(begin, stops, strict=True):
        yield Segment(run, start, max(end, start), history, cut)


_replace = msgspec.structs.replace


class Compaction(msgspec.Struct, frozen=True):
    """A compaction that happened: before which call, and the history without and with it."""

    call: int
    was: History
    new: History
    trigger: str
    by: str = ""
    """What did it, where that is not the policy of the rules."""

    @property
    def steps(self) -> tuple[HistoryEdit, ...]:
        """The verbs that did it."""
        return self.new.steps

    @property
    def before(self) -> int:
        """Tokens of the prompt without it."""
        return self.was.tokens

    @property
    def after(self) -> int:
        """Tokens of the prompt with it, before any pruning."""
        return self.new.tokens

    @property
    def messages_before(self) -> int:
        """Messages shown without it."""
        return len(self.was)

    @property
    def messages_after(self) -> int:
        """Messages shown with it."""
        return len(self.new)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What it did as edits that a session can hold; made when asked for."""
        return tuple(_replace(e, trigger=self.trigger) for e in self.new.edits)


class BlockedCompaction(NamedTuple):
    """A compaction that was due and did not happen."""

    call: int
    guard: str
    """What held it back or refused its result; the policy itself where it failed."""
    why: str

    @property
    def said(self) -> str:
        """The same in words for a person."""
        return self.why if self.why.startswith("held back: ") else f"{self.guard}: {self.why}"


class HookEvent(NamedTuple):
    """The start or the end of a policy's work, for hooks and logs."""

    kind: str
    """`start` or `end`."""
    call: int
    policy: str
    messages: int
    tokens: int
    outcome: str = ""
    """At the end: `compacted`, `nothing`, `refused` or `failed`."""
    error: str | None = None
