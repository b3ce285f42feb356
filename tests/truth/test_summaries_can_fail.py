"""Figures of loss that judge summaries tell a good one from noise, however hard was cut."""

from __future__ import annotations

import random

import pandas as pd
import pytest
from builders import assistant, session, summarised, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.metrics import extract_items, loss_tables, losses
from ctxkit.policies import Rules, Summary, triggers

NAMES = [f"fin-import-{i}" for i in range(12)]


def ok(_passage):
    return "ok"


def every(passage):
    """Every item of what goes, and every earlier summary."""
    earlier = [m.text for m in passage.messages if m.role == "summary"]
    return "\n".join(
        [*earlier, *dict.fromkeys(i.text for m in passage.messages for i in extract_items(m))]
    )


def other(_passage):
    """What another session is about."""
    return "\n".join(f"fin-export-{i}, lib/other{i}.py, order-{i}-{i}" for i in range(300))


def said(*kept: str, by: str = "user"):
    """Twelve names said by somebody, a cut, and all of them named again."""
    told = (user if by == "user" else assistant)(" and ".join(NAMES))
    old = [user(), told, assistant("ok")]
    return session(
        *old,
        summarised(old, ", ".join(kept) or "ok"),
        user("go"),
        assistant("use " + ", ".join(NAMES)),
    )


FILES = [
    (None, 20_000),
    ("claude-code/entire-7f78a542.jsonl", 100_000),
    ("claude-code/episodic-memory-long-conversation.jsonl", 60_000),
]


@pytest.mark.parametrize(("file", "above"), FILES)
def test_an_ok_and_a_full_summary_lie_far_apart_and_anothers_is_like_none(file, above, request):
    s = ck.read(
        ck.samples.path("billing") if file is None else request.getfixturevalue("real") / file
    )
    recall = {}
    for writer in (ok, every, other):
        policy = Summary(keep_tokens=above // 4, summariser=writer)
        rules = Rules(policy=policy, trigger=triggers.Above(above))
        recall[writer] = ck.score(ck.replay(s, rules))["summary_recall"]
    assert recall[ok] == recall[other] == 0
    assert recall[every] > 0.95


@given(st.sets(st.sampled_from(NAMES)), st.sampled_from(NAMES))
def test_a_summary_that_says_one_more_needed_item_never_recalls_less(kept, more):
    few, many = (
        loss_tables.compute_loss_columns(said(*names))["summary_recall"]
        for names in (kept, kept | {more})
    )
    assert few == pytest.approx(len(kept) / 12)
    assert few <= many


def test_the_same_recall_may_stand_beside_any_loss_and_the_other_way_round():
    """How hard was cut is not how well was summarised: twice as much at stake, the same share kept."""
    half, all_ = (
        session(*old, summarised(cut, f"{cut[0].text.split()[0]} stays"), user("go"), assistant(" ".join(m.text for m in old[::2])))
        for old in [[m for i in range(4) for m in (user(f"fin-import-{i} or fin-export-{i}"), assistant("ok"))]]
        for cut in (old[:2], old[:4])
    )  # fmt: skip
    one, two = loss_tables.compute_loss_columns(half), loss_tables.compute_loss_columns(all_)
    assert one["needed_later_loss"] == 1 / 8 < two["needed_later_loss"] == 3 / 8
    assert (one["at_stake_items_n"], two["at_stake_items_n"]) == (2, 4)
    assert (one["summary_recall"], two["summary_recall"]) == (0.5, 0.25)


def test_shuffled_letters_of_a_summary_keep_nothing():
    text = list(", ".join(NAMES))
    random.Random(3).shuffle(text)
    assert loss_tables.compute_loss_columns(said("".join(text)))["summary_recall"] == 0


def test_a_users_own_words_weigh_more_than_names_of_tests():
    tests = [f"tests/test_part{i}.py" for i in range(4)]
    old = [user("The queue is fin-import-7."), assistant(" ".join(tests))]

    def told(kept):
        return session(
            *old, summarised(old, kept), user("go"), assistant(" ".join([*tests, "fin-import-7"]))
        )

    queue, test = (
        loss_tables.compute_loss_columns(told("fin-import-7")),
        loss_tables.compute_loss_columns(told(tests[0])),
    )
    assert queue["needed_later_loss"] == test["needed_later_loss"] == 0.8
    assert (queue["summary_recall"], test["summary_recall"]) == (0.5, 0.125)
    assert queue["weighted_loss"] == 0.5 < test["weighted_loss"] == 0.875
    weights = losses(told("ok")).set_index("item")["weight"]
    assert (weights["fin-import-7"], weights[tests[0]]) == (4.0, 1.0)


@pytest.mark.parametrize("name", ["fin-import-7", "inv-2026-118842", "X-Bill-Trace", "bill-4127"])
def test_what_the_course_tells_of_is_an_item_and_its_loss_is_counted(name):
    s = ck.read(ck.samples.path("billing"))
    assert name in {i.text for m in s.messages for i in extract_items(m)}
    opened = losses(s).set_index("item")
    if name == "fin-import-7":
        assert opened.loc[name, "needed_call"] == 333


def test_nothing_put_in_is_no_summary_to_be_judged():
    s = ck.read(ck.samples.path("billing"))
    row = ck.score(ck.replay(s, "window:keep_tokens=9000"))
    assert row["at_stake_items_n"] > 0
    assert row["summary_recall"] is pd.NA
    assert "No text was put in" in row["loss_note"]
