"""Show only some messages: text, roles, agents, last turns, last messages, without tool calls or
reasoning.

What is empty afterwards goes, too.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.base import HistoryFilter, ScheduledPruning
from ctxkit.policies.history.columns import ASSISTANT, TOOL, USER
from ctxkit.policies.history.view import role_code
from ctxkit.policies.schedules.message_changes import AS_IT_CAME
from ctxkit.policies.schedules.schedule_input import MessageNews, ShownWindow, SlidingWindow
from ctxkit.policies.texts import content
from ctxkit.session.messages import CORRECTION, FRAME, FROM_OTHERS, HEARD, plain_text
from ctxkit.session.tool_calls import matches_tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.policies.base import Natural
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.session.messages import Message
    from ctxkit.tokens import ContextBudget


CORRECTION_PREFIXES = (
    "RETRY ",
    "NO TOOL CALLS",
    "CRITICAL:",
    "APPROVED rejected:",
    "WRONG KEYWORD:",
    "JSON block correct",
    "BUILD FAILURE:",
    "STAGNATION (",
    "STUCK ",
    "HALLUCINATION:",
    "PERSISTENT BUILD FAILURE",
    "VERIFICATION FINDING",
    "Files written this turn",
    "No handoff keyword",
    "EVIDENCE INCONSISTENCY",
    "EVIDENCE AUDIT REQUIRED",
    "MISSING ARTIFACT",
)
"""How fuseraft's corrections of an agent begin.

A user message that holds `[fuseraft:blocked` is one too.
"""
_ROLES = ("system", "user", "assistant", "tool", "summary")


def is_correction(message: Message) -> bool:
    """Say whether a user message corrects an agent, in fuseraft's words."""
    if message.role != "user":
        return False
    text = plain_text(message)
    return text.startswith(CORRECTION_PREFIXES) or "[fuseraft:blocked" in text


