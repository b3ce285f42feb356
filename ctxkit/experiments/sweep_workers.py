"""Workers of a sweep: the runner of rules on one session, batches, placement, process pool."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import warnings
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from functools import cached_property
from hashlib import sha256
from math import ceil
from time import monotonic, perf_counter, process_time
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.gc_pause import pause_gc
from ctxkit._internal.warning_stack_level import find_stack_level
from ctxkit.engine import get_run_of_replay, make_log_from_session, run_rules, with_message_ids
from ctxkit.engine.replay import build_log_keeping_recorded_sizes, find_context_window
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.experiments.cost_and_loss_scores import (
    SessionAnalysisCache,
    map_score_row_to_view_figures,
    score_run,
)
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES
from ctxkit.experiments.setting_grids_and_labels import (
    RejectedSetting,
    convert_setting_to_plain_value,
)
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.policies.compaction_and_pruning_rules import unwrap_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
    from concurrent.futures import Future

    from ctxkit.engine import RulesRun
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.history.message_log import MessageLog
    from ctxkit.session.session import Session

    Rows = list[dict[str, Any]]


_MEMORY_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_RESERVED_COLUMNS = frozenset(SCORE_COLUMN_NAMES)
ROW_VERSION = 5
"""Version of the meaning of a row; a journal of another version is not resumed."""


class SweepScoreOptions(NamedTuple):
    """Options of all runs of a sweep (see `ctxkit.sweep`)."""

    loss: bool = False
    reuse: bool = False


class NamedRules(NamedTuple):
    """Rules with their distinct label and a key that identifies them across processes."""

    label: str
    rules: Rules | RejectedSetting
    key: str
    parameters: Mapping[str, Any] = {}
    """Parameters of the rules as plain values, without names that are score columns."""

    @classmethod
    def of(cls, label: str, rules: Rules | RejectedSetting) -> NamedRules:
        """Return the setting with its key, which is equal for equal rules in any process.

        Args:
            label: name of the setting.
            rules: its rules, or the reason why there are none.
        """
        # Parameters, representation and bytecode; memory addresses differ between processes.
        identity = repr((rules.label, sorted((k, repr(v)) for k, v in rules.parameters.items())))
        if not isinstance(rules, RejectedSetting):
            parts = (rules.policy, rules.trigger, rules.pruning, rules.summariser)
            identity += repr(rules) + "".join(map(_describe_code, parts))
        parameters = {
            k: convert_setting_to_plain_value(v)
            for k, v in rules.parameters.items()
            if k not in _RESERVED_COLUMNS
        }
        return cls(label, rules, _hash_text(_MEMORY_ADDRESS.sub("", identity)), parameters)


# A `SessionRunner` shares log, sizes and score cache between the runs on one session.
class SessionRunner:
    """Runs rules on one session; the message log is built once per counter and estimator."""

    def __init__(self, session: Session) -> None:
        self.name = make_session_key(session)
        self.session = with_message_ids(session)
        self.base = SessionAnalysisCache(self.session)
        self.limit = find_context_window(self.session)
        self._logs: dict[Any, tuple[MessageLog, Rules]] = {}

    def log(self, rules: Rules) -> MessageLog:
        """Return the message log sized by the rules' counter and estimator."""
        return build_log_keeping_recorded_sizes(
            self.session,
            self.base.message_sizes,
            rules,
            self.limit,
            lambda recorded_calls: self._build_log(rules, recorded_calls),
        )

    def _build_log(self, rules: Rules, recorded_calls: int) -> MessageLog:
        key: tuple[Any, ...] = rules.counter, rules.estimator, recorded_calls
        try:
            cached = self._logs.get(key)
        except TypeError:  # not hashable
            key = id(rules.counter), id(rules.estimator), recorded_calls
            cached = self._logs.get(key)
        if cached is None:
            anchored = self.base.message_sizes if rules.counter is None else None
            message_log = make_log_from_session(
                self.session, rules, recorded_calls=recorded_calls, anchored=anchored
            )
            # the rules keep the counter of an id() key alive
            self._logs[key] = cached = message_log, rules
        return cached[0]

    def run(self, rules: Rules | RejectedSetting) -> RulesRun:
        """Return the run of the session under rules.

        Raises:
            BadArguments: a setting was refused when the rules were made.
        """
        if isinstance(rules, RejectedSetting):
            raise BadArguments(rules.error)
        return run_rules(self.log(rules), rules, self.limit)

    def row(self, setting: NamedRules, options: SweepScoreOptions) -> dict[str, Any]:
        """Return the score row of one run; a failed run gives a row with its error.

        Args:
            setting: the rules of the run, with their label.
            options: options of the sweep, the same for all runs.
        """
        rules = setting.rules
        row: dict[str, Any] = {"session": self.session.id, "rules": setting.label}
        try:
            run, (loss, reuse) = self.run(rules), options
            row = score_run(self.base, run, setting.label, loss=loss, reuse=reuse)
        except CtxkitError as error:
            row["error"] = str(error)
        except Exception as error:  # noqa: BLE001  whatever a user's policy raises, the other runs continue
            row["error"] = f"{type(error).__name__}: {error}"
        row |= setting.parameters
        row["key"], row["of"] = setting.key, self.name
        return row

    def rows(
        self, settings: Sequence[NamedRules], options: SweepScoreOptions
    ) -> Iterator[dict[str, Any]]:
        """Yield the score rows of runs under several settings, as they finish.

        Args:
            settings: the rules of each run, with their labels.
            options: options of the sweep, the same for all runs.
        """
        for setting in settings:
            with pause_gc():  # a run allocates many objects at once
                row = self.row(setting, options)
            yield row


