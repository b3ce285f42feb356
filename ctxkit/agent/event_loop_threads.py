"""Event loops in worker threads, for coroutines and long-lived clients; interruptible."""

# A kernel's own loop is busy while a cell runs, so `asyncio.run` fails there, and a coroutine on it
# could not be interrupted promptly. The caller waits on an event, never in `Thread.join`: on Python
# 3.11 an interrupted join marks the thread as stopped while it still runs.

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
        coroutine: the coroutine.
        on_end: called in the thread at its end, whatever happened.
        start: False: it starts with `begin`.
    """

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        on_end: Callable[[], None] | None = None,
        *,
        start: bool = True,
    ) -> None:
        self._ended, self._started = threading.Event(), threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False
        # Output of the task belongs to the notebook cell that started it.
        context = contextvars.copy_context()
        work = (self._run_thread, coroutine, on_end)
        self._thread = threading.Thread(
            target=context.run, args=work, daemon=True, name="ctxkit-agent"
        )
        if start:
            self.begin()

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run_thread(
        self, coroutine: Coroutine[Any, Any, T], on_end: Callable[[], None] | None
    ) -> None:
        async def run_and_report() -> None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            self._started.set()
            try:
                self._result = await coroutine
            except BaseException as e:  # noqa: BLE001  `result` raises it again
                self._error = e
            try:
                if on_end is not None:
                    on_end()
            except Exception as e:  # noqa: BLE001  as above
                self._error = self._error or e
            # Before the loop is closed, which waits for tools that cannot be cancelled.
            self._ended.set()

        try:
            asyncio.run(run_and_report())
        except BaseException as e:  # noqa: BLE001  as above
            self._error = self._error or e
        finally:
            self._started.set()
            self._ended.set()

    @property
    def state(self) -> str:
        """`running`, `stopping`, `stopped`, `failed` or `done`."""
        if not self._ended.is_set():
            return "stopping" if self._stopped else "running"
        if isinstance(self._error, asyncio.CancelledError):
            return "stopped"
        return "failed" if self._error is not None else "done"

    def stop(self) -> None:
        """Cancel the coroutine."""
        self._stopped = True
        self._started.wait(1)
        if not self._ended.is_set() and self._loop is not None and self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most `seconds`; return whether it has ended.

        It waits in short steps, so that a keyboard interrupt reaches the waiting thread.
        """
        remaining = float("inf") if seconds is None else seconds
        while remaining > 0:
            if self._ended.wait(min(_TICK, remaining)):
                return True
            remaining -= _TICK
        return self._ended.is_set()

    def result(self, seconds: float | None = None) -> T:
        """Return what the coroutine returned.

        Raises:
            TimeoutError: it still runs.
            BaseException: whatever it raised; `asyncio.CancelledError` if it was stopped.
        """
        if not self.wait(seconds):
            raise TimeoutError("It still runs.")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # it is set where there is no error


def run_coroutine(coroutine: Coroutine[Any, Any, T], *, grace: float = 5.0) -> T:
    """Run a coroutine to its end from any thread, in a kernel, a terminal or a test.

    Args:
        coroutine: it runs in a thread and an event loop of its own, so that a running loop of the
            caller does not matter.
        grace: seconds for its cleanup after an interrupt.

    Returns:
        What the coroutine returns; what it raises is raised here.

    Raises:
        KeyboardInterrupt: the user interrupted it; it was cancelled and had `grace` seconds to
            clean up.

    Example:
        >>> import asyncio
        >>> from ctxkit.agent.event_loop_threads import run_coroutine
        >>> run_coroutine(asyncio.sleep(0, "done"))
        'done'
    """
    running = BackgroundTask(coroutine, start=False)
    try:
        running.begin()  # inside the `try`: an interrupt may come right after the start
        return running.result()
    except KeyboardInterrupt:
        running.stop()
        running.wait(grace)
        raise


LoopResult = TypeVar("LoopResult")


class EventLoopThread:
    """An event loop in a thread of its own that runs until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, daemon=True, name=name)
        self._thread.start()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def wait(self, work: Coroutine[Any, Any, LoopResult], seconds: float) -> LoopResult:
        """Run a coroutine on this loop and block until it is done.

        Args:
            work: the coroutine; it is awaited on the thread of the loop.
            seconds: time limit.

        Raises:
            TimeoutError: it took longer than `seconds` and was cancelled.
        """
        return asyncio.run_coroutine_threadsafe(
            asyncio.wait_for(work, seconds), self._loop
        ).result()

    async def run(self, work: Coroutine[Any, Any, LoopResult]) -> LoopResult:
        """Await a coroutine of this loop from another loop; cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self, seconds: float = 5.0) -> None:
        """Cancel all tasks and end the loop."""

        async def cancel_tasks() -> None:
            mine = asyncio.current_task()
            tasks = [t for t in asyncio.all_tasks() if t is not mine]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=seconds) if tasks else None

        if self._loop.is_running():
            asyncio.run_coroutine_threadsafe(cancel_tasks(), self._loop).result(seconds + 1)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(seconds)


class EventLoopClientBase(ABC):
    """Base of clients on a loop of their own, started at first use and ended with the process."""

    _LOOP = "ctxkit"
    """Name of the loop's thread."""

    def __init__(self) -> None:
        self._loop: EventLoopThread | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """End the client and its loop."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            atexit.unregister(self.close)
            with suppress(TimeoutError):
                loop.wait(self._stop_client(), 10)
            loop.close()

    def _on_loop(self) -> EventLoopThread:
        with self._lock:
            if self._loop is None:
                self._loop = EventLoopThread(self._LOOP)
                atexit.register(self.close)
            return self._loop

    @abstractmethod
    async def _stop_client(self) -> None:
        """End what the client runs on the loop."""
