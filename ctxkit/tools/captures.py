"""What one thread prints, never more than fits, without touching what others print."""

from __future__ import annotations

import sys
import threading
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = TAIL = 500_000
"""Characters kept of the beginning and of the end of an output."""
_lock = threading.Lock()
_users = 0


class Bounded:
    """Text that is written piece by piece; of a flood only the head and the tail are kept."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._room, self._held, self._lost = HEAD, 0, 0

    def write(self, text: str) -> int:
        """Take a piece; return how long it is."""
        head, rest = text[: self._room], text[self._room :]
        if head:
            self._head.append(head)
            self._room -= len(head)
        if rest:
            self._tail.append(rest)
            self._held += len(rest)
            while self._held > 2 * TAIL and len(self._tail) > 1:
                gone = self._tail.popleft()
                self._held -= len(gone)
                self._lost += len(gone)
        return len(text)

    def text(self) -> str:
        """Return what was kept, with a line that says how much was not."""
        tail = "".join(self._tail)
        lost = self._lost + max(len(tail) - TAIL, 0)
        gap = f"\n[... {lost:,} characters left out ...]\n" if lost else ""
        return "".join(self._head) + gap + (tail[-TAIL:] if lost else tail)


_taken: ContextVar[Bounded | None] = ContextVar("ctxkit_captured", default=None)


class _Routed:
    """A stream that writes to its context's capture, else to the stream it stands for."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write to whom it belongs."""
        taken = _taken.get()
        return taken.write(text) if taken is not None else int(self._stream.write(text) or 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def captured() -> Iterator[Bounded]:
    """Take what this thread prints inside the block; other threads print as before."""
    out = Bounded()
    token = _taken.set(out)
    _route(1)
    try:
        yield out
    finally:
        _route(-1)
        _taken.reset(token)


def _route(change: int) -> None:
    """Put the routing streams in place for the first user, and take them away after the last."""
    global _users  # noqa: PLW0603  the streams are the process's, so is the count of who uses them
    with _lock:
        _users += change
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if change > 0 and not isinstance(stream, _Routed):
                setattr(sys, name, _Routed(stream))
            elif not _users and isinstance(stream, _Routed):
                setattr(sys, name, stream._stream)  # noqa: SLF001  its own class
