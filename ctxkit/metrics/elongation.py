"""How many more calls real runs take under a policy than the record, with intervals from published
studies.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import exp, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ctxkit._internal.lazy import public_dir
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

__all__ = [
    "INTERVAL_LEVEL",
    "NOISE_FLOOR",
    "Elongation",
    "Study",
    "classify_policy",
    "elongate_runs",
    "estimate_elongation",
    "get_model_family",
    "judge_cost",
    "load_studies",
    "pool_studies",
]
__dir__ = public_dir(__all__)

PolicyKind = Literal["raw", "mask", "summary", "hybrid", "other"]
"""A family of policies: none, results masked or cleared, summaries, both, anything else."""

INTERVAL_LEVEL = 0.8
"""Of every interval here."""
NOISE_FLOOR = 0.21
"""Dollars of one policy run twice over the same 50 tasks lie within this, in 80 of 100 cases; the
three pairs that were run differ by 9, 14 and 2 % (`ctxkit.experiments.studies.behaviour`)."""
_T = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372, 1.363, 1.356)
"""Student's t for an 80 % interval, by degrees of freedom from 1."""
_NORMAL = 1.282
_FEW = 3
"""Studies of one family of models below which those of all models are taken."""
_FAMILIES = ("gemini", "qwen")
_TABLE = Path(__file__).with_name("elongation.csv")
_COUNTS = (
    *("calls_n", "prompt_tokens", "fresh_tokens", "cache_read_tokens", "cache_write_tokens"),
    "output_tokens",
)
_DOLLARS = ("input_usd", "output_usd")
_ENDS = ("longer", "longer_low", "longer_high")


class Study(NamedTuple):
    """One model that ran the same tasks under two policies."""

    before: str
    after: str
    family: str
    scaffold: str
    model: str
    tasks: int
    ratio: float
    """Turns after / turns before."""
    error: float
    """Standard error of its logarithm, from the tasks."""


class Elongation(NamedTuple):
    """By what the calls of a record are to be multiplied."""

    factor: float
    low: float
    high: float
    studies: int
    """Models (and settings) behind it; 0: nothing was changed, so nothing differs."""


NO_ELONGATION = Elongation(1.0, 1.0, 1.0, 0)
"""Of rules that change nothing."""


@cache
def load_studies() -> tuple[Study, ...]:
    """Return what was studied: `elongation.csv`, which `make studies` writes."""
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    rows = [r.split(";") for r in lines if r and not r.startswith("#")][1:]
    return tuple(
        Study(a, b, c, d, e, int(n), float(y), float(s)) for a, b, c, d, e, n, y, s in rows
    )


def get_model_family(model: str | None) -> str:
    """Return the family of a model, as far as one was studied: gemini, qwen or other."""
    return next((f for f in _FAMILIES if f in (model or "").lower()), "other")


@lru_cache(maxsize=64)
def estimate_elongation(
    after: PolicyKind,
    before: PolicyKind = "raw",
    family: str = "other",
    among: tuple[Study, ...] | None = None,
) -> Elongation:
    """Return how much longer real runs are expected to be than the record, with an 80 % interval.

    Args:
        after: family of the policy that is replayed.
        before: family of the policy that the record was made under.
        family: of the model (`family_of`); its own studies count where there are three.
        among: the studies; None: those that ship with the kit.
    """
    known = load_studies() if among is None else among
    if after == before == "raw":
        return NO_ELONGATION
    found = _relevant_studies(known, before, after)
    own = [s for s in found if s.family == family]
    logs = [(log(s.ratio), s.error) for s in (own if len(own) >= _FEW else found)]
    return pool_studies(logs, still=after == before)


def _relevant_studies(known: Sequence[Study], before: str, after: str) -> list[Study]:
    """Return the studies of two families; where there is none, those of all that was ever done.

    Two settings of one family were not run by several models: they are taken to lie no further
    apart than models do under one setting.
    """
    straight = [s for s in known if (s.before, s.after) == (before, after)]
    turned = [
        s._replace(ratio=1 / s.ratio) for s in known if (s.after, s.before) == (before, after)
    ]
    of_one = [s for s in known if s.before == "raw" and s.after in (after, before)]
    managed = [s for s in known if s.before == "raw"]
    return next(f for f in (straight, turned, of_one if after == before else [], managed) if f)


