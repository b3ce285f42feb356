"""Forecasts of the calls, dollars and loss of an archive's next sessions, compared with those
sessions once they are there.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ctxkit._internal.formatting_and_sanitizing import (
    NO_MATHJAX,
    escape_html,
    format_percent,
    format_usd,
    has_value,
    pluralize,
    sanitize_line,
)
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.safe_files import SafeFolder
from ctxkit._internal.tables import Cell, Column, Table
from ctxkit.errors import BadArguments, CtxkitError, StoreError
from ctxkit.metrics.means_and_prediction_intervals import PredictionInterval, predict_interval

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from ctxkit.metrics.compaction_threshold_for_many_sessions import SharedThreshold
    from ctxkit.metrics.optimal_trigger_floor_and_wait import TriggerFloorWaitAdvice
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.session.session import Session


__all__ = ["Forecast", "ForecastReport", "forecasts", "write_forecast"]
__dir__ = make_dunder_dir(__all__)

FILE_NAME = "forecasts.ctxkit"
"""Name of the file in the archive, with one forecast per line."""
MAX_FORECASTS, MAX_FILE_BYTES = 10_000, 16 << 20
RECORDED = "recorded"
"""The setting of a forecast without a change of rules."""
FIGURES = ("calls", "usd", "loss")
"""Predicted figures of a session: calls, dollars, the share of reused items that it loses."""
_LOSS = "needed_later_loss"


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The expected figures of the next session of a tool, under a setting."""

    created_at: float
    """Seconds since 1970; only sessions that begin later are compared with it."""
    source: str
    """Origin of the forecast: `advise`, `when` or a person."""
    tool: str
    """The format of the logs."""
    setting: str
    """Rules as text; `recorded`: nothing is changed."""
    sessions_n: int
    """Number of sessions that it is based on."""
    calls: PredictionInterval | None = None
    usd: PredictionInterval | None = None
    loss: PredictionInterval | None = None


def write_forecast(
    archive: str | os.PathLike[str],
    rules: str = RECORDED,
    *,
    source: str = "",
    now: float | None = None,
) -> tuple[Forecast, ...]:
    """Forecast the next sessions of an archive under a setting, and write the forecast into it.

    Args:
        archive: a folder of sessions, as `ck.keep` fills it; the forecast is written into it.
        rules: a preset, or a chain with a trigger of its own, as text; ``"recorded"``: the tools
            as they are set.
        source: origin of the forecast, for the table.
        now: seconds since 1970; only sessions that began before are used. None: the current time.

    Returns:
        One forecast per tool with sessions.

    Raises:
        BadArguments: the folder has no session before that time, or the rules are unknown.
        StoreError: the file cannot be written.

    Example:
        >>> import ctxkit as ck, shutil, tempfile
        >>> archive = tempfile.mkdtemp()
        >>> _ = shutil.copy(ck.samples.path("billing"), archive)
        >>> [(f.tool, f.sessions_n, f.calls.middle) for f in write_forecast(archive)]
        [('native', 1, 343.0)]
    """
    folder, when = Path(archive).expanduser(), time.time() if now is None else now
    setting = _parse_setting(rules)
    by_tool: dict[str, list[Session]] = {}
    for session in _read_archive(folder):
        begun = get_first_message_time(session)
        if begun is not None and begun < when:
            by_tool.setdefault(session.format, []).append(session)
    if not by_tool:
        raise BadArguments(
            f"{str(folder)!r} has no session with times to forecast from: fill it with ctxkit keep."
        )
    new = []
    for tool, sessions in sorted(by_tool.items()):
        rows = [compute_forecast_figures(session, setting) for session in sessions]
        intervals = {name: predict_interval(_drop_missing(rows, name)) for name in FIGURES}
        forecast = Forecast(
            created_at=when,
            source=source,
            tool=tool,
            setting=rules,
            sessions_n=len(sessions),
            **intervals,
        )
        new.append(forecast)
    _append_forecasts(folder, new)
    return tuple(new)


def format_trigger_setting(timing: TriggerFloorWaitAdvice | SharedThreshold) -> str:
    """Return rules that follow `ck.when` as text: Pi's rules with its trigger and floor.

    Args:
        timing: the answer of `ck.when`: window, trigger and tokens that stay, in tokens.

    Returns:
        Text such as ``pi:context_window=200000,...``, which `ck.load_rules` and the command line
        take.
    """
    reserve = max(timing.window - timing.best, 1)
    keep = min(max(timing.keep, 1), max(timing.best - 1, 1))
    return f"pi:context_window={timing.window},reserve_tokens={reserve},keep_recent_tokens={keep}"


