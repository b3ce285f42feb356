"""Figures of real logs by small parsers of their own: plain JSON and sums, no code of the readers.

Each function takes a path and returns one dictionary a session, in the order of the file: the figures that the log
holds, under the names of the session frame. A figure that a parser does not tell is left out.
"""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Figures = dict[str, Any]


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, a line each; what is none is left out."""
    out = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict):
            out.append(record)
    return out


def billed(usages: Iterable[tuple[int, int, int, int | None]]) -> Figures:
    """Return the sums of usages: uncached, read, written (each a part of the prompt) and output."""
    known = [u for u in usages if u[0] + u[1] + u[2]]
    if not known:
        return {"prompt_tokens": None, "peak_tokens": None}
    prompts = [sum(u[:3]) for u in known]
    told = {"prompt_tokens": sum(prompts), "peak_tokens": max(prompts)}
    outputs = [u[3] for u in known if u[3] is not None]
    return told | ({"output_tokens": sum(outputs)} if outputs else {})


def pi(path: Path) -> list[Figures]:
    """Pi: an entry a line; in the files at hand the entries are one line of talk."""
    said = [r["message"] for r in lines(path) if r.get("type") == "message"]
    replies = [m for m in said if m["role"] == "assistant"]
    parts = [p for m in replies for p in m["content"] if isinstance(p, dict)]
    results = [m for m in said if m["role"] == "toolResult"]
    usages = [m["usage"] for m in replies if m.get("usage")]
    cost = sum(u["cost"]["total"] for u in usages if u.get("cost"))
    return [
        {
            "calls_n": len(replies),
            "tool_calls_n": sum(p["type"] == "toolCall" for p in parts),
            "tool_errors_n": sum(m.get("isError") is True for m in results),
            "failed_calls_n": sum(m.get("stopReason") in ("error", "aborted") for m in replies),
            "compactions_n": sum(r.get("type") == "compaction" for r in lines(path)),
            "cost_usd": cost or None,
            **billed((u["input"], u["cacheRead"], u["cacheWrite"], u["output"]) for u in usages),
        }
    ]


def claude_code(path: Path) -> list[Figures]:
    """Claude Code: a block a line; a call is what has one message id and request id."""
    records, seen = [], {}
    for r in lines(path):
        told = json.dumps(r.get("message"), sort_keys=True)
        if r.get("uuid") and seen.get(r["uuid"]) == told and r.get("message") is not None:
            continue
        seen[r.get("uuid")] = told
        records.append(r)
    mains = [r for r in records if not r.get("isSidechain")] or records
    said = [r for r in mains if r.get("type") == "assistant" and r["message"].get("model") != "<synthetic>"]
    calls: dict[Any, dict[str, Any]] = {}
    for i, r in enumerate(said):
        m = r["message"]
        key = (m.get("id") or i, r.get("requestId"))
        calls.setdefault(key, {"tools": set()})["usage"] = m.get("usage") or {}
        content = m.get("content") if isinstance(m.get("content"), list) else []
        calls[key]["tools"] |= {b["id"] for b in content if b.get("type") in ("tool_use", "server_tool_use")}
    answers = [b for r in mains if r.get("type") == "user" for b in _blocks(r) if b.get("type") == "tool_result"]
    uses = [c["usage"] for c in calls.values()]
    found = billed(
        (
            u.get("input_tokens") or 0,
            u.get("cache_read_input_tokens") or 0,
            u.get("cache_creation_input_tokens") or 0,
            u.get("output_tokens"),
        )
        for u in uses
    )
    recorded = found.pop("output_tokens", None)  # fragments: see test_fragments.py
    made = [r for r in mains if r.get("type") == "assistant" and r["message"].get("model") == "<synthetic>"]
    return [
        {
            "calls_n": len(calls),
            "tool_calls_n": sum(len(c["tools"]) for c in calls.values()),
            "tool_errors_n": sum(b.get("is_error") is True for b in answers),
            "events_n": len(made) + sum(r.get("subtype") == "api_error" for r in mains),
            "compactions_n": sum("compact_boundary" in str(r.get("subtype")) for r in mains),
            "recorded_output_tokens": recorded,
            **found,
        }
    ]


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record["message"].get("content")
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


_CODEX_CALLS = {
    *("function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "web_search_call"),
    "image_generation_call",
}


def codex(path: Path) -> list[Figures]:
    """Codex: token counts tell the calls that were billed; a count that repeats its total is none."""
    records = lines(path)
    items = [r["payload"] for r in records if r.get("type") == "response_item"]
    usages, total = [], None
    for r in records:
        info = r.get("payload", {}).get("info") if r.get("payload", {}).get("type") == "token_count" else None
        if info and info.get("last_token_usage") and info.get("total_token_usage") != total:
            total = info.get("total_token_usage")
            u = info["last_token_usage"]
            cached = (u.get("cached_input_tokens") or 0, u.get("cache_write_input_tokens") or 0)
            usages.append((u["input_tokens"] - sum(cached), *cached, u["output_tokens"]))
    outputs = [_codex_output(p) for p in items if p["type"].endswith("_output")]
    return [
        {
            "tool_calls_n": sum(p["type"] in _CODEX_CALLS for p in items),
            "tool_errors_n": sum(outputs),
            **billed(usages),
        }
    ]


def _codex_output(p: dict[str, Any]) -> bool:
    """Whether an output failed: a status, an exit code in its JSON, or one at its head."""
    said = p.get("output")
    if p.get("status") in ("failed", "error") or (isinstance(said, dict) and said.get("success") is False):
        return True
    if not isinstance(said, str):
        return False
    try:
        return bool(json.loads(said)["metadata"]["exit_code"])
    except (json.JSONDecodeError, KeyError, TypeError):
        head = "\n".join(said.split("\n")[:6])
        codes = re.findall(r"^(?:Exit code: |Process exited with code |failed in sandbox .*exit code: )(\d+)", head, re.M)
        return any(c != "0" for c in codes)


def gemini(path: Path) -> list[Figures]:
    """Gemini CLI: messages of one object, or lines; a message id written again is the same message."""
    try:
        messages = json.loads(path.read_text())["messages"]
    except json.JSONDecodeError:
        messages = [r for r in lines(path) if r.get("type") in ("user", "gemini")]
    replies = list({m["id"]: m for m in messages if m["type"] == "gemini"}.values())
    calls = [c for m in replies for c in m.get("toolCalls") or ()]
    tokens = [m["tokens"] for m in replies if m.get("tokens")]
    usages = [
        (t["input"] - t.get("cached", 0), t.get("cached", 0), 0, t["output"] + t.get("thoughts", 0)) for t in tokens
    ]
    return [
        {
            "calls_n": len(replies),
            "tool_calls_n": len(calls),
            "tool_errors_n": sum(c["status"] == "error" for c in calls),
            "compactions_n": None,
            **billed(usages),
        }
    ]


def opencode(path: Path) -> list[Figures]:
    """OpenCode: a message a call, its steps in parts; calls and results are one part."""
    messages = json.loads(path.read_text())["messages"]
    replies = [m for m in messages if m["info"]["role"] == "assistant"]
    tools = [p for m in replies for p in m["parts"] if p["type"] == "tool"]
    tokens = [m["info"]["tokens"] for m in replies]
    ranges = [len(p["state"]["input"]["content"]) for p in tools if p["tool"] == "compress"]
    return [
        {
            "tool_calls_n": len(tools),
            "tool_errors_n": sum(p["state"]["status"] == "error" for p in tools),
            "compactions_n": sum(ranges),
            "cost_usd": sum(m["info"].get("cost") or 0 for m in replies) or None,
            **billed((t["input"], t["cache"]["read"], t["cache"]["write"], t["output"] + t["reasoning"]) for t in tokens),
        }
    ]


def openhands(path: Path) -> list[Figures]:
    """OpenHands: runs a line, or a completion's log."""
    if path.suffix == ".json":
        log = json.loads(path.read_text())
        u = log["response"]["usage"]
        read = (u.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return [
            {
                **billed([(u["prompt_tokens"] - read, read, 0, u["completion_tokens"])]),
                "cost_usd": log.get("cost"),
            }
        ]
    out = []
    for run in lines(path):
        events = run["history"]
        seen = [e for e in events if e.get("observation") and (e.get("tool_call_metadata") or {}).get("tool_call_id")]
        codes = [((e.get("extras") or {}).get("metadata") or {}).get("exit_code") for e in seen]
        wrong = sum(e["observation"] == "error" or (c or 0) > 0 for e, c in zip(seen, codes, strict=True))
        made = {}
        for e in events:
            response = (e.get("tool_call_metadata") or {}).get("model_response") or {}
            if response.get("id"):
                made[response["id"]] = response.get("usage") or {}
        usages = [(u["prompt_tokens"], 0, 0, u["completion_tokens"]) for u in made.values() if u.get("prompt_tokens")]
        out.append({"tool_errors_n": wrong, **billed(usages)})
    return out


def swe_agent(path: Path) -> list[Figures]:
    """SWE-agent: a history, and the totals of the run; neither errors nor compactions are marked."""
    document = json.loads(path.read_text())
    stats = document.get("info", {}).get("model_stats", {})
    talk = [m for m in document["history"] if not m.get("is_demo")]
    return [
        {
            "calls_n": sum(m["role"] == "assistant" for m in talk),
            "prompt_tokens": stats.get("tokens_sent") or None,
            "output_tokens": stats.get("tokens_received") or None,
            "cost_usd": stats.get("instance_cost") or None,
            "tool_errors_n": None,
            "compactions_n": None,
        }
    ]


def mini_swe_agent(path: Path) -> list[Figures]:
    """mini-SWE-agent: return codes in `extra`, or at the head of an observation."""
    document = json.loads(path.read_text())
    messages = document["messages"] if isinstance(document, dict) else document
    replies = [m for m in messages if m["role"] == "assistant"]
    codes = [_return_code(m) for m in messages if m["role"] in ("tool", "user")]
    usages, cost = [], 0.0
    for m in replies:
        extra = m.get("extra") or {}
        u = (extra.get("response") or {}).get("usage")
        cost += extra.get("cost") or 0.0
        if u:
            read = (u.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            usages.append((u["prompt_tokens"] - read, read, 0, u["completion_tokens"]))
    return [
        {
            "calls_n": len(replies),
            "tool_calls_n": sum(len(m.get("tool_calls") or ()) for m in replies),
            "tool_errors_n": sum(bool(c) for c in codes),
            "compactions_n": 0,
            "cost_usd": cost or None,
            **billed(usages),
        }
    ]


def _return_code(m: dict[str, Any]) -> int:
    code = (m.get("extra") or {}).get("returncode")
    if isinstance(code, int):
        return code
    content = m["content"] if isinstance(m["content"], str) else (m["content"] or [{}])[0].get("text", "")
    found = re.match(r"\s*<returncode>(-?\d+)", content)
    return int(found[1]) if found else 0


def tau_bench(path: Path) -> list[Figures]:
    """tau-bench: runs with chat messages and no usage."""
    out = []
    for run in json.loads(path.read_text()):
        replies = [m for m in run["traj"] if m["role"] == "assistant"]
        out.append(
            {
                "calls_n": len(replies),
                "tool_calls_n": sum(len(m.get("tool_calls") or ()) for m in replies),
                "compactions_n": 0,
                "prompt_tokens": None,
                "cost_usd": None,
            }
        )
    return out


def inspect_ai(path: Path) -> list[Figures]:
    """Inspect: samples of a log, or of a zip; usage of the model events."""
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            names = sorted(n for n in archive.namelist() if n.startswith("samples/"))
            samples = [json.loads(archive.read(n)) for n in names]
    else:
        samples = json.loads(path.read_text())["samples"]
    out = []
    for s in samples:
        models = [e for e in s.get("events") or () if e["event"] == "model"]
        usages = [u for e in models if (u := (e.get("output") or {}).get("usage"))]
        out.append({"compactions_n": 0, **billed(map(_inspect_usage, usages))})
    return sorted(out, key=lambda f: (f["prompt_tokens"] or 0, f.get("output_tokens") or 0))


def _inspect_usage(u: dict[str, Any]) -> tuple[int, int, int, int]:
    """Where input and output are the total, the input holds what was cached."""
    read, write = u.get("input_tokens_cache_read") or 0, u.get("input_tokens_cache_write") or 0
    within = u["input_tokens"] + u["output_tokens"] == u["total_tokens"]
    return (u["input_tokens"] - (read + write) * within, read, write, u["output_tokens"])


def aider(path: Path) -> list[Figures]:
    """aider: requests are lines with four signs."""
    requests = re.findall(r"^#### (?!/)", path.read_text(), re.M)
    return [{"requests": len(requests) > 0, "tool_calls_n": 0, "tool_errors_n": None, "compactions_n": None}]


def atif(path: Path) -> list[Figures]:
    """ATIF: a step of an agent with metrics is a call."""
    document = json.loads(path.read_text())
    steps = [s for s in document["steps"] if s["source"] == "agent"]
    metrics = [s["metrics"] for s in steps if s.get("metrics")]
    usages = [
        (m["prompt_tokens"] - (m.get("cached_tokens") or 0), m.get("cached_tokens") or 0, 0, m["completion_tokens"])
        for m in metrics
    ]
    cost = sum(m.get("cost_usd") or 0 for m in metrics)
    return [
        {
            "calls_n": len(steps),
            "tool_calls_n": sum(len(s.get("tool_calls") or ()) for s in steps),
            "tool_errors_n": None,
            "cost_usd": cost or None,
            **billed(usages),
        }
    ]


def langfuse(path: Path) -> list[Figures]:
    """Langfuse: generations are calls, but for those of a framework's events, which hold neither usage nor output."""
    found = json.loads(path.read_text())["observations"]
    made = [o for o in found if o["type"] == "GENERATION"]
    usages = []
    for o in made:
        told = o.get("usageDetails") or {}
        cached = told.get("input_cached_tokens") or told.get("input_cache_read") or 0
        output = None if told.get("output") is None else told["output"] + (told.get("output_reasoning") or 0)
        usages.append((told.get("input") or 0, cached, 0, output))
    cost = sum((o.get("costDetails") or {}).get("total") or 0 for o in made)
    calls = [o for o in made if o.get("usageDetails") or o.get("output")]
    return [{"calls_n": len(calls), "cost_usd": cost or None, **billed(usages)}]


def kimi(path: Path) -> list[Figures]:
    """Kimi Code: steps end with the usage of a call."""
    events = [r["event"] for r in lines(path) if r.get("type") == "context.append_loop_event"]
    usages = [e["usage"] for e in events if e["type"] == "step.end" and e.get("usage")]
    return [
        {
            "tool_calls_n": sum(e["type"] == "tool.call" for e in events),
            "tool_errors_n": sum(e["type"] == "tool.result" and e["result"].get("isError") is True for e in events),
            "compactions_n": sum(r.get("type") == "context.apply_compaction" for r in lines(path)),
            **billed((u["inputOther"], u["inputCacheRead"], u["inputCacheCreation"], u["output"]) for u in usages),
        }
    ]


def responses(path: Path) -> list[Figures]:
    """Responses items: nothing is billed."""
    found = json.loads(path.read_text())
    items = found["data"] if isinstance(found, dict) else found
    calls = sum(i.get("type") == "function_call" for i in items)
    return [{"tool_calls_n": calls, "prompt_tokens": None, "tool_errors_n": None}]


PARSERS: dict[str, Callable[[Path], list[Figures]]] = {
    "pi": pi,
    "claude-code": claude_code,
    "codex": codex,
    "gemini-cli": gemini,
    "opencode": opencode,
    "openhands": openhands,
    "swe-agent": swe_agent,
    "mini-swe-agent": mini_swe_agent,
    "tau-bench": tau_bench,
    "inspect-ai": inspect_ai,
    "aider": aider,
    "atif": atif,
    "langfuse": langfuse,
    "kimi-cli": kimi,
    "openai-messages": responses,
}
