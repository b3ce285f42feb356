"""The AI SDK's `pruneMessages`: drop reasoning and tool calls from all but the last messages.

What is empty afterwards goes, too.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from ctxkit.errors import BadArguments
from ctxkit.history.columns import ASSISTANT, TOOL
from ctxkit.policies.scheduled import Scheduled
from ctxkit.policies.shown_positions import ShownPositions
from ctxkit.schedules import AS_IT_CAME, OldFirst
from ctxkit.schedules.schedule_view import News
from ctxkit.texts import contents
from ctxkit.tools.tool_names import among

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.messages import Message
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

_MODE = re.compile(r"none|all|before-last-message|before-last-(\d+)-messages")


@dataclass(frozen=True, kw_only=True, repr=False)
class Prune(Scheduled):
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

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Drop a call as soon as no message that names it is among the last, or stays."""
        pruned: _Pruned = view.memory.setdefault("pruned", _Pruned(self))
        changed, news = view.events(), {new.call: new for new in view.news()}
        if "all" in (self.tool_calls, self.reasoning):
            news = {call: News(call, [], [], []) for call, _ in view.turns()} | news
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
            new = contents.without_calls(message, gone)
            new = new if thinks else contents.without_reasoning(new)
        return None if self.empty_messages == "remove" and contents.is_empty(new) else new

    def concerns(self, tool: str) -> bool:
        """Return True for a tool whose calls are dropped."""
        return among(tool, tuple(self.tools))


class _Pruned:
    """What a schedule of `Prune` knows of the calls before."""

    def __init__(self, rule: Prune) -> None:
        self.rule = rule
        self.told: set[int] = set()
        """Positions of which something was said."""
        self._shown, self._units = ShownPositions(), OldFirst()
        self._places: dict[str, list[int]] = {}
        self._gone: set[str] = set()
        self._edge = self._end = self._turn = 0

    def follow(self, view: ScheduleView, news: News) -> set[int]:
        """Take in what became of the messages; return those of which something else is left."""
        call, came, went, settled = news
        self._shown.follow(came, went)
        self._join(view, came, went)
        ids = {i for p in (*came, *went, *settled) for i in _names(view, p)}
        for p in went:
            for i in _names(view, p):
                self._places[i].remove(p)
        for p in came:
            for i in _names(view, p):
                insort(self._places.setdefault(i, []), p)
        ids.update(self._passed(view, call))
        todo = set(came)
        for i in ids:
            if self._goes(view, i, call) != (i in self._gone):
                self._gone ^= {i}
                todo.update(self._places[i])
        return todo | self._thinking(view, call)

    def _thinking(self, view: ScheduleView, call: int) -> set[int]:
        """Note what keeps its reasoning; return what may do so no more, or again."""
        shown, ends, turns = self._shown, self._end, self._turn
        self._end = shown.found[-1] if shown.found else 0
        self._turn = view.turn_edge(call)
        if self.rule.reasoning == "before-last-message":
            return {self._end, ends} if ends != self._end else set()
        passed = self.rule.reasoning == "all" and self._turn != turns
        return set(shown.found[shown.index(turns) : shown.index(self._turn)] if passed else ())

    def say(self, view: ScheduleView, p: int, call: int, *, emptied: bool = False) -> None:
        """Say what is left of a message from a call on, if that can be less than all."""
        rule, gone = self.rule, frozenset(i for i in _names(view, p) if i in self._gone)
        thinks = rule.reasoning != "none" and view.role(p) == ASSISTANT
        empty = emptied or contents.is_empty(view.rows.message(p))
        if gone or thinks or empty or p in self.told:
            self.told.add(p)
            keeps = {"none": True, "all": p >= self._turn}.get(rule.reasoning, p == self._end)
            what = partial(rule.left, gone=gone, thinks=keeps)
            view.change(p, what, since=call, smaller=False)

    def _join(self, view: ScheduleView, came: list[int], went: list[int]) -> None:
        """Note where the messages of the SDK begin: results in a row are one."""
        for p in went:
            if p in self._units:
                self._units.out(p)
        found = self._shown.found
        for p in (*came, *went):
            for i in range(at := self._shown.index(p), min(at + 2, len(found))):
                joined = i and view.role(found[i]) == view.role(found[i - 1]) == TOOL
                if bool(joined) == (found[i] in self._units):
                    (self._units.out if joined else self._units.put)(found[i])

    def _passed(self, view: ScheduleView, call: int) -> Iterable[str]:
        """Move the place from which nothing is dropped; return the ids that it passed."""
        last, units = self.rule.last, self._units.found
        edge = units[-last] if last and len(units) >= last else 0
        if last == 0:
            edge = view.turn_edge(call)
        a, b = sorted((self._edge, edge))
        self._edge = edge
        between = self._shown.found[self._shown.index(a) : self._shown.index(b)]
        return [i for p in between for i in _names(view, p)]

    def _goes(self, view: ScheduleView, i: str, call: int) -> bool:
        """Return True where no message that names an id is among the last, or stays."""
        places = self._places[i]
        if not places or places[-1] >= self._edge or any(view.stays(p, call) for p in places):
            return False
        if "*" in self.rule.tools:
            return True
        named = [c.name for p in places for c in view.said_calls(p) if c.id == i]
        return self.rule.concerns(named[-1] if named else "")


