"""Sentences on what the figures of a report rest on."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.formatting import has_value, sanitize_line
from ctxkit.engine.cache_model.input_cost_prediction import describe_prediction, predict_input_cost
from ctxkit.metrics.cost.cache_fit import closure_error
from ctxkit.metrics.cost.replay_bill import ReplayCostModel
from ctxkit.plots.chart import collect_notes
from ctxkit.tokens.message_sizes import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from ctxkit.session.session import Session

OPEN_LOOP = (
    "Open loop: a replay keeps the recorded trajectory. It tells the bill and what was out of sight"
    " when the record needed it, not what the agent would have done instead."
)
_MILD = 0.03
"""A prediction error up to here is small beside the differences that a report is read for."""


_ERRORS = (
    "prediction_error",
    "prediction_low",
    "prediction_high",
    "prediction_note",
    "closure_error",
)


class SessionEstimateAccuracy(NamedTuple):
    """The accuracy that one recorded session allows; None: unknown."""

    session: str
    error: float | None
    """The prediction error of its input side."""
    low: float | None
    high: float | None
    note: str | None
    closure: float | None
    unexplained: float | None
    priced: float | None
    counter: str
    counter_error: float | None


def describe_session_basis(session: Session) -> list[str]:
    """Return the sentences for a session; of a replay those of its record, and what a replay is.

    Args:
        session: with calls.

    Returns:
        Sentences on cache prediction, cache misses, prices and counter, then the notes of the log.
    """
    base = session.origin or session
    sentences = collect_notes(base)
    anchored, sheet = measure_sizes(base), ReplayCostModel.of(base)
    prediction = predict_input_cost(base)
    closure = closure_error(base, sheet.misses)
    errors = (prediction.error, prediction.low, prediction.high, prediction.why, closure)
    counted = (anchored.counter, anchored.error)
    basis = SessionEstimateAccuracy(base.id, *errors, sheet.unexplained, sheet.priced, *counted)
    return [*_basis_sentences([basis], replayed=session.origin is not None), *sentences]


def describe_runs_basis(frame: pd.DataFrame) -> list[str]:
    """Return the sentences for rows of scores.

    Args:
        frame: rows of `ck.compare` or `ck.sweep`.

    Returns:
        Sentences on cache prediction, cache misses, prices and counter, then notes of the frame;
        runs of one session are counted once.
    """
    names = [
        "session",
        *_ERRORS,
        "unexplained_miss_share",
        "priced_share",
        "counter",
        "counter_error",
    ]
    # All runs of a session share one basis; a run that failed has no counter.
    rows = frame[names][frame["counter"].notna()].drop_duplicates("session").itertuples(index=False)
    bases = [
        SessionEstimateAccuracy._make(v if has_value(v) else None for v in row) for row in rows
    ]
    return [*_basis_sentences(bases, replayed=True), *collect_notes(frame)]


def _basis_sentences(bases: Sequence[SessionEstimateAccuracy], *, replayed: bool) -> Iterator[str]:
    if replayed:
        yield OPEN_LOOP
    if not bases:
        yield "No run has a figure, so nothing could be checked."
        return
    yield _error_sentence(bases)
    shares = [b.unexplained for b in bases if b.unexplained is not None]
    if shares:
        most = f" (the most of a session: {max(shares):.1%})" if len(shares) > 1 else ""
        yield f"{median(shares):.1%} of the calls missed the cache without an explanation{most}."
    priced = [b.priced for b in bases if b.priced is not None]
    if priced and min(priced) < 1:
        yield (
            f"{sum(priced) / len(priced):.0%} of the billed calls have a price; without one,"
            " dollars are missing."
        )
    yield _counter_sentence(bases)


def _error_sentence(bases: Sequence[SessionEstimateAccuracy]) -> str:
    errors = {b.session: b.error for b in bases if b.error is not None}
    if not errors:
        return (
            "Prediction error: unknown. Without a cache split and known prices the cache "
            "model cannot be checked against the record, so trust its dollars less than their "
            "order."
        )
    worst = max(errors, key=lambda name: abs(errors[name]))
    if len(bases) == 1:
        (one,) = bases
        sentence = (
            f"Prediction error: {describe_prediction(one.error, one.low, one.high, one.note)}"
        )
    else:
        sentence = (
            "Prediction error, without the reads of the session: median "
            f"{median(map(abs, errors.values())):.1%}, largest {errors[worst]:+.1%} "
            f"({sanitize_line(worst, 60)}), over {len(errors)} of {len(bases)} sessions."
        )
    closures = [abs(b.closure) for b in bases if b.closure is not None]
    if closures:
        sentence += (
            f" The books close within {max(closures):.2%}, which says that prices are put right, "
            "and no more."
        )
    if abs(errors[worst]) > _MILD:
        sentence += " Differences in dollars of about that size mean nothing."
    return sentence


def _counter_sentence(bases: Sequence[SessionEstimateAccuracy]) -> str:
    names = ", ".join(dict.fromkeys(sanitize_line(b.counter, 40) for b in bases))
    errors = [b.counter_error for b in bases if b.counter_error is not None]
    if not errors:
        return f"Tokens are counted by {names}; no recorded usage shows how far off that is."
    off = f"{min(errors):+.0%}" + (f" to {max(errors):+.0%}" if len(errors) > 1 else "")
    return (
        f"Tokens are counted by {names}, whose plain count is {off} off the recorded growth; sizes"
        " are scaled to the recorded usage where there is one."
    )
