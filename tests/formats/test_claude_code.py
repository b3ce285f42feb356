"""Claude Code's transcripts: replies in pieces, boundaries, rewinds, copied lines, subagents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from source_builders import source, texts

import ctxkit as ck
from ctxkit.formats import claude_code
from ctxkit.session import Thinking, Usage

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

USAGE = {
    "input_tokens": 3,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 50,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
    "output_tokens": 7,
}


def line(own: str, parent: str | None, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind,
        "uuid": own,
        "parentUuid": parent,
        "sessionId": "s",
        "message": message,
        **more,
    }


def ask(own: str, parent: str | None, text: str = "do", **more: Any) -> dict[str, Any]:
    return line(own, parent, "user", text, **more)


def piece(
    own: str, parent: str | None, block: dict[str, Any], id: str = "msg", **more: Any
) -> dict[str, Any]:
    return line(
        own,
        parent,
        "assistant",
        [block],
        message={"id": id, "model": "claude-x", "usage": USAGE},
        **more,
    )


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(own: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": own, "name": name, "input": {"command": "ls"}}


def result(own: str, parent: str, call: str, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": "ok", **more.pop("block", {})}
    return line(own, parent, "user", [block], **more)


def boundary(own: str, **about: Any) -> dict[str, Any]:
    meta = {"trigger": "auto", "preTokens": 900, **about}
    return {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": own,
        "parentUuid": None,
        "sessionId": "s",
        "compactMetadata": meta,
    }


def read(*records: Any) -> Session:
    return claude_code.read(source(*records))[0]


def test_the_lines_of_one_reply_are_one_call_and_its_usage_counts_once() -> None:
    s = read(
        ask("a", None),
        piece("b", "a", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        piece("c", "b", use("t1")),
        result("d", "c", "t1", block={"is_error": True}),
        piece("e", "c", use("t2")),
        result("f", "e", "t2"),
        piece("g", "f", text("done"), "other"),
    )
    first, second = s.calls
    assert first.message.usage == Usage(3, 100, 20, 30, 7)
    assert [c.id for c in first.message.tool_calls] == ["t1", "t2"]
    assert first.message.parts[0] == Thinking("hm", "sig", 3)
    assert [(m.tool, m.is_error) for m in s.messages if m.role == "tool"] == [
        ("Bash", True),
        ("Bash", False),
    ]
    assert (second.message.text, s.parents) == ("done", ())


def test_a_boundary_and_its_summary_are_one_edit() -> None:
    s = read(
        ask("a", None),
        piece("b", "a", text("x")),
        boundary("c"),
        ask("d", "c", "S", isCompactSummary=True),
    )
    (edit,) = s.edits
    assert (edit.targets, edit.trigger, edit.tokens_before) == (("a", "b"), "auto", 900)
    assert [(m.role, m.text) for m in s.view()] == [("summary", "S")]


def test_preserved_messages_stand_after_the_summary() -> None:
    kept = {"preservedMessages": {"uuids": ["b"]}, "postTokens": 70}
    s = read(
        ask("a", None),
        piece("b", "a", text("x")),
        boundary("c", **kept),
        ask("d", "c", "S", isCompactSummary=True),
    )
    assert texts(s.view()) == ["S", "x"]
    assert s.edits[0].tokens_after == 70


def test_a_boundary_whose_summary_is_missing_is_an_edit_all_the_same() -> None:
    s = read(ask("a", None), boundary("b"), ask("c", "b", "go on"))
    assert [len(e.inserted) for e in s.edits] == [0]
    assert texts(s.view()) == ["go on"]


def test_a_rewind_is_a_branch_and_lines_beside_are_none() -> None:
    beside = {"type": "progress", "uuid": "p", "parentUuid": "b", "sessionId": "s"}
    s = read(
        ask("a", None, "1"),
        piece("b", "a", text("2")),
        beside,
        ask("c", "p", "3"),
        piece("d", "c", text("4"), "m2"),
        ask("e", "b", "3 again"),
    )
    assert texts(s.messages) == ["1", "2", "3 again"]
    assert (len(s.log), s.skipped) == (5, {"progress": 1})


def test_results_of_parallel_calls_are_no_branches() -> None:
    s = read(
        ask("a", None),
        piece("b", "a", use("t1")),
        piece("c", "b", use("t2")),
        result("d", "b", "t1"),
        result("e", "c", "t2"),
        piece("f", "d", text("done"), "m2"),
    )
    assert [m.role for m in s.messages] == ["user", "assistant", "tool", "tool", "assistant"]


def test_lines_that_a_resumed_session_copies_count_once() -> None:
    talk = [ask("a", None), piece("b", "a", text("x"))]
    s = read(*talk, *talk, ask("c", "b", "next"))
    assert texts(s.messages) == ["do", "x", "next"]
    assert s.skipped == {"repeated line": 2}


def test_retries_and_made_up_replies_are_events_and_no_calls() -> None:
    retry = {
        "type": "system",
        "subtype": "api_error",
        "uuid": "r",
        "parentUuid": "a",
        "sessionId": "s",
    }
    zero = dict.fromkeys(("input_tokens", "output_tokens"), 0)
    made = {"id": "x", "model": "<synthetic>", "usage": zero}
    s = read(
        ask("a", None),
        {**retry, "error": {"status": 529, "formatted": "overloaded"}},
        line("b", "a", "assistant", [text("API Error")], message=made, isApiErrorMessage=True),
    )
    assert s.calls == ()
    events = [m for m in s.messages if m.role == "system"]
    assert [(m.kind, m.is_error, m.visible, m.error) for m in events] == [
        ("api_error", True, False, "overloaded"),
        ("synthetic", True, False, "API Error"),
    ]


def test_the_error_of_a_failed_reply_is_its_first_500_characters() -> None:
    usage = dict.fromkeys(("input_tokens", "output_tokens"), 1)
    made = {"id": "x", "model": "claude-opus-5", "usage": usage}
    s = read(
        ask("a", None),
        line("b", "a", "assistant", [text("e" * 600)], message=made, isApiErrorMessage=True),
    )
    reply = s.calls[0].message
    assert (reply.is_error, reply.stop, reply.error) == (True, "error", "e" * 500)
    assert reply.text == "e" * 600


def test_a_sidechain_between_the_lines_is_a_child() -> None:
    s = read(
        ask("a", None),
        piece("b", "a", use("t", "Task")),
        ask("x", None, "look", isSidechain=True),
        piece("y", "x", text("found"), "m2", isSidechain=True),
        {"type": "progress", "uuid": ["no text"], "isSidechain": True, "parentUuid": "y"},
        {"type": "progress", "uuid": "z", "isSidechain": True, "parentUuid": ["no text"]},
        result("c", "b", "t"),
    )
    assert s.faults == ()
    assert [m.role for m in s.messages] == ["user", "assistant", "tool"]
    assert [texts(c.messages) for c in s.children] == [["look", "found"]]
    assert (s.children[0].parent, s.children[0].id) == ("s", "agent-sidechain-0")


def test_subagents_in_the_folder_are_children_and_listed_once(tmp_path: Path) -> None:
    told = result("c", "b", "t", toolUseResult={"agentId": "77"})
    write(tmp_path / "s.jsonl", ask("a", None), piece("b", "a", use("t", "Task")), told)
    (tmp_path / "s" / "subagents").mkdir(parents=True)
    child = [ask("x", None, "look", isSidechain=True, agentId="77")]
    write(tmp_path / "s" / "subagents" / "agent-77.jsonl", *child)
    write(tmp_path / "s" / "subagents" / "agent-88.jsonl", b"")
    everything = ck.read_all(tmp_path)
    (s,) = everything
    assert [(c.id, c.agent, c.parent, c.details) for c in s.children] == [
        ("agent-77", "77", "s", {"call_id": "t"})
    ]
    assert s.messages[2].details == {"child": "agent-77"}
    assert [f.why for f in s.faults] == [
        "subagent agent-88.jsonl: expected lines of type user or assistant with a message; found none."
    ]
    assert ck.read(tmp_path / "s" / "subagents" / "agent-77.jsonl").parent == "s"


def test_a_small_compaction_clears_old_results() -> None:
    small = {
        "type": "system",
        "subtype": "microcompact_boundary",
        "uuid": "m",
        "parentUuid": None,
        "sessionId": "s",
    }
    s = read(
        ask("a", None),
        piece("b", "a", use("t")),
        result("c", "b", "t"),
        {**small, "microcompactMetadata": {"trigger": "auto", "compactedToolIds": ["t"]}},
    )
    assert s.view()[2].text == "[Old tool result content cleared]"
    assert s.view()[2].call_id == "t"


def test_comment_lines_and_broken_ones_are_counted(real: Path) -> None:
    s = ck.read(real / "claude-code" / "session-share" / "images-in-user-messages.jsonl")
    assert [(f.line, f.why) for f in s.faults] == [
        (1, "a comment, not JSON"),
        (2, "a comment, not JSON"),
    ]


def test_prompts_fall_at_the_compactions_of_a_real_session(real: Path) -> None:
    s = ck.read(real / "claude-code" / "entire-7f78a542.jsonl")
    assert [(e.trigger, e.tokens_before) for e in s.edits] == [("auto", 155577), ("manual", 82572)]
    prompts = [(c.position, c.message.usage.prompt_tokens) for c in s.calls if c.message.usage]
    cuts = [s.path.index(e) for e in s.edits]
    fall = [
        (max(p for p in prompts if p[0] < cut), min(p for p in prompts if p[0] > cut))
        for cut in cuts
    ]
    assert fall[0][1][1] == 45166
    assert all(after < before / 1.5 for (_, before), (_, after) in fall)
    assert len(s.calls) == 184


def write(path: Path, *records: Any) -> None:
    path.write_bytes(
        b"\n".join(r if isinstance(r, bytes) else json.dumps(r).encode() for r in records)
    )


def test_the_first_reply_after_a_restart_says_so() -> None:
    """A program that continues in a new process may send another prefix."""
    hook = {"type": "progress", "uuid": "h", "parentUuid": "b", "sessionId": "s"}
    hook["data"] = {"type": "hook_progress", "hookName": "SessionStart:resume"}
    after = [
        ask("c", "h"),
        piece("d", "c", text("two"), id="2"),
        ask("e", "d"),
        piece("f", "e", text("3"), id="3"),
    ]
    s = read(ask("a", None), piece("b", "a", text("one"), id="1"), hook, *after)
    assert [c.message.details.get("resumed") for c in s.calls] == [None, True, None]
    other = hook | {"data": {"type": "hook_progress", "hookName": "Stop"}}
    s = read(ask("a", None), piece("b", "a", text("one"), id="1"), other, *after)
    assert not any("resumed" in c.message.details for c in s.calls)


@pytest.mark.parametrize(
    "blocks", [[], [text("half an ans")], [use("t")]], ids=["none", "text", "tool"]
)
def test_a_reply_that_was_left_beside_the_path_is_billed_and_marked(tmp_path, blocks):
    """An interrupted reply, whose next prompt names the line before it as parent, is a call all the same."""
    lines = [
        ask("u1", None),
        piece("a1", "u1", text("one"), "m1"),
        ask("u2", "a1", "go on"),
        line("a2", "u2", "assistant", blocks, message={"id": "m2", "model": "claude-opus-4-5", "usage": USAGE}),
        *([result("r2", "a2", "t")] if blocks == [use("t")] else []),
        ask("u3", "u2", "no, this"),
        piece("a3", "u3", text("three"), "m3"),
    ]  # fmt: skip
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    s = ck.read(path)
    assert [c.message.stop for c in s.calls] == [None, "abandoned", None]
    frame, score = ck.frame(s, per="call"), ck.score(s, loss=False)
    assert frame["prompt_tokens"].tolist() == [153] * 3
    assert frame["stop_reason"].astype(object).tolist()[1] == "abandoned"
    assert ck.frame(s, per="session")["prompt_tokens"].iloc[0] == score["prompt_tokens"] == 459
    assert score["calls_n"] == 3
    assert [c.call for c in ck.spend(s).bill.charges] == [0, 1, 2]
    sent = [view for _, view in s.views()]
    assert [m.text for m in sent[2]] == ["do", "one", "go on", "no, this"]


def test_a_prompt_that_was_written_again_is_a_branch():
    """Where the user's own message is left too, the reply belongs to another branch."""
    s = read(
        ask("u1", None), piece("a1", "u1", text("one"), "m1"), ask("u2", "a1"),
        piece("a2", "u2", text("two"), "m2"), ask("u3", "a1"), piece("a3", "u3", text("three"), "m3"),
    )  # fmt: skip
    assert [c.message.text for c in s.calls] == ["one", "three"]
