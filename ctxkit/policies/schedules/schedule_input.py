"""What a schedule method is given: the new calls, the messages, a sliding window, and a way to say
changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ctxkit.policies.history.columns import USER
from ctxkit.policies.history.view import role_code
from ctxkit.policies.schedules.layers import (
    SUM_CHARS,
    SUM_RESULT_CHARS,
    SUM_TOKENS,
    changes_between,
)
from ctxkit.policies.schedules.message_changes import ChangeRule
from ctxkit.policies.schedules.rows import NEVER
from ctxkit.session.tool_calls import matches_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ctxkit.policies.schedules.layers import Layer
    from ctxkit.policies.schedules.message_changes import AsItCame, NewContent, PartChanges
    from ctxkit.policies.schedules.rows import HistoryRows, MessageState
    from ctxkit.session.messages import Message, ToolCall
    from ctxkit.tokens.counters import ContextBudget

    StageChooser = Callable[[int, Callable[[int], int]], int]


class MessageNews(NamedTuple):
    """What became of the messages of some roles at one call; positions, rising."""

    call: int
    came: list[int]
    """They are there, and were not at the call before."""
    went: list[int]
    """A part before hides them from this call on."""
    settled: list[int]
    """They were there, and no pruning may touch them from this call on."""


class _NewsByCall(dict[int, MessageNews]):
    def __missing__(self, call: int) -> MessageNews:
        self[call] = new = MessageNews(call, [], [], [])
        return new


@runtime_checkable
class HasSchedule(Protocol):
    """A part of a pruning that says what changes when."""

    def schedule(self, view: ScheduleView, room: ContextBudget, /) -> None:
        """Say what becomes of the messages at the calls that are new to the view."""


class ScheduleView:
    """The calls `start` to `stop`, which are asked about for the first time.

    A message is named by its *position* among all that this history ever shows. What stays
    (system, pinned, pending, and what is grouped with it) is never changed, whatever is said.
    """

    def __init__(self, changes: PartChanges, memory: dict[Any, Any]) -> None:
        self._changes = changes
        self.rows: HistoryRows = changes.rows
        self.before: Layer = changes.before
        self.start, self.stop = changes.start, changes.stop
        self.memory = memory
        """The part's notebook: what it knows of the calls before, for this history alone."""
        self.first = self.rows.shown(self.start - 1)
        """The first position that no earlier call showed."""
        self.staged: tuple[tuple[Any, ...], StageChooser] | None = None

    # -- saying ------------------------------------------------------------------------------------

    def change(
        self,
        p: int,
        what: NewContent | AsItCame,
        since: int,
        until: int = NEVER,
        *,
        smaller: bool = True,
        low: int = 0,
    ) -> None:
        """Let a message say something else at the calls since..until; what was said last counts.

        What becomes of one message is said in the order of calls, so that it is the same whether
        they are asked about at once, one by one, or the last one alone.

        Args:
            p: its position.
            what: a text (tool calls remain); None: it is hidden; a function of the message as the
                parts before left it, which may give the message back or None; several, one after
                the other; `AS_IT_CAME` takes back what this part said.
            since: the first call, one of those that are asked about.
            until: one past the last call.
            smaller: leave the message as it is where the new one would not be smaller in tokens.
            low: leave it as it is where it has fewer characters.

        Raises:
            BadArguments: the call was asked about before, or is not there yet; two changes with an
                end overlap; the new message is larger.
        """
        self._changes.change(p, ChangeRule(since, until, what, smaller, low))

    def append(self, make: Message | Callable[[], Message | None], call: int) -> None:
        """Put a message, or what a function gives when it is needed, at the end of one call.

        A part that does says so: its `appends` is True.
        """
        self._changes.append(call, make if callable(make) else lambda: make)

    def stages(self, parts: Sequence[HasSchedule | None], choose: StageChooser) -> None:
        """Give each call what one of several parts leaves.

        Args:
            parts: anything with a `schedule`; None: as it came.
            choose: ``choose(call, size) -> which``; ``size(n)`` is the prompt under the n-th.
        """
        self.staged = tuple(parts), choose

    # -- seeing ------------------------------------------------------------------------------------

    def calls(self) -> range:
        """Return the calls that are asked about."""
        return range(self.start, self.stop)

    def turns(self) -> Iterator[tuple[int, int]]:
        """Yield the calls that begin a turn, each with the position with which the turn begins."""
        for call in self.rows.turn_changes(self.start, self.stop):
            yield call, self.rows.turn_edge(call)

    def shown(self, call: int) -> int:
        """Return how many positions there are at a call."""
        return self.rows.shown(call)

    def arrival(self, p: int) -> int:
        """Return the first call that shows a position."""
        return self.rows.arrival(p)

    def role(self, p: int) -> int:
        """Return the code of a message's role."""
        return self.rows.role(p)

    def left(self, p: int, call: int) -> MessageState:
        """Return what a message says at a call as the parts before left it."""
        return self.before.state(p, call)

    def after(self, p: int, what: NewContent, call: int) -> MessageState:
        """Return what a message would say at a call if `change` were told so; nothing is said."""
        was = self.before.state(p, call)
        if self.stays(p, call):
            return was
        return self._changes.applied(
            p, was, ChangeRule(call, NEVER, what, smaller=True, low=0), call
        )

    def message(self, p: int, call: int) -> Message | None:
        """Return that message; None where a part before hides it."""
        return self.before.state(p, call).message

    def asked(self, p: int) -> ToolCall | None:
        """Return the call that a result answers, as it was said."""
        return self.rows.asked(p)

    def said_calls(self, p: int) -> tuple[ToolCall, ...]:
        """Return the tool calls of a reply as they were said, whatever parts made of them."""
        return self.rows.calls(p)

    def turn_edge(self, call: int) -> int:
        """Return the position with which a call's turn begins: what stands before it is history."""
        return self.rows.turn_edge(call)

    def has_prompt(self, call: int) -> bool:
        """Return True where a call's turn begins with an input."""
        edge = self.turn_edge(call)
        return edge < self.shown(call) and self.role(edge) == USER

    def stays(self, p: int, call: int) -> bool:
        """Return True where no pruning may touch a message at a call."""
        return self.rows.stays_from(p) <= call

    def is_safe(self, p: int, call: int) -> bool:
        """Return True where leaving out all before a position parts no call from its result."""
        return self.rows.is_safe(p, call)

    def prompt(self, call: int) -> int:
        """Return the tokens of a prompt as the parts before left it, its fixed part included."""
        return self.before.total(call, SUM_TOKENS) + self.fixed(call)

    def fixed(self, call: int) -> int:
        """Return the tokens of a prompt that no message holds."""
        return self.rows.log.fixed_in(call)

    def chars(self, call: int, *, of_results: bool = False) -> int:
        """Return the characters of a call's messages, or of its results, as they were left."""
        return self.before.total(call, SUM_RESULT_CHARS if of_results else SUM_CHARS)

    def pause(self, call: int) -> float:
        """Return the seconds from the end of the call before to a call; NaN: not known."""
        log = self.rows.log
        return log.sent[call] - log.done[call - 1] if 0 < call < log.calls else float("nan")

    def is_tool(self, p: int, patterns: tuple[str, ...]) -> bool:
        """Return True for a result of a tool with one of these names or globs."""
        if not patterns or "*" in patterns:
            return bool(patterns)
        row = self.rows.row(p)
        return matches_tool(self.rows.log.tool(row) if row >= 0 else "", patterns)

    # -- searching ---------------------------------------------------------------------------------

    def new(self, *roles: str, tools: tuple[str, ...] = ("*",)) -> Iterator[int]:
        """Yield the new messages of some roles (none: of any); results, of some tools."""
        codes = {role_code(r) for r in roles}
        for p in range(self.first, self.shown(self.stop - 1)):
            if (not codes or self.rows.role(p) in codes) and self.is_tool(p, tools):
                yield p

    def long(self, p: int, low: int) -> bool:
        """Return False where a message never had more than `low` characters: a quick look."""
        return self.rows.chars(p) > low or p in self._often

    @property
    def _often(self) -> set[int]:
        found = self.memory.get("touched before")
        if found is None or found[0] != self.stop:
            found = self.memory["touched before"] = self.stop, self.before.touched()
        often: set[int] = found[1]
        return often

    def news(self, *roles: str) -> Iterator[MessageNews]:
        """Yield what became of the messages of some roles (none: of any), call by call.

        Where a late result parts them (a cut before one `is_safe` no more), the call is there, too.
        """
        codes = frozenset(role_code(r) for r in roles) or None
        found = _NewsByCall()
        for call, p in self._arrivals(codes):
            found[call].came.append(p)
        for call, p, was, now in changes_between(self.before.events, self.start):
            if (codes is not None and self.role(p) not in codes) or call <= self.arrival(p):
                continue
            if now.message is None:
                found[call].went.append(p)
            elif was.message is None:
                insort(found[call].came, p)
        for call, p in self.rows.came_to_stay(self.start, self.stop):
            if self.arrival(p) < call and (codes is None or self.role(p) in codes):
                found[call].settled.append(p)
        more = self.rows.parted(self.start, self.stop) | self._turn_calls()
        yield from (found[call] for call in sorted(found.keys() | more))

    def _arrivals(self, codes: frozenset[int] | None) -> Iterator[tuple[int, int]]:
        """Yield calls with the messages of some roles that arrive there and are not hidden."""
        events = changes_between(self.before.events, self.start)
        hidden = {(call, p) for call, p, _, now in events if now.message is None}
        for p in self.rows.of_roles(self.first, self.shown(self.stop - 1), codes):
            call = self.rows.arrival(p)
            if (call, p) not in hidden:
                yield call, p

    def _turn_calls(self) -> set[int]:
        """Return the calls at which the beginning of a turn is news by itself: none."""
        return set()

    def events(self, *roles: str) -> dict[int, list[int]]:
        """Return, by call, the messages of some roles (none: of any) that a part before changes."""
        codes, found = {role_code(r) for r in roles}, dict[int, list[int]]()
        for call, p, _, _ in changes_between(self.before.events, self.start):
            if call >= self.arrival(p) and (not codes or self.rows.role(p) in codes):
                found.setdefault(call, []).append(p)
        return found

    def window(
        self, role: str, old: Callable[[int], int], *, settled: bool = True
    ) -> Iterator[tuple[int, int, bool]]:
        """Yield message, call, and whether it became one of the first `old(n)` of n, or is no more.

        Args:
            role: whose messages are counted, as the parts before left them.
            old: of how many, how many are old; the newest are not.
            settled: count those that no pruning may touch, too.
        """
        window: SlidingWindow = self.memory.setdefault(("window", role), SlidingWindow())
        for call, came, went, stay in self.news(role):
            for p in went:
                if p in window and window.out(p):
                    yield p, call, False  # it may come back as one of the newest
            for p in came:
                if (settled or not self.stays(p, call)) and window.put(p):
                    yield p, call, True
            if not settled:
                for p in stay:
                    if p in window:
                        window.out(p)
            for p, is_old in window.settle(old(len(window.found))):
                yield p, call, is_old


