"""What the agents really did, out of their sessions: files written, commands run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ctxkit.texts.contents import path, target
from ctxkit.tools.tool_names import writes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.messages import Message, ToolCall
    from ctxkit.session import Session

SHELLS = ("shell", "shell_run", "bash")
_FAILED = re.compile(r"\[(?:exit status \d+|stopped after [\d.]+ seconds)\]\s*\Z")
"""How the kit's shell ends what it says of a command that failed."""


@dataclass(frozen=True, kw_only=True)
class Deed:
    """What one agent changed in one of the team's turns."""

    turn: int
    agent: str
    time: float
    written: tuple[str, ...]
    commands: tuple[tuple[str, bool], ...]
    """Each command, and whether it succeeded."""

    @property
    def text(self) -> str:
        """The entry as fuseraft says it."""
        at = datetime.fromtimestamp(self.time, UTC)
        lines = [f"[Turn {self.turn}] {self.agent} ({at:%Y-%m-%d %H:%M} UTC)"]
        if self.written:
            lines += ["  Files written:", *(f"    - {path}" for path in self.written)]
        if self.commands:
            lines.append("  Commands run:")
            lines += [f"    - {c} [{'OK' if ok else 'FAILED'}]" for c, ok in self.commands]
        return "\n".join(lines)


def done(messages: Iterable[Message]) -> tuple[tuple[str, ...], tuple[tuple[str, bool], ...]]:
    """Return the files that were written and the commands that were run, with their success."""
    calls: dict[str | None, ToolCall] = {}
    written: dict[str, None] = {}
    commands: list[tuple[str, bool]] = []
    for message in messages:
        for call in message.tool_calls:
            calls[call.id] = call
        asked = calls.get(message.call_id) if message.role == "tool" else None
        if asked is None:
            continue
        if writes(asked.name) and path(asked) and not message.is_error:
            written[path(asked)] = None
        elif asked.name.casefold() in SHELLS:
            commands.append((target(asked), not (message.is_error or _FAILED.search(message.text))))
    return tuple(written), tuple(commands)


def changed(turn: int, agent: str, messages: Sequence[Message]) -> Deed | None:
    """Return what an agent changed in a turn; None where it changed nothing."""
    written, commands = done(messages)
    if not written and not commands:
        return None
    time = next((m.time for m in reversed(messages) if m.time is not None), 0.0)
    return Deed(turn=turn, agent=agent, time=time, written=written, commands=commands)


def changes_of(turns: Iterable[tuple[int, str, Session, int]]) -> list[Deed]:
    """Return the changes of turns: number, agent, its session, and the turn in it."""
    out = []
    for number, agent, session, own in turns:
        change = changed(number, agent, [m for m in session.messages if m.turn == own])
        if change is not None:
            out.append(change)
    return out
