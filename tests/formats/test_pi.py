"""Pi's sessions: versions, trees, compactions, and entries that are damaged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from source_builders import source, texts

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import pi
from ctxkit.session import Thinking, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

HEAD = {
    "type": "session",
    "version": 3,
    "id": "s",
    "timestamp": "2026-01-01T00:00:00.000Z",
    "cwd": "/tmp",
}
ZERO = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": {"total": 0}}


def said(
    own: str, parent: str | None, text: str, role: str = "user", **more: Any
) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {
        "type": "message",
        "id": own,
        "parentId": parent,
        "message": {"role": role, "content": content, **more},
    }


def read(*records: Any) -> Session:
    return pi.read(source(*records))[0]


def test_usage_is_kept_by_class_and_zeros_of_a_failed_call_are_missing() -> None:
    paid = {
        "input": 5,
        "output": 7,
        "cacheRead": 100,
        "cacheWrite": 20,
        "reasoning": 3,
        "cost": {"total": 0.5},
    }
    s = read(
        HEAD,
        said("a", None, "x", "assistant", usage=paid),
        said("b", "a", "", "assistant", usage=ZERO),
    )
    assert s.calls[0].message.usage == Usage(5, 100, 20, None, 7, 3, 0.5)
    assert s.calls[1].message.usage is None


def test_an_aborted_reply_is_a_call_that_is_not_sent_again() -> None:
    s = read(
        HEAD,
        said("a", None, "do"),
        said("b", "a", "half", "assistant", stopReason="aborted", errorMessage="stop"),
    )
    assert (s.calls[0].message.stop, s.calls[0].message.error) == ("aborted", "stop")
    assert texts(s.view()) == ["do"]


def test_version_1_sends_what_an_aborted_reply_said_but_not_its_calls() -> None:
    call = {"type": "toolCall", "id": "t", "name": "ls", "arguments": {}}
    half = {
        "role": "assistant",
        "stopReason": "aborted",
        "content": [{"type": "text", "text": "half"}, call],
    }
    head = {"type": "session", "id": "s"}
    (m,) = read(head, {"type": "message", "message": half}).view()
    assert (m.text, m.tool_calls, m.details["calls_not_run"][0]["name"]) == ("half", (), "ls")
    answer = {"role": "toolResult", "toolCallId": "t", "toolName": "ls", "content": []}
    assert (
        len(
            read(head, *({"type": "message", "message": x} for x in (half, answer)))
            .view()[0]
            .tool_calls
        )
        == 1
    )


def test_a_compaction_keeps_what_follows_its_first_kept_entry() -> None:
    cut = {
        "type": "compaction",
        "id": "c",
        "parentId": "d",
        "summary": "S",
        "firstKeptEntryId": "b",
        "tokensBefore": 9,
    }
    s = read(
        HEAD,
        said("a", None, "1"),
        said("b", "a", "2"),
        said("d", "b", "3"),
        cut,
        said("e", "c", "4"),
    )
    assert texts(s.view()) == ["S", "2", "3", "4"]
    assert (s.edits[0].targets, s.edits[0].tokens_before, s.edits[0].inserted[0].role) == (
        ("a",),
        9,
        "summary",
    )


@pytest.mark.parametrize("first_kept", [{}, {"firstKeptEntryId": "c"}, {"firstKeptEntryId": "?"}])
def test_a_compaction_without_a_first_kept_entry_removes_all_before_it(first_kept) -> None:
    cut = {"type": "compaction", "id": "c", "parentId": "b", "summary": "S", **first_kept}
    s = read(HEAD, said("a", None, "1"), said("b", "a", "2"), cut, said("d", "c", "3"))
    assert (texts(s.view()), s.edits[0].targets) == (["S", "3"], ("a", "b"))
    unknown = "expected the first kept entry to exist; nothing was kept"
    assert [f.why for f in s.faults] == [unknown] * (first_kept.get("firstKeptEntryId") == "?")
    again = cut | {"id": "e", "parentId": "c", "summary": "T", "firstKeptEntryId": "b"}
    s = read(HEAD, said("a", None, "1"), said("b", "a", "2"), cut, again)
    assert texts(s.view()) == ["T", "2"]


def test_the_first_kept_line_of_version_1_counts_the_header() -> None:
    head = {"type": "session", "id": "s", "provider": "p", "modelId": "m"}
    plain = [
        {k: v for k, v in said("", None, t).items() if k not in ("id", "parentId")} for t in "123"
    ]
    mark = {"type": "thinking_level_change", "thinkingLevel": "low"}
    s = read(
        head,
        plain[0],
        mark,
        plain[1],
        plain[2],
        {"type": "compaction", "summary": "S", "firstKeptEntryIndex": 3},
    )
    assert texts(s.view()) == ["S", "2", "3"]
    assert (s.version, s.model, s.skipped) == ("1", "m", {"thinking_level_change": 1})


def test_a_second_compaction_can_bring_back_what_the_first_took() -> None:
    cut = {
        "type": "compaction",
        "id": "c",
        "parentId": "b",
        "summary": "S",
        "firstKeptEntryId": "b",
    }
    again = {
        "type": "compaction",
        "id": "d",
        "parentId": "c",
        "summary": "T",
        "firstKeptEntryId": "a",
    }
    s = read(HEAD, said("a", None, "1"), said("b", "a", "2"), cut, again)
    assert sorted(texts(s.view())) == ["1", "2", "T"]


def test_a_branch_leaves_the_other_in_the_log() -> None:
    back = {"type": "branch_summary", "id": "x", "parentId": "a", "fromId": "b", "summary": "tried"}
    s = read(HEAD, said("a", None, "1"), said("b", "a", "2"), back, said("c", "x", "3"))
    assert texts(s.messages) == ["1", "tried", "3"]
    assert (len(s.log), s.messages[1].kind) == (4, "branch_summary")


def test_marks_between_messages_are_steps_of_the_tree() -> None:
    mark = {"type": "model_change", "id": "m", "parentId": "a", "modelId": "x"}
    s = read(HEAD, said("a", None, "1"), said("b", "a", "2"), mark, said("c", "m", "3"))
    assert texts(s.messages) == ["1", "3"]


def test_an_entry_whose_parent_was_lost_follows_the_one_before() -> None:
    s = read(
        HEAD, said("a", None, "1"), b'{"type": "message", "id": "b", torn', said("c", "b", "3")
    )
    assert texts(s.messages) == ["1", "3"]
    assert [f.line for f in s.faults] == [3, 4]


def test_ids_that_stand_twice_are_made_unique() -> None:
    s = read(HEAD, said("a", None, "1"), said("a", "a", "2"), said("a", "a", "3"))
    assert texts(s.messages) == ["1", "2", "3"]
    assert len({m.id for m in s.messages}) == 3


def test_a_command_of_the_user_can_stay_out_of_the_context() -> None:
    ran = {
        "role": "bashExecution",
        "command": "ls",
        "output": "a.txt",
        "exitCode": 2,
        "excludeFromContext": True,
    }
    s = read(HEAD, {"type": "message", "id": "a", "parentId": None, "message": ran})
    (m,) = s.messages
    assert (m.kind, m.visible, m.is_error, m.details["exit_code"]) == ("bash", False, True, 2)
    assert "ls" in m.text
    assert "a.txt" in m.text


def test_messages_that_ai_hides_from_the_agent_are_not_shown() -> None:
    head = {**HEAD, "version": 1}
    s = read(head, said("a", None, "1"), said("b", "a", "2", metadata={"agentVisible": False}))
    assert (texts(s.view()), s.product) == (["1"], "ai")


def test_a_file_without_a_header_is_read() -> None:
    assert texts(read({"role": "user", "content": "hi", "timestamp": 1}).messages) == ["hi"]


def test_nothing_of_pi_is_an_error_that_says_what_was_expected() -> None:
    with pytest.raises(ReadError, match="expected a header"):
        read({"some": "thing"})


def test_prompts_fall_at_the_compactions_of_a_real_session(real: Path) -> None:
    s = ck.read(real / "pi" / "before-compaction.jsonl")
    sizes = {c.position: c.message.usage.prompt_tokens for c in s.calls if c.message.usage}
    for position, entry in enumerate(s.path):
        if entry in s.edits:
            before = max(p for p in sizes if p < position)
            after = min(p for p in sizes if p > position)
            last = s.path[before].usage
            assert entry.tokens_before == last.prompt_tokens + last.output_tokens
            assert sizes[after] < sizes[before] / 2


def test_the_first_kept_entry_of_a_real_session_is_the_line_named(real: Path) -> None:
    path = real / "pi" / "before-compaction.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    s = ck.read(path)
    for line, edit in zip([r for r in lines if r["type"] == "compaction"], s.edits, strict=True):
        after = next(c for c in s.calls if c.position > s.path.index(edit))
        kept = s.view(after.index)[1]
        assert kept.text == lines[line["firstKeptEntryIndex"]]["message"]["content"][0]["text"]


def test_a_reply_knows_how_much_the_model_was_set_to_think() -> None:
    """A change of it empties Anthropic's cache."""
    change = {"type": "thinking_level_change", "id": "t", "parentId": "b", "thinkingLevel": "high"}
    s = read(
        HEAD | {"thinkingLevel": "off"},
        said("a", None, "do"),
        said("b", "a", "one", "assistant"),
        change,
        said("c", "t", "two", "assistant"),
    )
    assert [c.message.details["effort"] for c in s.calls] == ["off", "high"]
    bare = read(HEAD, said("a", None, "do"), said("b", "a", "one", "assistant"))
    assert "effort" not in bare.calls[0].message.details


