"""The input of a `schedule` method: the new calls, their messages, and methods to change them."""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ctxkit.policies.history.growing_columns_and_sums import USER
from ctxkit.policies.history.history_view_and_searches import get_role_code
from ctxkit.policies.schedules.messages_without_any_pruning import NEVER
from ctxkit.policies.schedules.pruned_message_states import (
    SUM_CHARS,
    SUM_RESULT_CHARS,
    SUM_TOKENS,
    ContentForCallRange,
    select_changes_between,
)
from ctxkit.session.tool_call_paths_and_descriptions import matches_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ctxkit.policies.schedules.messages_without_any_pruning import (
        MessageState,
        UnprunedMessages,
    )
    from ctxkit.policies.schedules.pruned_message_states import (
        Layer,
        NewContent,
        PruningPartChanges,
        UndoChangeSentinel,
    )
    from ctxkit.session.messages import Message, ToolCall
    from ctxkit.tokens.token_counters import ContextBudget

    StageChooser = Callable[[int, Callable[[int], int]], int]


class VisibilityChanges(NamedTuple):
    """Positions of some roles that arrive, are hidden or become protected at one call, sorted."""

    call: int
    arrived: list[int]
    """They arrive at this call, or are no longer hidden."""
    hidden: list[int]
    """A part before hides them from this call on."""
    protected: list[int]
    """They arrived before, and are protected from pruning from this call on."""


class _VisibilityChangesByCall(dict[int, VisibilityChanges]):
    def __missing__(self, call: int) -> VisibilityChanges:
        self[call] = new = VisibilityChanges(call, [], [], [])
        return new


@runtime_checkable
class HasSchedule(Protocol):
    """A part of a pruning that says which messages it changes, and from which call on."""

    def schedule(self, view: ScheduleView, budget: ContextBudget, /) -> None:
        """Say what changes at the new calls of the view.

        Args:
            view: the messages and the new calls, `view.start` to `view.stop`.
            budget: the limit and reserve in tokens.
        """


