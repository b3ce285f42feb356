"""Small logs of formats of which no real file is public, made from their specification."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(r).encode() + b"\n" for r in records)


def event(
    kind: str,
    turn: int | None = 0,
    agent: str | None = "Developer",
    second: int = 0,
    **payload: Any,
) -> dict:
    made: dict[str, Any] = {
        "ts": f"2026-09-19T00:26:{second:02d}.0091413+00:00",
        "session": "77d6be00",
    }
    if agent:
        made["agent"] = agent
    if turn is not None:
        made["turn"] = turn
    return {**made, "event_type": kind, "payload": payload}


def context(seq: int, total: int, second: int, turn: int = 0, messages: int = 2) -> dict:
    chars = {
        "text": total,
        "content_total": total,
        "tool_schema_est": 10_617,
        "grand_total": total + 10_617,
    }
    counts = {"user": 1, "assistant": messages // 2, "tool": messages // 2}
    est = (total + 10_617) // 4
    return event(
        "inner_call_context",
        turn,
        second=second,
        seq=seq,
        msg_counts=counts,
        content_chars=chars,
        est_tokens=est,
    )


def answer(seq: int, given: int, output: int, second: int, turn: int = 0) -> dict:
    told = {
        "model": "m-1",
        "finish_reason": "stop",
        "input_tokens": given,
        "output_tokens": output,
        "call_seq": seq,
    }
    return event("model_response", turn, second=second, **told)


REPL_EVENTS = lines(
    event(
        "session_start",
        None,
        None,
        model="m-1",
        cwd="/w",
        tools_enabled=True,
        tool_count=12,
        resumed=False,
    ),
    event("user_input", 0, None, 1, content="Find the bug."),
    event("turn_start", second=1, is_step=False),
    context(1, 8_123, 2),
    event("model_call", second=2, model="m-1", call_seq=1, streaming=True),
    answer(1, 6_381, 116, 5),
    event("tool_call", second=5, tool_name="read_file", args={"path": "a.py"}),
    event("tool_result", second=6, tool_name="read_file", result_chars=6_700),
    event("sub_agent_start", second=7, query="Where is it used?", mode="explore"),
    context(1, 900, 7),
    event("model_call", second=7, model="m-1", call_seq=1),
    answer(1, 3_000, 40, 8),
    event("sub_agent_tool_call", second=8, tool="grep", args="foo"),
    event(
        "sub_agent_end",
        second=9,
        outcome="done",
        summary_chars=120,
        input_tokens=3_000,
        output_tokens=40,
    ),
    context(2, 14_870, 10, messages=4),
    answer(2, 8_106, 180, 12),
    event("assistant_response", second=12, content="It is in a.py."),
    event(
        "turn_end",
        second=12,
        elapsed_ms=11_000,
        input_tokens=14_487,
        output_tokens=296,
        cached_input_tokens=9_000,
    ),
    event(
        "compaction",
        second=20,
        before_tokens=12_004,
        after_tokens=3_100,
        source="manual",
        focus="the bug",
    ),
    event("user_input", 1, None, 21, content="Mend it."),
    context(3, 4_000, 22, turn=1),
    answer(3, 4_500, 60, 24, turn=1),
    event("turn_end", 1, second=24, elapsed_ms=3_000, input_tokens=4_500, output_tokens=60),
)
RUN_EVENTS = lines(
    event("session_start", None, None),
    *(
        e
        for t in range(4)
        for e in (
            event("tool_call", t, second=t, tool="shell_run", arg="make"),
            event("turn_end", t, second=t, input_tokens=1_000 * (t + 1), output_tokens=10),
        )
    ),
    event(
        "compaction",
        3,
        second=9,
        mode="window",
        reason="window_size",
        turns_dropped=2,
        turns_retained=2,
    ),
)
CHECKPOINT = json.dumps(
    {
        "SessionId": "77d6be00",
        "Task": "Mend the bug",
        "ConfigPath": "team.yaml",
        "WorkingDirectory": "/w",
        "StartedAt": "2026-09-19T00:26:00+00:00",
        "IsComplete": True,
        "Messages": [
            {
                "AgentName": "",
                "Content": "So far: read a.py.",
                "TurnIndex": 0,
                "Role": "user",
                "IsCompactionSummary": True,
            },
            {
                "AgentName": "Developer",
                "Content": "Mended.",
                "Timestamp": "2026-09-19T00:27:00+00:00",
                "TurnIndex": 3,
                "Role": "assistant",
                "Usage": {"InputTokens": 41_250, "OutputTokens": 1_830, "TotalTokens": 43_080},
                "ToolCalls": [
                    {
                        "Name": "patch_file",
                        "ArgsSummary": "path=a.py",
                        "Succeeded": True,
                        "ArgsCharCount": 300,
                    },
                    {
                        "Name": "shell_run",
                        "ArgsSummary": "make",
                        "Succeeded": False,
                        "ArgsCharCount": 4,
                    },
                ],
            },
        ],
    }
).encode()
REPL = json.dumps(
    {
        "SessionId": "77d6be00",
        "ModelId": "m-1",
        "Cwd": "/w",
        "StartedAt": "2026-09-19T00:26:00+00:00",
        "TurnIndex": 1,
        "History": [
            {"Role": "system", "Contents": [{"Type": "text", "Text": "You are fuseraft."}]},
            {"Role": "user", "Contents": [{"Type": "text", "Text": "Read a.py"}]},
            {
                "Role": "assistant",
                "Contents": [
                    {
                        "Type": "function_call",
                        "CallId": "c1",
                        "FunctionName": "read_file",
                        "ArgumentsJson": '{"path":"a.py"}',
                    }
                ],
            },
            {
                "Role": "tool",
                "Contents": [{"Type": "function_result", "CallId": "c1", "ResultJson": '"x = 1"'}],
            },
            {
                "Role": "assistant",
                "Contents": [{"Type": "skip"}, {"Type": "text", "Text": "It says x = 1."}],
            },
        ],
    }
).encode()
TURNS = lines(
    *(
        {
            "ts": f"2026-09-19T00:2{t}:00+00:00",
            "session": "77d6be00",
            "turn": t,
            "agent": agent,
            "role": role,
            "content": f"turn {t}",
            "tool_calls": [
                {
                    "name": "read_file",
                    "args_summary": "a.py",
                    "succeeded": True,
                    "est_output_tokens": 5,
                }
            ],
            "input_tokens": 1_000 * t,
            "output_tokens": 50,
            "is_compaction_summary": False,
        }
        for t, agent, role in (
            (0, "Human", "user"),
            (1, "Planner", "assistant"),
            (2, "Developer", "assistant"),
        )
    )
)
LANGCHAIN = json.dumps(
    {
        "messages": [
            {"type": "system", "data": {"content": "Be brief.", "id": "s"}},
            {"type": "human", "data": {"content": "Weather?", "id": "h"}},
            {
                "type": "ai",
                "data": {
                    "content": [{"type": "text", "text": "I look."}],
                    "id": "a",
                    "tool_calls": [{"name": "weather", "args": {"city": "Bern"}, "id": "c1"}],
                    "invalid_tool_calls": [
                        {"name": "weather", "args": "{broken", "id": "c2", "error": "no JSON"}
                    ],
                    "usage_metadata": {
                        "input_tokens": 100,
                        "output_tokens": 9,
                        "total_tokens": 109,
                        "input_token_details": {"cache_read": 60, "cache_creation": 30},
                    },
                    "response_metadata": {"model_name": "m-2", "stop_reason": "tool_use"},
                },
            },
            {
                "type": "tool",
                "data": {
                    "content": "Sun.",
                    "tool_call_id": "c1",
                    "name": "weather",
                    "status": "success",
                },
            },
            {
                "type": "tool",
                "data": {"content": "No JSON.", "tool_call_id": "c2", "status": "error"},
            },
            {"type": "remove", "data": {"content": "", "id": "h"}},
            {
                "type": "ai",
                "data": {"content": "Sunny.", "id": "b", "usage_metadata": {"input_tokens": 120}},
            },
        ]
    }
).encode()


def pairs(**attributes: Any) -> list[dict]:
    def value(v: Any) -> dict:
        if isinstance(v, int):
            return {"intValue": str(v)}
        return (
            {"stringValue": v}
            if isinstance(v, str)
            else {"arrayValue": {"values": [value(x) for x in v]}}
        )

    return [{"key": k.replace("__", "."), "value": value(v)} for k, v in attributes.items()]


def span(n: int, given: list[dict], said: list[dict], tokens: int, cached: int) -> dict:
    about = {
        "gen_ai__operation__name": "chat",
        "gen_ai__request__model": "m-3",
        "gen_ai__conversation__id": "talk",
        "gen_ai__usage__input_tokens": tokens,
        "gen_ai__usage__output_tokens": 7,
        "gen_ai__usage__cache_read__input_tokens": cached,
        "gen_ai__response__finish_reasons": ["stop"],
        "gen_ai__input__messages": json.dumps(given),
        "gen_ai__output__messages": json.dumps(said),
    }
    times = {
        "startTimeUnixNano": str((1_790_000_000 + n) * 10**9),
        "endTimeUnixNano": str((1_790_000_001 + n) * 10**9),
    }
    return {
        "traceId": "t",
        "spanId": f"s{n}",
        "parentSpanId": "",
        "name": "chat m-3",
        **times,
        "attributes": pairs(**about),
    }


ASK = {"role": "user", "parts": [{"type": "text", "content": "Weather?"}]}
CALL = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Bern"}}],
}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "Sun."}]}
REPLY = {
    "role": "assistant",
    "parts": [{"type": "text", "content": "Sunny."}],
    "finish_reason": "stop",
}
OTLP = json.dumps(
    {
        "resourceSpans": [
            {
                "resource": {"attributes": pairs(service__name="shop")},
                "scopeSpans": [
                    {
                        "spans": [
                            span(4, [ASK, CALL, RESULT], [REPLY], 130, 100),
                            span(0, [ASK], [CALL], 110, 0),
                            {
                                "traceId": "t",
                                "spanId": "x",
                                "name": "tool",
                                "attributes": pairs(gen_ai__operation__name="execute_tool"),
                            },
                        ]
                    }
                ],
            }
        ]
    }
).encode()
CONTENTS = json.dumps(
    [
        {"role": "user", "parts": [{"text": "<state_snapshot>so far</state_snapshot>"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"functionCall": {"id": "c1", "name": "ls", "args": {"path": "."}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "c1",
                        "name": "ls",
                        "response": {"error": "no such folder"},
                    }
                }
            ],
        },
        {"role": "model", "parts": [{"text": "There is none."}]},
    ]
).encode()
GOLDEN = Path(__file__).parent / "formats" / "golden"
MADE = {
    "fuseraft-events": [REPL_EVENTS, RUN_EVENTS],
    "fuseraft-checkpoint": [CHECKPOINT, REPL],
    "fuseraft-turns": [TURNS],
    "langchain": [LANGCHAIN],
    "otel": [OTLP],
    "mlflow": [(GOLDEN / "mlflow.json").read_bytes()],
    "notebook": [(GOLDEN / "notebook.ipynb").read_bytes()],
    "gemini-cli": [CONTENTS],
}
"""Logs by the name of the reader that must know them."""
