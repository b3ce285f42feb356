"""Every real file is known by content and reads with the counts of the manifest; differences are here, one by one."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from formats.golden_sessions import FIGURES, count_figures
from real_logs import FORMATS, rows

from ctxkit.formats import Source, detect_reader, read_source
from ctxkit.session import Attachment, Edit

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

COLUMNS = ("tool_calls", "errors", "images", "compactions", "max_context_tokens", "invalid_lines")
_ACTIONS = (
    "event-00002-fa7668e4-a43d-4fa4-b75c-ffd642afb5b5",
    "event-00004-974caa29-4f4b-4c30-b4e1-5169f41e6d3d",
)
OURS = {
    # One call was never answered; the manifest counts those with a result.
    ("pi/before-compaction.jsonl", "tool_calls"): 449,
    # 12 failed tools and 19 failed calls (18 aborted, 1 refused); the manifest counts the tools.
    ("pi/before-compaction.jsonl", "errors"): 31,
    # One failed tool and 28 calls that the provider refused.
    ("pi/prsui-019f8412.jsonl", "errors"): 29,
    # The second image is in a prompt that was queued while the agent worked (an `attachment` line).
    ("claude-code/agent-sessions-event-zoo.jsonl", "images"): 2,
    # Two searches for tools and a picture made are calls too.
    ("codex/agent-sessions-event-zoo.jsonl", "tool_calls"): 8,
    # One picture in a tool's output, one made by the provider.
    ("codex/agent-sessions-event-zoo.jsonl", "images"): 2,
    # `cat` of a file that is not there failed; the manifest does not look into Kimi's results.
    ("kimi-cli/assistant_tools.jsonl", "errors"): 1,
    # Exit codes other than 0, where the format has no other mark of failure; the manifest does not look at them.
    ("codex/rollout-2025-10-31T19-02-58-c61729d4-da6d-46a4-9a29-ec2c614e5e23.jsonl", "errors"): 27,
    ("codex/rollout-2025-11-13T16-00-16-019a7fa9-a846-7393-8d7a-9997d08b0096.jsonl", "errors"): 8,
    ("mini-swe-agent/marshmallow-code__marshmallow-1343.traj.json", "errors"): 6,
    # Retries and replies that the program made up are events; the manifest counts them as errors.
    ("claude-code/episodic-memory-long-conversation.jsonl", "errors"): 4,
    ("claude-code/session-share/0ccf1a04-1b4c-43b6-8aa5-79e41db43a68.jsonl", "errors"): 1,
    ("claude-code/agent-sessions-event-zoo.jsonl", "errors"): 1,
    # The largest prompt, 42,371, is the compaction's own: it is in the edit's usage.
    ("kimi-cli/assistant_tools.jsonl", "max_context_tokens"): 41_095,
    # The manifest counts steps of a trajectory; this file has a history only.
    ("swe-agent/function_calling_simple.traj", "tool_calls"): 5,
    # Two calls named `finish` have no observation; the manifest counts calls with one.
    ("openhands/multi-swe-bench-output.jsonl", "tool_calls"): 105,
    # Exit codes of commands; two replies that OpenHands could not use left no call behind: those errors are messages.
    ("openhands/multi-swe-bench-output.jsonl", "errors"): 19,
    # The reply's own call; the manifest counts the prompt's.
    ("openhands/llm-log-claude-sonnet-4-1757015046.707.json", "tool_calls"): 6,
    ("openhands/llm-log-deepseek-nonfncall-1757015076.651.json", "tool_calls"): 1,
    # The manifest counts no calls in files of one event, nor calls and usage in traces.
    **{(f"openhands/sdk-conversation-cd945624/events/{e}.json", "tool_calls"): 1 for e in _ACTIONS},
    ("langfuse/langgraph-js-2025-10-30.trace.json", "tool_calls"): 1,
    ("langfuse/openai-agents-2025-09-30.trace.json", "tool_calls"): 1,
    ("langfuse/beeai-2025-08-01.trace.json", "max_context_tokens"): 2_359,
    ("langfuse/langgraph-js-2025-10-30.trace.json", "max_context_tokens"): 179,
    ("langfuse/openai-agents-2025-09-30.trace.json", "max_context_tokens"): 85,
}


def counts(sessions: list[Session]) -> Counter[str]:
    """Count the whole log of a file: all branches, and subagents that are written in the same file."""
    n: Counter[str] = Counter()
    todo = list(sessions)
    while todo:
        s = todo.pop()
        todo += [c for c in s.children if c.path_ in (None, s.path_)]
        n["invalid_lines"] += len(s.faults)
        for e in s.log:
            if isinstance(e, Edit):
                n["compactions"] += 1
                continue
            n["errors"] += bool(e.is_error) and e.role in ("tool", "assistant")
            n["tool_calls"] += len(e.tool_calls)
            n["images"] += sum(isinstance(p, Attachment) and p.kind == "image" for p in e.parts)
            if e.usage is not None and e.kind != "turn":
                n["max_context_tokens"] = max(n["max_context_tokens"], e.usage.prompt_tokens or 0)
    return n


@pytest.mark.parametrize(
    "row", [r for r in rows() if r["format"] in FORMATS], ids=lambda r: r["file"]
)
def test_counts_match_the_manifest(row: dict[str, str], real: Path) -> None:
    source = Source(real / row["file"])
    assert FORMATS[row["format"]] == detect_reader(source).NAME
    sessions = read_source(source)
    found = counts(sessions)
    expected = {c: OURS.get((row["file"], c), int(row[c] or 0)) for c in COLUMNS}
    assert {c: found[c] for c in COLUMNS} == expected
    # what the manifest does not count: times, models, usage, ids, arguments, details of each message
    wanted = json.loads(FIGURES.read_text(encoding="utf-8"))[row["file"]]
    assert count_figures(sessions) == wanted, "if meant: python tests/formats/golden_sessions.py"
