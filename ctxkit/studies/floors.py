"""The noise floor: how far two runs of the same policy over the same tasks lie apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.faces import listed
from ctxkit.metrics.elongation import LEVEL
from ctxkit.studies.ratios import DRAWS, paired, ratio

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "TASKS", "floors", "repeats"]
__dir__ = listed(__all__)

COLUMNS = {
    "figure": "turns or usd",
    "tasks": "tasks that both runs have",
    "floor": "80 of 100 pairs of totals of the same policy lie within this share of each other",
}
TASKS = (1, 5, 10, 25, 50, 100, 200, 500)
_FIGURES = ("turns", "usd")
_SEED = 1729


def repeats(runs: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return the settings that were run twice over the same tasks, paired.

    One whose second run is a copy of the first (a mask of M=72: all 50 rows are equal) is no run.
    """
    out = []
    sets = dict(iter(runs.groupby(["scaffold", "model", "policy", "setting", "repeat"])))
    for key, again in sets.items():
        if not key[-1]:
            continue
        pairs = paired(sets[*key[:-1], False], again)
        if not (pairs["usd_now"] == pairs["usd_before"]).all():
            out.append((f"{key[2]} {key[3]}".strip(), pairs))
    return out


def floors(pairs: list[pd.DataFrame], tasks: tuple[int, ...] = TASKS) -> pd.DataFrame:
    """Return the floor for numbers of tasks (see `COLUMNS`).

    Tasks are drawn again from each setting, and of each task it is left to chance which of its two
    runs is called the second: the same policy on both sides.

    Args:
        pairs: each setting's two runs, as `repeats` gives them.
        tasks: numbers of tasks.
    """
    import pandas as pd

    random = np.random.default_rng(_SEED)
    rows = [
        {"figure": f, "tasks": n, "floor": _floor([_both(p, f) for p in pairs], n, random)}
        for f in _FIGURES
        for n in tasks
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def seen(pairs: list[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Return the ratios of the second run to the first as they are, with 80 % intervals."""
    import pandas as pd

    rows = []
    for name, pair in pairs:
        for figure in _FIGURES:
            now, before = (pair[f"{figure}_{x}"].to_numpy() for x in ("now", "before"))
            found = ratio(now, before)
            rows.append({"policy": name, "figure": figure, "tasks": len(pair), **found._asdict()})
    return pd.DataFrame(rows).drop(columns="error")


def _both(pairs: pd.DataFrame, figure: str) -> Any:
    return pairs[[f"{figure}_before", f"{figure}_now"]].to_numpy()


def _floor(settings: list[Any], tasks: int, random: np.random.Generator) -> float:
    logs = []
    for both in settings:
        drawn = both[random.integers(0, len(both), (DRAWS, tasks))]
        turned = random.random((DRAWS, tasks, 1)) < 0.5
        totals = np.where(turned, drawn[..., ::-1], drawn).sum(axis=1)
        logs.append(np.abs(np.log(totals[:, 0] / totals[:, 1])))
    return float(np.exp(np.quantile(np.concatenate(logs), LEVEL)) - 1)