def _parse_setting(rules: str) -> Rules | None:
    """Return the rules of a setting; None: as recorded."""
    from ctxkit.presets.registry_and_setting_checks import resolve_rules

    return None if rules == RECORDED else resolve_rules(rules)


def _read_archive(folder: Path) -> list[Session]:
    from ctxkit.formats.reading import read_all

    if not folder.is_dir():
        raise BadArguments(f"{str(folder)!r} is no folder: make an archive with ctxkit keep.")
    return list(read_all(folder, progress=False))


def get_first_message_time(session: Session) -> float | None:
    """Return the time of the first message that has one, in seconds since 1970."""
    return next((m.time for m in session.messages if m.time is not None), None)


def compute_forecast_figures(session: Session, setting: Rules | None) -> dict[str, float | None]:
    """Return the figures of a session, as recorded or replayed under rules.

    Figures that the log does not contain are None.

    Args:
        session: a recorded session.
        setting: rules under which it is replayed; None: as recorded.
    """
    from ctxkit.engine.replay import replay
    from ctxkit.experiments.cost_and_loss_scores import score

    try:
        row = score(session if setting is None else replay(session, setting))
    except CtxkitError:
        return dict.fromkeys(FIGURES)
    usd: Any = row.get("cost_usd")
    loss: Any = row.get(_LOSS)
    return {
        "calls": float(len(session.calls)) or None,
        "usd": float(usd) if has_value(usd) else None,
        "loss": float(loss) if has_value(loss) else None,
    }


def _drop_missing(rows: Iterable[dict[str, float | None]], name: str) -> list[float]:
    return [value for row in rows if (value := row[name]) is not None]


def _append_forecasts(folder: Path, new: Sequence[Forecast]) -> None:
    """Add forecasts to the file of an archive, whose old lines stay as they are, damaged ones too.

    The folder is locked, so that forecasts of two processes are both kept. A process that is
    killed leaves the whole old file, or the whole new one.
    """
    try:
        with SafeFolder(folder.resolve()) as archive, archive.lock():
            lines = [*_read_lines(folder), *map(msgspec.json.encode, new)][-MAX_FORECASTS:]
            archive.write(FILE_NAME, (line + b"\n" for line in lines))
    except OSError as e:
        raise StoreError(
            f"No forecast was written into {str(folder)!r} ({e.strerror or e}). Choose a folder"
            " that may be written, or try again."
        ) from None


def load_forecasts(archive: str | os.PathLike[str]) -> list[Forecast]:
    """Return the forecasts of an archive in the order of their creation, without damaged lines.

    Raises:
        BadArguments: the file is larger than 16 MB.
    """
    out = []
    for line in _read_lines(Path(archive).expanduser())[-MAX_FORECASTS:]:
        try:
            out.append(msgspec.json.decode(line, type=Forecast))
        except (msgspec.MsgspecError, ValueError):
            continue
    return out


def _read_lines(folder: Path) -> list[bytes]:
    path = folder / FILE_NAME
    if not path.is_file():
        return []
    if path.stat().st_size > MAX_FILE_BYTES:
        raise BadArguments(
            f"{str(path)!r} is larger than {MAX_FILE_BYTES >> 20} MB: move it away to begin a new"
            " one."
        )
    return path.read_bytes().splitlines()


class ForecastOutcome(NamedTuple):
    """A forecast, and the later sessions of its tool."""

    forecast: Forecast
    values: dict[str, tuple[float, ...]]
    """The later sessions' values of each figure, under the forecast's setting."""
    recorded_usd: tuple[float, ...]
    """Recorded dollars of the later sessions."""

    def hits(self, name: str) -> tuple[int, int]:
        """Return how many later sessions are in the interval of a figure, and their number."""
        interval: PredictionInterval | None = getattr(self.forecast, name)
        hits = [interval.contains(v) for v in self.values[name]] if interval is not None else []
        judged = [h for h in hits if h is not None]
        return sum(judged), len(judged)


def forecasts(archive: str | os.PathLike[str]) -> ForecastReport:
    """Compare the forecasts of an archive with the sessions that came after them.

    Args:
        archive: a folder of sessions with forecasts that `write_forecast` wrote.

    Returns:
        A report with one row for each forecast and figure. Sessions are replayed under the
        forecast's setting, unless it is `recorded`.

    Raises:
        BadArguments: the folder holds no forecast.

    Example:
        >>> import ctxkit as ck, shutil, tempfile
        >>> archive = tempfile.mkdtemp()
        >>> _ = shutil.copy(ck.samples.path("billing"), archive)
        >>> _ = write_forecast(archive)
        >>> forecasts(archive).answer
        'No session came after the 1 forecast: nothing to hold it against yet.'
    """
    folder = Path(archive).expanduser()
    records = load_forecasts(folder)
    if not records:
        raise BadArguments(
            f"{str(folder)!r} holds no forecast: write one with `ctxkit forecasts FOLDER --add"
            " recorded`."
        )
    sessions = [(get_first_message_time(s), s) for s in _read_archive(folder)]
    outcomes = []
    for forecast in records:
        later = [
            s
            for begun, s in sessions
            if begun and begun >= forecast.created_at and s.format == forecast.tool
        ]
        outcomes.append(_hold_against(forecast, later))
    return ForecastReport(tuple(outcomes))


