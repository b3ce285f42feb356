"""Run coroutines and long-lived clients on event loops in worker threads, interruptible from a
notebook.

A kernel's own loop is busy while a cell runs, so `asyncio.run` fails there; and a coroutine on that
loop could not be interrupted promptly. The waiting thread waits on an event, never in
`Thread.join`: on Python 3.11 a join that was interrupted marks the thread as stopped while it still
runs.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


T = TypeVar("T")
_TICK = 0.05


class BackgroundTask(Generic[T]):
    """A coroutine that runs in a thread of its own.

    Args:
        coroutine: what to run.
        ended: called in the thread when it is over, whatever happened.
        begin: False: it runs from `begin` on.
    """

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        ended: Callable[[], None] | None = None,
        *,
        begin: bool = True,
    ) -> None:
        self._done, self._started = threading.Event(), threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False
        # what is printed and displayed stays in the cell that began it
        context = contextvars.copy_context()
        work = (self._work, coroutine, ended)
        self._thread = threading.Thread(
            target=context.run, args=work, daemon=True, name="ctxkit-agent"
        )
        if begin:
            self.begin()

    def begin(self) -> None:
        """Let it run."""
        self._thread.start()

    def _work(self, coroutine: Coroutine[Any, Any, T], ended: Callable[[], None] | None) -> None:
        async def main() -> None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            self._started.set()
            try:
                self._result = await coroutine
            except BaseException as e:  # noqa: BLE001  it is raised again by whoever asks for the result
                self._error = e
            try:
                if ended is not None:
                    ended()
            except Exception as e:  # noqa: BLE001  as above
                self._error = self._error or e
            # before the loop is closed: that waits for tools that cannot be cancelled
            self._done.set()

        try:
            asyncio.run(main())
        except BaseException as e:  # noqa: BLE001  as above
            self._error = self._error or e
        finally:
            self._started.set()
            self._done.set()

    @property
    def state(self) -> str:
        """`running`, `stopped`, `failed` or `done`."""
        if not self._done.is_set():
            return "stopping" if self._stopped else "running"
        if isinstance(self._error, asyncio.CancelledError):
            return "stopped"
        return "failed" if self._error is not None else "done"

    def stop(self) -> None:
        """Cancel it; what it has done so far is kept."""
        self._stopped = True
        self._started.wait(1)
        if not self._done.is_set() and self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is over, at most so long; return whether it is. An interrupt reaches the
        waiting thread.
        """
        left = float("inf") if seconds is None else seconds
        while left > 0:
            if self._done.wait(min(_TICK, left)):
                return True
            left -= _TICK
        return self._done.is_set()

    def result(self, seconds: float | None = None) -> T:
        """Return what the coroutine returned.

        Raises:
            TimeoutError: it is not over yet.
            BaseException: whatever it raised; `asyncio.CancelledError` where it was stopped.
        """
        if not self.wait(seconds):
            raise TimeoutError("It still runs.")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # it is set where there is no error


def run_coroutine(coroutine: Coroutine[Any, Any, T], *, grace: float = 5.0) -> T:
    """Run a coroutine to its end from any thread, in a kernel, a terminal or a test.

    Raises:
        KeyboardInterrupt: the user interrupted it; it was cancelled and given `grace` seconds to
            leave things whole.
    """
    running = BackgroundTask(coroutine, begin=False)
    try:
        running.begin()  # in here: an interrupt may come before this line is left
        return running.result()
    except KeyboardInterrupt:
        running.stop()
        running.wait(grace)
        raise


LoopResult = TypeVar("LoopResult")


class LoopThread:
    """An event loop that runs until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def wait(self, work: Coroutine[Any, Any, LoopResult], seconds: float) -> LoopResult:
        """Run work there and wait for it.

        Raises:
            TimeoutError: it took longer; it was cancelled.
        """
        return asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(work, seconds), self._loop
        ).result()

    async def hear(self, work: Coroutine[Any, Any, LoopResult]) -> LoopResult:
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


class LoopOwner(ABC):
    """What lives on a loop of its own, begun when first asked for, ended with the process."""

    _LOOP = "ctxkit"
    """The name of the loop's thread."""

    def __init__(self) -> None:
        self._loop: LoopThread | None = None
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

    def _on_loop(self) -> LoopThread:
        with self._lock:
            if self._loop is None:
                self._loop = LoopThread(self._LOOP)
                atexit.register(self.close)
            return self._loop

    @abstractmethod
    async def _stop(self) -> None:
        """End what runs on the loop."""