class SlidingWindow:
    """Rising numbers of which the first few are *old*; one may come or go anywhere."""

    __slots__ = ("found", "old")

    def __init__(self) -> None:
        self.found: list[int] = []
        self.old = 0
        """How many of them are old."""

    def __contains__(self, p: int) -> bool:
        i = bisect_left(self.found, p)
        return i < len(self.found) and self.found[i] == p

    def put(self, p: int) -> bool:
        """Take a number in; return True where it came among the old ones."""
        i = bisect_left(self.found, p)
        self.found.insert(i, p)
        self.old += i < self.old
        return i < self.old

    def out(self, p: int) -> bool:
        """Leave a number out; return True where it was one of the old ones."""
        i = bisect_left(self.found, p)
        was = i < self.old
        del self.found[i]
        self.old -= was
        return was

    def is_old(self, p: int) -> bool:
        """Return True for one of the old numbers."""
        return bisect_left(self.found, p) < self.old

    def settle(self, old: int) -> Iterator[tuple[int, bool]]:
        """Let so many be old; yield each that became so (True), or is so no more (False)."""
        aim = min(max(old, 0), len(self.found))
        while self.old < aim:
            yield self.found[self.old], True
            self.old += 1
        while self.old > aim:
            self.old -= 1
            yield self.found[self.old], False


