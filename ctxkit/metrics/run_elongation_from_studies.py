"""Elongation: ratio of a real run's calls under a policy to the record's, from studies."""

# Meta-analysis of published studies that ran the same tasks under two policies. Each gives the log
# of a ratio of turns and its standard error. They are pooled by a random-effects model (DerSimonian
# and Laird 1986): the variance between studies is added to each error, means are weighted by
# inverse variance, and the prediction interval for a further study follows from Student's t. If
# there are at least three studies of the model's family, only these are used, else all (a back-off
# estimate).

from __future__ import annotations

from functools import cache, lru_cache
from math import exp, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

__all__ = [
    "INTERVAL_LEVEL",
    "NOISE_FLOOR",
    "ClosedLoopRuns",
    "Elongation",
    "ElongationStudy",
    "classify_policy",
    "compare_cost_with_record",
    "elongate_runs",
    "estimate_elongation",
    "get_study_model_family",
    "load_closed_loop_runs",
    "load_studies",
    "pool_studies",
    "widen_interval_to_closed_loop_runs",
]
__dir__ = make_dunder_dir(__all__)

PolicyKind = Literal["raw", "mask", "summary", "hybrid", "other"]
"""Families of policies: no policy, masked or cleared results, summaries, both, any other."""

INTERVAL_LEVEL = 0.8
"""Level of every interval in this module."""
NOISE_FLOOR = 0.21
"""Two runs of one policy over the same 50 tasks differ in dollars by at most this share in 80 of
100 cases; three measured pairs differ by 9, 14 and 2 %
(`ctxkit.experiments.studies.policy_ratios_and_noise_floors`).
"""
_STUDENT_T = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372, 1.363, 1.356)
"""Student's t for an 80 % interval, by degrees of freedom from 1."""
_NORMAL_QUANTILE = 1.282
"""Quantile of the normal distribution, for more degrees of freedom than the table has."""
_MIN_ERROR = 1e-6
"""Smallest standard error of a study, for one that states none."""
_MIN_FAMILY_STUDIES = 3
"""Studies of one family of models that are enough to leave out those of other families."""
_FAMILIES = ("gemini", "qwen")
_STUDIES_FILE = Path(__file__).with_name("elongation.csv")
_LOOPS_FILE = Path(__file__).with_name("elongation_loops.csv")
_COUNTS = (
    *("calls_n", "prompt_tokens", "fresh_tokens", "cache_read_tokens", "cache_write_tokens"),
    "output_tokens",
)
_DOLLARS = ("input_usd", "output_usd")
_ENDS = ("elongation", "elongation_low", "elongation_high")


class ElongationStudy(NamedTuple):
    """The turns of one model that ran the same tasks under two policies."""

    before: str
    after: str
    family: str
    scaffold: str
    model: str
    tasks: int
    ratio: float
    """Turns after / turns before."""
    error: float
    """Standard error of the logarithm of the ratio, over tasks."""


class ClosedLoopRuns(NamedTuple):
    """Runs of a scripted agent under a policy and without one."""

    kind: str
    """Family of the policy."""
    rules: str
    calls_predicted: int
    """Calls of the run without a policy, and so of its replay."""
    calls_real: int

    @property
    def ratio(self) -> float:
        """Calls of the real run over those of the replay."""
        return self.calls_real / self.calls_predicted


class Elongation(NamedTuple):
    """The factor by which a record's calls are multiplied, with its interval."""

    factor: float
    low: float
    high: float
    studies: int
    """Number of studies behind it; 0: nothing was changed, so the factor is 1."""


NO_ELONGATION = Elongation(1.0, 1.0, 1.0, 0)
"""The elongation of rules that change nothing."""


@cache
def load_studies() -> tuple[ElongationStudy, ...]:
    """Return the studies in `elongation.csv`, which `make studies` writes."""
    lines = _STUDIES_FILE.read_text(encoding="utf-8").splitlines()
    rows = [r.split(";") for r in lines if r and not r.startswith("#")][1:]
    return tuple(
        ElongationStudy(a, b, c, d, e, int(n), float(y), float(s))
        for a, b, c, d, e, n, y, s in rows
    )


@cache
def load_closed_loop_runs() -> tuple[ClosedLoopRuns, ...]:
    """Return the runs in `elongation_loops.csv`, which `make trust` writes."""
    lines = _LOOPS_FILE.read_text(encoding="utf-8").splitlines()
    rows = [r.split(";") for r in lines if r and not r.startswith("#")][1:]
    return tuple(ClosedLoopRuns(kind, rules, int(a), int(b)) for kind, rules, a, b in rows)


