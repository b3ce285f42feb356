"""Audits name what a compaction lost at once; drift follows the same items; planted facts are tested in pairs."""

from __future__ import annotations

import pandas as pd
import pytest
from builders import assistant, call, result, session, summarised, user
from experiments.test_cost_and_loss_scores import talk
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.metrics import audits, drift, mcnemar, planted_facts_and_compaction_audits, thrash
from ctxkit.session import Edit


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
    given = planted_facts_and_compaction_audits.make_facts(8)
    recorded = talk(20)
    s = planted_facts_and_compaction_audits.plant_facts(recorded, given, latest_share=0.3)
    assert len({f.family for f in given}) == 4
    assert all(planted_facts_and_compaction_audits.check_facts_in_prompt(s, given).values())
    again = ck.replay(
        s, ck.presets.pi(context_window=50_000, keep_recent_tokens=3000, summariser="fixed")
    )
    assert again.edits
    assert not any(planted_facts_and_compaction_audits.check_facts_in_prompt(again, given).values())
    assert planted_facts_and_compaction_audits.plant_facts(recorded, given, latest_share=0.3) == s


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [(10, 0, 0.001953125), (9, 0, 0.00390625), (0, 0, 1.0), (1, 1, 1.0), (5, 1, 0.21875)],
)
def test_the_paired_exact_test_has_the_published_values(one, other, p):
    """10 losses without a win are p=0.002, 9 are p=0.004 in the study that the method is taken from."""
    a = [True] * one + [False] * other + [True, False]
    b = [False] * one + [True] * other + [True, False]
    verdict = mcnemar(a, b)
    assert verdict.p == pytest.approx(p)
    assert (verdict.only_one, verdict.only_other, verdict.both, verdict.neither) == (
        one,
        other,
        1,
        1,
    )


def test_unpaired_outcomes_and_sessions_without_a_user_are_refused():
    with pytest.raises(ck.BadArguments, match="paired"):
        mcnemar([True], [])
    with pytest.raises(ck.BadArguments, match="user message"):
        planted_facts_and_compaction_audits.plant_facts(
            session(assistant()), planted_facts_and_compaction_audits.make_facts(1)
        )


def test_what_follows_cuts_is_what_thrash_says(real):
    s = ck.read(real / "pi/before-compaction.jsonl")
    whole, row = thrash(s), ck.score(s)
    assert (row["reread_rate"], row["calls_to_first_write"]) == (
        whole.reread_rate,
        whole.reorientation,
    )


def test_each_compaction_is_audited_against_what_it_found():
    names = [f"deadbeef{n:02}" for n in range(4)]
    task, ask = user(f"Fix {names[0]} and {names[1]}."), user("Now write the changelog.")
    first = summarised([task], f"Seen: {names[0]}. " + "x" * 200)
    noise = assistant(f"Looked at {names[2]} and {names[3]}.")
    second = summarised([*first.inserted, noise], f"{names[0]}, {names[3]}")
    one, two = [dict(r) for _, r in audits(session(task, assistant(), first, ask, noise, second, user())).iterrows()]  # fmt: skip
    assert (one["session"], one["compaction"], one["call"]) == ("test", 0, 1)
    assert (one["identifiers_n"], one["identifiers_kept"], one["missing"]) == (2, 0.5, names[1])
    assert (one["task_lost"], one["request_lost"], one["visible_requests_n"]) == (True, True, 0)
    assert (one["marker_only"], one["orphans_n"]) == (False, 0)
    assert (two["compaction"], two["call"]) == (1, 2)
    # of the three that it took, of the first summary and of the reply, one is gone
    assert (two["identifiers_n"], two["missing"]) == (3, names[2])
    assert two["identifiers_kept"] == pytest.approx(2 / 3)
    assert (two["task_lost"], two["request_lost"], two["visible_requests_n"]) == (True, False, 1)
    assert (two["marker_only"], two["request_reflected"]) == (True, False)


@pytest.mark.parametrize(("chars", "is_marker"), [(0, False), (1, True), (199, True), (200, False)])
def test_a_summary_of_fewer_than_two_hundred_characters_is_a_marker(chars, is_marker):
    old = [user(), assistant()]
    s = session(*old, summarised(old, "y" * chars), user(), assistant())
    assert audits(s)["marker_only"].to_list() == [is_marker]