class ScheduleView:
    """The new calls `start` to `stop`, as a part of a pruning sees and changes them.

    A message is addressed by its *position*: its index among all messages that this history ever
    shows. Protected messages (system, pinned, pending, and what is grouped with them) are never
    changed, whatever rules a part gives.
    """

    def __init__(self, changes: PruningPartChanges, memory: dict[Any, Any]) -> None:
        self._changes = changes
        self.rows: UnprunedMessages = changes.rows
        self.before: Layer = changes.before
        self.start, self.stop = changes.start, changes.stop
        self.memory = memory
        """The part's own state between batches of calls, for this history only."""
        self.first = self.rows.count_arrived(self.start - 1)
        """The first position that arrives at the new calls."""
        self.staged: tuple[tuple[Any, ...], StageChooser] | None = None

    # -- changing messages -------------------------------------------------------------------------

    def change(
        self,
        p: int,
        content: NewContent | UndoChangeSentinel,
        since: int,
        until: int = NEVER,
        *,
        only_if_smaller: bool = True,
        min_chars: int = 0,
    ) -> None:
        """Change a message at the calls since..until; the last change in force at a call counts.

        Change one message in the order of calls: then the result is the same for one batch of all
        calls and for one batch per call.

        Args:
            p: position of the message.
            content: the new content. A text replaces the text (tool calls remain); None hides the
                message; a function gets the message as the parts before left it, and returns a
                message or None; a tuple is applied in order; `UNDO_CHANGE` undoes the part's
                change.
            since: the first call, one of the new calls.
            until: one past the last call.
            only_if_smaller: change it only where it becomes smaller, in tokens.
            min_chars: change it only where it has at least this many characters.

        Raises:
            BadArguments: `since` is no new call; two changes with an end overlap; the new message
                is larger.
        """
        self._changes.add_rule(
            p, ContentForCallRange(since, until, content, only_if_smaller, min_chars)
        )

    def append(self, make: Message | Callable[[], Message | None], call: int) -> None:
        """Append a message at the end of one call only. The class of the part declares `appends`.

        Args:
            make: a message, or a function that builds it when it is needed; None appends nothing.
            call: one of the new calls.
        """
        self._changes.add_appended(call, make if callable(make) else lambda: make)

    def stages(self, parts: Sequence[HasSchedule | None], choose: StageChooser) -> None:
        """Prune each call by one of several parts, chosen by prompt size.

        Args:
            parts: the stages, each with a `schedule`; None: no change.
            choose: ``choose(call, size) -> index``, where ``size(n)`` is the prompt in tokens under
                the n-th stage.
        """
        self.staged = tuple(parts), choose

    # -- reading messages and calls ----------------------------------------------------------------

    def calls(self) -> range:
        """Return the new calls."""
        return range(self.start, self.stop)

    def turns(self) -> Iterator[tuple[int, int]]:
        """Yield the new calls that begin a turn, each with the first position of the turn."""
        for call in self.rows.turn_changes(self.start, self.stop):
            yield call, self.rows.turn_edge(call)

    def count_arrived(self, call: int) -> int:
        """Return the number of positions at a call."""
        return self.rows.count_arrived(call)

    def arrival(self, p: int) -> int:
        """Return the first call whose prompt holds a position."""
        return self.rows.arrival(p)

    def role(self, p: int) -> int:
        """Return the code of a message's role."""
        return self.rows.role(p)

    def state_before(self, p: int, call: int) -> MessageState:
        """Return the state of a message at a call, after the parts before.

        Args:
            p: position of the message.
            call: number of the call, from 0.
        """
        return self.before.state(p, call)

    def state_after_change(self, p: int, what: NewContent, call: int) -> MessageState:
        """Return the state that `change` would give a message at a call, without changing it.

        Args:
            p: position of the message.
            what: new content, as `change` takes it.
            call: number of the call, from 0.
        """
        state = self.before.state(p, call)
        if self.stays(p, call):
            return state
        rule = ContentForCallRange(call, NEVER, what, only_if_smaller=True, min_chars=0)
        return self._changes.apply_rule(p, state, rule, call)

    def message(self, p: int, call: int) -> Message | None:
        """Return a message at a call, after the parts before; None where it is hidden.

        Args:
            p: position of the message.
            call: number of the call, from 0.
        """
        return self.before.state(p, call).message

    def answered_call(self, p: int) -> ToolCall | None:
        """Return the tool call that a result answers, as recorded."""
        return self.rows.answered_call(p)

    def recorded_calls(self, p: int) -> tuple[ToolCall, ...]:
        """Return the tool calls of a reply as recorded, whatever parts changed of them."""
        return self.rows.calls(p)

    def turn_edge(self, call: int) -> int:
        """Return the first position of the turn of a call; those before it are earlier turns."""
        return self.rows.turn_edge(call)

    def has_prompt(self, call: int) -> bool:
        """Return True where the turn of a call begins with a user message."""
        edge, rows = self.turn_edge(call), self.rows
        # a part before may have left out the reply that the turn began with
        is_first = rows.row(edge) == rows.log.turn_first(call)
        return is_first and edge < self.count_arrived(call) and self.role(edge) == USER

    def stays(self, p: int, call: int) -> bool:
        """Return True where a message is protected from pruning at a call.

        Args:
            p: position of the message.
            call: number of the call.
        """
        return self.rows.stays_from(p) <= call

    def is_safe(self, p: int, call: int) -> bool:
        """Return True where a cut before a position parts no tool call from its result.

        Args:
            p: position before which the cut is.
            call: number of the call, from 0.
        """
        return self.rows.is_safe(p, call)

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt after the parts before, its fixed part included."""
        return self.before.total(call, SUM_TOKENS) + self.fixed(call)

    def fixed(self, call: int) -> int:
        """Return the tokens of the fixed part of a prompt: system prompt, tools outside the log."""
        return self.rows.log.fixed_in(call)

    def chars(self, call: int, *, of_results: bool = False) -> int:
        """Return the characters of the messages, or results, of a call after the parts before.

        Args:
            call: number of the call, from 0.
            of_results: count tool results only.
        """
        return self.before.total(call, SUM_RESULT_CHARS if of_results else SUM_CHARS)

    def pause(self, call: int) -> float:
        """Return the seconds between the end of the last call and a call; NaN if unknown."""
        log = self.rows.log
        return log.sent[call] - log.end_times[call - 1] if 0 < call < log.calls else float("nan")

    def is_tool(self, p: int, patterns: tuple[str, ...]) -> bool:
        """Return True for the result of a tool that matches one of these names or globs.

        Args:
            p: position of the message.
            patterns: names or globs of tools; `*` matches any message, an empty tuple none.
        """
        if not patterns or "*" in patterns:
            return bool(patterns)
        row = self.rows.row(p)
        return matches_tool(self.rows.log.tool(row) if row >= 0 else "", patterns)

    # -- iterating over news -----------------------------------------------------------------------

    def new(self, *roles: str, tools: tuple[str, ...] = ("*",)) -> Iterator[int]:
        """Yield the positions that arrive at the new calls, in order.

        Args:
            roles: roles of the messages; none: all.
            tools: names or globs; tool results of other tools are left out.
        """
        codes = {get_role_code(r) for r in roles}
        for p in range(self.first, self.count_arrived(self.stop - 1)):
            if (not codes or self.rows.role(p) in codes) and self.is_tool(p, tools):
                yield p

    def may_be_longer(self, p: int, low: int) -> bool:
        """Return False where a message has at most `low` characters at all calls: a cheap check.

        Args:
            p: position of the message.
            low: number of characters.
        """
        return self.rows.chars(p) > low or p in self._changed_before

    @property
    def _changed_before(self) -> set[int]:
        """The positions that a part before changes, cached for this batch."""
        cached = self.memory.get("touched before")
        if cached is None or cached[0] != self.stop:
            cached = self.memory["touched before"] = self.stop, self.before.touched()
        positions: set[int] = cached[1]
        return positions

    def iter_visibility_changes(self, *roles: str) -> Iterator[VisibilityChanges]:
        """Yield, call by call, which messages of these roles (none: all) arrive or are hidden.

        Calls at which a late result makes a cut unsafe are included, even without such messages.
        """
        codes = frozenset(get_role_code(r) for r in roles) or None
        by_call = _VisibilityChangesByCall()
        # Three sources, all sorted by call: arrivals, changes of the parts before, protections.
        for call, p in self._arrivals(codes):
            by_call[call].arrived.append(p)
        for call, p, was, now in select_changes_between(self.before.events, self.start):
            if (codes is not None and self.role(p) not in codes) or call <= self.arrival(p):
                continue
            if now.message is None:
                by_call[call].hidden.append(p)
            elif was.message is None:
                insort(by_call[call].arrived, p)
        for call, p in self.rows.newly_protected(self.start, self.stop):
            if self.arrival(p) < call and (codes is None or self.role(p) in codes):
                by_call[call].protected.append(p)
        other_calls = self.rows.parted(self.start, self.stop) | self._turn_calls()
        yield from (by_call[call] for call in sorted(by_call.keys() | other_calls))

    def _arrivals(self, codes: frozenset[int] | None) -> Iterator[tuple[int, int]]:
        """Yield (call, position) of the messages that arrive and are not hidden on arrival."""
        # A message that a part before hides on arrival never arrives for this part.
        events = select_changes_between(self.before.events, self.start)
        hidden = {(call, p) for call, p, _, now in events if now.message is None}
        for p in self.rows.of_roles(self.first, self.count_arrived(self.stop - 1), codes):
            call = self.rows.arrival(p)
            if (call, p) not in hidden:
                yield call, p

    def _turn_calls(self) -> set[int]:
        """Return the calls that `iter_visibility_changes` includes because a turn begins: none."""
        return set()

    def events(self, *roles: str) -> dict[int, list[int]]:
        """Return, by call, the messages of these roles (none: all) that a part before changes."""
        codes, by_call = {get_role_code(r) for r in roles}, dict[int, list[int]]()
        for call, p, _, _ in select_changes_between(self.before.events, self.start):
            if call >= self.arrival(p) and (not codes or self.rows.role(p) in codes):
                by_call.setdefault(call, []).append(p)
        return by_call

    def window(
        self, role: str, old: Callable[[int], int], *, with_protected: bool = True
    ) -> Iterator[tuple[int, int, bool]]:
        """Yield (position, call, is_old) when a message becomes old, or is no longer old.

        Of the n messages of a role at a call, the first ``old(n)`` are old: ``lambda n: n - 3``
        leaves the newest three.

        Args:
            role: the role whose messages are counted, after the parts before.
            old: the number of old messages as a function of the number of messages.
            with_protected: count protected messages, too.
        """
        window: PositionsByAge = self.memory.setdefault(("window", role), PositionsByAge())
        for call, added, hidden, protected in self.iter_visibility_changes(role):
            for p in hidden:
                if p in window and window.remove(p):
                    yield p, call, False  # it may come back as one of the newest
            for p in added:
                if (with_protected or not self.stays(p, call)) and window.insert(p):
                    yield p, call, True
            if not with_protected:
                for p in protected:
                    if p in window:
                        window.remove(p)
            for p, is_old in window.set_old_count(old(len(window.positions))):
                yield p, call, is_old


# Helpers for parts that act on "all but the newest n". A part keeps them in `ScheduleView.memory`,
# so a batch of calls costs only the messages that arrive, are hidden, or pass the boundary in it.


class PositionsByAge:
    """A sorted list of positions, of which the first few are old; any can be added or removed."""

    __slots__ = ("old", "positions")

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.old = 0
        """Number of old positions."""

    def __contains__(self, p: int) -> bool:
        i = bisect_left(self.positions, p)
        return i < len(self.positions) and self.positions[i] == p

    def insert(self, p: int) -> bool:
        """Insert a position; return True where it is old."""
        i = bisect_left(self.positions, p)
        self.positions.insert(i, p)
        self.old += i < self.old
        return i < self.old

    def remove(self, p: int) -> bool:
        """Remove a position; return True where it was old."""
        i = bisect_left(self.positions, p)
        was_old = i < self.old
        del self.positions[i]
        self.old -= was_old
        return was_old

    def is_old(self, p: int) -> bool:
        """Return True for an old position."""
        return bisect_left(self.positions, p) < self.old

    def set_old_count(self, old: int) -> Iterator[tuple[int, bool]]:
        """Set the number of old positions; yield those that become old (True) or not (False)."""
        target = min(max(old, 0), len(self.positions))
        # Move the boundary one by one: each position that it passes changes its age.
        while self.old < target:
            yield self.positions[self.old], True
            self.old += 1
        while self.old > target:
            self.old -= 1
            yield self.positions[self.old], False


class TextsByPosition:
    """Texts sorted by position, with snapshots that later changes do not alter (copy on write).

    Appending at the end is O(1), as a snapshot stores its length; any other change copies the list.
    """

    __slots__ = ("_positions", "_texts")

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._texts: list[str] = []

    def insert(self, p: int, text: str) -> None:
        """Insert the text of a position, or replace it.

        Args:
            p: position of the message.
            text: its text.
        """
        i = bisect_left(self._positions, p)
        is_present = i < len(self._positions) and self._positions[i] == p
        if i == len(self._positions):
            self._texts.append(text)
        elif not is_present or self._texts[i] != text:
            self._texts = [*self._texts[:i], text, *self._texts[i + is_present :]]
        if not is_present:
            self._positions.insert(i, p)

    def remove(self, p: int) -> None:
        """Remove the text of a position, if there is one."""
        i = bisect_left(self._positions, p)
        if i < len(self._positions) and self._positions[i] == p:
            del self._positions[i]
            self._texts = [*self._texts[:i], *self._texts[i + 1 :]]

    def take_snapshot(self) -> tuple[list[str], int]:
        """Return a snapshot (texts, n): the first n texts of the list are the present ones."""
        return self._texts, len(self._texts)


class VisiblePositions(PositionsByAge):
    """The positions that a part sees at a call, sorted; an *index* counts them from 0."""

    __slots__ = ()

    def follow(self, added: Iterable[int], hidden: Iterable[int]) -> None:
        """Apply the changes of visibility at a call.

        Args:
            added: positions that become visible.
            hidden: positions that are hidden.
        """
        for p in hidden:
            self.remove(p)
        for p in added:
            self.insert(p)

    def index(self, p: int) -> int:
        """Return the index of the first position at or after one."""
        return bisect_left(self.positions, p)

    def safe(self, view: ScheduleView, i: int, call: int) -> int:
        """Return the first index >= `i` at which a cut is safe, or the number of positions.

        Args:
            view: the messages of the schedule.
            i: index among the visible positions, from 0.
            call: number of the call.
        """
        while i < len(self.positions) and not view.is_safe(self.positions[i], call):
            i += 1
        return min(i, len(self.positions))

    def safe_before(self, view: ScheduleView, i: int, call: int) -> int:
        """Return the last index <= `i` at which a cut is safe; 0 where there is none.

        Args:
            view: the messages of the schedule.
            i: index among the visible positions, from 0.
            call: number of the call.
        """
        while 0 < i < len(self.positions) and not view.is_safe(self.positions[i], call):
            i -= 1
        return i


class EarlierTurnsView(ScheduleView):
    """The new calls, where a message arrives when its turn is over, not when it was written.

    That is the first call of the next turn; messages of other agents arrive at once. So a filter
    never changes calls and results of the current turn, and the prompt changes once per turn: at
    its first call, where the messages of the turn before are filtered.
    """

    @cached_property
    def _ended_turns(self) -> list[tuple[int, int]]:
        return self.rows.became_past(self.start, self.stop)

    def arrival(self, p: int) -> int:
        """Return the first call at which the turn of a position is over; `NEVER` so far."""
        return self.rows.past_from(p)

    def new(self, *roles: str, tools: tuple[str, ...] = ("*",)) -> Iterator[int]:
        """Yield the positions whose turn ends at the new calls, in order.

        Args:
            roles: roles of the messages; none: all.
            tools: names or globs; tool results of other tools are left out.
        """
        # A message is new when its turn is over, not when it is written.
        codes = {get_role_code(r) for r in roles}
        for _, p in self._ended_turns:
            if (not codes or self.role(p) in codes) and self.is_tool(p, tools):
                yield p

    def _arrivals(self, codes: frozenset[int] | None) -> Iterator[tuple[int, int]]:
        for call, p in self._ended_turns:
            if (codes is None or self.role(p) in codes) and self.message(p, call) is not None:
                yield call, p

    def _turn_calls(self) -> set[int]:
        """Return the calls that begin a turn, and those at which its first message arrives."""
        begins = self.rows.turn_changes(self.start, self.stop)
        edges = {self.turn_edge(call) for call in (max(self.start - 1, self.rows.begin), *begins)}
        arrivals = (self.rows.arrival(p) for p in edges if p < self.count_arrived(self.stop - 1))
        return {*begins, *(call for call in arrivals if call >= self.start)}
