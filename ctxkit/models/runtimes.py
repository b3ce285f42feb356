"""Model files in memory: each loaded once a process, and freed with its last user."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Key = tuple[str, int, int]
"""Path of the file, tokens of the context, threads."""


@dataclass(slots=True)
class Runtime:
    """A file that is loaded, or will be at its first use."""

    load: Callable[[], Any]
    users: int = 0
    server: Any = None
    busy: threading.Lock = field(default_factory=threading.Lock)

    def call(self, body: dict[str, Any], hear: Callable[[Any], bool], stop: threading.Event) -> Any:
        """Run one request, alone; `hear` gets its pieces and returns True to end it.

        Returns what the runtime returns, None where `stop` was set before it began.
        """
        while not self.busy.acquire(timeout=0.05):
            if stop.is_set():
                return None
        try:
            if stop.is_set():
                return None
            if self.server is None:
                self.server = self.load()
            return self.server.handle_chat_completions(body, hear)
        finally:
            if self.users == 0:  # given up while it ran
                self.server = None
            self.busy.release()


_LOADED: dict[Key, Runtime] = {}
_GUARD = threading.RLock()  # a finalizer may give back what its own thread is about to take


def take(key: Key, load: Callable[[], Any]) -> Runtime:
    """Return the runtime of a key for one more user."""
    with _GUARD:
        runtime = _LOADED.setdefault(key, Runtime(load))
        runtime.users += 1
        return runtime


def give_up(key: Key) -> None:
    """Count one user less; with the last the memory is freed, behind a call under way."""
    with _GUARD:
        runtime = _LOADED.get(key)
        if runtime is None:
            return
        runtime.users -= 1
        if runtime.users > 0:
            return
        del _LOADED[key]
    if runtime.busy.acquire(blocking=False):
        runtime.server = None
        runtime.busy.release()
