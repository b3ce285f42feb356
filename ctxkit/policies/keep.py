"""Views: of what was said before the turn under way keep only text, some agents or roles, the last
turns, the last messages.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.history.columns import ASSISTANT, TOOL, USER
from ctxkit.history.view import role_code
from ctxkit.messages import CORRECTION, FRAME, FROM_OTHERS, HEARD
from ctxkit.policies.scheduled import HistoryFilter
from ctxkit.policies.shown_positions import ShownPositions
from ctxkit.schedules import AS_IT_CAME, OldFirst
from ctxkit.texts import contents
from ctxkit.tools.tool_names import among

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.messages import Message
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

CORRECTIONS = (
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
    text = contents.texts(message)
    return text.startswith(CORRECTIONS) or "[fuseraft:blocked" in text


@dataclass(frozen=True, kw_only=True, repr=False)
class TextOnly(HistoryFilter):
    """Strip tool results, calls and reasoning of earlier turns; what has no text left goes."""

    counts = False

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Strip each message when it becomes history."""
        for p in _said_by_agents(view):
            view.change(p, _text, since=view.arrival(p), smaller=False)


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

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Hide each message of another role when it becomes history, a result with its reply."""
        kept = {role_code(role) for role in self.roles}
        for p in view.new():
            call, role = view.arrival(p), view.role(p)
            if role not in kept or (ASSISTANT not in kept and _is_answer(view, p, call)):
                view.change(p, None, since=call)
            elif role == ASSISTANT and TOOL not in kept:
                view.change(p, _text, since=call, smaller=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class WithoutAgents(HistoryFilter):
    """Leave out what some agents said in earlier turns; tool results have no author, so all of
    them go too.
    """

    counts = False
    agents: tuple[str, ...] = ()
    """Names or globs, upper and lower case alike."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Hide what they said when it becomes history, and strip what others said."""
        for p in _said_by_agents(view) if self.agents else ():
            what = None if self._said(view, p) else _text
            view.change(p, what, since=view.arrival(p), smaller=False)

    def _said(self, view: ScheduleView, p: int) -> bool:
        author = view.rows.message(p).agent or view.rows.log.agent
        return view.role(p) != TOOL and among(author, tuple(self.agents))


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

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Hide what is older when a turn begins behind enough replies."""
        shown: ShownPositions = view.memory.setdefault("shown", ShownPositions())
        replies: OldFirst = view.memory.setdefault("replies", OldFirst())
        pinned: OldFirst = view.memory.setdefault("pinned", OldFirst())
        for call, came, went, _ in view.news() if self.turns else ():
            shown.follow(came, went)
            for of in (replies, pinned):
                for p in filter(of.__contains__, went):
                    of.out(p)
            for p in came:
                if _is_reply(view, p):
                    replies.put(p)
                elif _is_said_by_kit(view.rows.message(p)):
                    pinned.put(p)
            first = self._first(view, shown, replies.found, call)
            _hide_but(view, first, [p for p in pinned.found if p < first], (), call)

    def _first(
        self, view: ScheduleView, shown: ShownPositions, replies: Sequence[int], call: int
    ) -> int:
        """Return the first position that is kept."""
        n = bisect_left(replies, view.turn_edge(call))
        if n < self.turns:
            return 0
        i = shown.index(replies[n - self.turns])
        while not self.from_reply and i and _is_asking(view, shown.found[i - 1]):
            i -= 1
        i = shown.safe_before(view, i, call)
        return shown.found[i] if i else 0


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

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Hide what is older when a turn begins behind enough messages."""
        if not self.messages:
            return
        shown: ShownPositions = view.memory.setdefault("shown", ShownPositions())
        pinned: OldFirst = view.memory.setdefault("pinned", OldFirst())
        free: OldFirst = view.memory.setdefault("free", OldFirst())
        for call, came, went, settled in view.news():
            shown.follow(came, went)
            for p in went:
                (pinned if p in pinned else free).out(p)
            for p in came:
                (pinned if self._is_pinned(view, p, call) else free).put(p)
            for p in settled:
                if p in free:
                    free.out(p)
                    pinned.put(p)
            first = self._first(view, free.found, call)
            if first and not (pinned.found and pinned.found[0] < first):
                _hide_but(view, _cut(view, shown, first, call), (), (), call)
            else:
                kept = [p for p in pinned.found if p < first]
                parted = _parted(view, shown, first, call)
                _hide_but(view, first, kept, parted, call)

    def _first(self, view: ScheduleView, free: Sequence[int], call: int) -> int:
        """Return the first position that is kept of what is not pinned."""
        edge = view.turn_edge(call)
        n, left = bisect_left(free, edge), self.messages
        if not self.besides_prompt and view.has_prompt(call):
            left -= not self._is_pinned(view, edge, call)
        if n <= left:
            return 0
        return free[n - left] if left else edge

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


def _text(message: Message) -> Message | None:
    """Return a message with its text alone; None where it has none, or is a tool result."""
    if message.role == "tool" or message.kind == FRAME:
        return None
    text = contents.text_only(message)
    return text if contents.texts(text) else None


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


def _cut(view: ScheduleView, shown: ShownPositions, first: int, call: int) -> int:
    """Return the position of the next safe cut in the history or at its end; where none comes, of
    the last one before.
    """
    edge, i = view.turn_edge(call), shown.index(first)
    at = shown.safe(view, i, call)
    if at < len(shown.found) and shown.found[at] < edge:
        return shown.found[at]
    if edge < view.shown(call) and view.is_safe(edge, call):
        return edge
    at = shown.safe_before(view, min(i, len(shown.found) - 1), call)
    return shown.found[at] if at > 0 else 0


def _parted(view: ScheduleView, shown: ShownPositions, first: int, call: int) -> list[int]:
    """Return the results from a position on whose replies before it go."""
    rows, i = view.rows, shown.index(first)
    return [
        p
        for p in shown.found[i : shown.safe(view, i, call)]
        if view.role(p) == TOOL
        and first > rows.members(rows.group(p), call)[0]
        and not view.stays(p, call)
    ]


def _hide_but(
    view: ScheduleView, first: int, kept: Sequence[int], more: Sequence[int], call: int
) -> None:
    """Hide all positions before one but some, and some behind it, from a call on."""
    was: int = view.memory.get("gone", 0)
    held: set[int]
    parted: set[int]
    held, parted = view.memory.get("but", (set(), set()))
    keep, extra = set(kept), set(more)
    view.memory["gone"], view.memory["but"] = first, (keep, extra)
    edge = range(min(was, first), max(was, first))
    for p in sorted({*edge, *(held ^ keep), *(parted ^ extra)}):
        hide = (p < first and p not in keep) or p in extra
        if hide != ((p < was and p not in held) or p in parted):
            view.change(p, None if hide else AS_IT_CAME, since=call)
