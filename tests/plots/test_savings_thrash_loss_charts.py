"""Charts of compactions: what they saved, whether they still pay, what one did to each message."""

from __future__ import annotations

import msgspec
import pandas as pd
import pytest
from builders import assistant, result, session, step, summarised, system, usage, user

import ctxkit as ck
from ctxkit.plots import CompactionSizes, get_diff_data, savings_data, thrash_data
from ctxkit.session import Edit, Message, group_edits
from ctxkit.tokens import estimated_counter
from ctxkit.widgets import list_session_compactions

COUNTER = estimated_counter()


def shrinking(*sizes):
    """A session with compactions of the sizes given, each followed by a call."""
    log = [user()]
    for before, after in sizes:
        log += [
            summarised([], tokens_before=before, tokens_after=after, method="tail"),
            assistant(usage=usage(after)),
        ]
    return session(*log)


def test_savings_are_the_sizes_of_the_compaction_frame():
    assert savings_data(shrinking((100, 40), (50, 60))) == (
        CompactionSizes(0, 0, 100, 40, 5, "summarised · tail", "recorded", "test"),
        CompactionSizes(1, 1, 50, 60, 14, "summarised · tail", "recorded", "test"),
    )
    chart = ck.plots.savings(shrinking((100, 40)))
    drawn = {t.name: list(t.y) for t in chart.figure().data}
    assert drawn == {"inserted": [5], "kept": [35], "saved": [60]}  # sized by the bill
    assert "60 % was saved" in chart.caption


def named(s):
    """A session whose title is its id, which is all that a frame knows of it."""
    return msgspec.structs.replace(s, title=s.id)


@pytest.mark.parametrize("chart", [ck.plots.savings, ck.plots.thrash])
def test_a_frame_of_compactions_is_drawn_as_its_session(chart):
    s = named(shrinking((100, 40), (50, 60)))
    assert (
        chart(ck.frame(s, per="compaction")).to_text() == chart(s).to_text() == chart([s]).to_text()
    )
    for frame in (ck.frame(s, per="call"), pd.DataFrame({"a": [1]})):
        with pytest.raises(ck.BadArguments, match="takes sessions or a frame of compactions"):
            chart(frame)


@pytest.mark.parametrize("chart", [ck.plots.savings, ck.plots.thrash])
def test_a_fall_without_a_mark_is_no_compaction_in_a_frame_either(chart):
    first, *talk = user("x"), *(assistant("y", usage=usage(n)) for n in (40_000, 12_000, 12_500))
    log = first, *talk, summarised([first], text="short"), assistant("z", usage=usage(6_000))
    s = named(session(*log))
    table = ck.frame(s, per="compaction")
    assert table["kind"].tolist() == ["unmarked", "summarised"]
    assert chart(table).to_text() == chart(s).to_text()


def test_savings_of_several_sessions_stand_side_by_side_and_a_guard_counts_within_one():
    one, two = shrinking((100, 40)), msgspec.structs.replace(shrinking((50, 60)), id="other")
    chart = ck.plots.savings([one, two])
    assert [row[:2] for row in chart.rows] == [("test", "0"), ("other", "0")]
    assert list(chart.figure().data[0].x) == [0, 1]
    assert "2 sessions" in chart.title
    for both in ([one, two], ck.frame([one, two], per="compaction")):
        with pytest.raises(ck.BadArguments, match="draws one session"):
            ck.plots.thrash(both)


@pytest.mark.parametrize("number", [0, 1])
def test_an_inserted_summary_has_one_size_in_all_views(number):
    billing = ck.read(ck.samples.path("billing"))
    (shown,) = [c for c in get_diff_data(billing, number) if c.action == "inserted"]
    widget = list_session_compactions(billing, "billing")[number]
    assert savings_data(billing)[number].put_in == shown.after == widget.put
    at_call = ck.metrics.count_groups_by_call(billing).groups["summaries"]
    assert shown.after == at_call[savings_data(billing)[number].call]


def test_a_log_without_sizes_says_unknown_and_not_zero():
    turn = Message(role="assistant", id="t", kind="turn", usage=usage(5))
    (one,) = savings_data(session(turn, Edit(kind="summarised"), turn))
    assert (one.before, one.after, one.put_in) == (None, None, None)
    assert "unknown" in ck.plots.savings(session(turn, Edit(kind="summarised"))).to_text()


