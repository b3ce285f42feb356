"""Sweeps of sessions over rules (`ctxkit.sweep`), resumable, and the Pareto front of a sweep."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.progress_bar import make_progress_bar
from ctxkit._internal.warning_stack_level import find_stack_level
from ctxkit.errors import BadArguments, StoreError
from ctxkit.experiments.score_columns import SCORE_COLUMN_NAMES, build_score_frame
from ctxkit.experiments.setting_choice_and_sweep_display import check_max_loss
from ctxkit.experiments.setting_grids_and_labels import (
    find_varying_settings,
    label_rules,
    resolve_rules_list,
)
from ctxkit.experiments.sweep_workers import (
    ROW_VERSION,
    NamedRules,
    RemainingTimeForPoolStart,
    SessionRunner,
    SweepScoreOptions,
    make_process_pool,
    make_session_key,
    run_in_executor,
)
from ctxkit.formats.sessions_from_arguments import as_sessions
from ctxkit.metrics.bootstrap_and_paired_tests import compare_settings, summarise_runs
from ctxkit.metrics.bootstrap_and_paired_tests import find_pareto_front as _front

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    import pandas as pd

    from ctxkit.experiments.setting_grids_and_labels import RulesArgument
    from ctxkit.formats.sessions_from_arguments import SessionsLike
    from ctxkit.session.session import Session


__all__ = ["OBJECTIVES", "compare_settings", "summarise_runs", "summarise_runs_with_pareto_front"]
__dir__ = make_dunder_dir(__all__)


class SessionSweepTask(NamedTuple):
    """Settings that remain to be run on a session, and the session's index in the sweep."""

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
    max_loss: float | None = None,
) -> pd.DataFrame:
    """Replay each session under each of the rules and score the runs.

    After an interrupt (Ctrl-C) the rows finished so far are returned and
    ``frame.attrs["interrupted"]`` is True.

    Args:
        sessions: recorded sessions, paths of logs, or a folder of them. For a replay, its recorded
            session is used.
        rules: a grid, rules, policies, preset names, or ``"all"``.
        executor: any ``concurrent.futures.Executor``, such as ``ProcessPoolExecutor()``, or a Dask
            ``Client``; None: this process, and in a notebook or console all cores where the
            remaining work would take more than a few seconds. Rules and sessions that cannot be
            pickled are run in this process.
        out: a JSON Lines file of finished runs; runs that it holds are not repeated.
        loss: also compute the columns of information loss.
        reuse: bill the call that writes a summary as reading the cached prompt; otherwise it sends
            what it summarises as fresh input.
        progress: show a progress bar with the remaining time.
        max_loss: share of what was used again that a setting may lose, 0 to 1, to be called the
            cheapest in the display; None: no bound.

    Returns:
        One row per session and setting: the columns of `score`, and one column for each parameter
        in which the rules differ. A failed run or refused setting is a row with its `error`. It is
        shown by its settings; `.detail` shows all.

    Raises:
        BadArguments: there are no sessions or no rules, or an item is neither.
        StoreError: the file cannot be written.

    Example:
        >>> import ctxkit as ck
        >>> grid = ck.grid("pi", reserve_tokens=[8_000, 16_000])
        >>> frame = ck.sweep(ck.samples.path(), grid, progress=False)
        >>> frame[["reserve_tokens", "compactions_n"]].values.tolist()
        [[8000, 4], [16000, 20]]
    """
    from ctxkit._internal.data_frame_display import with_display
    from ctxkit.experiments.setting_choice_and_sweep_display import SweepDisplay

    check_max_loss(max_loss)
    options = SweepScoreOptions(loss, reuse)
    runs = run_sweep(
        replace_replays_by_recorded_sessions(sessions),
        rules,
        options,
        executor,
        out,
        progress=progress,
    )
    return with_display(runs, SweepDisplay(max_loss))


def _as_executor(executor: Any) -> Executor | None:
    """Return an executor; that of a Dask client, whose own futures are no `concurrent.futures`."""
    get_executor = getattr(executor, "get_executor", None)
    result_executor: Executor | None = get_executor() if callable(get_executor) else executor
    return result_executor


