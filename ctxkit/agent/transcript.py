"""The session as an agent writes it: every message under an id and a turn of its own, kept before it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Message, Part, Text

if TYPE_CHECKING:
    from ctxkit.session import Session

Keep = Callable[..., "Session"]
"""Writes entries at the end of the session (in memory, or a `SessionLog.append`) and returns the session."""


class Transcript:
    """A session that grows.

    Args:
        session: what is there already.
        keep: writes entries; None: memory only.
        clock: seconds since 1970.
    """

    def __init__(self, session: Session, keep: Keep | None, clock: Callable[[], float]) -> None:
        self.session, self.clock = session, clock
        self._keep = keep or self._in_memory
        self.turn = -1

    def _in_memory(self, *entries: Message | Edit) -> Session:
        return self.session.append(*entries)

    def begin(self) -> int:
        """Begin a turn; return its number."""
        turns = self.session.turns
        self.turn = turns[-1] + 1 if any(isinstance(e, Message) for e in self.session.path) else 0
        return self.turn

    def add(self, message: Message, kind: str) -> Message:
        """Write a message under a new id that begins with `kind`."""
        kept = replace(message, id=f"{kind}{len(self.session.log)}", turn=self.turn, time=message.time or self.clock())
        self.session = self._keep(kept)
        return kept

    def edit(self, edits: tuple[Edit, ...]) -> None:
        """Write the edits of a compaction."""
        now = self.clock()
        self.session = self._keep(*(replace(e, time=now) for e in edits))

    def user(self, text: str, *, kind: str = "") -> Message:
        """Write what the user said, or what is said in the user's place (`kind`)."""
        return self.add(Message(role="user", kind=kind, parts=(Text(text),)), "u")

    def failed(self, model: str, why: str, stop: str = "error", text: str = "") -> Message:
        """Write a reply that failed or was interrupted: in the log, never sent again."""
        parts: tuple[Part, ...] = (Text(text),) if text else ()
        return self.add(
            Message(role="assistant", parts=parts, model=model, stop=stop, error=why, is_error=True, visible=False), "a"
        )

    def unrun(self, tool: str, call_id: str) -> Message:
        """Write the result of a tool call that was interrupted: no call stays without one."""
        said: dict[str, Any] = {"parts": (Text("Interrupted by the user before it ended."),), "is_error": True}
        return self.add(Message(role="tool", tool=tool, call_id=call_id, **said), "r")
