"""Segments of a run between compactions, its compactions, and the prompt that each call is sent."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from ctxkit.policies.history.edited_head import hash_content, hash_row_content
from ctxkit.policies.history.history import History
from ctxkit.policies.policy_base_and_chains import apply_policy
from ctxkit.policies.protocols import name_of
from ctxkit.policies.schedules.messages_without_any_pruning import MessageState
from ctxkit.policies.schedules.pruned_message_states import select_changes_between
from ctxkit.policies.schedules.pruning_schedule import Schedule
from ctxkit.policies.validated_settings_and_scheduled_prunings import split_pruning
from ctxkit.session.messages import Message, SizeOnly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.history.history_view_and_searches import HistoryEdit
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.policies.policy_base_and_chains import BasePolicy
    from ctxkit.policies.schedules.pruned_message_states import StateChange
    from ctxkit.session.messages import Edit
    from ctxkit.tokens.token_counters import ContextBudget


class PrunedPromptsByCall:
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

    def pruned(self, call: int) -> PrunedPromptsByCall:
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
    """A compaction: the call before which it happened, and the history without and with it.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.engine import run_replay
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=3000", above)
        >>> run = run_replay(ck.read(ck.samples.path("chat")), rules)
        >>> first = run.compactions[0]
        >>> first.before > 4_000 > first.after, first.messages_before > first.messages_after
        (True, True)
    """

    call: int
    """Number of the call before which it happened, from 0."""
    was: History
    """The history without it."""
    new: History
    """The history with it."""
    trigger: str
    """Reason why it was due."""
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
    """A compaction that was due and did not happen.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.engine import run_replay
        >>> once = ck.policies.guards.CompactionCountLimit(1, per="run")
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=3000", above, guards=(once,))
        >>> run = run_replay(ck.read(ck.samples.path("chat")), rules)
        >>> run.blocked[0].outcome
        'skipped'
    """

    call: int
    """Number of the call at which it was due, from 0."""
    guard: str
    """Name of the guard that suppressed it or refused its result, or of a policy that failed."""
    why: str
    """Reason, as a sentence."""

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
    """The start or the end of a policy's run, for hooks and logs.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.engine import run_replay
        >>> above = ck.policies.triggers.Above(4_000)
        >>> rules = ck.policies.Rules("window:keep_tokens=3000", above)
        >>> run = run_replay(ck.read(ck.samples.path("chat")), rules)
        >>> [event.kind for event in run.events][:2]
        ['start', 'end']
    """

    kind: str
    """`start` or `end`."""
    call: int
    """Number of the call, from 0."""
    policy: str
    """Name of the policy."""
    messages: int
    """Messages in the prompt, at the end those of the result."""
    tokens: int
    """Tokens of that prompt."""
    outcome: str = ""
    """At the end: `compacted`, `nothing`, `refused` or `failed`."""
    error: str | None = None
    """The error of a summary or of the policy; None: none."""


FIXED_KIND = "fixed"
"""The kind of the item for the part of a prompt that no message of the log holds."""


class SentItem(NamedTuple):
    """One message of a prompt, as it was sent."""

    message: Message
    tokens: int
    raw_tokens: int
    """Its tokens before it was changed; 0 where a rule inserted it."""
    changed_by: str | None
    """The part of the rules that changed or inserted it; None: it was sent unchanged."""
    row: int = -1
    """Its row in the log; -1: it is no message of the log."""
    pruned: bool = False
    """True where a pruning changed it, for this call; False: a compaction, for good."""


class PromptChange(NamedTuple):
    """The messages by which a prompt differs from the one before it."""

    call: int
    anew: bool
    """True where the prompt before does not count, and all messages of this one are in `added`."""
    added: list[MessageState]
    """Messages that this prompt has and the one before has not."""
    removed: list[MessageState]
    """Messages that the one before has and this one has not."""
    fixed: int
    """Tokens that no message holds."""


def build_sent_items(run: RunLike, call: int | None) -> tuple[SentItem, ...]:
    """Return the prompt of a call: the fixed part as one item, then the messages in order.

    Args:
        run: the run.
        call: number of the call; None: the next one, as if nothing were compacted before it.
    """
    items, _ = _items_and_left_out(run, call)
    fixed = run.log.fixed_in(run.call if call is None else call)
    if fixed:
        parts = (SizeOnly(FIXED_KIND, tokens=fixed),)
        message = Message(role="system", id=FIXED_KIND, kind=FIXED_KIND, parts=parts)
        items.insert(0, SentItem(message, fixed, fixed, None))
    return tuple(items)


def list_sent_messages(run: RunLike, call: int) -> list[Message]:
    """Return the messages of `build_sent_items`, without the fixed part: a copy of slices.

    Args:
        run: the run.
        call: number of the call, from 0.
    """
    pruned = run.pruned(call)
    if pruned.rest:
        return [item.message for item in _items_and_left_out(run, call, pruned)[0]]
    schedule = pruned.schedule.extend(call + 1)
    messages: list[Message | None] = [*schedule.rows.messages(schedule.rows.count_arrived(call))]
    for position, state in schedule.changed(call):
        messages[position] = state.message
    appended = schedule.top.get_appended(call)
    if appended is not None:
        messages.append(appended.message)
    return [m for m in messages if m is not None]


def build_prompt_without_last_compaction(
    run: RunLike, call: int
) -> tuple[list[SentItem], dict[int, str]]:
    """Return the messages that a call would have been sent without the compaction before it, and
    the rows that a pruning would have left out.

    Args:
        run: the run.
        call: number of the call; at least one call of the run came before it.

    Returns:
        (items in order, by row the pruning that left it out).
    """
    return _items_and_left_out(run, call, run.pruned(call - 1))


def find_rows_left_out_by_pruning(run: RunLike, call: int | None) -> dict[int, str]:
    """Return the messages that prunings left out of a call's prompt.

    Args:
        run: a run or a replay.
        call: number of the call, from 0; None: the next call.

    Returns:
        For each row of the log that is left out, the name of the part that did it.
    """
    return _items_and_left_out(run, call)[1]


def iter_prompt_changes(
    run: RunLike, start: int = 0, stop: int | None = None
) -> Iterator[PromptChange]:
    """Yield the changes of the prompt at each of the calls start..stop.

    Cost: one pass over messages and changes of each segment; where a part has no schedule, one pass
    over the prompt at each call.

    Args:
        run: a run or a replay.
        start: first call, from 0; its change holds the whole prompt.
        stop: one past the last call; None: all calls so far.
    """
    stop = run.call if stop is None else min(stop, run.call)
    segment_starts = {start, run.begin, *(c.call for c in run.compactions)}
    bounds = [*sorted(c for c in segment_starts if start <= c < stop), stop]
    for begin, end in pairwise(bounds):
        pruned = run.pruned(begin)
        if pruned.rest:
            yield from (
                build_full_prompt_change(call, build_sent_items(run, call))
                for call in range(begin, end)
            )
        else:
            yield from _schedule_changes(pruned.schedule.extend(end), begin, end)


def build_full_prompt_change(call: int, items: Sequence[SentItem]) -> PromptChange:
    """Return all items of a call as one change, as if there were no prompt before.

    Args:
        call: number of the call, from 0.
        items: the messages of its prompt, in order.
    """
    fixed, added = 0, list[MessageState]()
    for item in items:
        if item.message.kind == FIXED_KIND:
            fixed = item.tokens
        else:
            is_unchanged = item.row >= 0 and item.changed_by is None
            # the row is part of the hash, so that equal texts at two rows differ
            changed_content = hash_row_content(item.row, hash_content(item.message))
            content = -item.row - 1 if is_unchanged else changed_content
            added.append(MessageState(call, item.message, item.tokens, content))
    return PromptChange(call, anew=True, added=added, removed=[], fixed=fixed)


def _items_and_left_out(
    run: RunLike, call: int | None, pruned: PrunedPromptsByCall | None = None
) -> tuple[list[SentItem], dict[int, str]]:
    """Return the messages of a prompt, and the rows that were left out of it.

    Args:
        run: the run.
        call: number of the call; None: the next one.
        pruned: the pruned history in force; None: that of the call.
    """
    call = run.call if call is None else call
    pruned = run.pruned(call) if pruned is None else pruned
    schedule = pruned.schedule.extend(call + 1)
    left_out: dict[int, str] = {}
    names = (c.by for c in reversed(run.compactions) if c.call <= call)
    policy = name_of(run.rules.policy) if run.rules.policy else next(filter(None, names), "")
    items = list(_scheduled_items(schedule, call, policy or "a compaction", left_out))
    if pruned.rest:
        items = _called_items(schedule.prompt_at(call), pruned.rest, items, run, left_out)
    return items, left_out


def _schedule_changes(schedule: Schedule, start: int, stop: int) -> Iterator[PromptChange]:
    """Yield the changes at the calls start..stop of a schedule that reaches there."""
    rows, top, n = schedule.rows, schedule.top, schedule.rows.count_arrived(start)
    added, removed = [top.state(p, start) for p in range(n)], list[MessageState]()
    events, i, last_added = select_changes_between(top.events, start + 1, stop), 0, None
    for call in range(start, stop):
        if call > start:
            arrived_n = rows.count_arrived(call)
            added, removed = [rows.recorded_state(p) for p in range(n, arrived_n)], []
            n = arrived_n
        while i < len(events) and events[i].call <= call:
            removed.append(events[i].was)
            added.append(events[i].now)
            i += 1
        if last_added is not None:
            removed.append(last_added)
        last_added = None
        appended = top.get_appended(call)
        if appended is not None:
            last_added = MessageState(call, appended.message, appended.tokens, appended.content)
            added.append(last_added)
        yield PromptChange(call, call == start, added, removed, rows.log.fixed_in(call))


def _scheduled_items(
    schedule: Schedule, call: int, policy: str, left_out: dict[int, str]
) -> Iterator[SentItem]:
    """Yield a call's messages under a schedule; add the rows that it leaves out to `left_out`.

    Args:
        schedule: the prunings; it reaches beyond the call.
        call: number of the call, from 0.
        policy: name of what compacted, for messages that no pruning changed.
        left_out: receives for each row that is hidden the name of the part that hides it.
    """
    rows, log = schedule.rows, schedule.rows.log
    changed = dict(schedule.changed(call))
    for p in range(rows.count_arrived(call)):
        pruned, row = changed.get(p), rows.row(p)
        state = rows.recorded_state(p) if pruned is None else pruned
        part = None if pruned is None else schedule.top.origin(p, call)
        if state.message is None:
            left_out[row] = name_of(part)
            continue
        # A message as the log has it has the content `-row - 1`; a compaction made all others.
        is_compacted = row < 0 or rows.recorded_content(p) != -row - 1
        changed_by = name_of(part) if part is not None else policy if is_compacted else None
        raw = log.tokens.sizes[row] if row >= 0 else 0  # an inserted message is not in the log
        yield SentItem(state.message, state.tokens, raw, changed_by, row, part is not None)
    added = schedule.top.get_appended(call)
    if added is not None:
        yield SentItem(added.message, added.tokens, 0, name_of(schedule.adder(call)), pruned=True)


def _called_items(
    view: History,
    parts: Sequence[BasePolicy],
    items: list[SentItem],
    run: RunLike,
    left_out: dict[int, str],
) -> list[SentItem]:
    """Return the items after the parts without a schedule, which are run on the call's history."""
    for part in parts:
        new = apply_policy(part, view, run.budget)
        if new is not view:
            # a message is recognised by its row and the id that changed copies share
            before = {(item.row, item.message.id.split("~")[0]): item for item in items}
            items = [_item_after(part, new, p, before) for p in range(len(new))]
            rows_after = {item.row for item in items}
            left_out.update(
                {row: name_of(part) for row, _ in before if row >= 0 and row not in rows_after}
            )
        view = new
    return items


def _item_after(
    part: Any, view: History, p: int, items_before: dict[tuple[int, str], SentItem]
) -> SentItem:
    item, message = view.item(p), view[p]
    before = items_before.get((item.row, message.id.split("~")[0]))
    if before is not None and before.message.parts == message.parts:
        return before
    raw = before.raw_tokens if before is not None else 0
    return SentItem(message, item.tokens, raw, name_of(part), item.row, pruned=True)
