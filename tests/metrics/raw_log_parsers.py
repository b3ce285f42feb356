"""Calls and compactions of raw logs, by the files' own words and docs/frames.md; no reader is imported.

Each parser returns a `RawLog`; None stands for what the log does not say.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


UNKNOWN = (None, None, None, None)
"""Sizes of a call without usage."""


class RawCall(NamedTuple):
    """A call: uncached input, cache read, cache write, output, tool calls, model."""

    fresh: int | None
    read: int | None
    write: int | None
    output: int | None
    tools: int | None = 0
    """None: which call a tool call belongs to is not looked at."""
    model: str | None = None

    def figures(self) -> dict[str, Any]:
        """The columns of the call frame; usage of no tokens at all is missing."""
        parts = (self.fresh, self.read, self.write)
        prompt = sum(n or 0 for n in parts)
        names = ("input_tokens", "cache_read_tokens", "cache_write_tokens")
        return {
            "prompt_tokens": prompt or None,
            **{name: n if prompt else None for name, n in zip(names, parts, strict=True)},
            "output_tokens": self.output if prompt or self.output else None,
            **({} if self.tools is None else {"tool_calls_n": self.tools}),
            **({} if self.model is None else {"model": self.model}),
        }


class RawCompaction(NamedTuple):
    """A compaction: calls before it, and the sizes that the log records."""

    call: int
    before: int | None = None
    after: int | None = None


class RawLog(NamedTuple):
    calls: list[RawCall]
    compactions: Sequence[RawCompaction] | None = ()
    """None: the format cannot tell of one."""
    totals: dict[str, int] | None = None
    """The log's own sums, where it has no usage of single calls."""
    tools: int = 0
    """Tool calls that are not counted by call."""

    def session(self) -> dict[str, Any]:
        """The columns of the session frame: sums of the calls, and the log's own totals."""
        rows = [c.figures() for c in self.calls]

        def total(name: str) -> int | None:
            known = [r[name] for r in rows if r["prompt_tokens"] is not None]
            return sum(known) if known and None not in known else None

        prompts = [r["prompt_tokens"] for r in rows if r["prompt_tokens"] is not None]
        names = ("prompt_tokens", "cache_read_tokens", "output_tokens")
        return {
            "calls_n": len(rows),
            "tool_calls_n": sum(c.tools or 0 for c in self.calls) + self.tools,
            "compactions_n": None if self.compactions is None else len(self.compactions),
            **{name: total(name) for name in names},
            "peak_tokens": max(prompts, default=None),
            **{f"logged_{name}": n for name, n in (self.totals or {}).items()},
        }


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def document(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def follow(entries: list[dict[str, Any]], key: str, parent: str) -> list[dict[str, Any]]:
    """The messages that stand: from the last entry back to the first, by its parents."""
    by_id = {e[key]: e for e in entries if e.get(key)}
    if not by_id:
        return entries
    path, at = [], next(e for e in reversed(entries) if e.get(key))
    while at is not None:
        path.append(at)
        at = by_id.get(at.get(parent))
    return path[::-1]


def parse_pi(path: Path) -> RawLog:
    calls, compactions = [], []
    for entry in follow(lines(path)[1:], "id", "parentId"):
        message = entry.get("message") or {}
        if entry["type"] == "compaction":
            compactions.append(RawCompaction(len(calls), entry["tokensBefore"]))
        if message.get("role") == "assistant":
            u = message.get("usage") or {}
            sizes = (u.get(n, 0) for n in ("input", "cacheRead", "cacheWrite", "output"))
            tools = sum(part["type"] == "toolCall" for part in message["content"])
            calls.append(RawCall(*sizes, tools, message["model"]))
    return RawLog(calls, compactions)


def parse_claude_code(path: Path) -> RawLog:
    """What is written over several lines is one call: lines of one message id."""
    calls: dict[str, RawCall] = {}
    tools: dict[str, set[str]] = {}
    compactions = []
    for entry in lines(path):
        message = entry.get("message") or {}
        if entry.get("subtype") == "compact_boundary":
            before = (entry.get("compactMetadata") or {}).get("preTokens")
            compactions.append(RawCompaction(len(calls), before))
        made_up = message.get("model") == "<synthetic>"
        if entry.get("type") != "assistant" or entry.get("isSidechain") or made_up:
            continue  # subagents are sessions of their own; replies made up by the program, events
        u, key = message.get("usage") or {}, message["id"]
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        mine = tools.setdefault(key, set())
        mine |= {part["id"] for part in message["content"] if part["type"] == "tool_use"}
        sizes = (u.get(n) or 0 for n in (*names, "output_tokens"))
        calls[key] = RawCall(*sizes, len(mine), message["model"])
    return RawLog(list(calls.values()), compactions)


def parse_codex(path: Path) -> RawLog:
    """Retries are none: a count that repeats the total before is no further call."""
    calls, tools, compactions, total, model = [], 0, [], None, None
    kinds = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
    for entry in lines(path):
        payload = entry.get("payload") or {}
        if entry["type"] == "turn_context":
            model = payload.get("model") or model
        if entry["type"] == "compacted":
            compactions.append(RawCompaction(len(calls)))
        tools += entry["type"] == "response_item" and payload.get("type") in kinds
        info = payload.get("info") if payload.get("type") == "token_count" else None
        if info and info["total_token_usage"] != total:
            total, u = info["total_token_usage"], info["last_token_usage"]
            read = u["cached_input_tokens"]
            size = (u["input_tokens"] - read, read, None, u["output_tokens"])
            calls.append(RawCall(*size, None, model))
    return RawLog(calls, compactions, None, tools)


def parse_gemini(path: Path) -> RawLog:
    """`input` holds `cached`; a reply is its output, its thoughts and its tools' words."""
    entries = lines(path) if path.suffix == ".jsonl" else document(path)["messages"]
    calls = []
    for m in entries:
        if m.get("type") == "gemini":
            t = m["tokens"]
            size = (t["input"] - t["cached"], t["cached"], None, t["output"] + t["thoughts"])
            calls.append(RawCall(*size, len(m.get("toolCalls") or []), m["model"]))
    return RawLog(calls, None)


def parse_kimi(path: Path) -> RawLog:
    calls, tools, compactions, model = [], 0, [], None
    for entry in lines(path):
        event = entry.get("event") or {}
        model = entry["model"] if entry["type"] == "llm.request" else model
        tools += event.get("type") == "tool.call"
        if entry["type"] == "context.apply_compaction":
            sizes = entry["tokensBefore"], entry["tokensAfter"]
            compactions.append(RawCompaction(len(calls), *sizes))
        if event.get("type") == "step.end":
            u = event["usage"]
            size = (u["inputOther"], u["inputCacheRead"], u["inputCacheCreation"], u["output"])
            calls.append(RawCall(*size, tools, model))
            tools = 0
    return RawLog(calls, compactions)


def parse_opencode(path: Path) -> RawLog:
    """`output` leaves out `reasoning`; the tool `compress` and results cleared at a time are compactions."""
    calls, compactions, cleared = [], [], []
    for m in document(path)["messages"]:
        info, tools = m["info"], [p for p in m["parts"] if p["type"] == "tool"]
        cleared += [t for p in tools if (t := p["state"].get("time", {}).get("compacted"))]
        if any(t <= info["time"]["created"] for t in cleared):
            cleared = [t for t in cleared if t > info["time"]["created"]]
            compactions.append(RawCompaction(len(calls)))
        if info["role"] != "assistant":
            continue
        t = info["tokens"]
        if (
            info.get("summary") is True
        ):  # the call that wrote a summary: its prompt is the size before
            prompt = t["input"] + t["cache"]["read"] + t["cache"]["write"]
            compactions.append(RawCompaction(len(calls), prompt))
            continue
        size = (t["input"], t["cache"]["read"], t["cache"]["write"], t["output"] + t["reasoning"])
        calls.append(RawCall(*size, len(tools), info["modelID"]))
        done = [t for t in tools if t["tool"] == "compress"]
        compactions += [RawCompaction(len(calls)) for _ in done]
    return RawLog(calls, compactions)


def parse_inspect(path: Path) -> RawLog:
    """`input_tokens` holds what was read from the cache where the total says so.

    Model events in the span of an agent that begins within the sample are another session's.
    """
    sample, calls, compactions, subagents = document(path)["samples"][0], [], [], set()
    for event in sample.get("events") or []:
        if event["event"] == "span_begin" and event.get("type") == "agent" and calls:
            subagents.add(event["id"])
        if event["event"] == "compaction":
            sizes = event["tokens_before"], event["tokens_after"]
            compactions.append(RawCompaction(len(calls), *sizes))
        if event["event"] == "model" and event.get("span_id") not in subagents:
            u, reply = event["output"]["usage"], event["output"]["choices"][0]["message"]
            read, write = u.get("input_tokens_cache_read"), u.get("input_tokens_cache_write")
            prompt = u["total_tokens"] - u["output_tokens"]
            size = (prompt - (read or 0) - (write or 0), read, write, u["output_tokens"])
            calls.append(RawCall(*size, len(reply.get("tool_calls") or []), event["model"]))
    if "events" not in sample:  # messages without usage of each call
        replies = (m for m in sample["messages"] if m["role"] == "assistant")
        calls = [RawCall(*UNKNOWN, len(m.get("tool_calls") or [])) for m in replies]
    return RawLog(calls, compactions)


def parse_langfuse(path: Path) -> RawLog:
    """A generation; one without usage ends another one, and is no call.

    A prompt that lacks the tool results of the prompt before was compacted.
    """
    made = [o for o in document(path)["observations"] if o["type"] == "GENERATION"]
    calls, compactions, results = [], [], set()
    for o in sorted(made, key=lambda o: o["startTime"]):
        u = o["usageDetails"]
        if not u:
            continue
        read = next((n for name, n in u.items() if "cache" in name), None)
        output = u.get("output")
        if output is not None:
            output += u.get("output_reasoning", 0)
        earlier, results = results, set(re.findall(r'"tool_call_id": "(.+?)"', str(o["input"])))
        if earlier - results:
            compactions.append(RawCompaction(len(calls)))
        calls.append(RawCall(u["input"], read, None, output, count_calls(o["output"]), o["model"]))
    return RawLog(calls, compactions)


def count_calls(value: Any) -> int:
    """The tool calls in a reply, whatever holds them: each has arguments."""
    if isinstance(value, str) and value[:1] in "{[":
        value = json.loads(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return ("arguments" in value if isinstance(value, dict) else 0) + sum(
        count_calls(v) for v in inner if isinstance(v, (dict, list))
    )


def parse_atif(path: Path) -> RawLog:
    """A system step that refers to a subagent's summary, or another file that goes on, compacts."""
    log = document(path)
    calls, compactions = [], []
    for step in log["steps"]:
        if step["source"] == "system" and "subagent_trajectory_ref" in json.dumps(step):
            compactions.append(RawCompaction(len(calls)))
        if step["source"] == "agent":
            u, name = step.get("metrics") or {}, step.get("model_name")
            read = u.get("cached_tokens")
            fresh = u["prompt_tokens"] - (read or 0) if "prompt_tokens" in u else None
            size = (fresh, read, None, u.get("completion_tokens"))
            tools = len(step.get("tool_calls") or [])
            calls.append(RawCall(*size, tools, name or log["agent"]["model_name"]))
    return RawLog(calls, compactions)


def parse_mini_swe_agent(path: Path) -> RawLog:
    """Old ones are a list of messages without usage."""
    log = document(path)
    calls = []
    for m in log if isinstance(log, list) else log["messages"]:
        if m["role"] == "assistant":
            extra = m.get("extra") or {}
            response = extra.get("response") or {}
            u, tools = response.get("usage") or {}, extra.get("actions") or m.get("tool_calls")
            read = (u.get("prompt_tokens_details") or {}).get("cached_tokens")
            fresh = u["prompt_tokens"] - (read or 0) if u else None
            size = (fresh, read, None, u.get("completion_tokens"))
            calls.append(RawCall(*size, len(tools) if tools else None, response.get("model")))
    return RawLog(calls)


def parse_swe_agent(path: Path) -> RawLog:
    """It has the usage of the whole session alone; demonstrations are no calls."""
    log = document(path)
    stats = (log.get("info") or {}).get("model_stats") or {}
    acts = sum(bool(step["action"].strip()) for step in log.get("trajectory") or [])
    replies = [m for m in log["history"] if m["role"] == "assistant" and not m.get("is_demo")]
    sums = {"prompt_tokens": "tokens_sent", "output_tokens": "tokens_received"}
    totals = {name: stats.get(key) or None for name, key in sums.items()}
    acts = acts or sum(len(m.get("tool_calls") or []) for m in replies)
    return RawLog([RawCall(*UNKNOWN, None) for _ in replies], None, totals, acts)


def parse_tau_bench(path: Path) -> RawLog:
    """The first of its tasks; it has no usage."""
    replies = [m for m in document(path)[0]["traj"] if m["role"] == "assistant"]
    return RawLog([RawCall(*UNKNOWN, len(m.get("tool_calls") or [])) for m in replies])


PARSERS: dict[str, Callable[[Path], RawLog]] = {
    "atif": parse_atif,
    "claude-code": parse_claude_code,
    "codex": parse_codex,
    "gemini-cli": parse_gemini,
    "inspect-ai": parse_inspect,
    "kimi-cli": parse_kimi,
    "langfuse": parse_langfuse,
    "mini-swe-agent": parse_mini_swe_agent,
    "opencode": parse_opencode,
    "pi": parse_pi,
    "swe-agent": parse_swe_agent,
    "tau-bench": parse_tau_bench,
}