def make_session_key(session: Session) -> str:
    """Return a hash that identifies the content of a session (not of its texts).

    Args:
        session: recorded.

    Returns:
        A text that stays equal over processes, for journals of sweeps and baselines of gates.
    """
    last = session.log[-1].id if session.log else ""
    usages = [
        (c.message.usage.prompt_tokens if c.message.usage else None, c.position)
        for c in session.calls
    ]
    head = session.id, session.format, session.agent, len(session.log), session.leaf
    return _hash_text(repr((*head, last, usages)))


def _describe_code(part: Any) -> str:
    """Return the bytecode of a user's function, because a name may be redefined; else empty."""
    code = getattr(unwrap_function(part), "__code__", None)
    return "" if code is None else repr((code.co_code, code.co_consts, code.co_names))


def _hash_text(text: str) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


@register_view_values("compare, sweep and gate")
def _read_figures(session: Session) -> dict[str, Any]:
    """Return what a row of the session's rules shows: a fresh run over its record."""
    run = get_run_of_replay(session)
    if run is None:
        return {}
    runner = SessionRunner(session.origin or session)
    return map_score_row_to_view_figures(
        runner.row(NamedRules.of("", run.rules), SweepScoreOptions())
    )


BATCH_SECONDS = 0.25
"""Shortest duration aimed at for a batch, so that its transfer (some ms on Dask) costs little."""
LONGEST_SECONDS = 5.0
"""Longest duration aimed at for a batch, so that progress stays visible."""
FIRST_BATCH_RUNS = 4
"""Runs in a batch before the first duration is measured."""


class BatchResult(NamedTuple):
    """Rows of a finished batch, with its worker and durations."""

    rows: Rows
    worker: tuple[int, int]
    first: float
    """Seconds until the first row, including the reading of a session that was not cached."""
    rest: float
    """Seconds of the other rows."""
    was_cached: bool


class RemainingSessionWork:
    """A session with the settings that remain to be run on it."""

    def __init__(self, place: int, session: Session, settings: Sequence[NamedRules]) -> None:
        self.place, self.session, self.remaining = place, session, list(settings)
        self.calls = max(len(session.calls), 1)
        self.name = make_session_key(session)
        self.owner: Any = None
        """Worker that has read the session; a placeholder object until its first result."""

    @cached_property
    def bytes(self) -> bytes:
        """The pickled session."""
        return pickle.dumps(self.session, pickle.HIGHEST_PROTOCOL)

    def take(self, n: int) -> tuple[NamedRules, ...]:
        """Remove and return the next `n` settings."""
        batch, self.remaining = tuple(self.remaining[:n]), self.remaining[n:]
        return batch


