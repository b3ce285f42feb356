"""A loop in a thread of its own, for what lives longer than a turn and its loop."""

from __future__ import annotations

import asyncio
import atexit
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class Loop:
    """An event loop that runs until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def wait(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run work there and wait for it.

        Raises:
            TimeoutError: it took longer; it was cancelled.
        """
        return asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(work, seconds), self._loop
        ).result()

    async def hear(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work there from another loop; where the waiting task is cancelled, so is the work."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self, seconds: float = 5.0) -> None:
        """End the loop; what runs in it is cancelled."""

        async def cancelled() -> None:
            mine = asyncio.current_task()
            tasks = [t for t in asyncio.all_tasks() if t is not mine]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=seconds) if tasks else None

        if self._loop.is_running():
            asyncio.run_coroutine_threadsafe(cancelled(), self._loop).result(seconds + 1)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(seconds)


class Looped(ABC):
    """What lives on a loop of its own, begun when first asked for, ended with the process."""

    _LOOP = "ctxkit"
    """The name of the loop's thread."""

    def __init__(self) -> None:
        self._loop: Loop | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """End it, with everything that it started."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            atexit.unregister(self.close)
            with suppress(TimeoutError):
                loop.wait(self._stop(), 10)
            loop.close()

    def _on_loop(self) -> Loop:
        with self._lock:
            if self._loop is None:
                self._loop = Loop(self._LOOP)
                atexit.register(self.close)
            return self._loop

    @abstractmethod
    async def _stop(self) -> None:
        """End what runs on the loop."""
