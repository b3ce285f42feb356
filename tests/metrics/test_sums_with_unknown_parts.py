"""A sum with an unknown part is missing, in every view: sealed summaries, formats without marks, causes of misses."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from builders import assistant, session, summarised, usage, user
from conftest import sample, sessions_folder
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.metrics import session_bill
from ctxkit.widgets import make_board_row

FOLDER = sessions_folder()
MODEL = "gpt-5.5"


def rollout(tmp_path, *items, message=""):
    """A rollout of two calls with a compaction between them, whose history has some more items."""

    def line(kind, payload, minute):
        stamp = f"2026-06-01T10:{minute:02}:00.000Z"
        return json.dumps({"timestamp": stamp, "type": kind, "payload": payload})

    def said(role, text):
        kind = "input_text" if role == "user" else "output_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    def counted(total, last):
        usage = {"input_tokens": last, "cached_input_tokens": 0, "output_tokens": 50}
        of_all = {"input_tokens": total, "cached_input_tokens": 0, "output_tokens": 50}
        info = {"total_token_usage": of_all, "last_token_usage": usage}
        return {"type": "token_count", "info": info}

    history = [said("user", "Mend it."), *items]
    lines = [
        line("session_meta", {"id": "s1", "timestamp": "2026-06-01T10:00:00.000Z", "cwd": "/w"}, 0),
        line("turn_context", {"model": MODEL, "cwd": "/w"}, 0),
        line("response_item", said("user", "Mend it."), 1),
        line("response_item", said("assistant", "word " * 9_000), 2),
        line("event_msg", counted(50_000, 50_000), 2),
        line("compacted", {"message": message, "replacement_history": history}, 3),
        line("response_item", said("user", "Go on."), 4),
        line("response_item", said("assistant", "Done."), 5),
        line("event_msg", counted(60_000, 10_000), 5),
    ]
    path = tmp_path / "rollout-2026-06-01T10-00-00-s1.jsonl"
    path.write_text("\n".join(lines))
    return ck.read(path)


@pytest.mark.parametrize(
    "items",
    [
        (),
        ({"type": "compaction", "encrypted_content": "x" * 900},),
        ({"type": "compaction"},),
    ],
    ids=["no summary", "sealed", "sealed and emptied"],
)
def test_a_sealed_summary_has_no_size_and_no_price(tmp_path, items):
    s = rollout(tmp_path, *items)
    cut = ck.frame(s, per="compaction").iloc[0]
    assert cut[["summary_tokens", "cost_usd", "cost_source"]].isna().all()
    row, score = ck.frame(s, per="session").iloc[0], ck.score(s, loss=False)
    assert row["compactions_n"] == score["compactions_n"] == 1
    assert row["calls_usd"] > 0
    for missing in (
        *row[["summaries_usd", "cost_usd"]],
        *score[["summaries_usd", "cost_usd", "summary_tokens"]],
    ):
        assert missing is pd.NA
    assert session_bill.bill_session(s).unpriced_summaries_n == 1
    assert make_board_row(s).usd is None
    assert ck.metrics.thrash(s).outcomes[0].pays_after is None


def test_a_summary_in_the_clear_has_both(tmp_path):
    text = "What was done: " + "much, " * 200
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    s = rollout(tmp_path, item, message=text)
    assert ck.frame(s, per="compaction")["summary_tokens"].iloc[0] > 100
    assert ck.score(s, loss=False)["summaries_usd"] > 0


WITHOUT_COMPACTIONS = Path(__file__).parents[1] / "formats/golden/gemini-cli.json"


@pytest.mark.parametrize(
    "file",
    [WITHOUT_COMPACTIONS, *(sample(sorted(FOLDER.rglob("*.*")), 15) if FOLDER else [])],
)
def test_frame_and_score_miss_the_same_figures_of_compactions(file):
    if not file.is_file() or file.suffix in (".txt", ".csv") or file.name == "README.md":
        return
    for s in ck.read_all(file, progress=False):
        row, score = ck.frame(s, per="session").iloc[0], ck.score(s, loss=False)
        n, scored = row["compactions_n"], score["compactions_n"]
        assert (n is pd.NA) == (scored is pd.NA), s.id
        assert n is pd.NA or file is not WITHOUT_COMPACTIONS
        assert n is pd.NA or n == scored
        assert pd.isna(row["summaries_usd"]) == pd.isna(score["summaries_usd"]), s.id
        if n is pd.NA:
            assert score[["is_thrashing", "not_paid_back_n", "summary_tokens"]].isna().all()
            assert pd.isna(score["summaries_usd"])


def test_a_total_is_missing_where_a_call_has_no_part_of_it():
    known, unknown = usage(10, read=90), replace(usage(10), cache_read_tokens=None)
    whole, part = (
        session(user(), assistant(usage=known), assistant(usage=second))
        for second in (known, unknown)
    )
    for per in ("session", "turn"):
        assert ck.frame(whole, per=per)["cache_read_tokens"].iloc[0] == 180
        assert ck.frame(part, per=per)["cache_read_tokens"].iloc[0] is pd.NA


def test_causes_of_misses_stand_in_the_call_frame():
    cold = usage(1_000, write=9_000)
    warm = usage(100, read=10_000)
    messages = [user(), assistant(usage=cold), user(), assistant(usage=warm)]
    s = session(*messages, summarised(messages[:2]), assistant(usage=cold))
    for log in (s, ck.read(ck.samples.path("billing"))):
        causes = [None if m is None else m.kind for m in ck.misses(log)]
        column = ck.frame(log, per="call")["cache_miss"].astype(object)
        assert column.where(column.notna(), None).tolist() == causes
        assert {"cold_start", "compaction"} <= set(causes)
    blind = session(user(), assistant(usage=replace(usage(), cache_read_tokens=None)))
    assert ck.frame(replace(blind, id="b"), per="call")["cache_miss"].isna().all()


def test_errors_of_the_board_are_those_of_the_session_frame():
    s = ck.read(ck.samples.path("billing"))
    row = ck.frame(s, per="session").iloc[0]
    assert make_board_row(s).errors_n == row["tool_errors_n"] + row["failed_calls_n"]
    assert make_board_row(s).turns_n == row["turns_n"]
