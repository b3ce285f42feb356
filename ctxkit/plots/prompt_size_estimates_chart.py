"""`plots.calibration`: recorded and estimated prompt sizes, and when a trigger would fire."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd

from ctxkit._internal.chart_style import STOP_COLOUR
from ctxkit._internal.formatting_and_sanitizing import format_change
from ctxkit.metrics.estimator_error import EstimatorErrors, calibrate
from ctxkit.plots.chart import Chart, add_session_notes
from ctxkit.plots.xy_figure import LimitLine, Trace, VerticalMark, XyDrawing
from ctxkit.session.session import Session
from ctxkit.session.titles import get_title


class EstimatorPromptSizes(NamedTuple):
    """One estimator's prompt sizes and its error."""

    name: str
    tokens: tuple[int, ...]
    error: float | None
    """Estimated / recorded growth - 1; None: unknown."""
    fires: int | None
    """First call at or above the threshold by the estimate; None: never."""


class CalibrationData(NamedTuple):
    """Recorded and estimated prompts of a session, with a threshold."""

    session: str
    calls: tuple[int, ...]
    recorded: tuple[int, ...]
    estimates: tuple[EstimatorPromptSizes, ...]
    threshold: int | None
    fires: int | None
    """First call at or above the threshold by the provider's count."""


def calibration_data(of: Session | EstimatorErrors) -> CalibrationData:
    """Return recorded and estimated prompts, and the highest threshold of the calibration.

    Raises:
        BadArguments: the session records no usage to calibrate against.
    """
    result = of if isinstance(of, EstimatorErrors) else calibrate(of)
    threshold = None if result.triggers.empty else int(result.triggers["threshold"].max())
    at_threshold = result.triggers[result.triggers["threshold"] == threshold].set_index("estimator")
    estimates = tuple(
        EstimatorPromptSizes(
            name,
            tuple(result.calls[name].tolist()),
            None if pd.isna(result.error(name)) else result.error(name),
            None if threshold is None else _to_call(at_threshold.loc[name, "estimated_call"]),
        )
        for name in result.estimators
    )
    fires = None if threshold is None else _to_call(at_threshold["recorded_call"].iloc[0])
    calls, recorded = tuple(result.calls["call"].tolist()), tuple(result.calls["recorded"].tolist())
    return CalibrationData(result.session, calls, recorded, estimates, threshold, fires)


@add_session_notes
def calibration(of: Session | EstimatorErrors) -> Chart:
    """Chart the size of each prompt by the provider's count and by estimates.

    Args:
        of: a session with usage, or the result of `ctxkit.calibrate`.

    Returns:
        The chart; its table has each estimator's error and the call at which a trigger would fire.

    Raises:
        BadArguments: the session records no usage to calibrate against.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.calibration(ck.samples.path()).rows[0][:2]
        ('the provider', '0 %')
    """
    if isinstance(of, list) and len(of) == 1:
        of = of[0]  # `read` returns a list for a path
    data = calibration_data(of)
    return _draw_calibration(get_title(of) if isinstance(of, Session) else data.session, data)


def _to_call(value: object) -> int | None:
    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]


def _draw_calibration(name: str, data: CalibrationData) -> Chart:
    lines = [Trace(name="recorded", x=data.calls, y=data.recorded, look=0)]
    names_by_line: dict[tuple[int, ...], list[str]] = {}
    for e in data.estimates:  # equal lines are one, as only the last would be seen
        names_by_line.setdefault(e.tokens, []).append(e.name)
    lines += [
        Trace(name=", ".join(names), x=data.calls, y=tokens, look=i)
        for i, (tokens, names) in enumerate(names_by_line.items(), 1)
    ]
    limits = []
    if data.threshold is not None:
        limits.append(
            LimitLine(y=data.threshold, label=f"threshold {data.threshold:,}", colour=STOP_COLOUR)
        )
    names_by_call: dict[int, list[str]] = {}
    for counter, call in (
        ("the provider", data.fires),
        *((e.name, e.fires) for e in data.estimates),
    ):
        if call is not None:
            names_by_call.setdefault(call, []).append(counter)
    marks = tuple(VerticalMark(x=call) for call in sorted(names_by_call))
    drawing = XyDrawing(
        x="call",
        y="prompt tokens",
        traces=tuple(lines),
        limits=tuple(limits),
        marks=marks,
        whole=True,
    )
    return Chart(
        title=f"Calibration of {name}",
        caption=(
            "Prompts as the provider counted them and as estimates make them; the part that no log"
            " shows is the same for all. Dotted:"
            f" {_describe_fires(names_by_call)}"
        ),
        drawing=drawing,
        head=("counted by", "error", "fires at call"),
        rows=(
            ("the provider", "0 %", _format_call(data.fires)),
            *(_estimator_row(e) for e in sorted(data.estimates, key=_error_size)),
        ),
    )


def _describe_fires(names_by_call: dict[int, list[str]]) -> str:
    """Return where a trigger at the threshold fires, by each count."""
    if not names_by_call:
        return "no count reaches the threshold."
    places = (f"{call} by {', '.join(names_by_call[call])}" for call in sorted(names_by_call))
    return f"the call at which a trigger at the threshold fires, {'; '.join(places)}."


def _error_size(line: EstimatorPromptSizes) -> float:
    return math.inf if line.error is None else abs(line.error)


def _estimator_row(line: EstimatorPromptSizes) -> tuple[str, str, str]:
    error = "unknown" if line.error is None else format_change(line.error)
    return line.name, error, _format_call(line.fires)


def _format_call(call: int | None) -> str:
    return "never" if call is None else str(call)
