"""Sessions under rules, one row a run: here, in a pool of processes, or on a cluster; resumable."""

from __future__ import annotations

import warnings
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.session import Session
from ctxkit.sweeps.batches import Bench, Options, Setting, batch, key_of
from ctxkit.sweeps.columns import NAMES, typed
from ctxkit.sweeps.grids import differing, labels, rules_of
from ctxkit.sweeps.notes import Notes
from ctxkit.sweeps.stack.rows import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    import pandas as pd

BATCH_SECONDS = 0.05
"""A batch takes at least so long, so that handing it over (2 ms on Dask) costs little."""
LONGEST_SECONDS = 5.0
"""And not much longer, so that the progress can be seen."""
TOGETHER = 16
"""Sessions that are done at once where nothing but sizes and money is asked for."""
PER_WORKER = 4
"""Batches that are on their way for each worker."""


class Task(NamedTuple):
    """Settings that are to be run on a session."""

    session: Session
    settings: tuple[Setting, ...]

    def parts(self, size: int) -> list[Task]:
        """Return the task in parts of so many settings."""
        return [Task(self.session, self.settings[a : a + size]) for a in range(0, len(self.settings), size)]

    def without(self, n: int) -> Task:
        """Return the task without its first settings."""
        return Task(self.session, self.settings[n:])


def sweep(
    sessions: Session | Iterable[Session],
    rules: Any,
    executor: Executor | None = None,
    out: str | Path | None = None,
    loss: bool = False,
    *,
    reuse: bool = False,
    progress: bool = True,
) -> pd.DataFrame:
    """Return one row for each session under each of the rules: their settings, and the columns of `score`.

    Settings in which the rules differ are columns. A run that fails, and a setting that was refused, is a row with its
    `error`. Interrupted (Ctrl-C), it returns the rows that are done, and says so in ``frame.attrs["interrupted"]``.

    Args:
        sessions: recorded sessions; of a replay the recorded one is taken.
        rules: a grid, rules, policies, names of presets, or ``"all"``.
        executor: any ``concurrent.futures.Executor``: a ``ProcessPoolExecutor()``, Dask's ``client.get_executor()``;
            None: this process. Rules and sessions must be picklable for it; what cannot travel is done here.
        out: a file of JSON lines that keeps finished runs; what it holds is not done again.
        loss: work out what was lost too.
        reuse: the call that writes a summary reads the cached prompt; else it sends what it summarises afresh.
        progress: show how far it is, and the remaining time by the calls that are left.

    Raises:
        BadArguments: there are no sessions or no rules, or something given is neither.
        StoreError: the file cannot be written.
    """
    given = sessions_of(sessions)
    settings = _settings(rules)
    if executor is not None and not hasattr(executor, "submit"):
        raise BadArguments(
            f"An executor has `submit`, as a ProcessPoolExecutor does; {type(executor).__name__} has not."
        )
    options = Options(loss, reuse)
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    interrupted = False
    with Notes(out, f"loss={loss} reuse={reuse}") as notes, _bar(given, settings, progress) as bar:
        tasks = []
        for i, session in enumerate(given):
            name = key_of(session)
            left = []
            for s in settings:
                row = notes.done(name, s.key)
                if row is None:
                    left.append(s)
                else:
                    rows[i, s.key] = row
            bar.update((len(settings) - len(left)) * _weight(session))
            if left:
                tasks.append((i, Task(session, tuple(left))))
        try:
            for i, done in _finished(tasks, executor, options):
                notes.keep(done)
                rows |= {(i, row["key"]): row for row in done}
                bar.update(len(done) * _weight(given[i]))
        except KeyboardInterrupt:
            interrupted = True
    ordered = [rows[i, s.key] | {"rules": s.label} for i in range(len(given)) for s in settings if (i, s.key) in rows]
    frame: pd.DataFrame = typed(ordered, tuple(n for n in differing([s.rules for s in settings]) if n not in NAMES))
    frame.attrs["interrupted"] = interrupted
    if interrupted:
        told = f"The sweep was interrupted: {len(ordered)} of {len(given) * len(settings)} runs are done"
        warnings.warn(f"{told}{' and kept in the file' if out else ''}.", stacklevel=2)
    return frame


def sessions_of(sessions: Session | Iterable[Session]) -> list[Session]:
    """Return the recorded sessions of what was given; BadArguments where there are none."""
    try:
        given = [sessions] if isinstance(sessions, Session) else list(sessions)
    except TypeError:
        raise BadArguments(f"Give a session or several, not {type(sessions).__name__}.") from None
    for each in given:
        if not isinstance(each, Session):
            raise BadArguments(f"Give sessions to sweep over, not {type(each).__name__}.")
    if not given:
        raise BadArguments("There is no session to sweep over: read some first.")
    return [s.origin or s for s in given]


