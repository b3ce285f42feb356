"""An ATIF trajectory (version 1.7): a step an input or reply, results in the step that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Image, Message, Text, Thinking
from ctxkit.models.chat import to_tools
from ctxkit.texts.contents import texts
from ctxkit.writers.entries import iso
from ctxkit.writers.losses import losses, visible

if TYPE_CHECKING:
    from collections import Counter

    from ctxkit.session import Session

_HOLDS = {
    "usages",
    "times",
    "models of calls",
    "thoughts",
    "images",
    "subagent sessions",
    "system prompts",
    "tool schemas",
}


def convert(session: Session) -> tuple[list[bytes], Counter[str]]:
    """Return the file (all that stands, also what a compaction took), and what it cannot hold."""
    return [msgspec.json.format(msgspec.json.encode(_document(session)), indent=1), b"\n"], _lost(
        session
    )


def _lost(session: Session) -> Counter[str]:
    """Return what is lost of a session, and of its subagents and theirs."""
    lost = losses(session, _HOLDS)
    replies = [m.usage for m in session.messages if m.usage is not None]
    lost["cache writes"] += sum(
        1 for u in replies if u.cache_write_tokens or u.cache_write_1h_tokens
    )
    lost["counts of reasoning tokens"] += sum(1 for u in replies if u.reasoning_tokens)
    for child in session.children:
        lost.update(_lost(child))
    return lost


def _document(session: Session) -> dict[str, Any]:
    agent: dict[str, Any] = {
        "name": session.product or "ctxkit",
        "version": session.version or "unknown",
    }
    if session.model:
        agent["model_name"] = session.model
    if session.tools:
        agent["tool_definitions"] = to_tools(session.tools)
    steps = _steps(session)
    out = {
        "schema_version": "ATIF-v1.7",
        "session_id": session.id,
        "agent": agent,
        "steps": steps,
        "final_metrics": _totals(session, len(steps)),
    }
    if session.children:
        out["subagent_trajectories"] = [_document(c) for c in session.children]
    return out


def _steps(session: Session) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    asked: dict[str, dict[str, Any]] = {}
    for m in visible(session.messages):
        step = asked.get(m.call_id or "")
        if m.role == "tool" and step is not None:
            step.setdefault("observation", {"results": []})["results"].append(_result(m))
            continue
        step = _step(m, len(steps) + 1)
        for call in m.tool_calls:
            asked[call.id] = step
        steps.append(step)
    return steps


def _step(m: Message, number: int) -> dict[str, Any]:
    source = {"assistant": "agent", "system": "system", "tool": "system"}.get(m.role, "user")
    step: dict[str, Any] = {"step_id": number, "source": source, "message": _content(m)}
    if m.time is not None:
        step["timestamp"] = iso(m.time)
    if m.role != "assistant":
        return step
    thought = "\n".join(p.text for p in m.parts if isinstance(p, Thinking) and p.text)
    if m.model:
        step["model_name"] = m.model
    if thought:
        step["reasoning_content"] = thought
    if m.tool_calls:
        step["tool_calls"] = [
            {
                "tool_call_id": c.id,
                "function_name": c.name,
                "arguments": c.arguments if c.raw is None else {"raw": c.raw},
            }
            for c in m.tool_calls
        ]
    if m.usage is not None:
        step["metrics"] = _metrics(m)
    return step


def _metrics(m: Message) -> dict[str, Any]:
    u = m.usage
    if u is None:
        return {}
    found = {
        "prompt_tokens": u.prompt_tokens,
        "completion_tokens": u.output_tokens,
        "cached_tokens": u.cache_read_tokens,
        "cost_usd": u.cost_usd,
    }
    return {k: v for k, v in found.items() if v is not None}


def _result(m: Message) -> dict[str, Any]:
    return {"source_call_id": m.call_id, "content": _content(m)}


def _content(m: Message) -> Any:
    pictures = any(isinstance(p, Image) and p.kind == "image" for p in m.parts)
    if not pictures:
        return texts(m)
    out: list[dict[str, Any]] = []
    for p in m.parts:
        if isinstance(p, Text):
            out.append({"type": "text", "text": p.text})
        elif isinstance(p, Image):
            place = p.url or f"data:{p.media_type};base64,{p.data}"
            out.append({"type": "image", "source": {"media_type": p.media_type, "path": place}})
    return out


def _totals(session: Session, steps: int) -> dict[str, Any]:
    usages = [c.message.usage for c in session.calls if c.message.usage is not None]
    totals: dict[str, Any] = {"total_steps": steps}
    for name, values in (
        ("total_prompt_tokens", [u.prompt_tokens for u in usages]),
        ("total_completion_tokens", [u.output_tokens for u in usages]),
        ("total_cached_tokens", [u.cache_read_tokens for u in usages]),
        ("total_cost_usd", [u.cost_usd for u in usages]),
    ):
        known = [v for v in values if v is not None]
        if known:
            totals[name] = sum(known)
    return totals