def widen_interval_to_closed_loop_runs(elongation: Elongation, after: PolicyKind) -> Elongation:
    """Return an elongation whose interval includes the closed-loop runs of a family of policies.

    Published studies are few, and their agents need less of what was hidden than the scripted agent
    does. Its runs were measured, so an interval that excludes them is too narrow. Without a
    closed-loop run of the family the elongation is returned unchanged.

    Args:
        elongation: the estimate of `estimate_elongation`.
        after: family of the replayed policy.

    Returns:
        An elongation of the same factor whose interval is at least as wide.
    """
    ratios = [run.ratio for run in load_closed_loop_runs() if run.kind == after]
    return elongation._replace(
        low=min([elongation.low, *ratios]), high=max([elongation.high, *ratios])
    )


def get_study_model_family(model: str | None) -> str:
    """Return the family of a model, as the studies group them: gemini, qwen or other.

    Args:
        model: the model's name in any spelling; None: unknown.

    Returns:
        A value of the column `family` of the studies.
    """
    return next((f for f in _FAMILIES if f in (model or "").lower()), "other")


@lru_cache(maxsize=64)
def estimate_elongation(
    after: PolicyKind,
    before: PolicyKind = "raw",
    family: str = "other",
    among: tuple[ElongationStudy, ...] | None = None,
) -> Elongation:
    """Estimate how much longer real runs are than the record, with an 80 % interval.

    Args:
        after: family of the replayed policy.
        before: family of the recorded policy.
        family: family of the model (`get_study_model_family`); only its studies are used if
        there are at
            least three.
        among: the studies; None: those of the package.

    Returns:
        The factor by which the record's calls are multiplied, with its interval.

    Example:
        >>> estimate_elongation("raw").factor
        1.0
        >>> longer = estimate_elongation("summary")
        >>> longer.low < longer.factor < longer.high
        True
    """
    studies = load_studies() if among is None else among
    if after == before == "raw":
        return NO_ELONGATION
    relevant = _select_studies(studies, before, after)
    of_family = [s for s in relevant if s.family == family]
    logs = [
        (log(s.ratio), s.error)
        for s in (of_family if len(of_family) >= _MIN_FAMILY_STUDIES else relevant)
    ]
    return pool_studies(logs, is_unchanged=after == before)


def _select_studies(
    studies: Sequence[ElongationStudy], before: str, after: str
) -> list[ElongationStudy]:
    """Return the studies of a change of policy, or the closest ones that exist.

    In order of preference: the same change; the opposite change, inverted; for two settings of one
    family, the studies of that family; all studies of a change from no policy.
    """
    direct = [s for s in studies if (s.before, s.after) == (before, after)]
    reversed_studies = [
        s._replace(ratio=1 / s.ratio) for s in studies if (s.after, s.before) == (before, after)
    ]
    of_one = [s for s in studies if s.before == "raw" and s.after in (after, before)]
    managed = [s for s in studies if s.before == "raw"]
    return next(
        f for f in (direct, reversed_studies, of_one if after == before else [], managed) if f
    )


def pool_studies(
    log_ratios: Sequence[tuple[float, float]], *, is_unchanged: bool = False
) -> Elongation:
    """Return the predicted ratio of a further study (random effects).

    Args:
        log_ratios: logarithm of the ratio and its standard error, one pair per study.
        is_unchanged: two settings of one family: the mean ratio is 1, and both settings vary.
    """
    errors = [max(e, _MIN_ERROR) for _, e in log_ratios]
    weights = [1 / e**2 for e in errors]
    mean = _weighted_mean(log_ratios, weights)
    between = _between_studies(log_ratios, weights, mean)
    weights = [1 / (e**2 + between) for e in errors]
    mean = 0.0 if is_unchanged else _weighted_mean(log_ratios, weights)
    degrees_of_freedom = len(log_ratios) - 1
    t = (
        _STUDENT_T[degrees_of_freedom - 1]
        if 0 < degrees_of_freedom <= len(_STUDENT_T)
        else _NORMAL_QUANTILE
        if degrees_of_freedom
        else _STUDENT_T[0]
    )
    half_width = t * sqrt(between * (1 + is_unchanged) + 1 / sum(weights))
    return Elongation(exp(mean), exp(mean - half_width), exp(mean + half_width), len(log_ratios))