@dataclass(frozen=True, kw_only=True, repr=False)
class TextOnly(HistoryFilter):
    """Strip tool results, calls and reasoning of earlier turns; what has no text left goes."""

    counts = False

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Strip each message when it becomes history."""
        for p in _said_by_agents(view):
            view.change(p, _strip_to_text, since=view.arrival(p), smaller=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class Roles(HistoryFilter):
    """Keep the messages of some roles; without `tool`, replies keep their text, not their calls.

    Of the turn under way all is kept.
    """

    roles: tuple[str, ...] = ("user", "assistant", "summary")
    """Roles that stay; what the history must keep (system, pinned, pending) stays anyway."""

    def __post_init__(self) -> None:
        for role in self.roles:
            if role not in _ROLES:
                raise BadArguments(f"There is no role {role!r}.{did_you_mean(role, _ROLES)}")

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Hide each message of another role when it becomes history, a result with its reply."""
        kept_codes = {role_code(role) for role in self.roles}
        for p in view.new():
            call, role = view.arrival(p), view.role(p)
            if role not in kept_codes or (
                ASSISTANT not in kept_codes and _is_answer(view, p, call)
            ):
                view.change(p, None, since=call)
            elif role == ASSISTANT and TOOL not in kept_codes:
                view.change(p, _strip_to_text, since=call, smaller=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class WithoutAgents(HistoryFilter):
    """Leave out what some agents said in earlier turns; tool results have no author, so all of
    them go too.
    """

    counts = False
    agents: tuple[str, ...] = ()
    """Names or globs, upper and lower case alike."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Hide what they said when it becomes history, and strip what others said."""
        for p in _said_by_agents(view) if self.agents else ():
            what = None if self._said(view, p) else _strip_to_text
            view.change(p, what, since=view.arrival(p), smaller=False)

    def _said(self, view: ScheduleView, p: int) -> bool:
        author = view.rows.message(p).agent or view.rows.log.agent
        return view.role(p) != TOOL and matches_tool(author, tuple(self.agents))


@dataclass(frozen=True, kw_only=True, repr=False)
class TurnAge(HistoryFilter):
    """Keep what belongs to the last replies of earlier turns, from the user's message before the
    oldest of them.
    """

    counts = False
    turns: Natural = 0
    """How many replies to keep; 0: all.

    Replies that only call tools count, unless they were stripped before.
    """
    from_reply: bool = False
    """Begin with the reply itself, without the message it answers (as fuseraft's program did)."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Hide what is older when a turn begins behind enough replies."""
        visible: ShownWindow = view.memory.setdefault("shown", ShownWindow())
        replies: SlidingWindow = view.memory.setdefault("replies", SlidingWindow())
        pinned: SlidingWindow = view.memory.setdefault("pinned", SlidingWindow())
        for call, added, hidden, _ in view.news() if self.turns else ():
            visible.follow(added, hidden)
            for of in (replies, pinned):
                for p in filter(of.__contains__, hidden):
                    of.out(p)
            for p in added:
                if _is_reply(view, p):
                    replies.put(p)
                elif _is_said_by_kit(view.rows.message(p)):
                    pinned.put(p)
            first = self._first(view, visible, replies.found, call)
            _hide_before(view, first, [p for p in pinned.found if p < first], (), call)

    def _first(
        self, view: ScheduleView, visible: ShownWindow, replies: Sequence[int], call: int
    ) -> int:
        """Return the first position that is kept."""
        count = bisect_left(replies, view.turn_edge(call))
        if count < self.turns:
            return 0
        i = visible.index(replies[count - self.turns])
        while not self.from_reply and i and _is_asking(view, visible.found[i - 1]):
            i -= 1
        i = visible.safe_before(view, i, call)
        return visible.found[i] if i else 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Tail(HistoryFilter):
    """Keep the last messages that stand when a turn begins; corrections of an agent are pinned and
    not counted.
    """

    messages: Natural = 0
    """How many messages to keep, the input of the turn among them; 0: all."""
    pin_corrections: bool = True
    """Keep the user messages by which fuseraft corrects an agent, wherever they stand."""
    besides_prompt: bool = False
    """Do not count the input of the turn: where a team writes it, it is no message of theirs."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Hide what is older when a turn begins behind enough messages."""
        if not self.messages:
            return
        visible: ShownWindow = view.memory.setdefault("shown", ShownWindow())
        pinned: SlidingWindow = view.memory.setdefault("pinned", SlidingWindow())
        free: SlidingWindow = view.memory.setdefault("free", SlidingWindow())
        for call, added, hidden, protected in view.news():
            visible.follow(added, hidden)
            for p in hidden:
                (pinned if p in pinned else free).out(p)
            for p in added:
                (pinned if self._is_pinned(view, p, call) else free).put(p)
            for p in protected:
                if p in free:
                    free.out(p)
                    pinned.put(p)
            first = self._first(view, free.found, call)
            if first and not (pinned.found and pinned.found[0] < first):
                _hide_before(view, _next_safe_cut(view, visible, first, call), (), (), call)
            else:
                pinned_before = [p for p in pinned.found if p < first]
                orphans = _orphaned_results(view, visible, first, call)
                _hide_before(view, first, pinned_before, orphans, call)

    def _first(self, view: ScheduleView, free: Sequence[int], call: int) -> int:
        """Return the first position that is kept of what is not pinned."""
        edge = view.turn_edge(call)
        count, available = bisect_left(free, edge), self.messages
        if not self.besides_prompt and view.has_prompt(call):
            available -= not self._is_pinned(view, edge, call)
        if count <= available:
            return 0
        return free[count - available] if available else edge

    def _is_pinned(self, view: ScheduleView, p: int, call: int) -> bool:
        if view.stays(p, call) or _is_said_by_kit(view.rows.message(p)):
            return True
        message = view.message(p, call) if self.pin_corrections and view.role(p) == USER else None
        return message is not None and is_correction(message)


def _said_by_agents(view: ScheduleView) -> Iterator[int]:
    """Yield the history's replies and results, its own and those of others as they are heard."""
    for p in view.new("user", "assistant", "tool"):
        if view.role(p) != USER or view.rows.message(p).kind in FROM_OTHERS:
            yield p


def _strip_to_text(message: Message) -> Message | None:
    """Return a message with its text alone; None where it has none, or is a tool result."""
    if message.role == "tool" or message.kind == FRAME:
        return None
    text = content.strip_to_text(message)
    return text if plain_text(text) else None


def _is_reply(view: ScheduleView, p: int) -> bool:
    """Return True for a reply, an agent's own or another's as it is heard."""
    return view.role(p) == ASSISTANT or view.rows.message(p).kind == HEARD


def _is_asking(view: ScheduleView, p: int) -> bool:
    """Return True for what stands before a reply that answers it."""
    return view.role(p) == USER and not _is_reply(view, p)


def _is_said_by_kit(message: Message) -> bool:
    """Return True for what a session or a team itself put in: sections, corrections."""
    return message.kind == CORRECTION or bool(message.sections)


def _is_answer(view: ScheduleView, p: int, call: int) -> bool:
    """Return True for the result of a call that is shown."""
    group = view.rows.members(view.rows.group(p), call)
    return view.role(p) == TOOL and view.role(group[0]) == ASSISTANT


def _next_safe_cut(view: ScheduleView, visible: ShownWindow, first: int, call: int) -> int:
    """Return the position of the next safe cut in the history or at its end; where none comes, of
    the last one before.
    """
    edge, i = view.turn_edge(call), visible.index(first)
    at = visible.safe(view, i, call)
    if at < len(visible.found) and visible.found[at] < edge:
        return visible.found[at]
    if edge < view.shown(call) and view.is_safe(edge, call):
        return edge
    at = visible.safe_before(view, min(i, len(visible.found) - 1), call)
    return visible.found[at] if at > 0 else 0


def _orphaned_results(view: ScheduleView, visible: ShownWindow, first: int, call: int) -> list[int]:
    """Return the results from a position on whose replies before it go."""
    rows, i = view.rows, visible.index(first)
    return [
        p
        for p in visible.found[i : visible.safe(view, i, call)]
        if view.role(p) == TOOL
        and first > rows.members(rows.group(p), call)[0]
        and not view.stays(p, call)
    ]


def _hide_before(
    view: ScheduleView, first: int, exceptions: Sequence[int], also_hidden: Sequence[int], call: int
) -> None:
    """Hide all positions before one but some, and some behind it, from a call on."""
    old_first: int = view.memory.get("gone", 0)
    old_exceptions: set[int]
    old_also_hidden: set[int]
    old_exceptions, old_also_hidden = view.memory.get("but", (set(), set()))
    new_exceptions, new_also_hidden = set(exceptions), set(also_hidden)
    view.memory["gone"], view.memory["but"] = first, (new_exceptions, new_also_hidden)
    edge = range(min(old_first, first), max(old_first, first))
    for p in sorted(
        {*edge, *(old_exceptions ^ new_exceptions), *(old_also_hidden ^ new_also_hidden)}
    ):
        hide = (p < first and p not in new_exceptions) or p in new_also_hidden
        if hide != ((p < old_first and p not in old_exceptions) or p in old_also_hidden):
            view.change(p, None if hide else AS_IT_CAME, since=call)


_MODE = re.compile(r"none|all|before-last-message|before-last-(\d+)-messages")


@dataclass(frozen=True, kw_only=True, repr=False)
class Prune(ScheduledPruning):
    """Drop tool calls with their results, and reasoning, from what lies before the last messages.

    A call is kept where its own id occurs among the last messages, so a call just before them
    survives with its result. The results of one reply count as one message, as they are one in
    the AI SDK. `all` is all that was said before the turn under way, as the SDK's own example gives
    it the messages with which a turn begins: an agent sees what its calls of this turn returned.
    """

    tool_calls: str = "none"
    """`none`, `all`, `before-last-message` or `before-last-N-messages`; N = 0 drops nothing."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools that this concerns."""
    reasoning: Literal["none", "all", "before-last-message"] = "none"
    """Whose reasoning is dropped."""
    empty_messages: Literal["remove", "keep"] = "remove"
    """What becomes of messages that hold nothing afterwards."""

    def __post_init__(self) -> None:
        if not _MODE.fullmatch(self.tool_calls):
            raise BadArguments(
                f"Prune knows none, all, before-last-N-messages, not {self.tool_calls!r}."
            )

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Drop a call as soon as no message that names it is among the last, or stays."""
        pruned: _Pruned = view.memory.setdefault("pruned", _Pruned(self))
        changed, news = view.events(), {new.call: new for new in view.news()}
        if "all" in (self.tool_calls, self.reasoning):
            news = {call: MessageNews(call, [], [], []) for call, _ in view.turns()} | news
        for call in sorted(changed.keys() | news.keys()):
            emptied = set(changed.get(call, ())) - pruned.told
            todo = pruned.follow(view, news[call]) if call in news else set()
            for p in sorted(todo | emptied):
                pruned.say(view, p, call, emptied=p in emptied)

    @property
    def last(self) -> int | None:
        """How many messages keep their calls; None: no call is dropped anywhere."""
        match = _MODE.fullmatch(self.tool_calls)
        if match is None or self.tool_calls == "none" or match[1] == "0":
            return None
        return 0 if self.tool_calls == "all" else int(match[1] or 1)

    def left(self, message: Message, *, gone: frozenset[str], thinks: bool) -> Message | None:
        """Return what is left of a message without these calls; `thinks`: with its reasoning."""
        new = message
        if message.role == "tool" and message.call_id in gone:
            return None
        if message.role == "assistant":
            new = content.without_calls(message, gone)
            new = new if thinks else content.without_reasoning(new)
        return None if self.empty_messages == "remove" and content.is_empty_message(new) else new

    def concerns(self, tool: str) -> bool:
        """Return True for a tool whose calls are dropped."""
        return matches_tool(tool, tuple(self.tools))


class _Pruned:
    """What a schedule of `Prune` knows of the calls before."""

    def __init__(self, rule: Prune) -> None:
        self.rule = rule
        self.told: set[int] = set()
        """Positions of which something was said."""
        self._shown, self._units = ShownWindow(), SlidingWindow()
        self._places: dict[str, list[int]] = {}
        self._gone: set[str] = set()
        self._edge = self._end = self._turn = 0

    def follow(self, view: ScheduleView, news: MessageNews) -> set[int]:
        """Take in what became of the messages; return those of which something else is left."""
        call, added, hidden, protected = news
        self._shown.follow(added, hidden)
        self._join(view, added, hidden)
        ids = {i for p in (*added, *hidden, *protected) for i in _call_ids(view, p)}
        for p in hidden:
            for i in _call_ids(view, p):
                self._places[i].remove(p)
        for p in added:
            for i in _call_ids(view, p):
                insort(self._places.setdefault(i, []), p)
        ids.update(self._passed(view, call))
        changed = set(added)
        for i in ids:
            if self._goes(view, i, call) != (i in self._gone):
                self._gone ^= {i}
                changed.update(self._places[i])
        return changed | self._thinking(view, call)

    def _thinking(self, view: ScheduleView, call: int) -> set[int]:
        """Note what keeps its reasoning; return what may do so no more, or again."""
        visible, ends, turns = self._shown, self._end, self._turn
        self._end = visible.found[-1] if visible.found else 0
        self._turn = view.turn_edge(call)
        if self.rule.reasoning == "before-last-message":
            return {self._end, ends} if ends != self._end else set()
        passed = self.rule.reasoning == "all" and self._turn != turns
        return set(
            visible.found[visible.index(turns) : visible.index(self._turn)] if passed else ()
        )

    def say(self, view: ScheduleView, p: int, call: int, *, emptied: bool = False) -> None:
        """Say what is left of a message from a call on, if that can be less than all."""
        rule, gone = self.rule, frozenset(i for i in _call_ids(view, p) if i in self._gone)
        thinks = rule.reasoning != "none" and view.role(p) == ASSISTANT
        empty = emptied or content.is_empty_message(view.rows.message(p))
        if gone or thinks or empty or p in self.told:
            self.told.add(p)
            keeps_reasoning = {"none": True, "all": p >= self._turn}.get(
                rule.reasoning, p == self._end
            )
            what = partial(rule.left, gone=gone, thinks=keeps_reasoning)
            view.change(p, what, since=call, smaller=False)

    def _join(self, view: ScheduleView, added: list[int], hidden: list[int]) -> None:
        """Note where the messages of the SDK begin: results in a row are one."""
        for p in hidden:
            if p in self._units:
                self._units.out(p)
        positions = self._shown.found
        for p in (*added, *hidden):
            for i in range(at := self._shown.index(p), min(at + 2, len(positions))):
                is_joined = i and view.role(positions[i]) == view.role(positions[i - 1]) == TOOL
                if bool(is_joined) == (positions[i] in self._units):
                    (self._units.out if is_joined else self._units.put)(positions[i])

    def _passed(self, view: ScheduleView, call: int) -> Iterable[str]:
        """Move the place from which nothing is dropped; return the ids that it passed."""
        last, units = self.rule.last, self._units.found
        edge = units[-last] if last and len(units) >= last else 0
        if last == 0:
            edge = view.turn_edge(call)
        a, b = sorted((self._edge, edge))
        self._edge = edge
        between = self._shown.found[self._shown.index(a) : self._shown.index(b)]
        return [i for p in between for i in _call_ids(view, p)]

    def _goes(self, view: ScheduleView, i: str, call: int) -> bool:
        """Return True where no message that names an id is among the last, or stays."""
        places = self._places[i]
        if not places or places[-1] >= self._edge or any(view.stays(p, call) for p in places):
            return False
        if "*" in self.rule.tools:
            return True
        tools = [c.name for p in places for c in view.said_calls(p) if c.id == i]
        return self.rule.concerns(tools[-1] if tools else "")


def _call_ids(view: ScheduleView, p: int) -> Iterable[str]:
    """Return the ids of the calls that a message makes or answers."""
    cache: dict[int, tuple[str, ...]] = view.memory.setdefault("names", {})
    names = cache.get(p)
    if names is None:
        answered = view.rows.message(p).call_id
        ids = dict.fromkeys(c.id for c in view.said_calls(p))
        names = cache[p] = tuple(ids if answered is None else {**ids, answered: None})
    return names


@dataclass(frozen=True, kw_only=True, repr=False)
class Cap(ScheduledPruning):
    """Keep the messages before the first reply, and the last of the rest: at most so many in all.

    As Tyrum does.
    """

    max_messages: Natural = 0
    """How many messages there may be; 0: any number."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Hide what lies between the head and the last messages as soon as there are too many."""
        visible: ShownWindow = view.memory.setdefault("shown", ShownWindow())
        protected: SlidingWindow = view.memory.setdefault("stays", SlidingWindow())
        for call, added, hidden, newly_protected in view.news() if self.max_messages else ():
            visible.follow(added, hidden)
            for p in hidden:
                if p in protected:
                    protected.out(p)
            for p in (*added, *newly_protected):
                if p not in protected and view.stays(p, call):
                    protected.put(p)
            old_left: set[int] | None = view.memory.get("left")
            if old_left is None and len(visible.found) <= self.max_messages:
                continue
            old_left = set(visible.found) if old_left is None else old_left.difference(hidden)
            left = view.memory["left"] = set(self._left(view, visible, protected, call))
            all_hidden: set[int] = view.memory.setdefault("gone", set())
            to_hide, to_restore = old_left.union(added) - left - all_hidden, left & all_hidden
            for p in sorted(to_hide | to_restore):
                view.change(p, None if p in to_hide else AS_IT_CAME, since=call)
            all_hidden ^= to_hide | to_restore

    def _left(
        self, view: ScheduleView, visible: ShownWindow, protected: SlidingWindow, call: int
    ) -> list[int]:
        """Return the positions that are left."""
        positions = visible.found
        while len(positions) > self.max_messages:
            new = self._once(view, visible, protected, call)
            if len(new) == len(positions):
                break
            visible = ShownWindow()
            visible.found = positions = new
        return positions

    def _once(
        self, view: ScheduleView, visible: ShownWindow, protected: SlidingWindow, call: int
    ) -> list[int]:
        positions, most = visible.found, self.max_messages
        roles = [view.role(p) for p in positions[:most]]
        head = next((i for i, role in enumerate(roles) if role in (ASSISTANT, TOOL)), most) or 1
        if head >= most:
            head_positions = [
                p
                for p in positions[:most]
                if not _loses_group_member(view, p, positions[most], call)
            ]
            return head_positions + protected.found[bisect_left(protected.found, positions[most]) :]
        stop = visible.safe(view, len(positions) - (most - head), call)
        start = visible.safe(view, head, call)
        if stop <= start:
            return positions
        first, last = (
            positions[start],
            positions[stop] if stop < len(positions) else positions[-1] + 1,
        )
        a, b = bisect_left(protected.found, first), bisect_left(protected.found, last)
        return positions[:start] + protected.found[a:b] + positions[stop:]


def _loses_group_member(view: ScheduleView, p: int, edge: int, call: int) -> bool:
    """Return True where a message loses some of its group that stands at a position or behind."""
    rows = view.rows
    return not view.stays(p, call) and any(q >= edge for q in rows.members(rows.group(p), call))