def _names(view: ScheduleView, p: int) -> Iterable[str]:
    """Return the ids of the calls that a message makes or answers."""
    known: dict[int, tuple[str, ...]] = view.memory.setdefault("names", {})
    names = known.get(p)
    if names is None:
        answered = view.rows.message(p).call_id
        ids = dict.fromkeys(c.id for c in view.said_calls(p))
        names = known[p] = tuple(ids if answered is None else {**ids, answered: None})
    return names


@dataclass(frozen=True, kw_only=True, repr=False)
class Cap(Scheduled):
    """Keep the messages before the first reply, and the last of the rest: at most so many in all.

    As Tyrum does.
    """

    max_messages: Natural = 0
    """How many messages there may be; 0: any number."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Hide what lies between the head and the last messages as soon as there are too many."""
        shown: ShownPositions = view.memory.setdefault("shown", ShownPositions())
        stays: OldFirst = view.memory.setdefault("stays", OldFirst())
        for call, came, went, settled in view.news() if self.max_messages else ():
            shown.follow(came, went)
            for p in went:
                if p in stays:
                    stays.out(p)
            for p in (*came, *settled):
                if p not in stays and view.stays(p, call):
                    stays.put(p)
            was: set[int] | None = view.memory.get("left")
            if was is None and len(shown.found) <= self.max_messages:
                continue
            was = set(shown.found) if was is None else was.difference(went)
            left = view.memory["left"] = set(self._left(view, shown, stays, call))
            gone: set[int] = view.memory.setdefault("gone", set())
            out, back = was.union(came) - left - gone, left & gone
            for p in sorted(out | back):
                view.change(p, None if p in out else AS_IT_CAME, since=call)
            gone ^= out | back

    def _left(
        self, view: ScheduleView, shown: ShownPositions, stays: OldFirst, call: int
    ) -> list[int]:
        """Return the positions that are left."""
        found = shown.found
        while len(found) > self.max_messages:
            new = self._once(view, shown, stays, call)
            if len(new) == len(found):
                break
            shown = ShownPositions()
            shown.found = found = new
        return found

    def _once(
        self, view: ScheduleView, shown: ShownPositions, stays: OldFirst, call: int
    ) -> list[int]:
        found, most = shown.found, self.max_messages
        roles = [view.role(p) for p in found[:most]]
        head = next((i for i, role in enumerate(roles) if role in (ASSISTANT, TOOL)), most) or 1
        if head >= most:
            kept = [p for p in found[:most] if not _parted(view, p, found[most], call)]
            return kept + stays.found[bisect_left(stays.found, found[most]) :]
        stop = shown.safe(view, len(found) - (most - head), call)
        start = shown.safe(view, head, call)
        if stop <= start:
            return found
        first, last = found[start], found[stop] if stop < len(found) else found[-1] + 1
        a, b = bisect_left(stays.found, first), bisect_left(stays.found, last)
        return found[:start] + stays.found[a:b] + found[stop:]


def _parted(view: ScheduleView, p: int, edge: int, call: int) -> bool:
    """Return True where a message loses some of its group that stands at a position or behind."""
    rows = view.rows
    return not view.stays(p, call) and any(q >= edge for q in rows.members(rows.group(p), call))
