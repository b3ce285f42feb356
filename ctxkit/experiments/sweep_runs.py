"""`ctxkit.sweep`: sessions under rules, one row a run, resumable; summary and Pareto front of a
sweep.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments, StoreError
from ctxkit.experiments.grids import find_varying_settings, label_rules, resolve_rules
from ctxkit.experiments.parallel import WorkEstimate, make_process_pool, run_in_executor
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES, build_score_frame
from ctxkit.experiments.session_runner import (
    ROW_VERSION,
    NamedRules,
    RunOptions,
    SessionRunner,
    make_session_key,
)
from ctxkit.formats.inputs import as_sessions
from ctxkit.metrics.stats import compare_settings, summarise_runs
from ctxkit.metrics.stats import find_pareto_front as _front

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    import pandas as pd

    from ctxkit.experiments.grids import RulesArgument
    from ctxkit.formats.inputs import SessionsLike
    from ctxkit.session.session import Session


__all__ = ["OBJECTIVES", "compare_settings", "get_pareto_front", "summarise_runs"]
__dir__ = public_dir(__all__)


class SweepTask(NamedTuple):
    """Settings that are to be run on a session, and its place among all."""

    place: int
    session: Session
    settings: tuple[NamedRules, ...]


def sweep(
    sessions: SessionsLike,
    rules: RulesArgument,
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
    options = RunOptions(loss, reuse)
    return run_sweep(
        get_recorded_sessions(sessions), rules, options, executor, out, progress=progress
    )


def run_sweep(
    given: Sequence[Session],
    rules: RulesArgument,
    options: RunOptions,
    executor: Executor | None = None,
    out: str | Path | None = None,
    *,
    progress: bool = True,
    bench: Callable[[Session], SessionRunner] = SessionRunner,
) -> pd.DataFrame:
    """Return what `sweep` does; `bench` makes the bench of each session that is run here."""
    settings = resolve_settings(rules)
    if executor is not None and not hasattr(executor, "submit"):
        raise BadArguments(
            f"An executor has `submit`, as a ProcessPoolExecutor does; {type(executor).__name__}"
            " has not."
        )
    rows, interrupted = run_settings(
        given, settings, options, executor=executor, out=out, progress=progress, bench=bench
    )
    frame: pd.DataFrame = build_score_frame(
        rows,
        tuple(
            n
            for n in find_varying_settings([s.rules for s in settings])
            if n not in SCORE_COLUMN_NAMES
        ),
    )
    frame.attrs["interrupted"] = interrupted
    return frame


def run_settings(
    given: Sequence[Session],
    settings: Sequence[NamedRules],
    options: RunOptions,
    what: str = "sweep",
    *,
    executor: Executor | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    bench: Callable[[Session], SessionRunner] = SessionRunner,
) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of sessions under settings, and whether an interrupt ended it: then those
    that are done.
    """
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    interrupted = False
    with (
        RunJournal(out, f"loss={options.loss} reuse={options.reuse}") as notes,
        _progress_bar(what, given, settings, progress) as bar,
    ):
        tasks: list[SweepTask] = []
        for i, session in enumerate(given):
            name = make_session_key(session)
            kept = {(i, s.key): row for s in settings if (row := notes.done(name, s.key))}
            left = tuple(s for s in settings if (i, s.key) not in kept)
            rows |= kept
            bar.update((len(settings) - len(left)) * _call_count(session))
            tasks += [SweepTask(i, session, left)] if left else []
        try:
            for i, done in _iter_rows(tasks, executor, options, bench):
                notes.keep(done)
                for row in done:
                    rows[i, row["key"]] = row
                bar.update(len(done) * _call_count(given[i]))
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


def get_recorded_sessions(sessions: SessionsLike) -> list[Session]:
    """Return the recorded sessions of what was given; BadArguments where there are none."""
    given = as_sessions(sessions)
    if not given:
        raise BadArguments("There is no session to sweep over: read some first.")
    return [s.origin or s for s in given]


