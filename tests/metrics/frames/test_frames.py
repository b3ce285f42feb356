"""Frames on hand-built sessions: fixed columns, right rows, missing where the log cannot say."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from builders import (
    assistant,
    result,
    session,
    step,
    summarised,
    system,
    tool_call,
    usage,
    user,
)
from hypothesis import given
from hypothesis import strategies as st
from make_frames import format_page

import ctxkit as ck
from ctxkit.metrics import FRAME_COLUMNS, audience, build_frame
from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT, TEXT, TIME, FrameColumn
from ctxkit.session import Attachment, Edit, Message, SizeOnly, Text, Usage

PERS = list(FRAME_COLUMNS)


def some():
    u, (a, r) = user("x" * 40), step("bash", "y" * 400)
    done = assistant("done", usage=usage(100, 50, 20, output=7), model="m", time=100.0)
    cut = summarised([u, a, r], "s" * 80, reason="too long", trigger="auto", method="tail")
    last = assistant("yes", usage=usage(10, 200, 5), time=200.5)
    return session(system("z" * 20), u, a, r, done, cut, user("next"), last)


@pytest.mark.parametrize("per", PERS)
def test_columns_and_dtypes_are_those_of_the_table_even_without_rows(per):
    wanted = [(c.name, c.dtype) for c in FRAME_COLUMNS[per]]
    for sessions in ([], some(), [session(id="empty"), some()]):
        frame = ck.frame(sessions, per=per)
        assert [(n, str(t)) for n, t in frame.dtypes.items()] == wanted


def test_the_frame_of_turns_counts_no_summary(monkeypatch):
    expected = ck.frame(billing := ck.read(ck.samples.path("billing")))
    assert len(billing.edits) > 0

    def refuse(*_):
        raise AssertionError("a text was counted, for which a vocabulary is loaded")

    monkeypatch.setattr("ctxkit.tokens.message_sizes_from_recorded_prompts._measure_with", refuse)
    pd.testing.assert_frame_equal(ck.frame(ck.read(ck.samples.path("billing"))), expected)


@pytest.mark.parametrize("per", PERS)
def test_no_column_hides_an_attribute_of_a_frame(per):
    assert [c.name for c in FRAME_COLUMNS[per] if hasattr(pd.DataFrame, c.name)] == []


def test_the_page_is_written_from_the_tables():
    assert (Path(__file__).parents[3] / "docs" / "frames.md").read_text(
        encoding="utf-8"
    ) == format_page()


@pytest.mark.parametrize("per", PERS)
def test_a_frame_survives_parquet(per, tmp_path):
    frame = ck.frame(some(), per=per)
    frame.to_parquet(tmp_path / "f.parquet")
    again = pd.read_parquet(tmp_path / "f.parquet").astype(
        frame.dtypes.to_dict()
    )  # older pandas keeps texts elsewhere
    pd.testing.assert_frame_equal(again, frame)


def test_many_compactions_are_read_off_in_linear_time():
    def seconds(n):
        log, before = [], []
        for _ in range(n):
            said = [user(), *step(), assistant(usage=usage(9_000))]
            log += [*said, summarised([*before, *said])]
            before = log[-1].inserted
        frame = partial(ck.frame, session(*log, model="claude-sonnet-4-5"), per="compaction")
        begun = time.thread_time()
        assert len(frame()) == n
        return time.thread_time() - begun

    few = min(seconds(1_000) for _ in range(3))
    assert min(seconds(4_000) for _ in range(3)) < 10 * few


def test_a_wrong_word_says_what_to_write():
    with pytest.raises(ck.BadArguments, match="Did you mean 'turn'"):
        ck.frame(some(), per="turns")


@pytest.mark.parametrize("thing", [3, [None], None])
def test_what_is_no_session_is_refused(thing):
    with pytest.raises(ck.BadArguments, match="session"):
        ck.frame(thing)


def test_messages_carry_place_call_and_fate():
    frame = ck.frame(some(), per="message")
    assert frame["position"].tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert frame["call"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert frame["turn"].tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert frame["visible"].tolist() == [True, False, False, False, True, True, True]
    assert frame["reason"].dropna().tolist() == ["too long"] * 3
    assert frame["state"].tolist()[:2] == ["shown", "summarised"]
    assert frame["tokens"].tolist()[:2] == [5, 10]
    assert frame["shown_tokens"].tolist()[:2] == [5, 0]
    assert set(frame["source"]) == {"estimated"}


def test_the_text_of_a_message_row_is_in_the_log_at_its_position():
    path = ck.samples.path("billing")
    read = ck.read(path)
    rows = ck.frame(read, per="message")
    assert [read.path[p].id for p in rows["position"]] == rows["id"].tolist()
    queue = "fin-import-7"
    stating = [p for p in rows["position"] if queue in read.path[p].text]
    hits = ck.find(path, queue)
    hits = hits[[queue in read.path[p].text for p in hits["position"]]]  # not those of calls
    assert hits["position"].tolist() == list(stating)
    ids = rows.set_index("position")["id"]
    assert [read.path[p].id for p in hits["position"]] == ids[hits["position"]].tolist()
    assert len(stating) == 7


def test_a_merge_with_suffixes_keeps_every_column_of_both_frames():
    calls, sessions = (ck.frame(ck.samples.path("chat"), per=p) for p in ("call", "session"))
    shared, own = set(calls) & set(sessions) - {"session"}, set(sessions) - set(calls)
    merged = calls.merge(sessions, on="session", suffixes=("", "_of_session"))
    assert set(merged) == {*calls, *own, *(f"{c}_of_session" for c in shared)}
    assert len(merged) == len(calls) > 0


def test_what_follows_the_last_call_belongs_to_none():
    frame = ck.frame(session(user(), assistant(), user("more")), per="message")
    assert frame["call"].isna().tolist() == [False, False, True]


def test_a_shortened_message_stays_visible_and_smaller():
    (a, r) = step("bash", "y" * 400)
    short = result("y" * 40, a, id="short")
    first = Edit(kind="shortened", targets=(r.id,), inserted=(short,), reason="old")
    frame = ck.frame(session(a, r, first), per="message").iloc[1]
    assert (frame["tokens"], frame["shown_tokens"], frame["visible"], frame["state"]) == (
        100,
        10,
        True,
        "shortened",
    )
    gone = ck.frame(
        session(a, r, first, Edit(kind="dropped", targets=("short",))), per="message"
    ).iloc[1]
    assert (gone["shown_tokens"], gone["visible"], gone["state"], gone["compaction"]) == (
        0,
        False,
        "dropped",
        1,
    )


def test_a_message_that_is_never_sent_is_hidden():
    frame = ck.frame(session(user(visible=False), assistant()), per="message")
    assert frame["state"].tolist() == ["hidden", "shown"]
    assert frame["shown_tokens"].tolist()[0] == 0


def test_sizes_are_missing_where_the_log_has_no_content():
    turn = Message(role="assistant", id="t", kind="turn", usage=usage(100))
    frame = ck.frame(session(turn), per="message")
    assert frame[["tokens", "chars", "shown_tokens", "source"]].isna().all(axis=None)


def test_the_plain_estimate_is_the_counter_chars_4():
    parts = (
        Text("é" * 9),
        SizeOnly(kind="x", chars=7),
        SizeOnly(kind="x", tokens=5),
        Attachment(),
        Attachment(kind="audio"),
    )
    odd = Message(role="user", id="odd", parts=parts)
    a, r = step("bash", "ü" * 33, cmd="lé\ud800s", deep={"a": [1, None]})
    s = session(odd, a, r, assistant("a", thinking="bcdef"))
    by_name = ck.frame(s, per="message", count="chars/4")
    assert ck.frame(s, per="message")["tokens"].tolist() == by_name["tokens"].tolist()


def test_a_counter_can_be_named_or_handed_in():
    from ctxkit.tokens import estimated_counter

    s = session(user("x" * 30), assistant("y"))
    assert ck.frame(s, per="message", count=estimated_counter(10))["tokens"].tolist() == [3, 1]
    with pytest.raises(ck.BadArguments):
        ck.frame(s, per="message", count=3)


def test_anchored_sizes_are_scaled_to_what_was_billed():
    u = user("x" * 400)
    s = session(user(), assistant("a", usage=usage(100)), u, assistant("b", usage=usage(1100)))
    frame = ck.frame(s, per="message", count="anchored").set_index("id")
    assert frame.loc[u.id, "tokens"] == pytest.approx(1000, abs=20)
    assert frame.loc[u.id, "source"] == "derived"
    assert ck.frame(s, per="message").set_index("id").loc[u.id, "tokens"] == 100


def test_calls_hold_what_was_billed_and_nothing_else():
    frame = ck.frame(some(), per="call")
    assert frame["prompt_tokens"].isna().tolist() == [True, False, False]
    assert frame["prompt_tokens"].tolist()[1:] == [170, 215]
    assert frame["input_tokens"].tolist()[1:] == [100, 10]
    assert frame["source"].tolist()[1:] == ["recorded", "recorded"]
    assert frame["cache_miss"].tolist()[1:] == [m and m.kind for m in ck.misses(some())][1:]
    assert frame["ts"].iloc[2] == pd.Timestamp(200.5, unit="s", tz="UTC")


def test_writes_of_both_lives_add_up():
    spent = Usage(input_tokens=1, cache_write_tokens=2, cache_write_1h_tokens=30)
    row = ck.frame(session(assistant(usage=spent)), per="call").iloc[0]
    assert (row["cache_write_tokens"], row["cache_write_1h_tokens"], row["prompt_tokens"]) == (
        32,
        30,
        33,
    )
    assert pd.isna(row["cache_read_tokens"])


def test_costs_are_recorded_else_derived_else_missing():
    spent = Usage(input_tokens=1_000_000, output_tokens=0)
    recorded = assistant(usage=Usage(input_tokens=1, cost_usd=0.5))
    frame = ck.frame(
        session(recorded, assistant(usage=spent, model="gpt-4o"), assistant(usage=spent)),
        per="call",
    )
    assert frame["cost_usd"].iloc[0] == 0.5
    assert frame["cost_usd"].iloc[1] > 0
    assert frame["cost_source"].tolist()[:2] == ["recorded", "derived"]
    assert frame["cost_usd"].isna().tolist() == [False, False, True]
    assert frame["context_limit"].tolist()[1] == 1_000_000  # the prompt refutes the table's 128,000


def test_compactions_say_what_they_took_and_saved():
    row = ck.frame(some(), per="compaction").iloc[0]
    assert (row["call"], row["turn"], row["position"], row["affected_messages_n"]) == (2, 0, 5, 3)
    assert (row["messages_before"], row["messages_after"]) == (5, 3)
    assert row["tokens_before"] == 170 + 7  # the last prompt and its reply
    assert (
        row["tokens_after"] == 215 - 1
    )  # the next prompt, without the message that came in between
    assert row["token_savings"] == pytest.approx(1 - 214 / 177)
    assert (row["summary_tokens"], row["source"], row["tokens_source"]) == (
        20,
        "recorded",
        "derived",
    )


def test_without_a_later_prompt_only_the_counted_difference_is_taken_off():
    cut = session(*some().log[:6])
    row = ck.frame(cut, per="compaction").iloc[0]
    assert row["tokens_after"] == 177 - (10 + 100 + 2) + 20  # user, result, call; summary
    assert row["tokens_source"] == "estimated"


def test_recorded_sizes_of_a_compaction_are_taken_as_they_are():
    u = user("x" * 4000)
    frame = ck.frame(
        session(u, summarised([u], tokens_before=900, tokens_after=1200)), per="compaction"
    )
    assert frame["token_savings"].iloc[0] == pytest.approx(1 - 1200 / 900)
    assert frame["tokens_source"].iloc[0] == "recorded"
    assert frame["call"].isna().all()


def test_edits_of_one_moment_of_a_replay_are_one_compaction():
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
    again = Edit(kind="dropped", id="rules-1.0", targets=("short", a.id), source="derived")
    s = session(u, a, r, first, second, again, assistant())
    frame = ck.frame(s, per="compaction")
    assert frame["kind"].tolist() == ["shortened, dropped", "dropped"]
    assert frame["affected_messages_n"].tolist() == [2, 2]
    assert frame["messages_after"].tolist() == [2, 0]
    assert ck.frame(s, per="message")["compaction"].tolist()[:3] == [0, 1, 1]
    assert ck.frame(s, per="session")["compactions_n"].tolist() == [2]


def test_recorded_edits_in_a_row_stay_apart():
    s = session(user(), Edit(kind="dropped", id="a.0"), Edit(kind="dropped", id="a.1"), assistant())
    assert len(ck.frame(s, per="compaction")) == 2


def test_usage_that_a_replay_modelled_is_derived():
    s = session(
        user(),
        assistant(usage=usage(5), details={"usage_source": "derived"}),
        assistant(usage=usage(5)),
    )
    assert ck.frame(s, per="call")["source"].tolist() == ["derived", "recorded"]


def test_a_estimate_size_that_no_log_has_is_told_by_the_next_prompt():
    u = user("x" * 4000)
    next_ = user("y" * 40)
    s = session(
        u,
        assistant(usage=usage(9000)),
        summarised([u], tokens_before=9100),
        next_,
        assistant(usage=usage(3010)),
    )
    row = ck.frame(s, per="compaction").iloc[0]
    assert (row["tokens_before"], row["tokens_after"], row["tokens_source"]) == (
        9100,
        3000,
        "derived",
    )


def test_a_session_row_says_what_its_log_can_say():
    row = ck.frame(some(), per="session").iloc[0]
    assert (row["messages_n"], row["calls_n"], row["turns_n"], row["compactions_n"]) == (7, 3, 2, 1)
    assert (row["prompt_tokens"], row["peak_tokens"], row["output_tokens"]) == (385, 215, 17)
    assert (row["has_text"], row["has_usage"], row["has_cache"], row["has_time"]) == (
        True,
        True,
        True,
        True,
    )
    assert row["seconds"] == 100.5
    assert pd.isna(row["cost_usd"])


def test_children_come_only_when_asked_for():
    child = session(user(), assistant(), id="child")
    main = session(user(), assistant(), id="main", children=(child,))
    assert ck.frame(main, per="session")["session"].tolist() == ["main"]
    assert ck.frame(main, per="session", children=True)["session"].tolist() == ["main", "child"]


@given(st.lists(st.none() | st.integers() | st.floats() | st.text() | st.booleans(), max_size=8))
def test_any_value_of_a_broken_log_becomes_a_column(values):
    for dtype in (INT, FLOAT, BOOL, TEXT, TIME):
        frame = build_frame([FrameColumn("c", dtype, "", "")], {"c": values})
        assert str(frame["c"].dtype) == dtype
        assert len(frame) == len(values)


def test_what_is_cut_after_the_last_call_was_sent_to_it():
    asked, last = user("x" * 40), assistant("yes")
    frame = ck.frame(session(asked, last, summarised([asked, last], "s" * 8)), per="message")
    assert frame["shown_tokens"].tolist() == [0, 0]
    assert frame["sent_tokens"].tolist() == [10, pd.NA]


def test_anchored_sizes_of_messages_without_ids_are_those_of_the_same_messages_with_ids():
    def list_sizes(**ids: str) -> list[int]:
        log = session(
            user("first " * 400, **ids),
            assistant("yes " * 40, usage=usage(1_000), **ids),
            user("second " * 90, **ids),
            assistant("no", usage=usage(1_200), **ids),
        )
        return ck.frame(log, per="message", count="anchored")["tokens"].tolist()

    assert list_sizes(id="") == list_sizes()
    assert len(set(list_sizes())) == 4


def test_an_audience_is_a_row_for_each_message_and_summary_with_who_sees_it():
    call = tool_call("grep", "c")
    asked, reply = user("Ask me  this", id="u"), assistant("", call, id="a")
    archived = result("found " * 40, call, id="r")
    hidden = Message(role="user", id="note", kind="digest", parts=(Text("for the model"),),
                     details={"user_visible": False})  # fmt: skip
    refused = Message(role="system", id="x", kind="api_error", visible=False)
    compaction = summarised([asked, reply, archived], "So far")
    noted = result("kept", call, id="r2"), result("of its kind", call, id="r3", kind="plan")
    log = session(asked, reply, archived, hidden, refused, compaction, user("on", id="u2"), *noted, id="s")  # fmt: skip
    table = audience(log).astype(object)
    (summary,) = compaction.inserted
    assert table.to_numpy(na_value=None).tolist() == [
        ["s", 0, "u", "user", None, None, True, False, 12, "Ask me this"],
        ["s", 1, "a", "assistant", None, None, True, False, 0, ""],
        ["s", 2, "r", "tool", "tool_result_archived", "grep", True, False, 240, "found " * 19 + "found…"],
        ["s", 3, "note", "user", "digest", None, False, True, 13, "for the model"],
        ["s", 5, summary.id, "summary", None, None, True, True, 6, "So far"],
        ["s", 6, "u2", "user", None, None, True, True, 2, "on"],
        ["s", 7, "r2", "tool", "tool_result", "grep", True, True, 4, "kept"],
        ["s", 8, "r3", "tool", "plan", "grep", True, True, 11, "of its kind"],
    ]  # fmt: skip


def test_a_drop_without_a_mark_has_the_call_before_which_the_prompt_fell_and_both_sizes():
    prompts = (50_000, 10_000, 10_500)
    log = [
        m
        for n, prompt in enumerate(prompts)
        for m in (user(), assistant(usage=usage(prompt), time=10.0 * n, agent="A"))
    ]
    table = ck.frame(session(*log, id="s", agent="A"), per="compaction")
    (row,) = table.dropna(axis=1).to_dict("records")
    assert row == {
        "session": "s",
        "call": 1,
        "turn": 1,
        "position": 3,
        "ts": pd.Timestamp(10, unit="s", tz="UTC"),
        "agent": "A",
        "kind": "unmarked",
        "reason": "the prompt fell by 40,000 tokens without a mark in the log",
        "tokens_before": 50_000,
        "tokens_after": 10_000,
        "token_savings": 0.8,
        "tokens_source": "recorded",
        "source": "derived",
    }


def test_an_attempt_has_its_outcome_and_sizes_and_no_call_where_none_followed():
    def try_to_compact(time: float, **more) -> Message:
        return Message(
            role="system", kind="compaction_attempt", visible=False, time=time,
            parts=(Text("The summary was longer."),),
            details={"outcome": "refused", "trigger": "manual", "tokens": 900, "messages": 7}, **more,
        )  # fmt: skip

    billed = {"model": "claude-sonnet-4-5", "usage": usage(1_000, output=100), "agent": "B"}
    log = session(
        *(user(), assistant(), try_to_compact(5.0, **billed), user(), assistant()),
        try_to_compact(9.0), id="s", agent="A",
    )  # fmt: skip
    table = ck.frame(log, per="compaction")
    first, last = (row.dropna().to_dict() for _, row in table.iterrows())
    shared = {
        "session": "s",
        "kind": "refused",
        "trigger": "manual",
        "tokens_before": 900,
        "tokens_after": 900,
        "messages_before": 7,
        "messages_after": 7,
        "affected_messages_n": 0,
        "token_savings": 0.0,
        "message_savings": 0.0,
        "error": "The summary was longer.",
        "tokens_source": "estimated",
        "source": "recorded",
        "turn": 0,
    }
    bill = {"model": "claude-sonnet-4-5", "cost_usd": pytest.approx(0.0045), "cost_source": "derived"}  # fmt: skip
    assert first == {
        **shared, **bill, "call": 1, "position": 2, "agent": "B",
        "ts": pd.Timestamp(5, unit="s", tz="UTC"),
    }  # fmt: skip
    assert last == {
        **shared, "turn": 1, "position": 5, "agent": "A",
        "ts": pd.Timestamp(9, unit="s", tz="UTC"),
    }  # fmt: skip
