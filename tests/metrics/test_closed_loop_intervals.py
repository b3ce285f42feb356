"""The interval beside a comparison holds the closed-loop runs that were measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import trust_studies
from conftest import sample

import ctxkit as ck
from ctxkit.metrics import run_elongation_from_studies

KINDS = ("mask", "summary", "hybrid", "other")


def test_the_table_is_what_the_closed_loops_measure():
    """A row of it in the suite, all where everything is taken."""
    path = Path(run_elongation_from_studies.__file__).with_name("elongation_loops.csv")
    *head, rows = path.read_text(encoding="utf-8").split("\n", 2)
    pairs = [*zip(trust_studies.list_table_rules(), rows.splitlines(), strict=True)]
    rules, expected = zip(*sample(pairs, 1), strict=True)
    assert trust_studies.measure_closed_loops(rules).splitlines() == [*head, *expected]


@pytest.mark.parametrize("before", ["raw", *KINDS])
@pytest.mark.parametrize("after", KINDS)
@pytest.mark.parametrize("family", ["gemini", "qwen", "other"])
def test_an_interval_holds_every_closed_loop_of_its_kind(before, after, family):
    studied = run_elongation_from_studies.estimate_elongation(after, before, family)
    wide = run_elongation_from_studies.widen_interval_to_closed_loop_runs(studied, after)
    runs = [run for run in run_elongation_from_studies.load_closed_loop_runs() if run.kind == after]
    assert runs
    assert all(wide.low <= run.ratio <= wide.high for run in runs)
    assert (wide.factor, wide.studies) == (studied.factor, studied.studies)
    assert wide.low <= studied.low <= studied.high <= wide.high
    for end in (0.01, 9.0):  # an interval that lies below all runs, and one above them
        wide = run_elongation_from_studies.widen_interval_to_closed_loop_runs(
            studied._replace(low=end, high=end), after
        )
        assert all(wide.low <= run.ratio <= wide.high for run in runs)


def test_rules_that_change_nothing_and_kinds_without_a_closed_loop_stay_as_they_were(monkeypatch):
    nothing, mask = (
        run_elongation_from_studies.estimate_elongation("raw"),
        run_elongation_from_studies.estimate_elongation("mask"),
    )
    assert run_elongation_from_studies.widen_interval_to_closed_loop_runs(nothing, "raw") == nothing
    monkeypatch.setattr(run_elongation_from_studies, "load_closed_loop_runs", lambda: ())
    assert run_elongation_from_studies.widen_interval_to_closed_loop_runs(mask, "mask") == mask


def test_a_comparison_knows_the_closed_loop_and_says_so():
    rows = ck.compare(ck.samples.path(), ["tyrum", "clear:keep_last=3"], progress=False)
    tyrum, clear = rows.loc["tyrum"], rows.iloc[2]
    assert tyrum["elongation_low"] <= 2.14 <= tyrum["elongation_high"]
    assert clear["elongation_low"] <= 1.70 <= clear["elongation_high"]
    assert "closed-loop runs" in rows.caption
    for kind in KINDS:
        assert f"{kind} (up to " in rows.caption
