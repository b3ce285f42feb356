"""A gate does not pass in silence where nothing was compacted, nor a program that drops everything."""

from __future__ import annotations

import json

import pytest
from builders import assistant, session, usage, user

import ctxkit as ck

SAMPLE = ck.samples.path("billing")


def test_a_program_that_drops_everything_fails_without_a_bound():
    report = ck.gates.gate_compactor(lambda messages: messages[:1], rounds=2)
    assert not report.ok
    assert "no fact outlives" in report.faults[0]


def test_a_program_that_changes_nothing_says_so():
    report = ck.gates.gate_compactor(lambda messages: messages, rounds=2)
    assert report.ok
    assert "left every message as it was" in report.untested[0]
    assert report.sentence == "Nothing got worse, but not all was tested: see above."


def test_a_program_that_compacts_passes_as_before():
    def newest(messages):
        kept = messages[-150:]
        while kept[0]["role"] == "tool":
            kept = kept[1:]
        return [messages[0], *(m for m in kept if m["role"] != "system")]

    report = ck.gates.gate_compactor(newest, rounds=2, exam=True)
    assert report.ok, report
    assert report.untested == ()


SHORT = session(user("Hello."), assistant("Hello.", usage=usage(100)), id="short")


@pytest.mark.parametrize(
    ("sessions", "rules", "untested"),
    [
        ([SAMPLE], ["none"], ["none"]),
        ([SAMPLE], ["strands"], []),
        ([SAMPLE], ["none", "strands"], ["none"]),
        ([SAMPLE, SHORT], ["strands"], []),  # they compact one of two sessions
        ([SAMPLE, SHORT], ["none"], ["none"]),
    ],
)
def test_rules_that_never_fired_are_named(tmp_path, sessions, rules, untested):
    report = ck.gate(sessions, rules, tmp_path / "baseline.json", update=True)
    number = "1 session" if len(sessions) == 1 else f"{len(sessions)} sessions"
    assert list(report.untested) == [
        f"{name} never compacted in {number}, so the gate says nothing about it."
        for name in untested
    ]
    assert all(sentence in report.to_text() for sentence in report.untested)
    assert ("not all was tested" in report.sentence) is bool(untested)


def test_the_exam_is_a_figure_of_the_gate(tmp_path):
    path = tmp_path / "baseline.json"
    ck.gate(SAMPLE, ["strands"], path, update=True, exam=True)
    frame = ck.gate(SAMPLE, ["strands"], path, exam=True).frame().set_index("figure")
    assert frame.loc["exam_answerable", "now"] == 0.4
    assert frame.loc["exam_answerable", "state"] == "same"


@pytest.mark.parametrize("wrong", [{"repeat": 0}, {"least": -0.1}, {"least": 1.1}])
def test_a_repetition_is_one_or_more_and_the_least_a_share(wrong):
    with pytest.raises(ck.BadArguments, match="repeat= is 1 or more, least= a share"):
        ck.gates.gate_compactor(lambda _: pytest.fail("it was asked"), **wrong)


def test_fewer_facts_than_the_least_share_are_one_fault():
    def same(messages):
        return messages

    assert ck.gates.gate_compactor(same, rounds=2, least=1).ok
    report = ck.gates.gate_compactor(lambda messages: messages[:1], rounds=2, least=0.5)
    assert report.faults == (
        "billing: 0 % of the facts outlive 2 rounds, less than 50 %.",
    )  # that none outlives a compaction is said only where no share is asked for
    assert report.to_text().startswith("billing\n")
    assert report.to_text().endswith("The gate is not passed: 1 fault.")


def test_the_baseline_of_a_compactor_holds_for_its_number_of_rounds(tmp_path):
    def same(messages):
        return messages

    path = tmp_path / "b.json"
    ck.gates.gate_compactor(same, baseline=path, rounds=2, update=True)
    figures = json.loads(path.read_text())["entries"]["compacted"]["billing"]["figures"]
    assert figures == {
        "read_faults_n": [0.0, 0.0], "survived": [1.0, 0.0], "cliff_round": [3.0, 0.0],
        "stale_values_n": [1.0, 0.0], "outdated_n": [0.0, 0.0], "tokens_left": [1.0, 0.0],
    }  # fmt: skip
    other = ck.gates.gate_compactor(same, baseline=path, rounds=3)
    assert "1 session changed, not compared: billing." in other.notes[0]


def test_the_exam_of_a_compactor_is_a_figure_of_its_baseline(tmp_path):
    def newest(messages):
        return [messages[0], *messages[-1:]]

    def list_figures(**more):
        path = tmp_path / "b.json"
        ck.gates.gate_compactor(newest, baseline=path, rounds=2, update=True, **more)
        return json.loads(path.read_text())["entries"]["compacted"]["billing"]["figures"]

    assert "exam_answerable" not in list_figures()
    assert 0 <= list_figures(exam=True)["exam_answerable"][0] < 0.5


def test_rules_that_prune_are_tested_by_a_gate(tmp_path):
    report = ck.gate(SAMPLE, "swe_agent_mask", tmp_path / "b.json", update=True)
    assert report.untested == ()


def test_each_figure_has_a_direction_and_a_kind():
    from ctxkit.experiments.gates.regression_gate import FIGURES

    assert {f.worse for f in FIGURES} == {"up", "down"}
    assert {f.kind for f in FIGURES} == {"usd", "count", "share"}
    assert {f.name for f in FIGURES if f.kind == "count"} == {
        *(f.name for f in FIGURES if f.name.endswith("_n")), "peak_tokens", "cliff_round",
    }  # fmt: skip
