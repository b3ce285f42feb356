"""Filters of what an agent is shown of other agents and of its own earlier turns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.metrics.team_log import HANDOFF, TASK
from ctxkit.policies.base import Chain, ScheduledPruning, flatten_chain
from ctxkit.policies.history.columns import ASSISTANT, SUMMARY, SYSTEM, USER
from ctxkit.policies.message_filters import Tail
from ctxkit.policies.schedules.message_changes import UNDO_CHANGE
from ctxkit.policies.texts import content
from ctxkit.session.messages import OTHER_AGENT_KINDS, get_plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.policies.rules import Rules
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.session.messages import Message, Part
    from ctxkit.teams.plan import ContextSource, Member
    from ctxkit.tokens import ContextBudget

DEFAULT_OWN_TURNS = 6
"""Own replies of a declared `own_history` that says no number (fuseraft's)."""
FRESH_TURN_KEY = "Anew"
"""The key of a view in which each turn begins without one's own earlier ones."""
_TRUNCATED_TURN = "\n[...truncated — own_history turn exceeded {n} char limit]"


def _set_message(view: ScheduleView, q: int, call: int, now: Message | None) -> None:
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
        view.change(q, UNDO_CHANGE, since=call)
    else:  # its calls go in any case, its words where that makes it smaller
        stripped = before if now.tool_calls else content.strip_to_text(before)
        view.change(q, (_ReplaceParts(stripped.parts), _ReplaceParts(now.parts)), since=call)


@dataclass(frozen=True)
class _ReplaceParts:
    """Makes a message say these parts."""

    parts: tuple[Part, ...]

    def __call__(self, message: Message) -> Message:
        return msgspec.structs.replace(message, parts=self.parts)


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnTurns(ScheduledPruning):
    """A declared context: each turn shows the task, some of one's own words, and what is new."""

    counts = False
    turns: int = 0
    """How many of one's own earlier replies with words."""
    max_chars: int = 0
    """Characters of them together: the oldest go first, one that is too long alone is cut."""
    heard: bool = False
    """Whether what others said stays, too."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
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
            own = content.strip_to_text(message) if view.role(q) == ASSISTANT else message
            words = get_plain_text(own) if view.role(q) == ASSISTANT else ""
            if not words or not left or (len(words) > room and left < self.turns):
                left = 0 if words else left  # none older than one that did not fit
                _set_message(view, q, call, None)
                continue
            text = words if len(words) <= room else words[:room] + _TRUNCATED_TURN.format(n=room)
            left, room = left - 1, room - len(words)
            _set_message(view, q, call, content.replace_text(own, text))
            kept.append(q)
        view.memory["old"] = kept[::-1]

    def _may_go(self, view: ScheduleView, q: int, message: Message) -> bool:
        if message.kind == TASK or message.sections or view.role(q) in (SYSTEM, SUMMARY):
            return False
        return not (self.heard and message.kind in (*OTHER_AGENT_KINDS, HANDOFF))


def _first_new(view: ScheduleView, edge: int, call: int) -> int:
    """Return the first position of what stands before a turn's input and is new in that turn."""
    first = edge if edge < view.shown(call) else edge - 1
    turn = view.rows.message(first).turn if first >= 0 else None
    while edge and view.role(edge - 1) == USER and view.rows.message(edge - 1).turn == turn:
        edge -= 1
    return edge


def with_view_filters(member: Member) -> Rules:
    """Return an agent's rules with what it is shown of the others, and of its own earlier turns."""
    rules: Any = member.rules
    parts = flatten_chain(rules.pruning) if rules.pruning is not None else ()
    if member.context:
        turns, chars = get_own_history_limits(member.context)
        parts = (OwnTurns(turns=turns, max_chars=chars), *parts)
    else:  # the input of each turn is the team's own, and no message of fuseraft's
        parts = tuple(replace(p, besides_prompt=True) if isinstance(p, Tail) else p for p in parts)
    found: Rules = rules.but(pruning=Chain.of(*parts) if parts else None)
    return found


def with_fresh_turns(member: Member, **changes: Any) -> Member:
    """Return an agent each turn of which begins without its own earlier ones, and with changes."""
    rules: Any = member.rules
    pruning = Chain.of(OwnTurns(heard=True), *flatten_chain(rules.pruning))
    shown = {**member.shown, FRESH_TURN_KEY: True}
    return replace(member, rules=rules.but(pruning=pruning), shown=shown, **changes)


def get_own_history_limits(context: Sequence[ContextSource]) -> tuple[int, int]:
    """Return how many of one's own replies a declared context shows, and in how many characters."""
    own = next((s for s in context if s.kind == "own_history"), None)
    return (int(own.argument or DEFAULT_OWN_TURNS), own.max_chars) if own else (0, 0)
