"""Keep only some of the messages: text, agents, the last turns, the last messages, some roles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies import contents
from ctxkit.policies.setting import Setting, at_least

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.messages import Message
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
"""How fuseraft's corrections of an agent begin; a user message that holds `[fuseraft:blocked` is one too."""
_ROLES = ("system", "user", "assistant", "tool", "summary")


def is_correction(message: Message) -> bool:
    """Say whether a user message corrects an agent, in fuseraft's words."""
    if message.role != "user":
        return False
    text = contents.texts(message)
    return text.startswith(CORRECTIONS) or "[fuseraft:blocked" in text


@dataclass(frozen=True, kw_only=True, repr=False)
class TextOnly(Setting):
    """Strip tool results, tool calls and reasoning; what has no text left goes."""

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with text alone."""
        return _stripped(history, "only text is kept")


@dataclass(frozen=True, kw_only=True, repr=False)
class Roles(Setting):
    """Keep the messages of some roles; without `tool`, replies lose their calls but keep their text."""

    roles: tuple[str, ...] = ("user", "assistant", "summary")
    """Roles that stay; what the history must keep (system, pinned, pending) stays anyway."""

    def __post_init__(self) -> None:
        for role in self.roles:
            if role not in _ROLES:
                raise BadArguments(f"There is no role {role!r}.{did_you_mean(role, _ROLES)}")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with these roles alone."""
        if "tool" not in self.roles:
            history = _stripped(history, "tool calls and results are left out")
        return history.keep(history.role(*self.roles, "system"), f"only {', '.join(self.roles)} are kept")


@dataclass(frozen=True, kw_only=True, repr=False)
class WithoutAgents(Setting):
    """Leave out what some agents said; tool results have no author, so all of them go too."""

    agents: tuple[str, ...] = ()
    """Names or globs, upper and lower case alike."""

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history without these agents."""
        if not self.agents:
            return history
        new = _stripped(history, "tool results have no author")
        out = new.agent(*self.agents) & new.role("assistant")
        return new.drop(out, f"said by {', '.join(self.agents)}")


@dataclass(frozen=True, kw_only=True, repr=False)
class TurnAge(Setting):
    """Keep what belongs to the last replies, from the user's message before the oldest of them on."""

    turns: int = 0
    """How many replies to keep; 0: all. Replies that only call tools count, unless they were stripped before."""
    from_reply: bool = False
    """Begin with the reply itself, without the message it answers (as fuseraft's program did)."""

    def __post_init__(self) -> None:
        at_least(self, 0, "turns")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history from the `turns`-th last reply on."""
        if self.turns <= 0:
            return history
        first = history.nth_last("assistant", self.turns)
        if first <= 0:
            return history
        if not self.from_reply:
            users = history.role("user")
            while first > 0 and users[first - 1]:
                first -= 1
        return history.drop(history.safe_before(first), f"older than the last {self.turns} replies")


@dataclass(frozen=True, kw_only=True, repr=False)
class Tail(Setting):
    """Keep the last messages; corrections of an agent are pinned and not counted."""

    messages: int = 0
    """How many messages to keep; 0: all."""
    pin_corrections: bool = True
    """Keep the user messages by which fuseraft corrects an agent, wherever they stand."""

    def __post_init__(self) -> None:
        at_least(self, 0, "messages")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the last messages, and what is pinned before them."""
        if self.messages <= 0 or len(history) <= self.messages:
            return history
        why = f"older than the last {self.messages} messages"
        pinned = self._pinned(history)
        free = np.flatnonzero(~pinned)
        if len(free) <= self.messages:
            return history
        first = int(free[-self.messages])
        if not pinned[:first].any():
            return history.drop(history.safe(first) or history.safe_before(first), why)
        return history.keep(pinned | (np.arange(len(history)) >= first), why)

    def _pinned(self, history: History) -> np.ndarray:
        pinned = np.array(history.stays)
        if self.pin_corrections:
            for p in np.flatnonzero(history.role("user")).tolist():
                pinned[p] = pinned[p] or is_correction(history[p])
        return pinned


def _stripped(history: History, why: str) -> History:
    """Return the history without tool results, calls and reasoning."""
    changes: dict[int, Message | None] = {}
    for p in np.flatnonzero(history.role("assistant", "tool") & ~history.stays).tolist():
        message = history[p]
        if message.role == "tool":
            changes[p] = None
        elif not contents.only_text(message):
            text = contents.text_only(message)
            changes[p] = text if any(contents.texts(text)) else None
        elif not contents.texts(message):
            changes[p] = None
    return history.replace(changes, reason=why) if changes else history
