"""Sweeps over processes or clusters: batches, worker placement, a local process pool."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from functools import cached_property
from math import ceil
from time import monotonic, perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.experiments.session_runner import SessionRunner, make_session_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Sized
    from concurrent.futures import Future

    from ctxkit.experiments.session_runner import NamedRules, RunOptions
    from ctxkit.session.session import Session

    Rows = list[dict[str, Any]]


BATCH_SECONDS = 0.25
"""A batch takes at least about so long, so that handing it over (some ms on Dask) costs little."""
LONGEST_SECONDS = 5.0
"""And not much longer, so that the progress can be seen."""
FIRST_BATCH_RUNS = 4
"""Runs of a batch while nobody knows how long they take."""


class BatchResult(NamedTuple):
    """What a worker sends back."""

    rows: Rows
    worker: tuple[int, int]
    first: float
    """Seconds until the first row: reading the session included, where the worker did
    not know it.
    """
    rest: float
    """Seconds of the other rows."""
    knew: bool


class WorkShare:
    """A session and the settings that are still to be run on it."""

    def __init__(self, place: int, session: Session, settings: Sequence[NamedRules]) -> None:
        self.place, self.session, self.left = place, session, list(settings)
        self.calls = max(len(session.calls), 1)
        self.name = make_session_key(session)
        self.owner: Any = None
        """The worker that has read it; a fresh object while nobody answered yet."""

    @cached_property
    def bytes(self) -> bytes:
        """The session as it is sent."""
        return pickle.dumps(self.session, pickle.HIGHEST_PROTOCOL)

    def take(self, n: int) -> tuple[NamedRules, ...]:
        """Take some settings off."""
        taken, self.left = tuple(self.left[:n]), self.left[n:]
        return taken


class WorkPlan:
    """Who does what next, by what the batches took so far."""

    def __init__(self, shares: Sequence[WorkShare], workers: int) -> None:
        self.shares = sorted(shares, key=lambda s: -s.calls * len(s.left))
        self.workers = workers
        self.run: float | None = None
        """Seconds of a run, for each call of its session."""
        self.read = 0.0
        """Seconds of reading a session, for each of its calls."""

    def learn(self, share: WorkShare, done: BatchResult) -> None:
        """Take note of how long a batch took; runs after the first tell how long one is."""
        n = len(done.rows)
        own = done.rest / (n - 1) if n > 1 else done.first
        own /= share.calls
        self.run = own if self.run is None else (self.run + own) / 2
        if not done.knew and n > 1:
            self.read = max(done.first / share.calls - own, 0.0)

    def next(self, worker: Any) -> tuple[WorkShare, tuple[NamedRules, ...]] | None:
        """Return the next batch of a worker; None where it would cost more than it helps."""
        left = [s for s in self.shares if s.left]
        own = [s for s in left if s.owner == worker]
        free = [s for s in left if s.owner is None]
        if own or free:
            share = (own or free)[0]
            share.owner = worker
            return share, share.take(self.size(share))
        if not left:
            return None
        share = max(left, key=lambda s: s.calls * len(s.left))
        if self.small(share, len(share.left)):
            return None
        return share, share.take(min(self.size(share), ceil(len(share.left) / 2)))

    def spare(self) -> tuple[WorkShare, tuple[NamedRules, ...]] | None:
        """Return a whole session to lie ready for whoever is done first; None while a worker has
        its own to go on with.

        Neither where sessions are large, or few are left: then they are better parted.
        """
        left = [s for s in self.shares if s.left]
        if self.run is None or not left or any(s.owner is not None for s in left):
            return None
        seconds = self.run * left[0].calls * len(left[0].left)
        if seconds > LONGEST_SECONDS or seconds * 2 * self.workers > self.seconds:
            return None
        left[0].owner = object()
        return left[0], left[0].take(len(left[0].left))

    @property
    def seconds(self) -> float:
        """Seconds of work that nobody has taken yet."""
        return (self.run or 0.0) * sum(s.calls * len(s.left) for s in self.shares)

    def small(self, share: WorkShare, n: int) -> bool:
        """Say whether so many runs are done sooner than another worker has read their session."""
        return (
            self.run is not None
            and self.run * n * share.calls < BATCH_SECONDS + self.read * share.calls
        )

    def given(
        self, idle: list[Any], running: Sized
    ) -> Iterator[tuple[Any, WorkShare, tuple[NamedRules, ...]]]:
        """Yield what is to be started now; workers who get something, or for whom nothing is left,
        are idle no more.
        """
        while len(running) < 2 * self.workers and (spare := self.spare()) is not None:
            yield object(), *spare
        while idle and len(running) < self.workers:
            worker = idle.pop()
            if (given := self.next(worker)) is not None:
                yield worker, *given

    def orphans(self) -> list[Any]:
        """Return a worker for what is left of sessions whose own worker is gone."""
        left = [s for s in self.shares if s.left]
        for share in left:
            share.owner = None
        return [object() for _ in left[:1]]

    def size(self, share: WorkShare) -> int:
        """Return how many runs make a batch: a part of what is left for each worker, within bounds
        of time.
        """
        if self.run is None:
            return min(FIRST_BATCH_RUNS, ceil(len(share.left) / self.workers))
        seconds = min(max(self.seconds / (2 * self.workers), BATCH_SECONDS), LONGEST_SECONDS)
        n = max(1, ceil(seconds / max(self.run * share.calls, 1e-7)))
        rest = len(share.left) - n
        return len(share.left) if rest > 0 and self.small(share, rest) else n


def run_in_executor(
    tasks: Sequence[tuple[int, Session, Sequence[NamedRules]]],
    executor: Executor,
    options: RunOptions,
) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of batches as workers finish them; what cannot travel, or was lost, is done
    here.
    """
    plan = WorkPlan([WorkShare(*task) for task in tasks], count_workers(executor))
    running: dict[Future[Any], tuple[Any, WorkShare, tuple[NamedRules, ...]]] = {}
    idle: list[Any] = [object() for _ in range(plan.workers)]
    try:
        while idle or running:
            for worker, share, settings in plan.given(idle, running):
                try:
                    future = executor.submit(run_batch, share.name, share.bytes, settings, options)
                except Exception as error:  # noqa: BLE001  a pool that broke, or is shut down: see below
                    yield share.place, _run_here(share, settings, options, error)
                    idle.append(worker)
                else:
                    running[future] = (worker, share, settings)
            if not running:
                idle += plan.orphans()
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                worker, share, settings = running.pop(future)
                failed = future.exception()
                if failed is not None:
                    yield share.place, _run_here(share, settings, options, failed)
                    idle.append(worker)
                    continue
                found: BatchResult = future.result()
                plan.learn(share, found)
                if share.owner is worker:
                    share.owner = found.worker
                idle += [] if found.worker in idle else [found.worker]
                yield share.place, found.rows
    finally:
        for future in running:
            future.cancel()