def pool_studies(logs: Sequence[tuple[float, float]], *, still: bool = False) -> Elongation:
    """Return the distribution of a further study from logarithms and their errors.

    Args:
        logs: one a study.
        still: the mean is 1, and only the spread is asked.
    """
    weights = [1 / max(e, 1e-6) ** 2 for _, e in logs]
    mean = _weighted_mean(logs, weights)
    between = _between_studies(logs, weights, mean)
    weights = [1 / (e * e + between) for _, e in logs]
    mean = 0.0 if still else _weighted_mean(logs, weights)
    freedom = len(logs) - 1
    t = _T[freedom - 1] if 0 < freedom <= len(_T) else _NORMAL if freedom else _T[0]
    half = t * sqrt(between * (1 + still) + 1 / sum(weights))
    return Elongation(exp(mean), exp(mean - half), exp(mean + half), len(logs))


def classify_policy(
    *, summaries: bool, pruned: bool, cuts: int | None, hidden: tuple[int | None, int | None]
) -> PolicyKind | None:
    """Return the family of what rules did to a session; None where what they hid is not known.

    Args:
        summaries: some were written.
        pruned: the rules prune each call.
        cuts: compactions.
        hidden: messages, and tool results among them, that are no longer seen as they were said.
    """
    if summaries:
        return "hybrid" if pruned else "summary"
    if cuts is None or hidden[0] is None:
        return None
    if not cuts and not hidden[0]:
        return "raw"
    return "mask" if hidden[0] == hidden[1] else "other"


def judge_cost(ends: tuple[float, float], record: float) -> str:
    """Return whether a cost is told apart from the record's: cheaper, dearer or not told apart.

    Args:
        ends: of the interval of the cost, in dollars.
        record: dollars of the record.
    """
    if ends[1] * (1 + NOISE_FLOOR) < record:
        return "cheaper"
    return "dearer" if ends[0] > record * (1 + NOISE_FLOOR) else "not told apart"


def elongate_runs(
    runs: pd.DataFrame, share: float | None = None, *, end: str = "longer"
) -> pd.DataFrame:
    """Return rows of scores with the runs as long as real ones: calls, tokens and dollars.

    The record itself, runs that changed nothing, peaks, cuts, losses and the dollars of summaries
    stay as they are; `source` becomes `estimated`.

    Args:
        runs: what `sweep` or `compare` returned.
        share: how much longer all runs with summaries get; None: each as its column `end` says.
        end: `longer`, or `longer_low` or `longer_high` for an end of its interval.

    Raises:
        BadArguments: the share is below 0, there is no such column, or these are no scores.
    """
    import pandas as pd

    if not isinstance(runs, pd.DataFrame) or "summary_tokens" not in runs.columns:
        raise BadArguments(f"Give what sweep or compare returned, not {type(runs).__name__}.")
    if share is not None and not share >= 0:
        raise BadArguments(f"A run gets longer by a share of 0 or more, not {share!r}.")
    if share is None and (end not in _ENDS or end not in runs.columns):
        raise BadArguments(f"The column is one of {', '.join(_ENDS)}, not {end!r}.")
    out = pd.DataFrame(runs).copy()
    factor = _factors(out, share, end)
    longer = factor != 1
    if not longer.any():
        return out
    by: Any = factor[longer]
    for name in _COUNTS:
        grown = (out.loc[longer, name].astype("Float64") * by).round()
        out.loc[longer, name] = grown.astype("Int64")
    for name in _DOLLARS:
        out.loc[longer, name] = out.loc[longer, name] * by
    parts: Any = out.loc[longer, [*_DOLLARS, "summaries_usd"]]
    out.loc[longer, "cost_usd"] = parts.sum(axis=1, skipna=False).astype("Float64")
    out.loc[longer, "source"] = "estimated"
    return out


def _factors(runs: pd.DataFrame, share: float | None, end: str) -> Any:
    """Return by how much each row is multiplied; 1 for the record and where nothing is known."""
    replayed = (runs["rules"] != "recorded").to_numpy(dtype=bool)
    if share is None:
        known: Any = runs[end].astype("Float64").fillna(1.0).to_numpy(dtype=float)
        return known * replayed + ~replayed
    written = (runs["summary_tokens"].fillna(0) > 0).to_numpy(dtype=bool)
    return 1 + share * (written & replayed)


def _weighted_mean(logs: Sequence[tuple[float, float]], weights: Sequence[float]) -> float:
    return sum(w * y for w, (y, _) in zip(weights, logs, strict=True)) / sum(weights)


def _between_studies(
    logs: Sequence[tuple[float, float]], weights: Sequence[float], mean: float
) -> float:
    """Return the variance between studies (DerSimonian and Laird 1986)."""
    q = sum(w * (y - mean) ** 2 for w, (y, _) in zip(weights, logs, strict=True))
    free = sum(weights) - sum(w * w for w in weights) / sum(weights)
    return max(0.0, (q - (len(logs) - 1)) / free) if free > 0 else 0.0