class OrderedTexts:
    """Texts in the order of their numbers; a look at them as they are now stays as it is for good.

    One that comes at the end costs nothing; any other change copies the list.
    """

    __slots__ = ("_numbers", "_texts")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._texts: list[str] = []

    def put(self, p: int, text: str) -> None:
        """Take in a text, or put another one in its place."""
        i = bisect_left(self._numbers, p)
        known = i < len(self._numbers) and self._numbers[i] == p
        if i == len(self._numbers):
            self._texts.append(text)
        elif not known or self._texts[i] != text:
            self._texts = [*self._texts[:i], text, *self._texts[i + known :]]
        if not known:
            self._numbers.insert(i, p)

    def out(self, p: int) -> None:
        """Leave a text out, if it is there."""
        i = bisect_left(self._numbers, p)
        if i < len(self._numbers) and self._numbers[i] == p:
            del self._numbers[i]
            self._texts = [*self._texts[:i], *self._texts[i + 1 :]]

    def now(self) -> tuple[list[str], int]:
        """Return a list whose first so many texts are those of now; what follows them is not."""
        return self._texts, len(self._texts)


class ShownWindow(SlidingWindow):
    """The positions that are shown to a part, rising; an *index* counts them from 0."""

    __slots__ = ()

    def follow(self, came: Iterable[int], went: Iterable[int]) -> None:
        """Take in what became of them at a call."""
        for p in went:
            self.out(p)
        for p in came:
            self.put(p)

    def index(self, p: int) -> int:
        """Return the index of the first position at or after one."""
        return bisect_left(self.found, p)

    def safe(self, view: ScheduleView, i: int, call: int) -> int:
        """Return the first index from one on before which a cut is safe, or how many are shown."""
        while i < len(self.found) and not view.is_safe(self.found[i], call):
            i += 1
        return min(i, len(self.found))

    def safe_before(self, view: ScheduleView, i: int, call: int) -> int:
        """Return the last index, up to one, before which a cut is safe; 0 where there is none."""
        while 0 < i < len(self.found) and not view.is_safe(self.found[i], call):
            i -= 1
        return i
