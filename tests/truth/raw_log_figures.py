"""Figures of real logs by small parsers of their own: plain JSON and sums, no code of the readers.

Each function takes a path and returns one dictionary a session, in the order of the file: the
figures that the log holds, under the names of the session frame. A figure that a parser does not tell is left out.
"""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

import pandas as pd

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


Told = tuple[int, int | None, int | None, int | None]
"""Usage of a call: uncached input, read from the cache, written to it, output; None: unknown."""


def billed(usages: Iterable[Told]) -> Figures:
    """Return sums by class, the prompts together and the largest; a call without a prompt is none."""
    known = [u for u in usages if u[0] or u[1] or u[2]]
    names = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    sums = {n: _sum(u[i] for u in known) for i, n in enumerate(names)}
    prompts = [u[0] + (u[1] or 0) + (u[2] or 0) for u in known]
    return {**sums, "prompt_tokens": _sum(prompts), "peak_tokens": max(prompts, default=None)}


def _sum(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def moments(stamps: Iterable[Any]) -> Figures:
    """Return the first and the last of some times, as text or milliseconds."""
    known = sorted(
        pd.to_datetime(s, utc=True, unit="ms" if isinstance(s, int) else None) for s in stamps if s
    )
    return {"first": known[0], "last": known[-1]} if known else {}


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
            "results_n": len(results),
            **moments(r["timestamp"] for r in lines(path) if r.get("type") == "message"),
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
    said = [
        r
        for r in mains
        if r.get("type") == "assistant" and r["message"].get("model") != "<synthetic>"
    ]
    calls: dict[Any, dict[str, Any]] = {}
    for i, r in enumerate(said):
        m = r["message"]
        key = (m.get("id") or i, r.get("requestId"))
        calls.setdefault(key, {"tools": set()})["usage"] = m.get("usage") or {}
        content = m.get("content") if isinstance(m.get("content"), list) else []
        calls[key]["tools"] |= {
            b["id"] for b in content if b.get("type") in ("tool_use", "server_tool_use")
        }
    answers = [
        b
        for r in mains
        if r.get("type") == "user"
        for b in _blocks(r)
        if b.get("type") == "tool_result"
    ]
    uses = [c["usage"] for c in calls.values()]
    found = billed(
        (
            u.get("input_tokens") or 0,
            u.get("cache_read_input_tokens"),
            u.get("cache_creation_input_tokens"),
            u.get("output_tokens"),
        )
        for u in uses
    )
    del found["output_tokens"]  # fragments: see test_partial_stream_outputs.py
    made = [
        r
        for r in mains
        if r.get("type") == "assistant" and r["message"].get("model") == "<synthetic>"
    ]
    return [
        {
            "calls_n": len(calls),
            "tool_calls_n": sum(len(c["tools"]) for c in calls.values()),
            "results_n": len(answers),
            "tool_errors_n": sum(b.get("is_error") is True for b in answers),
            "events_n": len(made) + sum(r.get("subtype") == "api_error" for r in mains),
            "compactions_n": sum("compact_boundary" in str(r.get("subtype")) for r in mains),
            **found,
        }
    ]


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record["message"].get("content")
    return [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []


_CODEX_CALLS = {
    *(
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "tool_search_call",
        "web_search_call",
    ),
    "image_generation_call",
}


_SERVER = {"web_search_call", "image_generation_call"}
"""What the provider runs itself: the call is its own answer."""


def codex(path: Path) -> list[Figures]:
    """Codex: token counts tell the calls that were billed; one that repeats its total is none."""
    records = lines(path)
    items = [r["payload"] for r in records if r.get("type") == "response_item"]
    usages, total = [], None
    for r in records:
        info = (
            r.get("payload", {}).get("info")
            if r.get("payload", {}).get("type") == "token_count"
            else None
        )
        if info and info.get("last_token_usage") and info.get("total_token_usage") != total:
            total = info.get("total_token_usage")
            u = info["last_token_usage"]
            read, write = u.get("cached_input_tokens"), u.get("cache_write_input_tokens")
            usages.append(
                (u["input_tokens"] - (read or 0) - (write or 0), read, write, u["output_tokens"])
            )
    outputs = [_codex_output(p) for p in items if p["type"].endswith("_output")]
    return [
        {
            "tool_calls_n": sum(p["type"] in _CODEX_CALLS for p in items),
            "tool_errors_n": sum(outputs),
            "results_n": len(outputs) + sum(p["type"] in _SERVER for p in items),
            **billed(usages),
        }
    ]


def _codex_output(p: dict[str, Any]) -> bool:
    """Whether an output failed: a status, an exit code in its JSON, or one at its head."""
    said = p.get("output")
    if p.get("status") in ("failed", "error") or (
        isinstance(said, dict) and said.get("success") is False
    ):
        return True
    if not isinstance(said, str):
        return False
    try:
        return bool(json.loads(said)["metadata"]["exit_code"])
    except (json.JSONDecodeError, KeyError, TypeError):
        head = "\n".join(said.split("\n")[:6])
        codes = re.findall(
            r"^(?:Exit code: |Process exited with code |failed in sandbox .*exit code: )(\d+)",
            head,
            re.MULTILINE,
        )
        return any(c != "0" for c in codes)


def gemini(path: Path) -> list[Figures]:
    """Gemini CLI: messages of one object, or lines; an id written again is the same message."""
    try:
        messages = json.loads(path.read_text())["messages"]
    except json.JSONDecodeError:
        messages = [r for r in lines(path) if r.get("type") in ("user", "gemini")]
    replies = list({m["id"]: m for m in messages if m["type"] == "gemini"}.values())
    calls = [c for m in replies for c in m.get("toolCalls") or ()]
    tokens = [m["tokens"] for m in replies if m.get("tokens")]
    usages = [
        (t["input"] - t.get("cached", 0), t.get("cached"), None, t["output"] + t.get("thoughts", 0))
        for t in tokens
    ]
    return [
        {
            "calls_n": len(replies),
            "tool_calls_n": len(calls),
            "results_n": sum(
                bool(c.get("result")) or c["status"] in ("error", "cancelled") for c in calls
            ),
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
            "results_n": sum(p["state"]["status"] in ("completed", "error") for p in tools),
            "tool_errors_n": sum(p["state"]["status"] == "error" for p in tools),
            "compactions_n": sum(ranges),
            "cost_usd": sum(m["info"].get("cost") or 0 for m in replies) or None,
            **billed(
                (t["input"], t["cache"]["read"], t["cache"]["write"], t["output"] + t["reasoning"])
                for t in tokens
            ),
        }
    ]


def openhands(path: Path) -> list[Figures]:
    """OpenHands: runs a line, or a completion's log."""
    if path.suffix == ".json":
        log = json.loads(path.read_text())
        u = log["response"]["usage"]
        read = (u.get("prompt_tokens_details") or {}).get("cached_tokens")
        made = billed([(u["prompt_tokens"] - (read or 0), read, None, u["completion_tokens"])])
        return [
            {
                **{k: v for k, v in made.items() if "cache" not in k and k != "input_tokens"},
                "cost_usd": log.get("cost"),
            }
        ]
    out = []
    for run in lines(path):
        events = run["history"]
        seen = [
            e
            for e in events
            if e.get("observation") and (e.get("tool_call_metadata") or {}).get("tool_call_id")
        ]
        codes = [((e.get("extras") or {}).get("metadata") or {}).get("exit_code") for e in seen]
        wrong = sum(
            e["observation"] == "error" or (c or 0) > 0 for e, c in zip(seen, codes, strict=True)
        )
        told = {u["response_id"]: u for u in run["metrics"]["token_usages"] or ()}
        for e in events:
            response = (e.get("tool_call_metadata") or {}).get("model_response") or {}
            if response.get("id") and response.get("usage"):
                told.setdefault(response["id"], response["usage"])
        names = ("prompt_tokens", "cache_read_tokens", "cache_write_tokens", "completion_tokens")
        classes = [tuple(map(u.get, names)) for u in told.values()]
        usages = [(p - (r or 0) - (w or 0), r, w, o) for p, r, w, o in classes]
        out.append({"tool_errors_n": wrong, **billed(usages)})
    return out


def swe_agent(path: Path) -> list[Figures]:
    """SWE-agent: a history and the run's totals; neither errors nor compactions are marked."""
    document = json.loads(path.read_text())
    stats = document.get("info", {}).get("model_stats", {})
    talk = [m for m in document["history"] if not m.get("is_demo")]
    return [
        {
            "calls_n": sum(m["role"] == "assistant" for m in talk),
            "logged_prompt_tokens": stats.get("tokens_sent") or None,
            "logged_output_tokens": stats.get("tokens_received") or None,
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
            read = (u.get("prompt_tokens_details") or {}).get("cached_tokens")
            usages.append((u["prompt_tokens"] - (read or 0), read, None, u["completion_tokens"]))
    return [
        {
            "calls_n": len(replies),
            "tool_calls_n": sum(len(m.get("tool_calls") or ()) for m in replies),
            "tool_errors_n": sum(bool(c) for c in codes),
            "results_n": sum(m["role"] == "tool" for m in messages),
            "compactions_n": 0,
            "cost_usd": cost or None,
            **billed(usages),
        }
    ]


def _return_code(m: dict[str, Any]) -> int:
    code = (m.get("extra") or {}).get("returncode")
    if isinstance(code, int):
        return code
    content = (
        m["content"] if isinstance(m["content"], str) else (m["content"] or [{}])[0].get("text", "")
    )
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
                "results_n": sum(m["role"] == "tool" for m in run["traj"]),
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


def _inspect_usage(u: dict[str, Any]) -> Told:
    """Where input and output are the total, the input holds what was cached."""
    read, write = u.get("input_tokens_cache_read"), u.get("input_tokens_cache_write")
    within = u["input_tokens"] + u["output_tokens"] == u["total_tokens"]
    return (
        u["input_tokens"] - ((read or 0) + (write or 0)) * within,
        read,
        write,
        u["output_tokens"],
    )


def aider(path: Path) -> list[Figures]:
    """aider: a request is a run of lines with four signs; no call has a tool."""
    runs = re.findall(r"(?:^#### .*\n)+", path.read_text(), re.MULTILINE)
    return [{"users_n": len(runs), "tool_calls_n": 0, "tool_errors_n": None, "compactions_n": None}]


def atif(path: Path) -> list[Figures]:
    """ATIF: a step of an agent with metrics is a call."""
    document = json.loads(path.read_text())
    steps = [s for s in document["steps"] if s["source"] == "agent"]
    metrics = [s["metrics"] for s in steps if s.get("metrics")]
    usages = [
        (
            m["prompt_tokens"] - (m.get("cached_tokens") or 0),
            m.get("cached_tokens"),
            None,
            m["completion_tokens"],
        )
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
    """Langfuse: generations are calls, but for a framework's events: no usage and no output."""
    found = json.loads(path.read_text())["observations"]
    made = [o for o in found if o["type"] == "GENERATION"]
    usages = []
    for o in made:
        told = o.get("usageDetails") or {}
        cached = next((n for k, n in told.items() if "cache" in k and "creation" not in k), None)
        output = (
            None
            if told.get("output") is None
            else told["output"] + (told.get("output_reasoning") or 0)
        )
        usages.append((told.get("input") or 0, cached, None, output))
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
            "results_n": sum(e["type"] == "tool.result" for e in events),
            "tool_errors_n": sum(
                e["type"] == "tool.result" and e["result"].get("isError") is True for e in events
            ),
            "compactions_n": sum(r.get("type") == "context.apply_compaction" for r in lines(path)),
            **billed(
                (u["inputOther"], u["inputCacheRead"], u["inputCacheCreation"], u["output"])
                for u in usages
            ),
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
