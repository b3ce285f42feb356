"""Gemini CLI: rewinds are branches, a repeated id amends, saved contents show their snapshot."""

from __future__ import annotations

import json

from synthetic_logs import CONTENTS, lines

import ctxkit as ck
from ctxkit.formats import Source, read_source

HEAD = {"sessionId": "g", "projectHash": "h", "startTime": "2026-04-29T21:39:22Z", "kind": "main"}


def said(id_: str, kind: str = "user", **more) -> dict:
    return {"id": id_, "timestamp": "2026-04-29T21:39:33Z", "type": kind, "content": id_, **more}


def read(*records: dict):
    (session,) = read_source(Source("chat.jsonl", lines(HEAD, *records)))
    return session


def texts(messages) -> list[str]:
    return [m.text for m in messages]


def test_a_call_and_its_result_are_two_messages(real):
    s = ck.read(real / "gemini-cli/entire-f7633853.json")
    first = s.messages[1]
    assert first.usage.prompt_tokens == 12_207
    assert first.usage.cache_read_tokens == 2_558
    assert first.usage.output_tokens == 105 + 153
    assert (s.messages[2].role, s.messages[2].call_id) == ("tool", first.tool_calls[0].id)


def test_a_rewind_is_a_branch_and_nothing_is_lost():
    s = read(said("a"), said("b", "gemini"), said("c"), {"$rewindTo": "b"}, said("d"))
    assert texts(s.messages) == ["a", "d"]
    assert texts(s.log) == ["a", "b", "c", "d"]


def test_rewinding_to_what_is_not_there_drops_everything():
    assert texts(read(said("a"), {"$rewindTo": "zz"}, said("b")).messages) == ["b"]


def test_a_repeated_id_amends_its_message():
    assert texts(
        read(said("a"), said("b", "gemini"), said("b", "gemini", content="more")).messages
    ) == ["a", "more"]


def test_set_messages_replaces_the_list_from_where_it_differs():
    s = read(
        said("a"),
        said("b", "gemini"),
        {"$set": {"messages": [said("a"), said("x")], "summary": "T"}},
    )
    assert texts(s.messages) == ["a", "x"]
    assert s.title == "T"


def test_what_the_screen_told_is_never_shown_to_the_model():
    notices = [said(kind, kind) for kind in ("info", "warning", "error")]
    s = read(said("a"), *notices, said("b", "gemini"))
    assert texts(s.view(-1)) == ["a"]
    assert texts(s.view()) == ["a", "b"]
    assert texts(m for m in s.messages if not m.visible) == ["info", "warning", "error"]


def test_saved_contents_begin_with_their_compression():
    (s,) = read_source(Source("c.json", CONTENTS))
    assert s.edits[0].inserted[0].role == "summary"
    assert [m.role for m in s.view(-1)] == ["summary", "assistant", "tool"]
    assert s.messages[1].is_error


def test_rewinding_a_million_times_ends():
    many = [said(str(i)) for i in range(2_000)] + [{"$rewindTo": "1999"}, said("1999")] * 2_000
    s = read(*many)
    assert s.messages
    assert json.dumps(texts(s.messages)[:2]) == '["0", "1"]'
