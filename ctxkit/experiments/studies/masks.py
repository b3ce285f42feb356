"""Bills of replayed masks against runs that were recorded under one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ctxkit._internal.lazy import public_dir
from ctxkit.tokens.counters import count_part_chars

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
"""Observations that the recorded runs were shown whole."""
WINDOWS = (1, 2, 3, 4, 5, 6, 8, 10, 20)
NO_MASK = 0
"""Stands for no mask at all."""
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
    """Return one row for each run that has as many replies as calls (see `COLUMNS`).

    Others made a last call whose reply is not in the file, so what was sent cannot be compared.
    """
    import pandas as pd

    from ctxkit.formats.reading import read

    sessions = [read(p) for p in sorted(folder.glob("*.traj"))]
    rows = [_row(s) for s in sessions if s.details.get("api_calls") == len(s.calls)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(session: Session) -> dict[str, Any]:
    from ctxkit import presets, tokens
    from ctxkit.engine.replay import run_replay

    exact, told = tokens.exact_counter(), session.details
    sizes = {
        "chars": [sum(map(count_part_chars, m.parts)) for m in session.messages],
        "o200k": [exact.message(m) for m in session.messages],
    }
    rules = {n: presets.swe_agent_mask(n=n) for n in WINDOWS} | {NO_MASK: presets.none()}
    row = {"task": session.id, "calls": len(session.calls)}
    row |= {"sent": told["input_tokens"], "usd": told["cost_usd"]}
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
    """Return for each task foretold / recorded prompt tokens - 1; its own record is not used.

    Args:
        runs: the table `masks`.
        window: observations that the replayed mask keeps; 0: no mask.
        unit: what the messages were sized in.
        sent: what the runs sent; None: as recorded. (Shuffled, the error must be large.)
    """
    sized = runs[f"{unit}_{window}"].to_numpy(dtype=float)
    real = runs["sent"].to_numpy(dtype=float) if sent is None else sent.astype(float)
    rates = real / sized
    others = np.array([np.median(np.delete(rates, i)) for i in range(len(rates))])
    return np.asarray(others * sized / real - 1)


def by_window(runs: pd.DataFrame, unit: Unit = "chars") -> pd.DataFrame:
    """Return for each window the size of the error: median with 80 % interval, nine tenths.

    `window` is missing for no mask; `rate` is the median of units a billed token.
    """
    import pandas as pd

    rows = []
    for n in (*WINDOWS, NO_MASK):
        off = np.abs(measure_prediction_errors(runs, n, unit))
        low, high = _interval(off)
        rows.append(
            {"window": n or None, "median": float(np.median(off)), "low": low, "high": high}
            | {"nine_tenths": float(np.quantile(off, 0.9))}
            | {"rate": float((runs[f"{unit}_{n}"] / runs["sent"]).median())}
        )
    return pd.DataFrame(rows).astype({"window": "Int64"})


def _interval(off: NDArray[Any]) -> tuple[float, float]:
    """Return the 80 % interval of a median, from tasks drawn again."""
    random = np.random.default_rng(1729)
    drawn = np.median(off[random.integers(0, len(off), (2_000, len(off)))], axis=1)
    low, high = np.quantile(drawn, [0.1, 0.9])
    return float(low), float(high)