def run_sweep(
    sessions: Sequence[Session],
    rules: RulesArgument,
    options: SweepScoreOptions,
    executor: Executor | None = None,
    out: str | Path | None = None,
    *,
    progress: bool = True,
    make_runner: Callable[[Session], SessionRunner] = SessionRunner,
) -> pd.DataFrame:
    """Run a sweep; `make_runner` makes the runner of each session that is run in this process.

    Args:
        sessions: recorded sessions; replays are replaced by their records before.
        rules: the rules or their names, as `ctxkit.sweep` takes them.
        options: what is computed for each run.
        executor: runs batches elsewhere; None: in this process, or a pool where that is quicker.
        out: file of finished runs, from which an interrupted sweep continues; None: none.
        progress: show a progress bar.
        make_runner: makes the runner of each session that is run in this process.

    Returns:
        A row for each session and setting, with the columns of `SCORE_COLUMNS`.

    Raises:
        BadArguments: the executor has no method `submit`, or the rules name none.
    """
    settings = resolve_settings(rules)
    executor = _as_executor(executor)
    if executor is not None and not hasattr(executor, "submit"):
        raise BadArguments(
            f"An executor has `submit`, as a ProcessPoolExecutor does; {type(executor).__name__}"
            " has not."
        )
    rows, interrupted = run_settings(
        sessions,
        settings,
        options,
        executor=executor,
        out=out,
        progress=progress,
        make_runner=make_runner,
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


# The sweep as a state machine: every pair of session and setting is finished (in the journal or run
# now) or pending. Results arrive in any order and are stored under (session index, rules key), so
# the output order depends on the input alone. A journal line is written before the progress moves,
# hence an interrupt or crash loses at most the runs in flight. Keys are content hashes: a changed
# session or changed rules are new pairs, and old lines for them are ignored.
def run_settings(
    sessions: Sequence[Session],
    settings: Sequence[NamedRules],
    options: SweepScoreOptions,
    task_name: str = "sweep",
    *,
    executor: Executor | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    make_runner: Callable[[Session], SessionRunner] = SessionRunner,
) -> tuple[list[dict[str, Any]], bool]:
    """Return the finished rows of sessions under settings, and whether an interrupt ended the run.

    Rows are ordered by session, then by setting, whatever the order in which workers finish.

    Args:
        sessions: recorded.
        settings: the rules, with distinct keys.
        options: what is computed for each run.
        task_name: title of the progress bar.
        executor: runs batches elsewhere; None: in this process, or a pool where that is quicker.
        out: file of finished runs, from which an interrupted sweep continues; None: none.
        progress: show a progress bar.
        make_runner: makes the runner of each session that is run in this process.

    Returns:
        A dictionary for each finished run, and True if an interrupt ended the rest.
    """
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    interrupted = False
    with (
        RunJournal(out, f"loss={options.loss} reuse={options.reuse}") as journal,
        _make_progress_bar(task_name, sessions, settings, progress) as bar,
    ):
        # Runs that the journal holds are taken from it; the others become tasks.
        tasks: list[SessionSweepTask] = []
        for i, session in enumerate(sessions):
            name = make_session_key(session)
            finished = {(i, s.key): row for s in settings if (row := journal.get_row(name, s.key))}
            unfinished = tuple(s for s in settings if (i, s.key) not in finished)
            rows |= finished
            bar.update((len(settings) - len(unfinished)) * _count_calls(session))
            tasks += [SessionSweepTask(i, session, unfinished)] if unfinished else []
        try:
            for i, new_rows in _iter_rows(tasks, executor, options, make_runner):
                journal.keep(new_rows)
                for row in new_rows:
                    rows[i, row["key"]] = row
                bar.update(len(new_rows) * _count_calls(sessions[i]))
        except KeyboardInterrupt:
            interrupted = True
    labelled_rows = [
        (rows[i, s.key], s.label)
        for i in range(len(sessions))
        for s in settings
        if (i, s.key) in rows
    ]
    if interrupted:
        message = (
            f"The {task_name} was interrupted: {len(labelled_rows)} of"
            f" {len(sessions) * len(settings)} runs are done"
        )
        warnings.warn(
            f"{message}{' and kept in the file' if out else ''}.", stacklevel=find_stack_level()
        )
    return [
        row if row["rules"] == label else row | {"rules": label} for row, label in labelled_rows
    ], (interrupted)


def replace_replays_by_recorded_sessions(sessions: SessionsLike) -> list[Session]:
    """Return recorded sessions; a replay is replaced by its recorded session.

    Args:
        sessions: sessions, paths of logs, or a list of these.

    Returns:
        The records in the order given.

    Raises:
        BadArguments: there is no session.
    """
    resolved = as_sessions(sessions)
    if not resolved:
        raise BadArguments("There is no session to sweep over: read some first.")
    return [s.origin or s for s in resolved]


def resolve_settings(rules: RulesArgument) -> list[NamedRules]:
    """Return the rules as labelled settings with distinct keys.

    Different rules may have equal keys (functions with equal name and code): a number is added.

    Args:
        rules: the rules or their names, as `ctxkit.sweep` takes them.

    Returns:
        The settings in the order given.
    """
    all_rules = resolve_rules_list(rules)
    settings: list[NamedRules] = []
    keys: dict[str, list[Any]] = {}
    for each, label in zip(all_rules, label_rules(all_rules), strict=True):
        setting = NamedRules.of(label, each)
        # equal rules share a key, different rules with an equal key get a suffix
        same = keys.setdefault(setting.key, [])
        n = same.index(each) if each in same else len(same)
        same += [each] if n == len(same) else []
        settings.append(setting._replace(key=f"{setting.key}-{n}") if n else setting)
    return settings


def _count_calls(session: Session) -> int:
    return max(len(session.calls), 1)


def _make_progress_bar(
    task_name: str, sessions: Sequence[Session], settings: Sequence[NamedRules], progress: bool
) -> Any:
    total = sum(map(_count_calls, sessions)) * len(settings)
    # smoothing=0 estimates the remaining time from the mean over all calls so far.
    return make_progress_bar(
        total=total,
        unit="call",
        unit_scale=True,
        desc=task_name,
        smoothing=0,
        disable=not progress,
    )


def _iter_rows(
    tasks: Sequence[SessionSweepTask],
    executor: Executor | None,
    options: SweepScoreOptions,
    make_runner: Callable[[Session], SessionRunner],
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield rows as they finish: one by one in this process, in batches from an executor.

    Without an executor, work that turns out to be long moves to a local process pool.
    """
    if executor is not None:
        yield from run_in_executor(tasks, executor, options)
        return
    estimate = RemainingTimeForPoolStart(
        sum(_count_calls(task.session) * len(task.settings) for task in tasks)
    )
    tried_pool = False
    for n, (i, session, settings) in enumerate(tasks):
        for finished_n, row in enumerate(make_runner(session).rows(settings, options), 1):
            yield i, [row]
            estimate.record_run(_count_calls(session))
            # the pool is tried once; where it is not available the loop continues here
            if tried_pool or not estimate.is_slow:
                continue
            tried_pool, remaining = (
                True,
                [SessionSweepTask(i, session, settings[finished_n:]), *tasks[n + 1 :]],
            )
            pool = make_process_pool([task.settings for task in remaining])
            if pool is not None:
                yield from _iter_pool_rows(remaining, pool, options)
                return


def _iter_pool_rows(
    tasks: Sequence[SessionSweepTask], pool: Executor, options: SweepScoreOptions
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the rows of tasks from a local pool, which is shut down at the end or an interrupt."""
    try:
        yield from run_in_executor([task for task in tasks if task.settings], pool, options)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


RunKey = tuple[str, str, str]
"""Session key, rules key and options of a run."""


class RunJournal:
    """Append-only JSON Lines file of finished runs; without a path nothing is stored."""

    def __init__(self, path: str | Path | None, options: str) -> None:
        self.path = None if path is None else Path(path).expanduser()
        self.options = options
        self.finished: dict[RunKey, dict[str, Any]] = {}
        self._file: Any = None

    def __enter__(self) -> Self:
        if self.path is None:
            return self
        try:
            is_complete = self._read_rows()
            self._file = self.path.open("ab")
            if not is_complete:
                self._file.write(b"\n")
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise StoreError(f"Runs cannot be kept in {str(self.path)!r}: {why}.") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _read_rows(self) -> bool:
        """Read the finished runs; return whether the last line is complete."""
        if self.path is None or not self.path.exists():
            return True
        data = self.path.read_bytes()
        for line in data.split(b"\n"):
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError:
                continue  # an incomplete line: its run is repeated
            if row.get("version") == ROW_VERSION and {"of", "key", "options"} <= row.keys():
                self.finished[(row["of"], row["key"], row["options"])] = row
        return not data or data.endswith(b"\n")

    def get_row(self, session: str, rules: str) -> dict[str, Any] | None:
        """Return the stored row of a run; None where there is none.

        Args:
            session: key of the session, as `make_session_key` returns it.
            rules: key of the rules.
        """
        return self.finished.get((session, rules, self.options))

    def keep(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append finished runs; failed runs are not written, so a later sweep repeats them."""
        if self._file is None:
            return
        for row in rows:
            if row.get("error") is None:
                record = {**row, "options": self.options, "version": ROW_VERSION}
                self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()


OBJECTIVES = ("cost_usd", "needed_later_loss", "not_paid_back_n")
"""The Pareto front minimises dollars, needed-later loss and compactions that are not paid back."""


def summarise_runs_with_pareto_front(runs: pd.DataFrame, by: str = "rules") -> pd.DataFrame:
    """Summarise a sweep by setting and mark the Pareto front.

    A setting is on the Pareto front where no other is at least as good in all of `OBJECTIVES` and
    better in one.

    Args:
        runs: rows of a `sweep` with ``loss=True``.
        by: the column that identifies a setting.

    Returns:
        One row per setting, the front first, then by dollars: the columns of `summarise_runs` for
        the three objectives, and `on_pareto_front`.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.experiments.sweep_runs import summarise_runs_with_pareto_front
        >>> runs = ck.sweep(ck.samples.path(), ["none"], loss=True, progress=False)
        >>> summarise_runs_with_pareto_front(runs)["on_pareto_front"].tolist()
        [True]
    """
    rows = summarise_runs(runs, by, OBJECTIVES)
    rows["on_pareto_front"] = _front(*(rows[name].tolist() for name in OBJECTIVES))
    return rows.sort_values(["on_pareto_front", "cost_usd"], ascending=[False, True]).reset_index(
        drop=True
    )