# Scheduling is dynamic load balancing with data affinity. Reading a session costs far more than one
# run on it, so a session belongs to the worker that has read it, and each batch is a part of one
# session's remaining settings. Batch sizes follow from two running estimates, seconds per run and
# seconds per read (both per call of the session). A batch takes `BATCH_SECONDS` at least, so that
# the transfer costs little, and `LONGEST_SECONDS` at most, so that progress is visible. A worker
# without a session of its own takes a free one, else half of the largest remainder (work stealing),
# unless the owner would finish sooner than the thief could read it.
class WorkPlan:
    """Assignment of batches to workers, from the durations measured so far."""

    def __init__(self, shares: Sequence[RemainingSessionWork], workers: int) -> None:
        self.shares = sorted(shares, key=lambda s: -s.calls * len(s.remaining))
        self.workers = workers
        self.run: float | None = None
        """Estimated seconds per run and call of the session; None before the first result."""
        self.read = 0.0
        """Estimated seconds to read a session, per call."""

    def learn(self, share: RemainingSessionWork, result: BatchResult) -> None:
        """Update the estimates; runs after the first give the duration without the reading.

        Args:
            share: the session of the batch.
            result: rows and durations of the batch.
        """
        # The first run of a batch may include the reading of the session; the others do not.
        n = len(result.rows)
        run_seconds = result.rest / (n - 1) if n > 1 else result.first
        run_seconds /= share.calls
        # exponential moving average with weight 1/2
        self.run = run_seconds if self.run is None else (self.run + run_seconds) / 2
        if not result.was_cached and n > 1:
            self.read = max(result.first / share.calls - run_seconds, 0.0)

    def next(self, worker: Any) -> tuple[RemainingSessionWork, tuple[NamedRules, ...]] | None:
        """Return the next batch of a worker: of its session, a free one, or a stolen half.

        None where no work is left, or where stealing would take longer than it saves.
        """
        # First choice: the session that the worker has read. Second: one that nobody has read.
        unfinished = [s for s in self.shares if s.remaining]
        owned = [s for s in unfinished if s.owner == worker]
        free = [s for s in unfinished if s.owner is None]
        if owned or free:
            share = (owned or free)[0]
            share.owner = worker
            return share, share.take(self.size(share))
        if not unfinished:
            return None
        # Third: steal half of the session with the most remaining work.
        share = max(unfinished, key=lambda s: s.calls * len(s.remaining))
        if self.is_small(share, len(share.remaining)):
            return None
        return share, share.take(min(self.size(share), ceil(len(share.remaining) / 2)))

    def spare(self) -> tuple[RemainingSessionWork, tuple[NamedRules, ...]] | None:
        """Return a whole session to queue ahead of need; None while workers have work of their own.

        Also None where sessions are large or few: splitting them balances better.
        """
        unfinished = [s for s in self.shares if s.remaining]
        if self.run is None or not unfinished or any(s.owner is not None for s in unfinished):
            return None
        # shares are ordered by work, so the first is the largest
        seconds = self.run * unfinished[0].calls * len(unfinished[0].remaining)
        if seconds > LONGEST_SECONDS or seconds * 2 * self.workers > self.seconds:
            return None
        unfinished[0].owner = object()
        return unfinished[0], unfinished[0].take(len(unfinished[0].remaining))

    @property
    def seconds(self) -> float:
        """Estimated seconds of unassigned work."""
        return (self.run or 0.0) * sum(s.calls * len(s.remaining) for s in self.shares)

    def is_small(self, share: RemainingSessionWork, n: int) -> bool:
        """Return whether `n` runs end sooner than another worker could read the session.

        Args:
            share: the session.
            n: number of settings to run on it.
        """
        return (
            self.run is not None
            and self.run * n * share.calls < BATCH_SECONDS + self.read * share.calls
        )

    def assign_batches(
        self, idle: list[Any], running: Sized
    ) -> Iterator[tuple[Any, RemainingSessionWork, tuple[NamedRules, ...]]]:
        """Yield the batches to start now.

        Args:
            idle: identities of workers that wait; those that get a batch, or for which no work is
                left, are removed.
            running: the batches that run.

        Returns:
            The worker (a new object for a session that waits in the pool's queue), the session, and
            the settings to run on it.
        """
        # up to one queued session per worker, so that none waits for a round trip
        while len(running) < 2 * self.workers and (spare := self.spare()) is not None:
            yield object(), *spare
        while idle and len(running) < self.workers:
            worker = idle.pop()
            if (batch := self.next(worker)) is not None:
                yield worker, *batch

    def orphans(self) -> list[Any]:
        """Release all sessions and return one new worker where work is left.

        It is called when no batch is running, so every former owner is idle or gone.
        """
        unfinished = [s for s in self.shares if s.remaining]
        for share in unfinished:
            share.owner = None
        return [object() for _ in unfinished[:1]]

    def size(self, share: RemainingSessionWork) -> int:
        """Return the number of runs in the next batch of a session.

        Guided self-scheduling: half of each worker's share of the remaining time, within the two
        limits of duration. A remainder that is too small to steal is added to the batch.
        """
        if self.run is None:
            return min(FIRST_BATCH_RUNS, ceil(len(share.remaining) / self.workers))
        seconds = min(max(self.seconds / (2 * self.workers), BATCH_SECONDS), LONGEST_SECONDS)
        n = max(1, ceil(seconds / max(self.run * share.calls, 1e-7)))
        rest = len(share.remaining) - n
        return len(share.remaining) if rest > 0 and self.is_small(share, rest) else n


