"""Section of docs/trust.md on the calibration of the 80 % interval, with a nested choice.

The constants of the calibration were chosen with all logs of the table. To judge a developer by
constants that do not depend on their logs, the constants are chosen again for each developer from
the logs of the others (`judge_with_chosen_constants`).
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from trust_developers import (
    MODES,
    JudgedRow,
    format_coverage,
    format_width,
    group_by_owner,
    judge_sessions,
    select_long_sessions,
)

from ctxkit.engine.cache_model import (
    input_cost_prediction,
    interval_calibration,
    miss_rate_estimator,
)
from ctxkit.engine.cache_model.input_cost_prediction import MODEL_ERROR
from ctxkit.engine.cache_model.interval_calibration import (
    COVERAGE,
    DEFAULT_START,
    DEVELOPER_SHARE,
    LONG_CALLS,
    MIN_DEVELOPERS,
    MIN_STRETCH,
    measure_left_out_coverage,
    select_calibration_sessions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from numpy.typing import NDArray

    from ctxkit.engine.cache_model.interval_calibration import CoverageStart
    from ctxkit.engine.cache_model.training_counts import Evidence, SessionMissCounts

# How the constants are chosen without a developer.
#
# `CANDIDATES` are all combinations of `_CHOICES`. For each pair of developers d and e the stretch
# is calibrated without the logs of either and compared with the sessions of e. The combination with
# the smallest interval score over all e, each developer counting alike, is the one by which the
# sessions of d are judged; their stretch is calibrated without d, as ever.
#
# The interval score (Gneiting and Raftery, 2007) is the width plus 2 / (1 - COVERAGE) times what
# the record is outside; its expectation is smallest for the true quantiles, so that neither too
# wide nor too narrow an interval wins. Widths are in logarithms of dollars.
#
# Cost: O(developers^2 x calibrations). A pair whose sessions do not calibrate a group leaves the
# same sessions as no pair at all, so calibrations are cached by the sessions that make them.


class Constants(NamedTuple):
    """Constants of a calibration."""

    model_error: float
    min_stretch: float
    developer_share: float
    start: CoverageStart


SHIPPED = Constants(MODEL_ERROR, MIN_STRETCH, DEVELOPER_SHARE, DEFAULT_START)
_CHOICES: tuple[tuple[Any, ...], ...] = (
    (0.025, 0.05, 0.1),
    (0.0, 0.3, 0.6, 1.0),
    (0.0, 0.5, 1.0),
    ("after_last_failure", "first_success", "as_wanted"),
)
CANDIDATES = tuple(Constants(*values) for values in product(*_CHOICES))


def judge_with_chosen_constants(
    rows: Sequence[SessionMissCounts], evidence: Evidence
) -> list[JudgedRow]:
    """Return the judged sessions, with intervals by constants chosen on logs of other developers.

    Only sessions of kinds with enough other developers are among them.
    """
    return NestedChoice(rows, evidence).judge_sessions()


class NestedChoice:
    """The choice of constants without each developer in turn.

    Args:
        rows: the training table, one row per session.
        evidence: what is known of a developer.
    """

    def __init__(self, rows: Sequence[SessionMissCounts], evidence: Evidence) -> None:
        self.evidence: Evidence = evidence
        self.rows = [row for row in rows if row.past and row.past.teachers]
        self.judged = [j for j in judge_sessions(rows, evidence) if j.teachers >= MIN_DEVELOPERS]
        self.groups = group_by_owner(self.judged)
        self._calibrated: dict[tuple[str, ...], NDArray[Any]] = {}

    def judge_sessions(self) -> list[JudgedRow]:
        """Return the judged sessions, each by the constants chosen without its developer."""
        return [
            self._replace_interval(judged, CANDIDATES.index(constants))
            for group, constants in zip(self.groups, self.chosen_constants, strict=True)
            for judged in group
        ]

    @cached_property
    def chosen_constants(self) -> list[Constants]:
        """The constants chosen without each developer, in the order of `groups`."""
        owners = [group[0].row.owner for group in self.groups]
        return [CANDIDATES[int(np.argmin(self.measure_scores(owner)))] for owner in owners]

    def measure_scores(self, left_out: str | None = None) -> NDArray[Any]:
        """Return the interval score of each of `CANDIDATES`, in the mean over developers.

        Args:
            left_out: the developer without whose logs it is measured; None: all are used.
        """
        scores = []
        for group in self.groups:
            owner = group[0].row.owner
            excluded = {owner} if left_out is None else {owner, left_out}
            ends_of_sessions = (
                [] if owner == left_out else [self._find_ends(j, excluded) for j in group]
            )
            if ends_of_sessions := [ends for ends in ends_of_sessions if ends is not None]:
                scores.append(
                    np.mean([_compute_interval_score(*ends) for ends in ends_of_sessions], axis=0)
                )
        mean_scores: NDArray[Any] = np.mean(scores, axis=0)
        return mean_scores

    def _find_ends(
        self, judged: JudgedRow, excluded: set[str]
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return the ends of an interval, as logarithms of predicted / recorded, by candidate."""
        row = judged.row
        training = [r for r in self.rows if r.owner not in excluded]
        rows = select_calibration_sessions(training, row, row.calls, is_near=True)
        if not rows or not row.past:
            return None
        key = tuple(r.session for r in rows)
        if key not in self._calibrated:
            self._calibrated[key] = self._calibrate(rows)
        stretch = self._calibrated[key]
        error, below, above = _split_errors([row], self.evidence)
        errors = np.array([c.model_error for c in CANDIDATES])
        return (
            error - np.hypot(below, errors) * stretch[:, 0],
            error + np.hypot(above, errors) * stretch[:, 1],
        )

    def _calibrate(self, rows: Sequence[SessionMissCounts]) -> NDArray[Any]:
        """Return the two factors of each candidate, fitted to the errors of `rows`."""
        owners = [row.owner for row in rows]
        error, below, above = _split_errors(rows, self.evidence)
        coverages = {}
        for model_error, min_stretch in product(*_CHOICES[:2]):
            widths = np.hypot(np.where(error < 0, above, below), model_error)
            coverages[model_error, min_stretch] = measure_left_out_coverage(
                -error / widths, owners, min_stretch
            )
        return np.array([coverages[c[:2]].choose_stretch(*c[2:]) for c in CANDIDATES])

    def _replace_interval(self, judged: JudgedRow, index: int) -> JudgedRow:
        ends = self._find_ends(judged, {judged.row.owner})
        if ends is None:
            return judged._replace(low=None, high=None)
        low, high = (float(np.expm1(values[index])) for values in ends)
        return judged._replace(low=low, high=high)