def test_a_short_replacement_is_no_marker_and_nothing_inserted_reflects_nothing():
    old = [user("the task"), assistant()]
    (hidden,) = audits(session(*old, Edit(kind="hidden", id="e", targets=(old[1].id,)), user())).to_dict("records")  # fmt: skip
    assert (hidden["marker_only"], hidden["task_lost"]) == (False, False)
    short = replace(old[1], parts=(ck.session.Text("cut"),))
    edit = Edit(kind="shortened", id="e", targets=(old[1].id,), inserted=(short,))
    assert audits(session(*old, edit, user()))["marker_only"].to_list() == [False]
    assert pd.isna(hidden["request_reflected"])
    assert pd.isna(hidden["identifiers_kept"])


def test_sections_are_headings_on_lines_of_their_own():
    old = [user(), assistant()]
    text = "  ## Goal  \nabout ## Next\n## Done"
    s = session(*old, summarised(old, text), user(), assistant())
    row = audits(s, sections=["## Goal", "## Next", "## Done", "## Open"]).iloc[0]
    assert row["sections_missing"] == "## Next, ## Open"


def test_calls_that_a_compaction_parts_from_their_results_are_orphans():
    a, b, c = (call("bash", command=str(n)) for n in range(3))
    ra, rb = result("A", a), result("B", b)
    log = [user(), a, ra, b, rb, c]
    drop = lambda *of: Edit(kind="hidden", id="e", targets=tuple(m.id for m in of))
    counts = [audits(session(*log, drop(*of), user()))["orphans_n"][0] for of in ((a,), (ra,), (a, ra), (a, rb), (c,))]  # fmt: skip
    assert counts == [1, 1, 0, 2, 0]  # the last reply's calls wait for their results


def test_drift_tells_the_call_the_shares_and_the_summary_of_each_step():
    a, b = user("see src/one.py and src/two.py"), user("see src/three.py")
    first = summarised([a], "src/one.py was seen")
    second = summarised([b, *first.inserted], "src/three.py is left")
    frame = drift(session(a, first, b, assistant(), second, user(), assistant()))
    columns = ["session", "call", "retained", "recoverable", "lost"]
    assert frame[columns].to_numpy().tolist() == [
        ["test", 0, 0.5, 0.0, 0.5],
        ["test", 1, 0.0, 0.0, 1.0],
        ["test", 1, 1.0, 0.0, 0.0],
    ]
    assert frame["summary_tokens"].isna().all()  # a record does not say what a model wrote


def test_planted_facts_are_alike_for_a_seed_and_stand_before_requests_of_the_first_part():
    one, again, other = (
        planted_facts_and_compaction_audits.make_facts(9, seed=s) for s in (0, 0, 1)
    )
    assert one == again != other
    assert [f.family for f in one[:5]] == [
        *("constraint", "decision", "reference", "superseded", "constraint"),
    ]
    assert len({f.key for f in one}) == 9
    assert all(f.key in f.text and f.key.endswith(f"-{i}") for i, f in enumerate(one))
    log = [m for n in range(10) for m in (user(f"ask {n}"), assistant())]
    planted = planted_facts_and_compaction_audits.plant_facts(session(*log), one, latest_share=0.2)
    places = [i for i, m in enumerate(planted.messages) if m.kind == "planted"]
    texts = [m.text for m in planted.messages if m.kind != "planted"]
    assert texts == [m.text for m in log]
    behind = [next(m.text for m in planted.messages[i:] if m.kind != "planted") for i in places]
    assert set(behind) <= {"ask 0", "ask 1", "ask 2"}  # positions 0, 2 and 4 of 20
    assert {m.role for m in planted.messages if m.kind == "planted"} == {"user"}
    everywhere = planted_facts_and_compaction_audits.plant_facts(
        session(*log), one * 9, seed=3, latest_share=1.0
    )
    assert len([m for m in everywhere.messages if m.kind == "planted"]) == 81
    assert everywhere.messages[-3].text != "ask 8"


def test_a_fact_is_in_view_of_a_call_or_not():
    facts = planted_facts_and_compaction_audits.make_facts(2)
    log = [user(facts[0].text), assistant(), user(facts[1].text), assistant()]
    s = session(*log, Edit(kind="hidden", id="e", targets=(log[0].id,)), user())
    found = [list(planted_facts_and_compaction_audits.check_facts_in_prompt(s, facts, call).values()) for call in (0, 1, None)]  # fmt: skip
    assert found == [[True, False], [True, True], [False, True]]


def test_paired_outcomes_are_counted_by_both():
    one, other = [True, True, False, True, False], [True, False, True, False, False]
    assert mcnemar(one, other) == (1, 2, 1, 1, 1.0)
    assert mcnemar([True] * 5, [False] * 5).p == 2 / 2**5
    assert mcnemar([], []).p == 1.0