def run_in_executor(
    tasks: Sequence[tuple[int, Session, Sequence[NamedRules]]],
    executor: Executor,
    options: SweepScoreOptions,
) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of batches as workers finish them.

    Batches that cannot be pickled, or whose worker failed, are run in this process.

    Args:
        tasks: index of each session, the session, and the rules to run on it.
        executor: runs batches, for instance in processes.
        options: options of all runs.
    """
    plan = WorkPlan([RemainingSessionWork(*task) for task in tasks], count_workers(executor))
    running: dict[Future[Any], tuple[Any, RemainingSessionWork, tuple[NamedRules, ...]]] = {}
    idle: list[Any] = [object() for _ in range(plan.workers)]
    try:
        while idle or running:
            for worker, share, settings in plan.assign_batches(idle, running):
                try:
                    future = executor.submit(run_batch, share.name, share.bytes, settings, options)
                except Exception as error:  # noqa: BLE001  a pool that broke, or is shut down: see below
                    yield share.place, _run_here(share, settings, options, error)
                    idle.append(worker)
                else:
                    running[future] = (worker, share, settings)
            # nothing runs and work is left: the owners of the sessions are gone
            if not running:
                idle += plan.orphans()
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                worker, share, settings = running.pop(future)
                failed = future.exception()
                if failed is not None:
                    yield share.place, _run_here(share, settings, options, failed)
                    idle.append(worker)
                    continue
                result: BatchResult = future.result()
                plan.learn(share, result)
                # the executor chose the worker; its identity is known from the result only
                if share.owner is worker:
                    share.owner = result.worker
                idle += [] if result.worker in idle else [result.worker]
                yield share.place, result.rows
    finally:
        for future in running:
            future.cancel()


_worker_state = threading.local()
"""Runner of the last session of each thread; batches of one session follow one another."""


def _cached_runner(name: str, session: Callable[[], Session]) -> SessionRunner:
    if getattr(_worker_state, "name", None) != name:
        _worker_state.name, _worker_state.bench = name, SessionRunner(session())
    runner: SessionRunner = _worker_state.bench
    return runner


def run_batch(
    name: str, session: bytes, settings: Sequence[NamedRules], options: SweepScoreOptions
) -> BatchResult:
    """Run settings on a pickled session in a worker, which caches its last session.

    Args:
        name: key of the session, which decides whether the cached one can be used.
        session: the pickled session.
        settings: the settings to run, at least one.
        options: options of the scores.
    """
    start = perf_counter()
    is_cached = getattr(_worker_state, "name", None) == name
    runner = _cached_runner(name, lambda: pickle.loads(session))  # noqa: S301  of this process's parent
    rows = runner.rows(settings, options)
    result_rows = [next(rows)]
    first = perf_counter()
    result_rows += rows
    return BatchResult(
        result_rows,
        (os.getpid(), threading.get_ident()),
        first - start,
        perf_counter() - first,
        is_cached,
    )


def _run_here(
    share: RemainingSessionWork,
    settings: Sequence[NamedRules],
    options: SweepScoreOptions,
    error: BaseException,
) -> Rows:
    """Run a batch in this process after its worker failed.

    Runs never raise, so the error is one of the transfer or of the worker.
    """
    if not isinstance(error, Exception):
        raise error
    why = f"{type(error).__name__}: {error}"[:200]
    warnings.warn(
        f"{len(settings)} runs were done in this process, as a worker could not ({why}).",
        stacklevel=find_stack_level(),
    )
    return list(_cached_runner(share.name, lambda: share.session).rows(settings, options))


def count_workers(executor: Executor) -> int:
    """Return the number of workers of an executor; 4 where it does not say."""
    max_workers = getattr(executor, "_max_workers", None)
    if isinstance(max_workers, int) and max_workers > 0:
        return max_workers
    client = getattr(executor, "_client", None)
    threads = (
        sum(client.nthreads().values()) if client is not None and hasattr(client, "nthreads") else 0
    )
    return threads or 4


FIRST_CHECK_SECONDS = 1.0
"""Seconds of CPU time after which the remaining time is estimated."""
CHECK_INTERVAL_SECONDS = 0.01
"""Seconds between two estimates: reading the CPU time costs a hundredth of a short run."""
MIN_REMAINING_SECONDS = 4.0
"""Remaining seconds above which workers are started; a worker needs one or two to start."""


class RemainingTimeForPoolStart:
    """Estimate of the remaining CPU time, from the runs finished so far.

    The first run is excluded, because it reads the log for all others. CPU time leaves out other
    programs of the machine and waiting for a model.
    """

    def __init__(self, total: int) -> None:
        self._begin, self._total, self._finished = process_time(), total, 0
        self._start: float | None = None
        self._next = 0.0

    def record_run(self, weight: int) -> None:
        """Record a finished run of so many calls."""
        self._total -= weight
        if self._start is None:
            self._start = process_time()
        else:
            self._finished += weight

    @property
    def is_slow(self) -> bool:
        """True where the remaining work justifies starting workers."""
        if monotonic() < self._next:
            return False
        self._next, now = monotonic() + CHECK_INTERVAL_SECONDS, process_time()
        if self._start is None or not self._finished or now - self._begin < FIRST_CHECK_SECONDS:
            return False
        return (now - self._start) / self._finished * self._total > MIN_REMAINING_SECONDS


def make_process_pool(payload: Sequence[Any]) -> ProcessPoolExecutor | None:
    """Return a pool with one worker per core; None where there is one core or a pool is unsafe.

    A spawned worker imports the main file again, which would run an unguarded script twice, so
    pools are made in notebooks and consoles only. Objects defined there cannot be pickled.

    Args:
        payload: the objects that the workers will be sent.
    """
    n = count_cores()
    if n < 2 or not is_interactive() or not _can_pickle(payload):
        return None
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=spawn, initializer=_ignore_interrupt)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_interactive() -> bool:
    """Return whether this process is a notebook or a console, and not a worker."""
    main = sys.modules.get("__main__")
    typed = getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None
    return typed and multiprocessing.parent_process() is None


def _can_pickle(payload: Sequence[Any]) -> bool:
    try:
        return b"__main__" not in pickle.dumps(payload, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  whatever a user's object raises, it stays here
        return False


def _ignore_interrupt() -> None:
    """Ignore interrupts in a worker; the waiting process handles them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
