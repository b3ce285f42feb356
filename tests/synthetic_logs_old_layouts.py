"""Small logs in the older and odder shapes of formats whose files are public in others only."""

from __future__ import annotations

import json
from typing import Any

from synthetic_logs import lines

_USAGE = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 7}
_CALL = {"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}}


def _wire(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": 1767225600.0, "message": {"type": kind, "payload": payload}}


def _printed(kind: str, content: Any, call: str | None = None) -> dict[str, Any]:
    message = {"role": kind, "content": content, "id": "m", "model": "c", "usage": _USAGE}
    return {"type": kind, "session_id": "s", "parent_tool_use_id": call, "message": message}


KIMI_WIRE = lines(
    {"type": "metadata", "protocol_version": "1.3"},
    _wire("TurnBegin", user_input=[{"type": "text", "text": "go"}]),
    _wire("StepBegin", n=1),
    _wire("ContentPart", type="think", think="hm"),
    _wire("ToolCall", **_CALL),
    _wire("ToolCallPart", arguments_part='{"a": 1}'),
    _wire("StatusUpdate", token_usage={"input_other": 5, "output": 2}, max_context_tokens=9000),
    _wire(
        "SubagentEvent",
        task_tool_call_id="c",
        event={"type": "ContentPart", "payload": {"type": "text", "text": "x"}},
    ),
    _wire("ToolResult", tool_call_id="c", return_value={"is_error": False, "output": "done"}),
    _wire("CompactionEnd"),
    _wire("StepInterrupted"),
)
KIMI_CONTEXT = lines(
    {"role": "_system_prompt", "content": "sys"},
    {"role": "_checkpoint", "id": 0},
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [{"type": "think", "think": "hm"}], "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "done"},
)
CLAUDE_PRINTED = lines(
    {
        "type": "system",
        "subtype": "init",
        "session_id": "s",
        "cwd": "/w",
        "tools": ["Bash"],
        "model": "c",
    },
    _printed("assistant", [{"type": "tool_use", "id": "t", "name": "Task", "input": {}}]),
    _printed("user", "look", "t"),
    _printed("user", [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]),
    {
        "type": "system",
        "subtype": "compact_boundary",
        "compact_metadata": {"trigger": "auto", "pre_tokens": 9},
    },
    _printed("user", "This session is being continued from a previous conversation: go on"),
    {"type": "result", "session_id": "s", "total_cost_usd": 0.5},
)
CODEX_FIRST = json.dumps(
    {
        "session": {"timestamp": "2025-04-01T00:00:00Z", "id": "A", "instructions": "be short"},
        "items": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
            {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
        ],
    }
).encode()
TAU2 = json.dumps(
    {
        "simulations": [
            {
                "task_id": "1",
                "messages": [
                    {
                        "role": "assistant",
                        "content": "hi",
                        "timestamp": "2026-03-01T10:00:01",
                        "usage": {"prompt_tokens": 5},
                        "cost": 0.5,
                    },
                    {
                        "role": "user",
                        "content": None,
                        "tool_calls": [{"id": "a", "name": "f", "arguments": {}}],
                    },
                    {
                        "role": "tool",
                        "tool_messages": [
                            {"role": "tool", "id": "a", "content": "x", "error": True}
                        ],
                    },
                ],
            }
        ]
    }
).encode()
PAGE = json.dumps(
    {
        "data": [
            {
                "id": "1",
                "traceId": "t",
                "type": "GENERATION",
                "startTime": "2026-01-01T00:00:00Z",
                "input": [{"role": "user", "content": "q"}],
                "output": {"generations": [[{"message": {"type": "ai", "content": "a"}}]]},
                "usage": {"input": 5, "output": 1},
            }
        ]
    }
).encode()
SHAPES = {
    "kimi-cli": [KIMI_WIRE, KIMI_CONTEXT],
    "claude-code": [CLAUDE_PRINTED],
    "codex": [CODEX_FIRST],
    "tau-bench": [TAU2],
    "langfuse": [PAGE],
}
"""Logs by the name of the reader that must know them."""
