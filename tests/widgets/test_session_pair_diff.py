"""Two sessions side by side: what is aligned, where they part, twins."""

from __future__ import annotations

import re

from builders import assistant, session, step, user
from hypothesis import given
from hypothesis import strategies as st
from widgets.reports.hostile_logs import hostile, intruders

import ctxkit as ck
from ctxkit.widgets.session_pair_diff import align_log_entries

KEYS = st.lists(st.integers(0, 3), max_size=12)


@given(KEYS, KEYS)
def test_rows_hold_every_entry_once_in_order(one, other):
    rows = list(align_log_entries(one, other))
    assert [i for i, _ in rows if i is not None] == list(range(len(one)))
    assert [j for _, j in rows if j is not None] == list(range(len(other)))
    if one == other:
        assert all(i == j for i, j in rows)


def test_two_that_part_say_where():
    same = [user("go"), step(text="found")]
    one = session(*same, assistant("left"), title="One")
    other = session(*same, user("wait"), assistant("left"), title="Two")
    shown = ck.explore(one, beside=other)
    assert shown.parted == shown.row
    assert shown.rows[shown.row][0] is None
    assert "wait" in shown.head
    assert shown._answer_or_error({"kind": "text", "row": shown.row})["texts"] == ["", "wait"]
    assert "One | Two" in shown.to_text()


def test_a_replay_parts_from_its_record_at_the_first_compaction():
    record = ck.read(ck.samples.path("billing"))
    shown = ck.explore(record, beside=ck.replay(record, "pi"))
    assert "compacts (" in shown.head
    pair = shown.rows[shown.parted]
    assert any(
        place is not None and shown.both[k].path[place].__class__.__name__ == "Edit"
        for k, place in enumerate(pair)
    )


def test_the_same_twice_says_so():
    record = ck.read(ck.samples.path("billing"))
    shown = ck.explore(record, beside=record)
    assert shown.parted is None
    assert shown.head.startswith("Both say the same in all")


def test_nonsense_is_not_answered_and_text_of_a_log_stays_text():
    shown = ck.explore(hostile(), beside=session(user("a")))
    for asked in ({}, {"kind": "rows", "from": "x"}, {"kind": "text", "row": 10**9}):
        shown._on_browser_request(None, asked, [])
    assert intruders(shown.to_html()) == []
    assert "\x1b" not in shown.to_text()
    assert ck.explore(session(), beside=session()).parted is None


def test_the_first_sentence_says_what_only_one_of_them_has():
    record = ck.read(ck.samples.path("billing"))
    head = ck.explore(record, beside=ck.replay(record, "pi")).head
    assert re.search(
        r"At call \d+ only the second compacts \(\d+ messages? out, 1 in\)\. \d+ rows differ\.$",
        head,
    )
