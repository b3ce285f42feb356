"""An error, a reason or a name from a log is cut to the bound of its format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import assistant, user
from builders import session as make_session
from synthetic_logs import context, event, lines
from synthetic_logs_current_layouts import CODEX_EXEC, GOOSE

import ctxkit as ck
from ctxkit.formats import Source, read_source

GOLDEN = Path(__file__).parent / "golden"
LONG = "e" * 2_500


def change_golden(name: str, old: str, new: str) -> bytes:
    text = (GOLDEN / name).read_text("utf-8")
    assert old in text
    return text.replace(old, new, 1).encode()


def openai_request(reason: str = "stop", role: str = "user") -> bytes:
    messages = [{"role": role, "content": "go"}]
    choice = {"message": {"role": "assistant", "content": "Done."}, "finish_reason": reason}
    response = {"object": "chat.completion", "choices": [choice]}
    return lines({"request": {"messages": messages}, "response": response})


LOGS = {
    "aider": f"# aider chat started at 2024-08-05 13:33:02\n\n> Model: {LONG}\n\n#### go\n\nYes.\n".encode(),
    "atif": json.dumps(
        {
            "schema_version": "ATIF-v1.7",
            "session_id": "s",
            "agent": {"name": "a"},
            "steps": [
                {"source": "user", "message": "go"},
                {
                    "source": "system",
                    "message": LONG,
                    "observation": {
                        "results": [{"subagent_trajectory_ref": [{"session_id": "t"}]}]
                    },
                },
            ],
        }
    ).encode(),
    "codex exec": CODEX_EXEC.replace(b"overloaded", LONG.encode()),
    "fuseraft": lines(
        event("user_input", 0, None, content="Go."),
        context(1, 4_000, 1)
        | {"payload": {"content_chars": {"n" * 70: 1} | {f"k{n}": 1 for n in range(50)}}},
        event("model_response", 0, content_chars=3, seq=1, actual_input=9, actual_output=2),
    ),
    "goose": GOOSE.replace(b'"error": "no"', f'"error": "{LONG}"'.encode()),
    "inspect": change_golden(
        "inspect-ai.json",
        '"scores":{}',
        '"scores":' + json.dumps({f"{n:03}" + "n" * 87: {"value": n} for n in range(25)}),
    ),
    "inspect error": change_golden(
        "inspect-ai.json", '"event":"model"', f'"event":"model","error":"{LONG}"'
    ),
    "langfuse": change_golden(
        "langfuse.json", '"model":"m-1"', f'"model":"m-1","level":"ERROR","statusMessage":"{LONG}"'
    ),
    "openai stop": openai_request(reason=LONG),
    "openai role": openai_request(role=LONG),
    "opencode run": lines(
        {"type": "text", "timestamp": 1, "sessionID": "s", "part": {"type": "text", "text": "a"}},
        {"type": "error", "timestamp": 2, "sessionID": "s", "error": {"data": {"message": LONG}}},
    ),
    "openhands": json.dumps(
        {
            "instance_id": "i",
            "error": LONG,
            "history": [
                {"id": LONG, "source": "agent", "action": "run", "args": {"command": "ls"}},
            ],
        }
    ).encode(),
    "swe-agent": json.dumps(
        {
            "environment": "e",
            "trajectory": [],
            "info": {},
            "history": [
                {"role": "system", "content": "s", "agent": "main"},
                {"role": "user", "content": "go", "agent": "main"},
                {
                    "role": "assistant",
                    "content": "a",
                    "thought": "t",
                    "action": f"{LONG} x",
                    "agent": "main",
                },
            ],
        }
    ).encode(),
}


BOUNDED = {
    "aider": (lambda s: s.model, "e" * 200),
    "atif": (lambda s: s.edits[0].reason, "e" * 200),
    "codex exec": (lambda s: s.messages[-1].error, "e" * 2_000),
    "fuseraft": (
        lambda s: s.messages[-1].details["context"],
        {"n" * 60: 1} | {f"k{n}_chars": 1 for n in range(38)},  # and its tokens, which are unknown
    ),
    "goose": (lambda s: s.messages[-1].error, "e" * 2_000),
    "inspect": (lambda s: s.details["scores"], {f"{n:03}" + "n" * 77: n for n in range(20)}),
    "inspect error": (lambda s: s.calls[0].message.error, "e" * 2_000),
    "langfuse": (lambda s: s.calls[0].message.error, "e" * 2_000),
    "openai stop": (lambda s: s.messages[-1].stop, "e" * 40),
    "openai role": (lambda s: s.messages[0].kind, "e" * 40),
    "opencode run": (lambda s: s.messages[-1].error, "e" * 2_000),
    "openhands": (
        lambda s: [s.details["error"], s.messages[0].tool_calls[0].id],
        ["e" * 2_000, "action-" + "e" * 40],
    ),
    "swe-agent": (
        lambda s: [(c.name, c.arguments["command"]) for c in s.messages[-1].tool_calls],
        [("e" * 80, f"{LONG} x")],
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_what_a_log_names_is_cut_to_its_bound(name):
    (session,) = read_source(Source("log", LOGS[name]))
    get_bounded, expected = BOUNDED[name]
    assert get_bounded(session) == expected


def test_a_result_that_failed_and_an_error_are_cut_where_they_are_written(tmp_path):
    call = ck.session.ToolCall("c", "ls", {})
    result = ck.session.Message(role="tool", call_id="c", tool="ls", is_error=True,
                                parts=(ck.session.Text(LONG),))  # fmt: skip
    failed = assistant("So.", is_error=True, error=LONG)
    session = make_session(user("go"), assistant("", call), result, failed)
    ck.write(session, tmp_path / "s.json", format="inspect")
    (sample,) = json.loads((tmp_path / "s.json").read_bytes())["samples"]
    assert [m["error"]["message"] for m in sample["messages"] if m.get("error")] == ["e" * 2_000]
    ck.write(session, tmp_path / "t.json", format="otel")
    assert json.dumps("e" * 200) in (tmp_path / "t.json").read_text("utf-8")