def test_marks_of_ai_are_kept_and_say_what_the_user_sees() -> None:
    """A16, A17, A18, A29: Kind and the user's visibility are read; an archived result is the
    user's still, a digest the agent's alone, and what is not marked is seen by both.
    """
    archived = {"agentVisible": False, "kind": "tool_result_archived"}
    digest = {"userVisible": False, "kind": "tool_summary"}
    plain = {"kind": "tool_result"}
    s = read(
        {**HEAD, "version": 1},
        said("a", None, "1"),
        said("b", "a", "2", metadata=archived),
        said("c", "b", "3", metadata=digest),
        said("d", "c", "4", metadata=plain),
    )
    kinds = ["", "tool_result_archived", "tool_summary", ""]
    assert [m.kind for m in s.messages] == kinds
    seen = ck.metrics.audience(s)
    assert seen["user_sees"].tolist() == [True, True, False, True]
    assert seen["agent_sees"].tolist() == [True, False, True, True]


@pytest.mark.parametrize(
    ("raw", "thinking"),
    [
        ({"thinking": "Hm.", "thinkingSignature": "s" * 64}, Thinking("Hm.", "s" * 64)),
        ({"thinking": "Hm.", "thinkingSignature": "s" * 65}, Thinking("Hm.", "s" * 65, hidden=65)),
        ({"thinkingSignature": "", "redacted": True}, Thinking("", redacted=True)),
    ],
)
def test_thinking_has_its_signature_and_the_size_of_a_sealed_one(
    raw: dict[str, Any], thinking: Thinking
) -> None:
    """A signature of at most 64 characters is an id; a longer one is sealed reasoning."""
    reply = said("a", None, "", "assistant", usage=ZERO)
    reply["message"]["content"] = [{"type": "thinking", **raw}]
    (session,) = pi.read(source(HEAD, reply))
    assert session.messages[0].parts == (thinking,)


@pytest.mark.parametrize(
    ("ended", "latency"),
    [
        ("2026-01-01T00:00:01.234567Z", 1.235),
        ("2026-01-01T00:00:00.000Z", 0.0),
        ("2025-12-31T23:59:59.999Z", None),
        ("2026-01-01T23:59:59.999Z", 86_399.999),
        ("2026-01-02T00:00:00.000Z", None),
    ],
)
def test_the_latency_of_a_reply_is_in_milliseconds_and_less_than_a_day(
    ended: str, latency: float | None
) -> None:
    """The message has the time at which its request began: the first moment of 2026."""
    reply = said("a", None, "Hi.", "assistant", usage=ZERO, timestamp=1_767_225_600_000)
    (session,) = pi.read(source(HEAD, reply | {"timestamp": ended}))
    assert session.messages[0].latency == latency
