"""How real runs under a policy differ from those under another one, and from what was foretold."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.faces import listed
from ctxkit.metrics.elongation import expected, family_of, studies
from ctxkit.studies.growth import first_prompt, foretold
from ctxkit.studies.ratios import paired, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["COLUMNS", "cells", "left_out"]
__dir__ = listed(__all__)

COLUMNS = {
    "before": "policy of the runs that are compared with: raw, mask, summary or hybrid",
    "after": "policy of the runs that are compared",
    "family": "of the models: gemini or qwen",
    "scaffold": "sweagent or openhands",
    "model": "the model",
    "setting": "of `after`: M turns kept whole, N turns summarised at once",
    "tasks": "tasks that both have, each run once",
    "turns": "turns after / turns before, over all tasks",
    "turns_low": "its 80 % interval over tasks",
    "turns_high": "the same",
    "turns_error": "standard error of its logarithm",
    "usd": "dollars after / dollars before",
    "usd_low": "its 80 % interval over tasks",
    "usd_high": "the same",
    "each": "median change of a task's turns, up or down, as a share of the larger",
    "bill": "from raw: tokens of all prompts foretold on the raw runs / recorded",
    "bill_low": "its 80 % interval over tasks",
    "bill_high": "the same",
    "prompt": "the same of the mean prompt, the part that turns are no part of",
}
"""Of the table `ratios`; `bill` rests on the growth model of `studies.growth`."""
_SETS = ["scaffold", "model"]
_ORDER = ("raw", "mask", "summary", "hybrid")
_SMALL = 50
"""Tasks of a side experiment: other windows of a mask; between managed runs they are left out."""


def cells(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each two policies that one model ran the same tasks under.

    Args:
        runs: what `runs.read` returned.
    """
    import pandas as pd

    raw = runs[runs["policy"] == "raw"]
    firsts: dict[Any, float] = {s: first_prompt(g) for s, g in raw.groupby("scaffold")}
    rows: list[dict[str, Any]] = []
    by: Any
    for by, group in runs[~runs["repeat"]].groupby(_SETS, sort=True):
        scaffold, model = by
        for before, after, pairs in _pairs(group):
            head = {"before": before, "after": after[0], "family": family_of(str(model))}
            rows.append(
                {**head, "scaffold": scaffold, "model": model, "setting": after[1]}
                | _figures(pairs, before, after, firsts[scaffold])
            )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _pairs(group: pd.DataFrame) -> Iterator[tuple[str, tuple[str, str], pd.DataFrame]]:
    """Yield the pairs of a model's runs, each once: policy before, policy after, tasks."""
    found: list[tuple[Any, pd.DataFrame]] = list(group.groupby(["policy", "setting"]))
    sets = sorted(found, key=lambda s: _ORDER.index(s[0][0]))
    for (before, first), (after, then) in combinations(sets, 2):
        managed = before[0] != "raw" and after[0] != "hybrid"
        if before[0] != after[0] and not (managed and min(len(first), len(then)) <= _SMALL):
            yield before[0], after, paired(first, then)


def _figures(
    pairs: pd.DataFrame, before: str, after: tuple[str, str], first: float
) -> dict[str, Any]:
    turns_now, turns = pairs["turns_now"].to_numpy(), pairs["turns_before"].to_numpy()
    found = ratio(turns_now, turns)
    usd = ratio(pairs["usd_now"].to_numpy(), pairs["usd_before"].to_numpy())
    out: dict[str, Any] = {"tasks": len(pairs)}
    out |= dict(zip(("turns", "turns_low", "turns_high", "turns_error"), found, strict=True))
    out |= dict(zip(("usd", "usd_low", "usd_high"), usd[:3], strict=True))
    out["each"] = _each(turns_now, turns)
    if before != "raw":
        return out
    raw = pairs.rename(columns={f"{c}_before": c for c in ("turns", "tokens", "output")})
    told, real = foretold(raw, *after, first), pairs["tokens_now"].to_numpy()
    out |= dict(zip(("bill", "bill_low", "bill_high"), ratio(told, real)[:3], strict=True))
    out["prompt"] = (told.sum() / turns.sum()) / (real.sum() / turns_now.sum())
    return out


def _each(now: NDArray[Any], before: NDArray[Any]) -> float:
    return float(np.median(np.abs(now - before) / np.maximum(now, before)))


def left_out() -> pd.DataFrame:
    """Return for each model what was expected of it from all others, and what it did.

    One row a model and policy: turns after / turns before as measured, the factor that the other
    models' studies give with its 80 % interval, and whether that holds the measured one.
    """
    import pandas as pd

    rows = []
    for study in studies():
        if study.before != "raw" or study.after == "hybrid":
            continue
        rest = [s for s in studies() if (s.scaffold, s.model) != (study.scaffold, study.model)]
        found = expected(study.after, "raw", "other", tuple(rest))
        rows.append(
            {"after": study.after, "scaffold": study.scaffold, "model": study.model}
            | {"measured": study.ratio, "expected": found.factor}
            | {"low": found.low, "high": found.high}
            | {"held": found.low <= study.ratio <= found.high}
        )
    return pd.DataFrame(rows)
