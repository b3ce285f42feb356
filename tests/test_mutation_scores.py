"""The list of equivalent faults fits the code, and the figures of faults are counted rightly."""

from __future__ import annotations

import ast
import json
import re

import pytest

from benchmarks import mutation_scores
from benchmarks.mutation_operators import get_header
from benchmarks.mutation_scores import FaultFigures, format_section, store_figures
from benchmarks.mutation_testing import Outcome, cut_to_change
from benchmarks.tests_by_line import read_text

EQUIVALENT = json.loads(mutation_scores.EQUIVALENT_FAULTS.read_text(encoding="utf-8"))


def find_words(code: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", code))


WORDS_OF_FAULTS = {"None", "True", "False", "and", "or", "not", "pass"}
"""Words that a fault may write where they did not stand."""


@pytest.mark.parametrize("fault", EQUIVALENT, ids=[f["file"] for f in EQUIVALENT])
def test_an_equivalent_fault_is_one_of_a_statement_that_stands_there(fault):
    tree = ast.parse(read_text(fault["file"]))
    statements = [get_header(n) for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    assert any(fault["before"] in text for text in statements)
    assert fault["before"] != fault["after"]
    assert find_words(fault["after"]) <= find_words(fault["before"]) | WORDS_OF_FAULTS
    assert len(fault["reason"].split()) >= 5


def make_outcomes(package: str, **verdicts: int) -> list[Outcome]:
    names = [v.replace("_", " ") for v, n in verdicts.items() for _ in range(n)]
    return [Outcome(package, i, "f", 1, "", "", "", v, "", 1, 1, 0.0) for i, v in enumerate(names)]


def test_what_no_test_noticed_survived_and_what_is_equivalent_does_not_count():
    outcomes = make_outcomes(
        "metrics", noticed=90, timed_out=2, survived=5, survived_so_far=2, no_test=1, equivalent=4
    )
    run = FaultFigures.count("metrics", 7, 500, [*outcomes, *make_outcomes("engine", survived=9)])
    assert (run.faults, run.noticed, run.equivalent) == (104, 92, 4)
    assert (run.survived, run.undecided) == (6, 2)
    share, low, high = run.get_share()
    assert share == pytest.approx(0.92)
    assert (low, high) == pytest.approx((0.850, 0.959), abs=1e-3)  # Wilson's for 92 of 100


def test_first_and_last_run_of_a_package_are_kept_beside_the_table(tmp_path, monkeypatch):
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n\n| a table |\n")
    monkeypatch.setattr(mutation_scores, "PAGE", page)
    monkeypatch.setattr(mutation_scores, "FIGURES", tmp_path / "figures.json")
    for seed, noticed in ((1, 80), (2, 90), (3, 99)):
        outcomes = make_outcomes("metrics", noticed=noticed, survived=100 - noticed)
        store_figures([FaultFigures.count("metrics", seed, 500, outcomes)])
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\n| a table |\n\n## Single faults")
    assert text.count("## Single faults") == 1
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| metrics")]
    assert [(r[1], r[3], r[10]) for r in rows] == [("first", "1", "80%"), ("last", "3", "99%")]


def test_the_page_holds_the_figures_that_are_kept():
    assert mutation_scores.PAGE.read_text(encoding="utf-8").endswith(format_section())


def test_a_long_statement_is_cut_around_its_change():
    before = "x = [" + "1, " * 200 + "2]"
    assert len(cut_to_change(before, before.replace("2]", "3]"))[0]) <= 300
