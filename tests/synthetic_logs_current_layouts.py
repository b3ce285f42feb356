"""Small logs of the tools that keep them today, in the shapes of their source, for the suite of damage."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from crush_databases import crush

GOLDEN = Path(__file__).parent / "formats" / "golden"
XML = (
    "I look.\n<read_file>\n<path>a.py</path>\n</read_file>",
    "[read_file for 'a.py'] Result:",
    "<environment_details>\n# Time\n</environment_details>",
)
CLINE = json.dumps(
    [
        {"role": "user", "content": "<task>look</task>", "ts": 1_772_359_201_000},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": XML[0]}],
            "modelInfo": {"modelId": "m-1"},
        },
        {
            "role": "user",
            "content": [{"type": "text", "text": t} for t in (XML[1], "x = 1", XML[2])],
        },
        {"role": "assistant", "content": "Done.", "ts": 1_772_359_209_000},
    ]
).encode()
CLINE_SESSION = json.dumps(
    {
        "agent": "lead",
        "sessionId": "s",
        "system_prompt": "be brief",
        "messages": [
            {
                "role": "user",
                "content": "Context summary: go",
                "metadata": {"kind": "compaction_summary"},
            },
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "read_files", "input": {}}],
                "metrics": {"inputTokens": 9, "cacheReadTokens": 4, "outputTokens": 2},
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"a": 1}]}],
            },
        ],
    }
).encode()
COPILOT = b"".join(
    json.dumps(
        {
            "type": kind,
            "id": f"e{n}",
            "timestamp": f"2026-03-01T10:00:0{n}Z",
            "parentId": None,
            **more,
        }
    ).encode()
    + b"\n"
    for n, (kind, more) in enumerate(
        [
            ("session.start", {"data": {"sessionId": "s"}}),
            (
                "assistant.message",
                {
                    "data": {
                        "content": "hm",
                        "reasoningText": "so",
                        "toolRequests": [{"name": "task"}],
                    }
                },
            ),
            (
                "assistant.usage",
                {
                    "data": {
                        "inputTokens": 9,
                        "cacheReadTokens": 4,
                        "outputTokens": 2,
                        "duration": 50,
                    }
                },
            ),
            ("user.message", {"agentId": "sub", "data": {"content": "look"}}),
            ("assistant.message", {"data": {"content": "found", "parentToolCallId": "sub"}}),
            (
                "session.truncation",
                {"data": {"tokenLimit": 9000, "messagesRemovedDuringTruncation": 2}},
            ),
            ("system.message", {"data": {"content": "be brief"}}),
        ]
    )
)
GOOSE = b"".join(
    json.dumps(r).encode() + b"\n"
    for r in (
        {"working_dir": "/w", "description": "d", "message_count": 2, "total_tokens": 9},
        {
            "role": "user",
            "created": 1,
            "content": [{"type": "text", "text": "go"}, {"type": "image", "data": "AA=="}],
        },
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "toolResponse",
                    "id": "c",
                    "toolResult": {"status": "error", "error": "no"},
                }
            ],
        },
    )
)
FEW_SHOT = (
    b'{"messages_display": "user: Hi.\\nassistant: None\\ntool: no\\nassistant: Sorry."}\n' * 3
)
CODEX_EXEC = b"".join(
    json.dumps(r).encode() + b"\n"
    for r in (
        {"type": "thread.started", "thread_id": "t"},
        {
            "type": "item.completed",
            "item": {
                "id": "p",
                "type": "file_change",
                "changes": [{"path": "a"}],
                "status": "failed",
            },
        },
        {"type": "item.started", "item": {"id": "w", "type": "web_search", "query": "q"}},
        {"type": "turn.failed", "error": {"message": "overloaded"}},
        {
            "type": "turn.completed",
            "usage": {"input_tokens": 5, "cached_input_tokens": 2, "output_tokens": 1},
        },
    )
)
OPENCODE_RUN = b"".join(
    json.dumps({"type": kind, "timestamp": 1_787_482_258_000 + n, "sessionID": "ses_a", "part": part}).encode() + b"\n"
    for n, (kind, part) in enumerate(
        [
            ("step_start", {"messageID": "msg_1", "type": "step-start"}),
            ("tool_use", {"messageID": "msg_1", "type": "tool", "tool": "read", "callID": "c",
                          "state": {"status": "completed", "input": {"filePath": "a"}, "output": "x"}}),
            ("step_finish", {"messageID": "msg_1", "type": "step-finish", "reason": "tool-calls", "cost": 0.5,
                             "tokens": {"input": 7, "output": 3, "reasoning": 2, "cache": {"read": 5, "write": 1}}}),
            ("step_start", {"messageID": "msg_2", "type": "step-start"}),
            ("text", {"messageID": "msg_2", "type": "text", "text": "It is x."}),
        ]
    )
)  # fmt: skip
with tempfile.TemporaryDirectory() as _folder:
    CRUSH = crush(Path(_folder) / "crush.db").read_bytes()
TODAY: dict[str, list[bytes]] = {
    "copilot-cli": [(GOLDEN / "copilot-cli.jsonl").read_bytes(), COPILOT],
    "goose": [(GOLDEN / "goose.json").read_bytes(), GOOSE],
    "tau-bench": [FEW_SHOT],
    "codex-exec": [(GOLDEN / "codex-exec.jsonl").read_bytes(), CODEX_EXEC],
    "qwen-code": [(GOLDEN / "qwen-code.jsonl").read_bytes()],
    "opencode": [OPENCODE_RUN],
    "hermes": [(GOLDEN / "hermes.json").read_bytes()],
    "sharegpt": [(GOLDEN / "sharegpt.jsonl").read_bytes() * 3],
    "crush": [CRUSH],
    "cline": [
        (GOLDEN / "cline" / "api_conversation_history.json").read_bytes(),
        CLINE,
        CLINE_SESSION,
    ],
}
"""Logs by the name of the reader that must know them."""