def resolve_settings(rules: RulesArgument) -> list[NamedRules]:
    """Return the settings; functions that cannot be told apart by name and code get keys of their
    own.
    """
    found = resolve_rules(rules)
    out: list[NamedRules] = []
    keys: dict[str, list[Any]] = {}
    for each, label in zip(found, label_rules(found), strict=True):
        setting = NamedRules.of(label, each)
        same = keys.setdefault(setting.key, [])
        n = same.index(each) if each in same else len(same)
        same += [each] if n == len(same) else []
        out.append(setting._replace(key=f"{setting.key}-{n}") if n else setting)
    return out


def _call_count(session: Session) -> int:
    return max(len(session.calls), 1)


def _progress_bar(
    what: str, sessions: Sequence[Session], settings: Sequence[NamedRules], progress: bool
) -> Any:
    from tqdm.auto import tqdm

    total = sum(map(_call_count, sessions)) * len(settings)
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


def _iter_rows(
    tasks: Sequence[SweepTask],
    executor: Executor | None,
    options: RunOptions,
    bench: Callable[[Session], SessionRunner],
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield rows as they are done: one by one in this process, in batches from an executor."""
    if executor is not None:
        yield from run_in_executor(tasks, executor, options)
        return
    pace = WorkEstimate(sum(_call_count(task.session) * len(task.settings) for task in tasks))
    asked = False
    for n, (i, session, settings) in enumerate(tasks):
        for done, row in enumerate(bench(session).rows(settings, options), 1):
            yield i, [row]
            pace.took(_call_count(session))
            if asked or not pace.is_slow:
                continue
            asked, left = True, [SweepTask(i, session, settings[done:]), *tasks[n + 1 :]]
            workers = make_process_pool([task.settings for task in left])
            if workers is not None:
                yield from _iter_pool_rows(left, workers, options)
                return


def _iter_pool_rows(
    tasks: Sequence[SweepTask], workers: Executor, options: RunOptions
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the rows of tasks from workers of our own; interrupted, they end with what they do."""
    try:
        yield from run_in_executor([task for task in tasks if task.settings], workers, options)
    finally:
        workers.shutdown(wait=False, cancel_futures=True)


RunKey = tuple[str, str, str]
"""Session, rules, options."""


class RunJournal:
    """A file of finished runs; without a path nothing is kept."""

    def __init__(self, path: str | Path | None, options: str) -> None:
        self.path = None if path is None else Path(path).expanduser()
        self.options = options
        self.known: dict[RunKey, dict[str, Any]] = {}
        self._file: Any = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        try:
            whole = self._read()
            self._file = self.path.open("ab")
            if not whole:
                self._file.write(b"\n")
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise StoreError(f"Runs cannot be kept in {str(self.path)!r}: {why}.") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self) -> bool:
        """Read what is there; return whether its last line is whole."""
        if self.path is None or not self.path.exists():
            return True
        data = self.path.read_bytes()
        for line in data.split(b"\n"):
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError:
                continue  # a torn line: its run is made again
            if row.get("version") == ROW_VERSION and {"of", "key", "options"} <= row.keys():
                self.known[(row["of"], row["key"], row["options"])] = row
        return not data or data.endswith(b"\n")

    def done(self, session: str, rules: str) -> dict[str, Any] | None:
        """Return the row of a run that was finished before."""
        return self.known.get((session, rules, self.options))

    def keep(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write finished runs; failed ones too, but they are made again the next time."""
        if self._file is None:
            return
        for row in rows:
            if row.get("error") is None:
                told = {**row, "options": self.options, "version": ROW_VERSION}
                self._file.write(msgspec.json.encode(told) + b"\n")
        self._file.flush()


OBJECTIVES = ("cost_usd", "needed_later_loss", "unpaid_cuts_n")
"""What a setting must not be worse in: dollars, needed-later loss, unpaid cuts. There is no single
score.
"""


def get_pareto_front(runs: pd.DataFrame, by: str = "rules") -> pd.DataFrame:
    """Return the summary of dollars, needed-later loss and unpaid cuts with a column `front`,
    cheapest first.

    A setting is on the front where no other one is at most as bad in all three and better in one.
    """
    rows = summarise_runs(runs, by, OBJECTIVES)
    rows["front"] = _front(*(rows[name].tolist() for name in OBJECTIVES))
    return rows.sort_values(["front", "cost_usd"], ascending=[False, True]).reset_index(drop=True)
