"""System messages, pinned ones and those that wait on an approval stay."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxkit.history.view import View
    from ctxkit.messages import Message


class Stays:
    """Every message of one kind that was said before the coming call is shown."""

    def __init__(self, name: str, what: str) -> None:
        self.name, self._what = name, what

    def broken(self, view: View) -> str | None:
        """Return a sentence that names a message that is gone, or None."""
        log = view.log
        for row in log.stays[: bisect_left(log.stays, view.hi)]:
            message = log.messages[row]
            if self._is(message) and row < view.lo and row not in view.head.rows:
                return f"The {self._what} message {message.id or row} is gone: it must stay."
        return None

    def _is(self, message: Message) -> bool:
        own = message.role == "system"
        return own if self._what == "system" else bool(getattr(message, self._what))


SYSTEM_STAYS = Stays("system messages stay", "system")
PINNED_STAYS = Stays("pinned messages stay", "pinned")
PENDING_STAYS = Stays("pending approvals stay", "pending")
"""What an approval or an unfinished tool waits on stays."""
