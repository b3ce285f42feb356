"""Sessions under rules, one row a run: here, in a pool of processes, or on a cluster; resumable."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.errors import BadArguments
from ctxkit.readers.given import as_sessions
from ctxkit.sweeps.batches import Bench, NamedRules, Options, key_of
from ctxkit.sweeps.cores import CorePace, pool
from ctxkit.sweeps.grids import differing, labels, rules_of
from ctxkit.sweeps.notes import Notes
from ctxkit.sweeps.score_columns import NAMES, typed
from ctxkit.sweeps.spreads import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    import pandas as pd

    from ctxkit.readers.given import GivenAll
    from ctxkit.session import Session
    from ctxkit.sweeps.grids import Several


class Task(NamedTuple):
    """Settings that are to be run on a session, and its place among all."""

    place: int
    session: Session
    settings: tuple[NamedRules, ...]


def sweep(
    sessions: GivenAll,
    rules: Several,
    executor: Executor | None = None,
    out: str | Path | None = None,
    loss: bool = False,
    *,
    reuse: bool = False,
    progress: bool = True,
) -> pd.DataFrame:
    """Return one row for each session under each of the rules: their settings, and the columns of
    `score`.

    Settings in which the rules differ are columns. A run that fails, and a setting that was
    refused, is a row with its `error`. Interrupted (Ctrl-C), it returns the rows that are done, and
    says so in ``frame.attrs["interrupted"]``.

    Args:
        sessions: recorded sessions, paths of logs, or a folder of them; of a replay the recorded
            one is taken.
        rules: a grid, rules, policies, names of presets, or ``"all"``.
        executor: any ``concurrent.futures.Executor``: a ``ProcessPoolExecutor()``, Dask's
            ``client.get_executor()``; None: this process, and in a notebook or a console all cores,
            where the rest would take longer than some seconds. Rules and sessions must be picklable
            for it; what cannot travel is done here.
        out: a file of JSON lines that keeps finished runs; what it holds is not done again.
        loss: work out what was lost too.
        reuse: the call that writes a summary reads the cached prompt; else it sends what it
            summarises afresh.
        progress: show how far it is, and the remaining time by the calls that are left.

    Raises:
        BadArguments: there are no sessions or no rules, or something given is neither.
        StoreError: the file cannot be written.
    """
    options = Options(loss, reuse)
    return frame_of(sessions_of(sessions), rules, options, executor, out, progress=progress)


def frame_of(
    given: Sequence[Session],
    rules: Several,
    options: Options,
    executor: Executor | None = None,
    out: str | Path | None = None,
    *,
    progress: bool = True,
    bench: Callable[[Session], Bench] = Bench,
) -> pd.DataFrame:
    """Return what `sweep` does; `bench` makes the bench of each session that is run here."""
    settings = settings_of(rules)
    if executor is not None and not hasattr(executor, "submit"):
        raise BadArguments(
            f"An executor has `submit`, as a ProcessPoolExecutor does; {type(executor).__name__}"
            " has not."
        )
    rows, interrupted = rows_done(
        given, settings, options, executor=executor, out=out, progress=progress, bench=bench
    )
    frame: pd.DataFrame = typed(
        rows, tuple(n for n in differing([s.rules for s in settings]) if n not in NAMES)
    )
    frame.attrs["interrupted"] = interrupted
    return frame


def rows_done(
    given: Sequence[Session],
    settings: Sequence[NamedRules],
    options: Options,
    what: str = "sweep",
    *,
    executor: Executor | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    bench: Callable[[Session], Bench] = Bench,
) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of sessions under settings, and whether an interrupt ended it: then those
    that are done.
    """
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    interrupted = False
    with (
        Notes(out, f"loss={options.loss} reuse={options.reuse}") as notes,
        _bar(what, given, settings, progress) as bar,
    ):
        tasks: list[Task] = []
        for i, session in enumerate(given):
            name = key_of(session)
            kept = {(i, s.key): row for s in settings if (row := notes.done(name, s.key))}
            left = tuple(s for s in settings if (i, s.key) not in kept)
            rows |= kept
            bar.update((len(settings) - len(left)) * _weight(session))
            tasks += [Task(i, session, left)] if left else []
        try:
            for i, done in _finished(tasks, executor, options, bench):
                notes.keep(done)
                for row in done:
                    rows[i, row["key"]] = row
                bar.update(len(done) * _weight(given[i]))
        except KeyboardInterrupt:
            interrupted = True
    found = [
        (rows[i, s.key], s.label) for i in range(len(given)) for s in settings if (i, s.key) in rows
    ]
    if interrupted:
        told = (
            f"The {what} was interrupted: {len(found)} of {len(given) * len(settings)} runs are"
            " done"
        )
        warnings.warn(f"{told}{' and kept in the file' if out else ''}.", stacklevel=3)
    return [row if row["rules"] == label else row | {"rules": label} for row, label in found], (
        interrupted
    )


def sessions_of(sessions: GivenAll) -> list[Session]:
    """Return the recorded sessions of what was given; BadArguments where there are none."""
    given = as_sessions(sessions)
    if not given:
        raise BadArguments("There is no session to sweep over: read some first.")
    return [s.origin or s for s in given]


def settings_of(rules: Several) -> list[NamedRules]:
    """Return the settings; functions that cannot be told apart by name and code get keys of their
    own.
    """
    found = rules_of(rules)
    out: list[NamedRules] = []
    keys: dict[str, list[Any]] = {}
    for each, label in zip(found, labels(found), strict=True):
        setting = NamedRules.of(label, each)
        same = keys.setdefault(setting.key, [])
        n = same.index(each) if each in same else len(same)
        same += [each] if n == len(same) else []
        out.append(setting._replace(key=f"{setting.key}-{n}") if n else setting)
    return out


def _weight(session: Session) -> int:
    return max(len(session.calls), 1)


def _bar(
    what: str, sessions: Sequence[Session], settings: Sequence[NamedRules], progress: bool
) -> Any:
    from tqdm.auto import tqdm

    total = sum(map(_weight, sessions)) * len(settings)
    # it stays when it is done: one that is taken away leaves a broken widget in a notebook.
    # smoothing 0: the remaining time follows from the mean of all that was done, by calls and not
    # by runs
    return tqdm(
        total=total,
        unit="call",
        unit_scale=True,
        desc=what,
        smoothing=0,
        delay=1,
        disable=not progress,
    )


def _finished(
    tasks: Sequence[Task],
    executor: Executor | None,
    options: Options,
    bench: Callable[[Session], Bench],
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield rows as they are done: one by one in this process, in batches from an executor."""
    if executor is not None:
        yield from spread(tasks, executor, options)
        return
    pace = CorePace(sum(_weight(task.session) * len(task.settings) for task in tasks))
    asked = False
    for n, (i, session, settings) in enumerate(tasks):
        for done, row in enumerate(bench(session).rows(settings, options), 1):
            yield i, [row]
            pace.took(_weight(session))
            if asked or not pace.is_slow:
                continue
            asked, left = True, [Task(i, session, settings[done:]), *tasks[n + 1 :]]
            workers = pool([task.settings for task in left])
            if workers is not None:
                yield from _spread(left, workers, options)
                return


def _spread(
    tasks: Sequence[Task], workers: Executor, options: Options
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the rows of tasks from workers of our own; interrupted, they end with what they do."""
    try:
        yield from spread([task for task in tasks if task.settings], workers, options)
    finally:
        workers.shutdown(wait=False, cancel_futures=True)