def _split_errors(
    rows: Sequence[SessionMissCounts], evidence: Evidence
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the error of each session and the half widths of its draws, without `MODEL_ERROR`."""
    bills = [row.past.get_bill(evidence) for row in rows if row.past]
    error, below, above = np.array([tuple(bill) for bill in map(_get_values, bills)]).T
    below, above = (np.sqrt(np.maximum(width**2 - MODEL_ERROR**2, 0.0)) for width in (below, above))
    return error, below, above


def _get_values(bill: Any) -> tuple[float, float, float]:
    return bill.error, bill.below, bill.above


def _compute_interval_score(low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    outside = np.maximum(low, 0.0) + np.maximum(-high, 0.0)
    score: NDArray[Any] = high - low + 2 / (1 - COVERAGE) * outside
    return score


HEAD = """### How the interval is calibrated

The raw interval of a prediction is stretched until it covers 80 % of the errors of other developers
(`ctxkit/engine/cache_model/interval_calibration.py`). Rates, read sizes and stretches come from
their logs; classes and causes of misses from earlier studies, partly of the same logs.

| constant | value | meaning | how it was chosen |
| --- | --- | --- | --- |"""
NESTED_CHOICE = f"""
"By the score": of {len(CANDIDATES)} combinations, this one has the smallest interval score (width
plus ten times the distance of a record outside) on the logs of all developers, or at most 1 % more.
So the tables above test these four constants on the data that chose them; nothing else was chosen
by the errors on this page. For the table below, and lines 4 and 5 at the top, they are chosen again
without the developer in question. But the combinations were listed after all logs had been seen,
and the predictions for the others were trained on that developer's logs.
"""
_BY_EARLIER_STUDY = "from an earlier study of other logs"
_BY_GOAL = "set by the goals, not tuned"
_BY_SCORE = "by the score"
CONSTANTS: tuple[tuple[ModuleType, str, str, str], ...] = (
    (interval_calibration, "COVERAGE", "target coverage of an interval", _BY_GOAL),
    (
        interval_calibration,
        "MIN_DEVELOPERS",
        "developers needed as training data for a kind of session",
        _BY_GOAL,
    ),
    (interval_calibration, "LONG_CALLS", "calls of a long session", _BY_GOAL),
    (interval_calibration, "MIN_STRETCH", "smallest stretch of one side", _BY_SCORE),
    (
        interval_calibration,
        "DEVELOPER_SHARE",
        "weight of the mean over developers in the coverage; the rest is the mean over sessions",
        _BY_SCORE,
    ),
    (
        interval_calibration,
        "DEFAULT_START",
        "use the share after the last one that covers too little",
        _BY_SCORE,
    ),
    (
        input_cost_prediction,
        "_LOW_PERCENTILE",
        "percentile of the draws at the lower end of the raw interval",
        _BY_GOAL,
    ),
    (input_cost_prediction, "_HIGH_PERCENTILE", "the same at the upper end", _BY_GOAL),
    (
        input_cost_prediction,
        "_MIN_RECORDS",
        "past errors needed for a range, for kinds without training data",
        "assumed",
    ),
    (interval_calibration, "_STEPS", "divisions of the uncovered share", "resolution"),
    (
        input_cost_prediction,
        "MODEL_ERROR",
        "error of the model itself, in logarithms, added to that of the draws",
        f"{_BY_SCORE}; about the median error",
    ),
    (miss_rate_estimator, "N_DRAWS", "draws of a prediction", "resolution"),
    (
        miss_rate_estimator,
        "_MAX_CALLS",
        "maximum weight of one developer in a class, in calls",
        _BY_EARLIER_STUDY,
    ),
    (miss_rate_estimator, "_PRIOR_CALLS", "weight of a wider group, in calls", _BY_EARLIER_STUDY),
    (
        miss_rate_estimator,
        "_PRIOR_CALLS_WITH_CAUSE",
        "the same, for misses with a cause",
        _BY_EARLIER_STUDY,
    ),
    (
        miss_rate_estimator,
        "_PRIOR_CALLS_OWN_HALF",
        "the same, relative to a session's own first half",
        _BY_EARLIER_STUDY,
    ),
    (
        miss_rate_estimator,
        "_PRIOR_MISSES",
        "weight of a wider group's read share, in misses",
        _BY_EARLIER_STUDY,
    ),
    (miss_rate_estimator, "_SPREAD", "weight of a session's own rate, in calls", _BY_EARLIER_STUDY),
    (
        miss_rate_estimator,
        "_MIN_DONORS",
        "reads that a group needs to provide those of a miss",
        _BY_EARLIER_STUDY,
    ),
    (miss_rate_estimator, "_DEFAULT_RATE", "miss rate of a class without training data", "assumed"),
    (miss_rate_estimator, "_DEFAULT_RATE_WITH_CAUSE", "the same with a cause", "assumed"),
    (
        miss_rate_estimator,
        "_DEFAULT_READ_SHARE",
        "share of the prompt still read at such a miss",
        "assumed",
    ),
    (miss_rate_estimator, "_MAX_READ_SHARE", "maximum share still read at a miss", "assumed"),
    (
        miss_rate_estimator,
        "_FIRST_READ_SHARE",
        "share that a first call reads, without training data",
        "assumed",
    ),
)
"""Module, name, meaning and origin of each constant that a predicted interval depends on."""


def _format_constants() -> str:
    return "\n".join(
        f"| `{name}` | {str(getattr(module, name)).replace('_', ' ')} | {meaning} | {origin} |"
        for module, name, meaning, origin in CONSTANTS
    )


def format_section(rows: Sequence[SessionMissCounts]) -> str:
    """Return the section in Markdown: the constants, and intervals without their choice."""
    choices = {mode: NestedChoice(rows, mode) for mode in MODES}
    lines = [
        HEAD,
        _format_constants(),
        NESTED_CHOICE,
        "| evidence | sessions | coverage | mean coverage | interval width |",
    ]
    lines.append("| --- " * 5 + "|")
    for mode, label in MODES.items():
        judged = choices[mode].judge_sessions()
        lines.append(_format_line(f"{label}: 8 calls or more", judged))
        lines.append(_format_line(f"{label}: {LONG_CALLS} or more", select_long_sessions(judged)))
    return "\n".join([*lines, "", _describe_choices([*choices.values()])])


def _format_line(label: str, judged: Sequence[JudgedRow]) -> str:
    coverage = f"{format_coverage([judged])} | {format_coverage(group_by_owner(judged))}"
    return f"| {label} | {len(judged)} | {coverage} | {format_width(judged)} |"


def _describe_choices(choices: Sequence[NestedChoice]) -> str:
    scores = [choice.measure_scores() for choice in choices]
    relative_scores = np.mean([score / score.min() for score in scores], axis=0)
    shipped_excess = relative_scores[CANDIDATES.index(SHIPPED)] / relative_scores.min() - 1
    chosen_n = [len(set(choice.chosen_constants)) for choice in choices]
    return (
        f"The shipped combination scores {shipped_excess:.1%} above the best one. Several are "
        f"about equally good: leaving out one developer each time selects {min(chosen_n)} to "
        f"{max(chosen_n)} different ones.\n"
    )