def classify_policy(
    *,
    summaries: bool,
    pruned: bool,
    compactions: int | None,
    hidden_message_counts: tuple[int | None, int | None],
) -> PolicyKind | None:
    """Return the family of a policy from its effects on a session; None: unknown.

    Args:
        summaries: True where summaries were written.
        pruned: True where the rules prune each call.
        compactions: number of compactions.
        hidden_message_counts: number of messages that are no longer shown as written, and of
            tool results among them.

    Returns:
        The family, as the studies name it, or None.
    """
    if summaries:
        return "hybrid" if pruned else "summary"
    if compactions is None or hidden_message_counts[0] is None:
        return None
    if not compactions and not hidden_message_counts[0]:
        return "raw"
    return "mask" if hidden_message_counts[0] == hidden_message_counts[1] else "other"


def compare_cost_with_record(interval: tuple[float, float], record_usd: float) -> str:
    """Return whether a cost differs from the record's by more than noise.

    Args:
        interval: lower and upper end of the interval of the cost, in dollars.
        record_usd: dollars of the record.

    Returns:
        "cheaper", "dearer" or "within noise".
    """
    if interval[1] * (1 + NOISE_FLOOR) < record_usd:
        return "cheaper"
    return "dearer" if interval[0] > record_usd * (1 + NOISE_FLOOR) else "within noise"


def elongate_runs(
    runs: pd.DataFrame, lengthening_share: float | None = None, *, factor_column: str = "elongation"
) -> pd.DataFrame:
    """Scale calls, tokens and dollars of scores to the length of real runs.

    The record, runs that changed nothing, peaks, compactions, losses and the dollars of summaries
    are not scaled.

    Args:
        runs: the result of `sweep` or `compare`.
        lengthening_share: lengthen all runs with summaries by this share; None: each run by its
            `factor_column`.
        factor_column: column with the factor of each run: `elongation`, `elongation_low` or
            `elongation_high`.

    Returns:
        A copy of the rows; `source` is `estimated` in the scaled ones.

    Raises:
        BadArguments: the share is below 0, there is no such column, or these are no scores.
    """
    import pandas as pd

    if not isinstance(runs, pd.DataFrame) or "summary_tokens" not in runs.columns:
        raise BadArguments(f"Give what sweep or compare returned, not {type(runs).__name__}.")
    if lengthening_share is not None and not lengthening_share >= 0:
        raise BadArguments(f"A run gets longer by a share of 0 or more, not {lengthening_share!r}.")
    if lengthening_share is None and (
        factor_column not in _ENDS or factor_column not in runs.columns
    ):
        raise BadArguments(f"The column is one of {', '.join(_ENDS)}, not {factor_column!r}.")
    out = pd.DataFrame(runs).copy()
    factor = _get_factors(out, lengthening_share, factor_column)
    is_longer = factor != 1
    if not is_longer.any():
        return out
    factors: Any = factor[is_longer]
    for name in _COUNTS:
        scaled = (out.loc[is_longer, name].astype("Float64") * factors).round()
        out.loc[is_longer, name] = scaled.astype("Int64")
    for name in _DOLLARS:
        out.loc[is_longer, name] = out.loc[is_longer, name] * factors
    parts: Any = out.loc[is_longer, [*_DOLLARS, "summaries_usd"]]
    out.loc[is_longer, "cost_usd"] = parts.sum(axis=1, skipna=False).astype("Float64")
    out.loc[is_longer, "source"] = "estimated"
    return out


def _get_factors(runs: pd.DataFrame, share: float | None, end: str) -> Any:
    """Return the factor of each row; 1 for the record and where it is unknown."""
    is_replay = (runs["rules"] != "recorded").to_numpy(dtype=bool)
    if share is None:
        factors: Any = runs[end].astype("Float64").fillna(1.0).to_numpy(dtype=float)
        return factors * is_replay + ~is_replay
    has_summaries = (runs["summary_tokens"].fillna(0) > 0).to_numpy(dtype=bool)
    return 1 + share * (has_summaries & is_replay)


def _weighted_mean(logs: Sequence[tuple[float, float]], weights: Sequence[float]) -> float:
    return sum(w * y for w, (y, _) in zip(weights, logs, strict=True)) / sum(weights)


def _between_studies(
    logs: Sequence[tuple[float, float]], weights: Sequence[float], mean: float
) -> float:
    """Return the variance between studies (DerSimonian and Laird 1986)."""
    q = sum(w * (y - mean) ** 2 for w, (y, _) in zip(weights, logs, strict=True))
    free = sum(weights) - sum(w * w for w in weights) / sum(weights)
    return max(0.0, (q - (len(logs) - 1)) / free) if free > 0 else 0.0