def _settings(rules: Any) -> list[Setting]:
    """Return the settings; functions that cannot be told apart by name and code get keys of their own."""
    found = rules_of(rules)
    out: list[Setting] = []
    keys: dict[str, list[Any]] = {}
    for each, label in zip(found, labels(found), strict=True):
        setting = Setting.of(label, each)
        same = keys.setdefault(setting.key, [])
        n = same.index(each) if each in same else len(same)
        same += [each] if n == len(same) else []
        out.append(setting._replace(key=f"{setting.key}-{n}") if n else setting)
    return out


def _weight(session: Session) -> int:
    return max(len(session.calls), 1)


def _bar(sessions: Sequence[Session], settings: Sequence[Setting], progress: bool) -> Any:
    from tqdm.auto import tqdm

    total = sum(map(_weight, sessions)) * len(settings)
    # it stays when it is done: one that is taken away leaves a broken widget in a notebook. smoothing 0: the
    # remaining time follows from the mean of all that was done, by calls and not by runs
    return tqdm(total=total, unit="call", unit_scale=True, desc="sweep", smoothing=0, delay=1, disable=not progress)


def _finished(
    tasks: Sequence[tuple[int, Task]], executor: Executor | None, options: Options
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the rows of batches as they are done."""
    if executor is None:
        yield from _done_here(tasks, options)
        return
    first = [(i, part) for i, task in tasks[:1] for part in task.parts(1)[:2]]
    seconds = 0.0
    for i, part in first:  # done here: the second, with everything made, tells how many runs make a batch
        start = perf_counter()
        yield i, batch(part.session, part.settings, options)
        seconds = perf_counter() - start
    left = [(i, t.without(2) if n == 0 else t) for n, (i, t) in enumerate(tasks)]
    workers = workers_of(executor)
    queue = [(i, part) for i, t in left for part in t.parts(size(len(t.settings), len(left), workers, seconds))]
    yield from spread(queue, executor, workers * PER_WORKER, options)


def _done_here(tasks: Sequence[tuple[int, Task]], options: Options) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield rows made in this process: those of the stack for some sessions at once, then one by one."""
    at = 0
    while at < len(tasks):
        settings, some = tasks[at][1].settings, [tasks[at]]
        for task in tasks[at + 1 : at + (1 if options.loss else TOGETHER)]:
            if task[1].settings != settings:
                break
            some.append(task)
        at += len(some)
        benches = [Bench(task.session) for _, task in some]
        for (i, _), bench, made in zip(some, benches, rows(benches, settings, options), strict=True):
            yield i, [row | {"of": bench.name} for row in made if row is not None]
            for setting, row in zip(settings, made, strict=True):
                if row is None:
                    yield i, [bench.row(setting, options) | {"of": bench.name}]


def size(settings: int, sessions: int, workers: int, seconds: float) -> int:
    """Return how many runs make a batch: one session's share of a worker, at least 50 ms of work, at most 5 s."""
    fair = ceil(settings / workers) if sessions < 2 * workers else settings
    least, most = (ceil(t / max(seconds, 1e-6)) for t in (BATCH_SECONDS, LONGEST_SECONDS))
    return max(min(fair, most), least, 1)


def spread(
    queue: Sequence[tuple[int, Task]], executor: Executor, ahead: int, options: Options
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Hand batches over, never more than `ahead` at once, and yield their rows; what cannot travel is done here."""
    running: dict[Future[Any], tuple[int, Task]] = {}
    waiting = list(reversed(queue))
    try:
        while waiting or running:
            while waiting and len(running) < ahead:
                i, task = waiting.pop()
                try:
                    running[executor.submit(batch, task.session, task.settings, options)] = (i, task)
                except Exception as error:  # noqa: BLE001  a pool that broke, or is shut down: see below
                    yield i, _here(task, options, error)
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                i, task = running.pop(future)
                failed = future.exception()
                yield i, future.result() if failed is None else _here(task, options, failed)
    finally:
        for future in running:
            future.cancel()


def _here(task: Task, options: Options, error: BaseException) -> list[dict[str, Any]]:
    """Do a batch in this process: runs never raise, so it is the way to the worker, or the worker, that failed."""
    if not isinstance(error, Exception):
        raise error
    why = f"{type(error).__name__}: {error}"[:200]
    warnings.warn(f"{len(task.settings)} runs were done in this process, as a worker could not ({why}).", stacklevel=2)
    return batch(task.session, task.settings, options)


def workers_of(executor: Executor) -> int:
    """Return how many workers an executor has, as far as it says."""
    known = getattr(executor, "_max_workers", None)
    if isinstance(known, int) and known > 0:
        return known
    client = getattr(executor, "_client", None)
    threads = sum(client.nthreads().values()) if client is not None and hasattr(client, "nthreads") else 0
    return threads or 4
