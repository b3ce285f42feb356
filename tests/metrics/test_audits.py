"""Audits name what a compaction lost at once; drift follows the same items; planted facts are tested in pairs."""

from __future__ import annotations

import pytest
from builders import assistant, call, result, session, summarised, user
from experiments.test_sweeps_scores import talk

import ctxkit as ck
from ctxkit.metrics import audits, drift, retention_checks, thrash


def test_a_good_summary_passes_and_a_bad_one_is_named():
    old = [
        user("Fix the parser in /srv/app/parse.py for issue deadbeef01"),
        assistant("Reading it."),
    ]
    good = "## Goal\nFix the parser in /srv/app/parse.py, deadbeef01. " + "word " * 60
    row = audits(
        session(*old, summarised(old, good), user(), assistant()), sections=["## Goal"]
    ).iloc[0]
    assert (row["identifiers_kept"], row["request_reflected"], row["sections_missing"]) == (
        1.0,
        True,
        "",
    )
    row = audits(
        session(*old, summarised(old, "Some work."), user(), assistant()), sections=["## Goal"]
    ).iloc[0]
    assert row["identifiers_kept"] == 0
    assert "deadbeef01" in row["missing"]
    assert (row["request_reflected"], row["sections_missing"], row["marker_only"]) == (
        False,
        "## Goal",
        True,
    )


def test_the_structure_of_what_is_left():
    task, ask, lone = user("the task"), user("the latest ask"), call("bash", command="x")
    s = session(
        task,
        assistant(),
        ask,
        lone,
        result("late", lone),
        summarised([task, lone], "short"),
        assistant(),
    )
    row = audits(s).iloc[0]
    assert (row["task_lost"], row["request_lost"], row["visible_requests_n"]) == (True, False, 1)
    assert row["orphans_n"] == 1  # the result lost its call


def test_no_text_and_no_cut_have_no_rows():
    assert audits(session(user(), assistant())).empty
    assert drift(session(user(), assistant())).empty


def test_drift_follows_the_same_items_through_the_cuts():
    a, b = user("see src/one.py and src/two.py"), user("see src/three.py")
    first = summarised([a], "src/one.py was seen")
    second = summarised([b, *first.inserted], "nothing is left")
    frame = drift(session(a, first, b, assistant(), second, user(), assistant()))
    told = [
        tuple(r)
        for r in frame[["cohort", "compactions_n", "items_n", "retained"]].to_numpy().tolist()
    ]
    assert told == [(0, 1, 2, 0.5), (0, 2, 2, 0.0), (1, 1, 1, 0.0)]


def test_planted_facts_stand_until_a_summary_drops_them():
    given = retention_checks.make_facts(8)
    recorded = talk(20)
    s = retention_checks.plant_facts(recorded, given, until=0.3)
    assert len({f.family for f in given}) == 4
    assert all(retention_checks.check_facts_in_view(s, given).values())
    again = ck.replay(
        s, ck.presets.pi(context_window=50_000, keep_recent_tokens=3000, summariser="fixed")
    )
    assert again.edits
    assert not any(retention_checks.check_facts_in_view(again, given).values())
    assert retention_checks.plant_facts(recorded, given, until=0.3) == s


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [(10, 0, 0.001953125), (9, 0, 0.00390625), (0, 0, 1.0), (1, 1, 1.0), (5, 1, 0.21875)],
)
def test_the_paired_exact_test_has_the_published_values(one, other, p):
    """10 losses without a win are p=0.002, 9 are p=0.004 in the study that the method is taken from."""
    a = [True] * one + [False] * other + [True, False]
    b = [False] * one + [True] * other + [True, False]
    verdict = retention_checks.mcnemar(a, b)
    assert verdict.p == pytest.approx(p)
    assert (verdict.only_one, verdict.only_other, verdict.both, verdict.neither) == (
        one,
        other,
        1,
        1,
    )


def test_unpaired_outcomes_and_sessions_without_a_user_are_refused():
    with pytest.raises(ck.BadArguments, match="paired"):
        retention_checks.mcnemar([True], [])
    with pytest.raises(ck.BadArguments, match="user message"):
        retention_checks.plant_facts(session(assistant()), retention_checks.make_facts(1))


def test_what_follows_cuts_is_what_thrash_says(real):
    s = ck.read(real / "pi/before-compaction.jsonl")
    whole, row = thrash(s), ck.score(s)
    assert (row["reread_rate"], row["calls_to_first_write"]) == (
        whole.reread_rate,
        whole.reorientation,
    )
