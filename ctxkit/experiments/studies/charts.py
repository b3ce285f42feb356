"""Charts of the published studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit._internal.chart_style import TEXT_COLOUR
from ctxkit._internal.formatting_and_sanitizing import format_change, format_percent
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.experiments.studies import mask_token_errors_and_visibility_exams
from ctxkit.metrics.run_elongation_from_studies import NOISE_FLOOR
from ctxkit.plots.chart import Chart
from ctxkit.plots.xy_figure import Trace, XyDrawing

if TYPE_CHECKING:
    import pandas as pd


__all__ = [
    "chart_mask_errors",
    "chart_policy_ratios",
    "chart_predicted_and_real_outcomes",
]
__dir__ = make_dunder_dir(__all__)


_UNITS: dict[mask_token_errors_and_visibility_exams.Unit, str] = {
    "chars": "sized in characters",
    "o200k": "sized in tokens of o200k",
}
_MODELS = {
    "gemini-2.5-flash": "flash",
    "gemini-2.5-flash, thinking": "flash+",
    "qwen3-coder-480b": "coder",
    "qwen3-32b": "32b",
    "qwen3-32b, thinking": "32b+",
}
_WIDE = 50
"""Tasks above which a run is one of the main experiments."""


def chart_mask_errors(runs: pd.DataFrame) -> Chart:
    """Chart the error of the bill by the window of the mask that is replayed.

    Args:
        runs: the table `masks`.
    """
    errors_by_unit = {
        unit: mask_token_errors_and_visibility_exams.summarise_errors_by_window(runs, unit).dropna()
        for unit in _UNITS
    }
    traces = [
        _line(f"{what}, {unit_name}", rows, column, look)
        for look, (unit, unit_name, column, what) in enumerate(
            (u, t, c, w)
            for u, t in _UNITS.items()
            for c, w in (("median", "median"), ("nine_tenths", "nine of ten"))
        )
        for rows in [errors_by_unit[unit]]
    ]
    return Chart(
        title="The bill of a mask, by the window that is replayed",
        caption=f"Size of predicted / recorded prompt tokens - 1 over {len(runs)} runs that were "
        f"shown their last {mask_token_errors_and_visibility_exams.RECORDED_WINDOW} observations; "
        "the constant is fitted on the other tasks.",
        drawing=XyDrawing(
            x="observations that the mask keeps", y="error", traces=tuple(traces), y_share=True
        ),
        head=("window", *(f"{t}: median" for t in _UNITS.values()), "80 %", "nine of ten"),
        rows=tuple(
            _row(*each)
            for each in zip(*(f.to_dict("records") for f in errors_by_unit.values()), strict=True)
        ),
    )


def _line(name: str, rows: pd.DataFrame, column: str, look: int) -> Trace:
    x, y = rows["window"].tolist(), rows[column].tolist()
    return Trace(
        name=name,
        x=x,
        y=y,
        look=look,
        hover=lambda i: f"{name}\nlast {x[i]}: {format_percent(y[i], 1)}",
    )


def _row(chars: dict[str, Any], o200k: dict[str, Any]) -> tuple[str, ...]:
    share = f"{format_percent(o200k['low'], 1)}–{format_percent(o200k['high'], 1)}"
    ends = (share, format_percent(o200k["nine_tenths"], 1))
    return (
        str(chars["window"]),
        format_percent(chars["median"], 1),
        format_percent(o200k["median"], 1),
        *ends,
    )


def chart_policy_ratios(ratios: pd.DataFrame, figure: str = "turns") -> Chart:
    """Chart turns or dollars of managed runs over those of unmanaged ones, with 80 % intervals.

    Args:
        ratios: the table `ratios`.
        figure: `turns` or `usd`.
    """
    managed = ratios[(ratios["before"] == "raw") & (ratios["tasks"] > _WIDE)]
    managed = managed.sort_values(["after", "scaffold", "model", "setting"], ignore_index=True)
    rows: list[dict[str, Any]] = [
        {str(k): v for k, v in r.items()} for r in managed.to_dict("records")
    ]
    names = tuple(map(_place, rows))
    ends = [0, len(rows) - 1]
    unmanaged = Trace(
        name="as without", x=ends, y=[1.0, 1.0], look=7, colour=TEXT_COLOUR, dash="longdash"
    )
    traces = [unmanaged]
    for look, (after, group) in enumerate(managed.groupby("after", sort=True)):
        traces += _intervals(str(after), group, figure, look, names)
    word = {"turns": "Turns", "usd": "Dollars"}[figure]
    noise = format_percent(NOISE_FLOOR)
    band = f" A second run of the same policy over 50 tasks lies within {noise}." * (
        figure == "usd"
    )
    return Chart(
        title=f"{word} of managed runs over those of the same model without management",
        caption=f"Totals over the same tasks (The Complexity Trap), with 80 % intervals.{band}",
        drawing=XyDrawing(
            x="model (OH: flash in OpenHands; all else: SWE-agent; M: results kept)",
            y=f"{word.lower()}, as a multiple",
            traces=tuple(traces),
            ticks=names,
            y_small=True,
        ),
        head=("policy", "model", "tasks", word.lower(), "80 %"),
        rows=tuple(_make_ratio_row(r, n, figure) for r, n in zip(rows, names, strict=True)),
        shown=20,
    )


def _place(row: dict[str, Any]) -> str:
    if row["scaffold"] == "openhands":
        return f"OH {row['setting'].split(' ')[0].replace('=', '')}"
    return _MODELS[row["model"]]


def _make_ratio_row(row: dict[str, Any], name: str, figure: str) -> tuple[str, ...]:
    ends = f"{row[f'{figure}_low']:.2f}–{row[f'{figure}_high']:.2f}"
    return (row["after"], name, str(row["tasks"]), f"{row[figure]:.2f}", ends)


def _intervals(
    after: str, rows: pd.DataFrame, figure: str, look: int, names: tuple[str, ...]
) -> list[Trace]:
    x, y = rows.index.tolist(), rows[figure].tolist()

    def hover(i: int) -> str:
        row = rows.iloc[i]
        ends = f"{row[f'{figure}_low']:.2f} to {row[f'{figure}_high']:.2f}"
        return f"{after}, {names[x[i]]}\n{y[i]:.2f} ({ends})\n{row['tasks']} tasks"

    ends = rows[[f"{figure}_low", f"{figure}_high"]].to_numpy().tolist()
    spans = [
        Trace(name=after, x=[i, i], y=pair, look=look, dash="solid", follows=True)
        for i, pair in zip(x, ends, strict=True)
    ]
    return [Trace(name=after, x=x, y=y, kind="points", look=look, hover=hover), *spans]


def chart_predicted_and_real_outcomes(
    closed_loop_table: pd.DataFrame, figure: str = "usd"
) -> Chart:
    """Chart the predicted and the real outcome of each policy side by side.

    Args:
        closed_loop_table: what `closed_loop.loop` returned.
        figure: `usd`, `calls` or `tokens`.
    """
    names = tuple(map(str, closed_loop_table.index))
    predicted, real = (
        closed_loop_table[f"{figure}_{x}"].astype(float).tolist() for x in ("predicted", "real")
    )
    sign = "$" * (figure == "usd")
    digits = ".2f" if figure == "usd" else ",.0f"

    def make_hover(values: list[float]) -> Any:
        return lambda i: f"{names[i]}\n{sign}{values[i]:{digits}}"

    x = list(range(len(names)))
    word = {"usd": "dollars", "calls": "calls", "tokens": "prompt tokens"}[figure]
    gaps = [
        Trace(name="missed", x=[i, i], y=[a, b], look=1, dash="dot", follows=True)
        for i, a, b in zip(x, predicted, real, strict=True)
    ]
    return Chart(
        title=f"Predicted and real {word} of an agent that looks again for what is gone",
        caption="One record without management, replayed under each policy; and the same agent "
        "run under it. The distance is what an open loop misses.",
        drawing=XyDrawing(
            x="policy",
            y=word,
            traces=(
                *gaps,
                Trace(
                    name="predicted by the replay",
                    x=x,
                    y=predicted,
                    kind="points",
                    look=0,
                    hover=make_hover(predicted),
                ),
                Trace(name="real", x=x, y=real, kind="points", look=1, hover=make_hover(real)),
            ),
            ticks=names,
            y_small=figure == "usd",
        ),
        head=("policy", f"{word} predicted", "real", "missed"),
        rows=tuple(
            (
                n,
                f"{sign}{a:{digits}}",
                f"{sign}{b:{digits}}",
                format_change(round(b / a - 1, 9) + 0.0),
            )
            for n, a, b in zip(names, predicted, real, strict=True)
        ),
        shown=24,
    )
