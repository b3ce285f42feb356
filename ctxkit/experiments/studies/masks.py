"""Accuracy study of replayed masks: predicted against billed tokens of runs under a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit._internal.lazy import public_dir
from ctxkit.tokens.counter_protocol import count_part_chars

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from ctxkit.session.session import Session

Unit = Literal["chars", "o200k"]

__all__ = [
    "COLUMNS",
    "NO_MASK",
    "RECORDED_WINDOW",
    "WINDOWS",
    "by_window",
    "measure_masks",
    "measure_prediction_errors",
]
__dir__ = public_dir(__all__)

RECORDED_WINDOW = 5
"""Observations that the recorded runs showed whole."""
WINDOWS = (1, 2, 3, 4, 5, 6, 8, 10, 20)
NO_MASK = 0
"""Window that stands for no mask."""
COLUMNS = {
    "task": "SWE-bench Verified's id",
    "calls": "replies in the file",
    "sent": "prompt tokens that the run says it sent, all calls together",
    "usd": "dollars that it says it cost",
    **{f"chars_{n}": f"characters of all prompts under a mask of the last {n}" for n in WINDOWS},
    f"chars_{NO_MASK}": "the same without a mask",
    **{f"o200k_{n}": f"the same in tokens of o200k, last {n}" for n in WINDOWS},
    f"o200k_{NO_MASK}": "the same without a mask",
}


def measure_masks(folder: Path) -> pd.DataFrame:
    """Measure each run under masks of several windows, one row per run (see `COLUMNS`).

    Runs whose file lacks the reply of the last call are left out: their totals cannot be compared.
    """
    import pandas as pd

    from ctxkit.formats.reading import read

    sessions = [read(p) for p in sorted(folder.glob("*.traj"))]
    rows = [_measure_session(s) for s in sessions if s.details.get("api_calls") == len(s.calls)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _measure_session(session: Session) -> dict[str, Any]:
    from ctxkit import presets, tokens
    from ctxkit.engine.replay import run_replay

    exact, details = tokens.exact_counter(), session.details
    sizes = {
        "chars": [sum(map(count_part_chars, m.parts)) for m in session.messages],
        "o200k": [exact.message(m) for m in session.messages],
    }
    rules = {n: presets.swe_agent_mask(n=n) for n in WINDOWS} | {NO_MASK: presets.none()}
    row = {"task": session.id, "calls": len(session.calls)}
    row |= {"sent": details["input_tokens"], "usd": details["cost_usd"]}
    for unit, each in sizes.items():
        for n, rule in rules.items():
            prompts = run_replay(session, rule, tokens=each, fixed=0).prompts
            row[f"{unit}_{n}"] = int(prompts.sum())
    return row


def measure_prediction_errors(
    runs: pd.DataFrame,
    window: int = RECORDED_WINDOW,
    unit: Unit = "chars",
    sent: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return predicted / recorded prompt tokens - 1 for each task, cross-validated.

    The only fitted constant, billed tokens per unit, is the median of the other tasks.

    Args:
        runs: the table `masks`.
        window: observations that the replayed mask leaves whole; 0: no mask.
        unit: unit of the message sizes.
        sent: prompt tokens that the runs sent; None: as recorded. (Shuffled values must give large
            errors.)
    """
    sized = runs[f"{unit}_{window}"].to_numpy(dtype=float)
    real = runs["sent"].to_numpy(dtype=float) if sent is None else sent.astype(float)
    rates = real / sized
    # leave-one-out: each task is predicted by the median rate of the others
    others = np.array([np.median(np.delete(rates, i)) for i in range(len(rates))])
    return np.asarray(others * sized / real - 1)


def by_window(runs: pd.DataFrame, unit: Unit = "chars") -> pd.DataFrame:
    """Summarise the absolute error for each window of the replayed mask.

    Args:
        runs: the table `masks`.
        unit: unit of the message sizes.

    Returns:
        One row per window: `window` (missing for no mask), `median` with its 80 % interval `low`
        and `high`, `nine_tenths` (90 % quantile), `rate` (median of units per billed token).
    """
    import pandas as pd

    rows = []
    for n in (*WINDOWS, NO_MASK):
        errors = np.abs(measure_prediction_errors(runs, n, unit))
        low, high = _bootstrap_median(errors)
        rows.append(
            {"window": n or None, "median": float(np.median(errors)), "low": low, "high": high}
            | {"nine_tenths": float(np.quantile(errors, 0.9))}
            | {"rate": float((runs[f"{unit}_{n}"] / runs["sent"]).median())}
        )
    return pd.DataFrame(rows).astype({"window": "Int64"})


def _bootstrap_median(errors: NDArray[Any]) -> tuple[float, float]:
    """Return the 80 % bootstrap interval of a median over tasks."""
    random = np.random.default_rng(1729)
    drawn = np.median(errors[random.integers(0, len(errors), (2_000, len(errors)))], axis=1)
    low, high = np.quantile(drawn, [0.1, 0.9])
    return float(low), float(high)
