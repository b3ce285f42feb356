"""The session frame, worked out again from raw logs by what docs/frames.md says and nothing else.

The parsers below know the files' own words (which line is a reply, which field its usage) and the
page's definitions. They import nothing of the readers, so a definition that the page does not state
shows as a difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import sessions_folder

import ctxkit as ck

GOLDEN = Path(__file__).parents[1] / "formats" / "golden"
FOLDERS = [GOLDEN, *([sessions_folder()] if sessions_folder() else [])]


class Reply(NamedTuple):
    """Usage of one call: uncached input, cache read, cache write, output."""

    fresh: int
    read: int
    write: int
    output: int


class Counted(NamedTuple):
    replies: list[Reply]
    tool_calls_n: int
    compactions_n: int

    def figures(self) -> dict[str, int]:
        """`prompt_tokens = input_tokens + cache_read_tokens + cache_write_tokens`, and sums of it."""
        prompts = [r.fresh + r.read + r.write for r in self.replies]
        return {
            "calls_n": len(self.replies),
            "tool_calls_n": self.tool_calls_n,
            "compactions_n": self.compactions_n,
            "prompt_tokens": sum(prompts),
            "cache_read_tokens": sum(r.read for r in self.replies),
            "output_tokens": sum(r.output for r in self.replies),
            "peak_tokens": max(prompts),
        }


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def follow(entries: list[dict], key: str, parent: str) -> list[dict]:
    """The messages that stand: from the last entry back to the first, by its parents."""
    by_id = {e[key]: e for e in entries if e.get(key)}
    if not by_id:
        return entries
    path, at = [], next(e for e in reversed(entries) if e.get(key))
    while at is not None:
        path.append(at)
        at = by_id.get(at.get(parent))
    return path


def count_pi(path: Path) -> Counted:
    replies, tools, compactions = [], 0, 0
    for entry in follow(lines(path)[1:], "id", "parentId"):
        message = entry.get("message") or {}
        compactions += entry["type"] == "compaction"
        if message.get("role") == "assistant":
            u = message.get("usage") or {}
            names = ("input", "cacheRead", "cacheWrite", "output")
            replies.append(Reply(*(u.get(n, 0) for n in names)))
            tools += sum(part["type"] == "toolCall" for part in message["content"])
    return Counted(replies, tools, compactions)


def count_claude_code(path: Path) -> Counted:
    """What is written over several lines is one call: lines of one message id."""
    replies, tools, compactions = {}, set(), 0
    for entry in lines(path):
        message = entry.get("message") or {}
        compactions += entry.get("subtype") == "compact_boundary"
        made_up = message.get("model") == "<synthetic>"
        if entry.get("type") != "assistant" or entry.get("isSidechain") or made_up:
            continue  # subagents are sessions of their own; replies made up by the program, events
        u = message.get("usage") or {}
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        replies[message["id"]] = Reply(*(u.get(n) or 0 for n in (*names, "output_tokens")))
        tools |= {part["id"] for part in message["content"] if part["type"] == "tool_use"}
    return Counted(list(replies.values()), len(tools), compactions)


def count_codex(path: Path) -> Counted:
    """Retries are none: a count that repeats the total before is no further call."""
    replies, tools, compactions, total = [], 0, 0, None
    kinds = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
    for entry in lines(path):
        payload = entry.get("payload") or {}
        compactions += entry["type"] == "compacted"
        tools += entry["type"] == "response_item" and payload.get("type") in kinds
        info = payload.get("info") if payload.get("type") == "token_count" else None
        if info and info["total_token_usage"] != total:
            total, u = info["total_token_usage"], info["last_token_usage"]
            read = u["cached_input_tokens"]
            replies.append(Reply(u["input_tokens"] - read, read, 0, u["output_tokens"]))
    return Counted(replies, tools, compactions)


COUNTERS = {"pi": count_pi, "claude-code": count_claude_code, "codex": count_codex}


def find_logs(kind: str) -> list[Path]:
    """The logs of a format; an event zoo is a list of single records, not a session."""
    found = [p for folder in FOLDERS for p in sorted((folder / kind).glob("*.jsonl"))]
    found += sorted(GOLDEN.glob(f"{kind}.jsonl"))
    return [p for p in found if "event-zoo" not in p.name][:6]


LOGS = [(kind, path) for kind in COUNTERS for path in find_logs(kind)]


@pytest.mark.parametrize(("kind", "path"), LOGS, ids=lambda x: getattr(x, "stem", x)[:40])
def test_the_page_is_enough_to_compute_the_session_frame(kind, path):
    session = next(iter(ck.read_all(path, progress=False)))
    row = ck.frame(session, per="session").iloc[0]
    mine = COUNTERS[kind](path).figures()
    if row["output_source"] == "estimated":  # and so at least, by the page: streams were cut off
        assert mine.pop("output_tokens") <= row["output_tokens"]
    assert {name: int(row[name]) for name in mine} == mine


def test_there_are_logs_of_each_format():
    if len(FOLDERS) < 2:
        pytest.skip("no real logs")
    counts = {kind: sum(k == kind for k, _ in LOGS) for kind in COUNTERS}
    assert min(counts.values()) >= 3, counts
