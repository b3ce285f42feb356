"""A gate does not pass in silence where nothing was compacted, nor a program that drops everything."""

from __future__ import annotations

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