def test_the_guard_closes_after_so_many_low_savings_in_a_row():
    s = shrinking((100, 95), (100, 95), (100, 50), (100, 99), (100, 101))
    assert [t.saved for t in thrash_data(s).tries] == pytest.approx([0.05, 0.05, 0.5, 0.01, -0.01])
    assert thrash_data(s).closes is None
    assert thrash_data(s, window=2).closes == 1
    assert thrash_data(s, window=2, min_savings=0.04).closes == 4
    assert thrash_data(s, window=0).closes is None


def test_what_a_guard_held_back_is_marked():
    s = session(
        *shrinking((100, 50)).log,
        details={"replay": {"held": [{"call": 7, "guard": "AntiThrash", "why": "closed"}]}},
    )
    held = thrash_data(s).tries[-1]
    assert (held.call, held.saved, held.why) == (7, None, "AntiThrash: closed")
    assert [t.name for t in ck.plots.thrash(s).figure().data] == [
        "saved",
        "suppressed",
        "least 10 %",
    ]


def test_savings_are_of_tokens_or_of_messages():
    with pytest.raises(ck.BadArguments, match="'tokens' or 'messages'"):
        ck.plots.thrash(shrinking((2, 1)), by="turns")


def edited():
    head, u, (a, r), last = system("s" * 40), user("u" * 80), step("bash", "y" * 400), user("end")
    (b, q) = step("read_file", "z" * 800)
    short = result("y" * 40, a, id="short")
    first = Edit(kind="shortened", id="e0", targets=(r.id,), inserted=(short,), reason="old result")
    targets = (u.id, a.id, "short")
    second = Edit(
        kind="summarised",
        id="e1",
        targets=targets,
        inserted=(user("m" * 120, id="sum"),),
        reason="too long",
    )
    gone = Edit(kind="dropped", id="e2", targets=(b.id, q.id), reason="stale")
    return session(head, u, a, r, b, q, first, last, second, gone)


def rows(s, k):
    return [(c.action, c.before, c.after, c.reason) for c in get_diff_data(s, k, counter=COUNTER)]


def test_a_diff_tells_what_became_of_every_message():
    assert rows(edited(), 0)[:4] == [
        ("kept", 10, 10, ""),
        ("kept", 20, 20, ""),
        ("kept", 2, 2, ""),
        ("shortened", 100, 10, "old result"),
    ]
    second = rows(edited(), 1)
    assert second[:2] == [("kept", 10, 10, ""), ("inserted", 0, 30, "too long")]
    assert second[2:5] == [("summarised", n, 0, "too long") for n in (20, 2, 10)]
    assert [r[0] for r in rows(edited(), -1)] == ["kept", "kept", "dropped", "dropped", "kept"]


def test_edits_of_one_moment_of_a_replay_are_one_diff():
    (a, r), u = step("bash", "y" * 400), user("x" * 40)
    short = result("y" * 40, a, id="short")
    first = Edit(
        kind="shortened",
        id="rules-0.0",
        targets=(r.id,),
        inserted=(short,),
        source="derived",
        reason="old",
    )
    second = Edit(kind="dropped", id="rules-0.1", targets=(u.id,), source="derived", reason="older")
    found = rows(session(u, a, r, first, second), 0)
    assert found == [("dropped", 10, 0, "older"), ("kept", 2, 2, ""), ("shortened", 100, 10, "old")]


def test_a_reason_of_all_rows_is_said_once():
    shared, mixed = ck.plots.diff(edited(), 1), ck.plots.diff(ck.samples.path(), 0)
    assert "Reason: too long." in shared.caption
    assert "why" not in shared.head
    assert all(len(row) == len(shared.head) for row in shared.rows)
    assert ("why" in mixed.head) != ("Reason:" in mixed.caption)


def test_an_unknown_compaction_says_which_there_are():
    with pytest.raises(ck.BadArguments, match="compactions 0 to 2"):
        ck.plots.diff(edited(), 3)
    with pytest.raises(ck.BadArguments, match="has no compaction\\."):
        ck.plots.diff(session(user()))


@pytest.mark.parametrize("name", ["pi", "claude-code", "codex", "kimi-cli"])
def test_sizes_of_a_diff_are_those_of_the_views(real, name):
    for s in ck.read_all(real / name, progress=False):
        for k in range(len(group_edits(s))):
            data = get_diff_data(s, k, counter=COUNTER)
            assert (
                sum(c.before > 0 or c.action != "inserted" for c in data)
                == ck.frame(s, per="compaction")["messages_before"].iloc[k]
            )
            assert (
                sum(c.action not in ("dropped", "summarised") for c in data)
                == ck.frame(s, per="compaction")["messages_after"].iloc[k]
            )
