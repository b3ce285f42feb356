"""What an agent is shown of what the others said: fuseraft's ContextWindow, Isolation and Context
spec.

Others are heard as messages in the user's place (`heard`: their words, `frame`: a tool call with
its result), so nobody's calls and signed thinking are taken for another's. A view prunes what goes
out at one call; no session and no shared history is changed by it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.heard.heard_words import CORRECTION, FRAME, HANDOFF, HEARD, TASK
from ctxkit.history.columns import ASSISTANT, SUMMARY, SYSTEM, USER
from ctxkit.policies.chain import Chain, in_a_row
from ctxkit.policies.keep import Tail, TextOnly, TurnAge, WithoutAgents, is_correction
from ctxkit.policies.scheduled import Scheduled
from ctxkit.policies.shorten import TRUNCATED, Replies, Results
from ctxkit.schedules import AS_IT_CAME
from ctxkit.texts import contents, trims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.messages import Message, Part
    from ctxkit.policies.rules import Rules
    from ctxkit.schedules import ScheduleView
    from ctxkit.teams.rosters import ContextSource, Member
    from ctxkit.tokens import Room

OWN_TURNS = 6
"""Own replies of a declared `own_history` that says no number (fuseraft's)."""
_FILTERS = (TextOnly, WithoutAgents, TurnAge, Tail)
"""What a preset does at every call, and a team from each turn's beginning."""
ANEW = "Anew"
"""The key of a view in which each turn begins without one's own earlier ones."""
_CUT = "\n[...truncated — own_history turn exceeded {n} char limit]"


@dataclass(frozen=True, kw_only=True, repr=False)
class AtTurnStart(Scheduled):
    """Show, from each turn's beginning, a part of all that came before it: fuseraft's
    ContextWindow.

    What comes within the turn stays: an agent that is shown text only still sees what its own tools
    give it. The order is fuseraft's: text, agents, age, tail, lengths.
    """

    counts = False
    text_only: bool = False
    without: tuple[str, ...] = ()
    """Names or globs of agents, upper and lower case alike; with any, all tool frames go too."""
    turns: int = 0
    """Replies that stay, with the message before the oldest of them; 0: all."""
    messages: int = 0
    """Messages that stay, corrections besides; 0: all."""
    frame_chars: int = 0
    """Characters of another's tool frame; 0: all."""
    frame_chars_of: tuple[tuple[str, int], ...] = ()
    """The same for the frames of some tools; 0: all."""
    reply_chars: int = 0
    """Characters of what another said; 0: all."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Say at each prompt what becomes of everything before it."""
        for p in view.new("user"):
            message = view.rows.message(p)
            turn = message.turn or 0
            if message.kind in (HEARD, FRAME):  # within a turn, too: what subagents of its own say
                call = view.arrival(p)
                left = self._filtered(view, view.message(p, call))
                _say(view, p, call, self._short(left) if left is not None else None)
            elif not message.kind and turn > view.memory.get("turn", -1):
                view.memory["turn"] = turn
                self._begin(view, p)

    def _begin(self, view: ScheduleView, prompt: int) -> None:
        """Let a turn begin with a prompt: what stands before it is filtered."""
        call = view.arrival(prompt)
        history = [q for q in range(prompt) if view.role(q) != SYSTEM]
        left = {q: self._filtered(view, view.message(q, call)) for q in history}
        shown = [q for q in history if left[q] is not None]
        first = max(self._by_age(view, shown), self._by_number(shown, left))
        while 0 < first < prompt and not view.is_safe(first, call):
            first += 1
        for q in history:
            message = left[q]
            if message is None or (q < first and not _is_pinned(message)):
                _say(view, q, call, None)
            else:
                _say(view, q, call, self._short(message))

    def _filtered(self, view: ScheduleView, message: Message | None) -> Message | None:
        """Return what the filters of text and of agents leave of a message."""
        if message is None or message.role == "tool" or message.kind == FRAME:
            strict = self.text_only or bool(self.without)
            return None if strict else message
        if message.role != "assistant" and message.kind != HEARD:
            return message
        name = (message.agent or view.rows.log.agent).casefold()
        if any(fnmatchcase(name, pattern.casefold()) for pattern in self.without):
            return None
        if message.kind == HEARD or not (self.text_only or self.without):
            return message
        text = contents.text_only(message)
        return text if contents.texts(text) else None

    def _by_age(self, view: ScheduleView, shown: Sequence[int]) -> int:
        """Return the first position that the last replies leave: the message before the oldest."""
        replies = [q for q in shown if _is_reply(view, q)]
        if not self.turns or len(replies) <= self.turns:
            return 0
        at = shown.index(replies[-self.turns])
        while at and view.role(shown[at - 1]) == USER and not _is_reply(view, shown[at - 1]):
            at -= 1
        return shown[at]

    def _by_number(self, shown: Sequence[int], left: Mapping[int, Message | None]) -> int:
        """Return the first position that the last messages leave; corrections are not counted."""
        free = [q for q in shown if not _is_pinned(left[q])]
        return free[-self.messages] if 0 < self.messages < len(free) else 0

    def _short(self, message: Message) -> Message:
        most = {HEARD: self.reply_chars, FRAME: self._most(message)}.get(message.kind, 0)
        text = contents.texts(message)
        if not most or len(text) <= most:
            return message
        return contents.with_text(message, trims.cut(text, most, TRUNCATED))

    def _most(self, frame: Message) -> int:
        own = {name.casefold(): n for name, n in self.frame_chars_of}
        return own.get((frame.tool or "").casefold(), self.frame_chars)


def _is_reply(view: ScheduleView, q: int) -> bool:
    return view.role(q) == ASSISTANT or view.rows.message(q).kind == HEARD


def _is_pinned(message: Message | None) -> bool:
    if message is None:
        return False
    return message.kind == CORRECTION or bool(message.sections) or is_correction(message)


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
        for p in view.new():
            turn = view.rows.message(p).turn or 0
            if turn > view.memory.get("turn", 0):
                view.memory["turn"] = turn
                self._begin(view, p)

    def _begin(self, view: ScheduleView, first: int) -> None:
        """Let a turn begin at a position: what stands before it is old."""
        call, left, room = view.arrival(first), self.turns, self.max_chars
        for q in range(first - 1, -1, -1):
            message = view.message(q, call)
            if message is None or message.kind == TASK or message.sections:
                continue
            if self.heard and message.kind in (HEARD, FRAME, HANDOFF):
                continue
            if view.role(q) in (SYSTEM, SUMMARY):
                continue
            own = contents.text_only(message) if view.role(q) == ASSISTANT else message
            words = contents.texts(own) if view.role(q) == ASSISTANT else ""
            if not words or not left or (len(words) > room and left < self.turns):
                left = 0 if words else left  # none older than one that did not fit
                _say(view, q, call, None)
                continue
            kept = words if len(words) <= room else words[:room] + _CUT.format(n=room)
            left, room = left - 1, room - len(words)
            _say(view, q, call, contents.with_text(own, kept))


def viewed(member: Member) -> Rules:
    """Return an agent's rules with what it is shown of the others, and of its own earlier turns."""
    rules: Any = member.rules
    parts = in_a_row(rules.pruning) if rules.pruning is not None else ()
    if member.context:
        turns, chars = own_turns(member.context)
        front: Any = OwnTurns(turns=turns, max_chars=chars)
    else:
        front = _filter(parts)
    rest = [p for p in parts if type(p) not in _FILTERS]
    found: Rules = rules.but(pruning=Chain.of(front, *rest))
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


def _filter(parts: tuple[Any, ...]) -> AtTurnStart:
    """Return the filter that the parts of a preset say, for what is there when a turn begins."""
    of = {type(p): p for p in parts}
    without, age, tail = of.get(WithoutAgents), of.get(TurnAge), of.get(Tail)
    results, replies = of.get(Results), of.get(Replies)
    return AtTurnStart(
        text_only=TextOnly in of,
        without=tuple(without.agents) if without else (),
        turns=age.turns if age else 0,
        messages=tail.messages if tail else 0,
        frame_chars=results.max_chars if results else 0,
        frame_chars_of=tuple(sorted(results.overrides.items())) if results else (),
        reply_chars=replies.max_chars if replies else 0,
    )
