"""A sweep over the workers of an executor: each stays with a session, which it is sent as bytes and
reads once.
"""

from __future__ import annotations

import os
import pickle
import threading
import warnings
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from functools import cached_property
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.sweeps.batches import Bench, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Sized
    from concurrent.futures import Future

    from ctxkit.session import Session
    from ctxkit.sweeps.batches import NamedRules, Options

    Rows = list[dict[str, Any]]

BATCH_SECONDS = 0.25
"""A batch takes at least about so long, so that handing it over (some ms on Dask) costs little."""
LONGEST_SECONDS = 5.0
"""And not much longer, so that the progress can be seen."""
FIRST = 4
"""Runs of a batch while nobody knows how long they take."""


class Done(NamedTuple):
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
        self.name = key_of(session)
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


class Plan:
    """Who does what next, by what the batches took so far."""

    def __init__(self, shares: Sequence[WorkShare], workers: int) -> None:
        self.shares = sorted(shares, key=lambda s: -s.calls * len(s.left))
        self.workers = workers
        self.run: float | None = None
        """Seconds of a run, for each call of its session."""
        self.read = 0.0
        """Seconds of reading a session, for each of its calls."""

    def learn(self, share: WorkShare, done: Done) -> None:
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
            return min(FIRST, ceil(len(share.left) / self.workers))
        seconds = min(max(self.seconds / (2 * self.workers), BATCH_SECONDS), LONGEST_SECONDS)
        n = max(1, ceil(seconds / max(self.run * share.calls, 1e-7)))
        rest = len(share.left) - n
        return len(share.left) if rest > 0 and self.small(share, rest) else n


def spread(
    tasks: Sequence[tuple[int, Session, Sequence[NamedRules]]], executor: Executor, options: Options
) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of batches as workers finish them; what cannot travel, or was lost, is done
    here.
    """
    plan = Plan([WorkShare(*task) for task in tasks], workers_of(executor))
    running: dict[Future[Any], tuple[Any, WorkShare, tuple[NamedRules, ...]]] = {}
    idle: list[Any] = [object() for _ in range(plan.workers)]
    try:
        while idle or running:
            for worker, share, settings in plan.given(idle, running):
                try:
                    future = executor.submit(work, share.name, share.bytes, settings, options)
                except Exception as error:  # noqa: BLE001  a pool that broke, or is shut down: see below
                    yield share.place, _here(share, settings, options, error)
                    idle.append(worker)
                else:
                    running[future] = (worker, share, settings)
            if not running:
                idle += plan.orphans()
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                worker, share, settings = running.pop(future)
                failed = future.exception()
                if failed is not None:
                    yield share.place, _here(share, settings, options, failed)
                    idle.append(worker)
                    continue
                found: Done = future.result()
                plan.learn(share, found)
                if share.owner is worker:
                    share.owner = found.worker
                idle += [] if found.worker in idle else [found.worker]
                yield share.place, found.rows
    finally:
        for future in running:
            future.cancel()


_known = threading.local()
"""The last session of each thread, and its bench: batches of one session follow one another."""


def _bench(name: str, session: Callable[[], Session]) -> Bench:
    if getattr(_known, "name", None) != name:
        _known.name, _known.bench = name, Bench(session())
    bench: Bench = _known.bench
    return bench


def work(name: str, session: bytes, settings: Sequence[NamedRules], options: Options) -> Done:
    """Run settings on a session, in a worker, which keeps the last session that it was sent."""
    start = perf_counter()
    knew = getattr(_known, "name", None) == name
    bench = _bench(name, lambda: pickle.loads(session))  # noqa: S301  of this process's parent
    rows = bench.rows(settings, options)
    made = [next(rows)]
    first = perf_counter()
    made += rows
    return Done(
        made, (os.getpid(), threading.get_ident()), first - start, perf_counter() - first, knew
    )


def _here(
    share: WorkShare, settings: Sequence[NamedRules], options: Options, error: BaseException
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
    return list(_bench(share.name, lambda: share.session).rows(settings, options))


def workers_of(executor: Executor) -> int:
    """Return how many workers an executor has, as far as it says."""
    known = getattr(executor, "_max_workers", None)
    if isinstance(known, int) and known > 0:
        return known
    client = getattr(executor, "_client", None)
    threads = (
        sum(client.nthreads().values()) if client is not None and hasattr(client, "nthreads") else 0
    )
    return threads or 4
