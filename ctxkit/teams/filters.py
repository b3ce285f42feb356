"""What an agent is shown of what the others said: fuseraft's ContextWindow, Isolation and Context
spec.

Others are heard as messages in the user's place (`heard`: their words, `frame`: a tool call with
its result), so nobody's calls and signed thinking are taken for another's. A view prunes what goes
out at one call; no session and no shared history is changed by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.heard.heard_words import HANDOFF, TASK
from ctxkit.history.columns import ASSISTANT, SUMMARY, SYSTEM, USER
from ctxkit.messages import FROM_OTHERS
from ctxkit.policies.chain import Chain, in_a_row
from ctxkit.policies.keep import Tail
from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME
from ctxkit.texts import contents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.messages import Message, Part
    from ctxkit.policies.rules import Rules
    from ctxkit.schedules import ScheduleView
    from ctxkit.teams.rosters import ContextSource, Member
    from ctxkit.tokens import Room

OWN_TURNS = 6
"""Own replies of a declared `own_history` that says no number (fuseraft's)."""
ANEW = "Anew"
"""The key of a view in which each turn begins without one's own earlier ones."""
_CUT = "\n[...truncated — own_history turn exceeded {n} char limit]"


def _say(view: ScheduleView, q: int, call: int, now: Message | None) -> None:
    """Let a message be this from a call on, unless it is so already."""
    said: dict[int, Message | None] = view.memory.setdefault("said", {})
    before = view.message(q, call)
    was = said.get(q, before)
    if was is now or (was is not None and now is not None and was.parts == now.parts):
        return
    said[q] = now
    if now is None or before is None:
        view.change(q, None, since=call)
    elif now.parts == before.parts:
        view.change(q, AS_IT_CAME, since=call)
    else:  # its calls go in any case, its words where that makes it smaller
        stripped = before if now.tool_calls else contents.text_only(before)
        view.change(q, (_Parts(stripped.parts), _Parts(now.parts)), since=call)


@dataclass(frozen=True)
class _Parts:
    """Makes a message say these parts."""

    parts: tuple[Part, ...]

    def __call__(self, message: Message) -> Message:
        return msgspec.structs.replace(message, parts=self.parts)


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnTurns(Scheduled):
    """A declared context: each turn shows the task, some of one's own words, and what is new."""

    counts = False
    turns: int = 0
    """How many of one's own earlier replies with words."""
    max_chars: int = 0
    """Characters of them together: the oldest go first, one that is too long alone is cut."""
    heard: bool = False
    """Whether what others said stays, too."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Leave out of each new turn what belongs to the ones before."""
        for call, edge in view.turns():
            self._begin(view, call, _first_new(view, edge, call))

    def _begin(self, view: ScheduleView, call: int, first: int) -> None:
        """Let a turn begin at a call: what stands before a position is old."""
        left, room = self.turns, self.max_chars
        old: list[int] = view.memory.setdefault("old", [])
        old += range(view.memory.get("first", 0), first)
        view.memory["first"] = first
        kept = list[int]()
        for q in reversed(old):
            message = view.message(q, call)
            if message is None or not self._may_go(view, q, message):
                continue
            own = contents.text_only(message) if view.role(q) == ASSISTANT else message
            words = contents.texts(own) if view.role(q) == ASSISTANT else ""
            if not words or not left or (len(words) > room and left < self.turns):
                left = 0 if words else left  # none older than one that did not fit
                _say(view, q, call, None)
                continue
            text = words if len(words) <= room else words[:room] + _CUT.format(n=room)
            left, room = left - 1, room - len(words)
            _say(view, q, call, contents.with_text(own, text))
            kept.append(q)
        view.memory["old"] = kept[::-1]

    def _may_go(self, view: ScheduleView, q: int, message: Message) -> bool:
        if message.kind == TASK or message.sections or view.role(q) in (SYSTEM, SUMMARY):
            return False
        return not (self.heard and message.kind in (*FROM_OTHERS, HANDOFF))


def _first_new(view: ScheduleView, edge: int, call: int) -> int:
    """Return the first position of what stands before a turn's input and is new in that turn."""
    first = edge if edge < view.shown(call) else edge - 1
    turn = view.rows.message(first).turn if first >= 0 else None
    while edge and view.role(edge - 1) == USER and view.rows.message(edge - 1).turn == turn:
        edge -= 1
    return edge


def viewed(member: Member) -> Rules:
    """Return an agent's rules with what it is shown of the others, and of its own earlier turns."""
    rules: Any = member.rules
    parts = in_a_row(rules.pruning) if rules.pruning is not None else ()
    if member.context:
        turns, chars = own_turns(member.context)
        parts = (OwnTurns(turns=turns, max_chars=chars), *parts)
    else:  # the input of each turn is the team's own, and no message of fuseraft's
        parts = tuple(replace(p, besides_prompt=True) if isinstance(p, Tail) else p for p in parts)
    found: Rules = rules.but(pruning=Chain.of(*parts) if parts else None)
    return found


def anew(member: Member, **changes: Any) -> Member:
    """Return an agent each turn of which begins without its own earlier ones, and with changes."""
    rules: Any = member.rules
    pruning = Chain.of(OwnTurns(heard=True), *in_a_row(rules.pruning))
    shown = {**member.shown, ANEW: True}
    return replace(member, rules=rules.but(pruning=pruning), shown=shown, **changes)


def own_turns(context: Sequence[ContextSource]) -> tuple[int, int]:
    """Return how many of one's own replies a declared context shows, and in how many characters."""
    own = next((s for s in context if s.kind == "own_history"), None)
    return (int(own.argument or OWN_TURNS), own.max_chars) if own else (0, 0)