_worker_state = threading.local()
"""The last session of each thread, and its bench: batches of one session follow one another."""


def _cached_runner(name: str, session: Callable[[], Session]) -> SessionRunner:
    if getattr(_worker_state, "name", None) != name:
        _worker_state.name, _worker_state.bench = name, SessionRunner(session())
    bench: SessionRunner = _worker_state.bench
    return bench


def run_batch(
    name: str, session: bytes, settings: Sequence[NamedRules], options: RunOptions
) -> BatchResult:
    """Run settings on a session, in a worker, which keeps the last session that it was sent."""
    start = perf_counter()
    knew = getattr(_worker_state, "name", None) == name
    bench = _cached_runner(name, lambda: pickle.loads(session))  # noqa: S301  of this process's parent
    rows = bench.rows(settings, options)
    made = [next(rows)]
    first = perf_counter()
    made += rows
    return BatchResult(
        made, (os.getpid(), threading.get_ident()), first - start, perf_counter() - first, knew
    )


def _run_here(
    share: WorkShare, settings: Sequence[NamedRules], options: RunOptions, error: BaseException
) -> Rows:
    """Do a batch in this process: runs never raise, so it is the way to the worker, or the worker,
    that failed.
    """
    if not isinstance(error, Exception):
        raise error
    why = f"{type(error).__name__}: {error}"[:200]
    warnings.warn(
        f"{len(settings)} runs were done in this process, as a worker could not ({why}).",
        stacklevel=2,
    )
    return list(_cached_runner(share.name, lambda: share.session).rows(settings, options))


def count_workers(executor: Executor) -> int:
    """Return how many workers an executor has, as far as it says."""
    known = getattr(executor, "_max_workers", None)
    if isinstance(known, int) and known > 0:
        return known
    client = getattr(executor, "_client", None)
    threads = (
        sum(client.nthreads().values()) if client is not None and hasattr(client, "nthreads") else 0
    )
    return threads or 4


FIRST_CHECK_SECONDS = 1.0
"""Seconds of work after which it is asked how long the rest will take."""
CHECK_INTERVAL_SECONDS = 0.01
"""Seconds between two looks: the time of a process takes as long to ask for as a hundredth of a
short run."""
MIN_REMAINING_SECONDS = 4.0
"""Seconds that the rest must take: a worker needs one or two to begin."""


class WorkEstimate:
    """How long what is left will take, by the work of what is done so far.

    The first run reads the log for all others, so only those after it tell; and what other
    programs do on this machine, or a model that is waited for, makes no work.
    """

    def __init__(self, total: int) -> None:
        self._begin, self._total, self._done = process_time(), total, 0
        self._start: float | None = None
        self._next = 0.0

    def took(self, weight: int) -> None:
        """Say that a run is done."""
        self._total -= weight
        if self._start is None:
            self._start = process_time()
        else:
            self._done += weight

    @property
    def is_slow(self) -> bool:
        """True where the rest is worth a start of workers."""
        if monotonic() < self._next:
            return False
        self._next, now = monotonic() + CHECK_INTERVAL_SECONDS, process_time()
        if self._start is None or not self._done or now - self._begin < FIRST_CHECK_SECONDS:
            return False
        return (now - self._start) / self._done * self._total > MIN_REMAINING_SECONDS


def make_process_pool(travels: Sequence[Any]) -> ProcessPoolExecutor | None:
    """Return a pool with a worker a core; None where there is one core, or a pool is not safe.

    A worker begins with the file of the program that started it: a script that is not written for
    that would run again, so it is for notebooks and consoles alone. What was made in them (a
    function of one's own) cannot travel either.

    Args:
        travels: what the workers will be sent.
    """
    n = count_cores()
    if n < 2 or not is_interactive() or not _can_travel(travels):
        return None
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=spawn, initializer=_ignore_interrupt)


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_interactive() -> bool:
    """Say whether this is a notebook or a console, and no worker of somebody's."""
    main = sys.modules.get("__main__")
    typed = getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None
    return typed and multiprocessing.parent_process() is None


def _can_travel(travels: Sequence[Any]) -> bool:
    try:
        return b"__main__" not in pickle.dumps(travels, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  whatever a user's object raises, it stays here
        return False


def _ignore_interrupt() -> None:
    """Let an interrupt reach the process that waits, not its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
