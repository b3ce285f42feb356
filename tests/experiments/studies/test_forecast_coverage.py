"""The intervals of forecasts hold as often as they say, on sessions that were held back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ctxkit import studies
from ctxkit.engine import load_training_counts
from ctxkit.session import Usage

PAGE = Path(__file__).parents[3] / "docs" / "forecasts.md"


def test_four_of_five_later_sessions_lie_in_the_interval():
    for figure in (
        lambda row: float(row.calls),
        studies.forecast_and_threshold_holdout.count_tokens_shared_between_calls,
        studies.forecast_and_threshold_holdout.price_tokens_shared_between_calls,
    ):
        result = studies.forecast_and_threshold_holdout.measure_coverage(figure)
        assert result.developers_n >= 10
        assert 0.7 <= result.share <= 0.9


def test_figures_that_drift_fall_out_of_it():
    seen: dict[str, int] = {}

    def drifting(row):
        seen[row.developer] = seen.get(row.developer, 0) + 1
        return 2.0 ** seen[row.developer]

    assert studies.forecast_and_threshold_holdout.measure_coverage(drifting).share < 0.5


def test_archives_are_forecast_and_compared_per_tool():
    developers = studies.forecast_and_threshold_holdout.make_developers(5, sessions=8)
    coverage = studies.forecast_and_threshold_holdout.measure_archive_coverage(
        {n: developers[n] for n in ("dev-2", "dev-3")}
    )
    assert {(t, f) for t, f in coverage if f != "loss"} == {
        (tool, figure) for tool in ("claude-code", "codex") for figure in ("calls", "usd")
    }
    for result in coverage.values():
        assert result.developers_n == 1
        assert 0 <= result.inside <= result.sessions_n == 4


def test_sessions_that_cost_more_later_fall_out_of_the_interval():
    """Each call of the later sessions is billed as an hour's write of its whole prompt."""
    (sessions,) = studies.forecast_and_threshold_holdout.make_developers(1, sessions=8).values()
    later = [msgspec.structs.replace(s, log=tuple(map(make_dearer, s.log))) for s in sessions[4:]]
    coverage = studies.forecast_and_threshold_holdout.measure_archive_coverage(
        {"dev-0": [*sessions[:4], *later]}
    )
    assert coverage["claude-code", "usd"].inside == 0
    assert coverage["claude-code", "calls"].inside > 0


def make_dearer(message):
    if message.usage is None:
        return message
    usage = Usage(
        input_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        cache_write_1h_tokens=message.usage.prompt_tokens,
        output_tokens=message.usage.output_tokens,
    )
    return msgspec.structs.replace(message, usage=usage)


def test_carried_tokens_have_a_price_only_with_that_of_the_model():
    row = next(r for r in load_training_counts() if "claude" in r.model and has_hits(r))
    assert (
        studies.forecast_and_threshold_holdout.price_tokens_shared_between_calls(
            msgspec.structs.replace(row, model="no such model")
        )
        is None
    )
    all_read, all_written = (
        studies.forecast_and_threshold_holdout.price_tokens_shared_between_calls(
            msgspec.structs.replace(
                row,
                counts={
                    k: msgspec.structs.replace(c, lost=c.expected * is_lost)
                    for k, c in row.counts.items()
                },
            )
        )
        for is_lost in (False, True)
    )
    assert all_written == pytest.approx(all_read * 1.25 / 0.1)  # shares of Claude's input price


def has_hits(row):
    return any(c.lost < c.expected for c in row.counts.values())


def test_the_page_has_what_is_measured():
    import make_answers

    measured = PAGE.read_text(encoding="utf-8")
    assert make_answers.measure_recorded_forecasts() in measured
    assert f"Synthetic: {make_answers.FORECAST_DEVELOPERS} developers" in measured
    for tool in ("claude-code", "codex", "pi"):
        assert f"| {tool}, usd | " in measured


@pytest.mark.parametrize(("tool", "inside"), [("codex", 4), ("pi", 4), ("claude-code", 0)])
def test_sessions_are_in_the_order_of_time_where_ids_rise_with_it(tool, inside):
    """Four sessions of very different lengths, then four between them; the table begins with these."""
    template = load_training_counts()[0]
    rows = [
        msgspec.structs.replace(template, session=f"s{n}", tool=tool, developer="d", subagent=False)
        for n in (7, 6, 5, 4, 3, 2, 1, 0)
    ]
    lengths = (100, 1_000, 110, 900, 300, 310, 320, 330)
    calls = {f"s{n}": float(calls_n) for n, calls_n in enumerate(lengths)}
    result = studies.forecast_and_threshold_holdout.measure_coverage(
        lambda row: calls[row.session], rows
    )
    assert (result.inside, result.sessions_n, result.developers_n) == (inside, 4, 1)