def _hold_against(forecast: Forecast, later: Sequence[Session]) -> ForecastOutcome:
    setting = _parse_setting(forecast.setting)
    rows = [compute_forecast_figures(session, setting) for session in later]
    recorded = rows if setting is None else [compute_forecast_figures(s, None) for s in later]
    values = {name: tuple(_drop_missing(rows, name)) for name in FIGURES}
    return ForecastOutcome(forecast, values, tuple(_drop_missing(recorded, "usd")))


_COLUMNS = (
    Column("tool", number=False, firm=True),
    Column("setting", "under which it was predicted", number=False),
    Column("a session's", "the predicted figure", number=False),
    Column("predicted", "the middle and the 80 % interval of one session"),
    Column("actual", "mean of the later sessions"),
    Column("inside", "later sessions inside of the interval"),
)


class ForecastReport(NamedTuple):
    """The forecasts of an archive and their outcomes."""

    outcomes: tuple[ForecastOutcome, ...]

    @property
    def answer(self) -> str:
        """How many of the later sessions are in the intervals, in one sentence."""
        n = pluralize(len(self.outcomes), "forecast")
        if not any(o.values["calls"] for o in self.outcomes):
            it = "it" if len(self.outcomes) == 1 else "them"
            return f"No session came after the {n}: nothing to hold {it} against yet."
        counts = [o.hits(name) for o in self.outcomes for name in FIGURES]
        inside, of = (sum(column) for column in zip(*counts, strict=True))
        if not of:
            return f"{n} rest on too few sessions for an interval."
        return (
            f"{inside} of {of} figures of later sessions lie in the 80 % intervals"
            f" ({format_percent(inside / of)}), from {n}."
        )

    @property
    def table(self) -> Table:
        """One row for each forecast and figure that has later sessions."""
        rows = []
        for outcome in self.outcomes:
            forecast = outcome.forecast
            for name in FIGURES:
                interval = getattr(forecast, name)
                if interval is None:
                    continue
                values, (inside, of) = outcome.values[name], outcome.hits(name)
                cells = (
                    sanitize_line(forecast.tool, 20),
                    sanitize_line(forecast.setting, 30),
                    "dollars" if name == "usd" else name,
                    _format_interval(interval, name),
                    _format(fmean(values), name) if values else "",
                    f"{inside} of {of}" if of else "",
                )
                rows.append(tuple(map(Cell, cells)))
        return Table(_COLUMNS, tuple(rows))

    @property
    def savings(self) -> tuple[str, ...]:
        """The recorded and the replayed cost of later sessions, for each changed setting."""
        out = []
        for outcome in self.outcomes:
            recorded, replayed = outcome.recorded_usd, outcome.values["usd"]
            if outcome.forecast.setting != RECORDED and recorded and replayed:
                out.append(
                    f"{sanitize_line(outcome.forecast.tool, 20)}: "
                    f"{pluralize(len(recorded), 'session')} cost {format_usd(fmean(recorded))} "
                    f"each; replayed under {sanitize_line(outcome.forecast.setting, 60)} they cost"
                    f" {format_usd(fmean(replayed))}."
                )
        return tuple(out)

    def to_text(self) -> str:
        """Return the answer, the table and the savings."""
        return "\n".join([self.answer, "", self.table.to_text(), *self.savings])

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        savings = "".join(f"<p>{escape_html(s)}</p>" for s in self.savings)
        answer = f"<p>{escape_html(self.answer)}</p>"
        return f'<div class="{NO_MATHJAX}">{answer}{self.table.to_html()}{savings}</div>'

    def rows(self) -> list[dict[str, Any]]:
        """Return plain rows, one for each forecast."""
        return [
            {**msgspec.to_builtins(o.forecast), "came": o.values, "recorded_usd": o.recorded_usd}
            for o in self.outcomes
        ]


def _format(value: float, name: str) -> str:
    if name == "usd":
        return format_usd(value)
    return format_percent(value) if name == "loss" else f"{value:,.0f}"


def _format_interval(interval: PredictionInterval, name: str) -> str:
    middle = _format(interval.middle, name)
    if interval.low is None or interval.high is None:
        return middle
    return f"{middle} ({_format(interval.low, name)} to {_format(interval.high, name)})"
