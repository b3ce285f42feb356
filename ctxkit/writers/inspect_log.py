"""Inspect's log (`.json`): one sample, messages, a model event a call, a compaction event a cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.messages import Edit, Image, Message, Text, Thinking
from ctxkit.writers.entries import iso
from ctxkit.writers.losses import losses, visible

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from ctxkit.messages import Usage
    from ctxkit.session import Call, Session

_HOLDS = {
    "usages",
    "times",
    "models of calls",
    "stop reasons",
    "latencies",
    "compactions",
    "system prompts",
    "tool schemas",
    "thoughts",
    "images",
    "error marks",
    "edits (dropped)",
}
_STOPS = {"tool": "tool_calls", "stop": "stop", "length": "max_tokens"}


def convert(session: Session) -> tuple[list[bytes], Counter[str]]:
    """Return the file, and what it cannot hold."""
    lost = losses(session, _HOLDS)
    lost["money of calls"] += sum(
        c.message.usage is not None and c.message.usage.cost_usd is not None for c in session.calls
    )
    lost["parameters of tools"] += sum(bool(t.parameters) for t in session.tools)
    return [msgspec.json.format(msgspec.json.encode(_document(session)), indent=1), b"\n"], lost


def _document(session: Session) -> dict[str, Any]:
    model = session.model or "unknown"
    begun = iso(session.started)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": session.id,
            "run_id": session.id,
            "task_id": session.id,
            "created": begun,
            "task": session.product or "session",
            "dataset": {"name": session.format, "samples": 1, "sample_ids": [session.id]},
            "model": model,
            "config": {},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "stats": {"started_at": begun, "completed_at": begun, "model_usage": {}},
        "samples": [_sample(session, model)],
    }


def _sample(session: Session, model: str) -> dict[str, Any]:
    sent = visible(session.messages)
    asked = next((m.text for m in sent if m.role == "user"), "")
    last = session.calls[-1].message if session.calls else None
    return {
        "id": session.id,
        "epoch": 1,
        "input": asked,
        "target": "",
        "messages": [_message(m) for m in sent],
        "output": _output(last, model) if last else {"model": model, "choices": []},
        "events": _events(session, model),
        "store": {},
        "metadata": {},
        "scores": {},
        "model_usage": {},
        "attachments": {},
    }


def _events(session: Session, model: str) -> list[dict[str, Any]]:
    """Return a model event a call, after a compaction event for each cut since the call before."""
    events: list[dict[str, Any]] = []
    done = 0
    for call, shown in session.views():
        events += [
            _compaction(session, e)
            for e in session.path[done : call.position]
            if isinstance(e, Edit) and e.kind in ("summarised", "dropped")
        ]
        done = call.position
        events.append(_model(session, call, visible(shown), model))
    return events


def _compaction(session: Session, edit: Edit) -> dict[str, Any]:
    told = {"tokens_before": edit.tokens_before, "tokens_after": edit.tokens_after}
    return {
        "event": "compaction",
        "type": "summary" if edit.inserted else "trim",
        "timestamp": iso(edit.time if edit.time is not None else session.started),
        "source": edit.method or "ctxkit",
        **{k: v for k, v in told.items() if v is not None},
    }


def _model(session: Session, call: Call, sent: Sequence[Message], model: str) -> dict[str, Any]:
    reply = call.message
    ended = reply.time if reply.time is not None else session.started
    begun = ended - reply.latency if ended is not None and reply.latency else ended
    event = {
        "event": "model",
        "timestamp": iso(begun),
        "model": reply.model or model,
        "input": [_message(m) for m in sent],
        "tools": [
            {
                "name": t.name,
                "description": t.description,
                "parameters": {"type": "object", "properties": {}},
            }
            for t in session.tools
        ],
        "tool_choice": "auto",
        "config": {},
        "output": _output(reply, model),
        "completed": iso(ended),
    }
    return {**event, "error": reply.error or "error"} if reply.is_error else event


def _output(reply: Message, model: str) -> dict[str, Any]:
    stop = _STOPS.get(reply.stop or "", "tool_calls" if reply.tool_calls else "unknown")
    out: dict[str, Any] = {
        "model": reply.model or model,
        "choices": [{"message": _message(reply), "stop_reason": stop}],
    }
    if reply.usage:
        out["usage"] = _usage(reply.usage)
    if reply.latency is not None:
        out["time"] = reply.latency
    return out


def _usage(u: Usage) -> dict[str, Any]:
    writes = [n for n in (u.cache_write_tokens, u.cache_write_1h_tokens) if n is not None]
    told = {
        "input_tokens": u.input_tokens or 0,
        "output_tokens": u.output_tokens or 0,
        "total_tokens": (u.prompt_tokens or 0) + (u.output_tokens or 0),
        "input_tokens_cache_read": u.cache_read_tokens,
        "input_tokens_cache_write": sum(writes) if writes else None,
        "reasoning_tokens": u.reasoning_tokens,
    }
    return {k: v for k, v in told.items() if v is not None}


def _message(m: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"id": m.id, "role": m.sent_as, "content": _content(m)}
    if m.role == "assistant" and m.tool_calls:
        out["tool_calls"] = [
            {"id": c.id, "function": c.name, "arguments": c.arguments, "type": "function"}
            for c in m.tool_calls
        ]
    if m.role == "tool":
        out |= {"tool_call_id": m.call_id or "", "function": m.tool or ""}
        if m.is_error:
            out["error"] = {"type": "unknown", "message": m.error or m.text[:2000]}
    return out


def _content(m: Message) -> Any:
    if all(isinstance(p, Text) for p in m.parts) and len(m.parts) < 2:
        return m.text
    out: list[dict[str, Any]] = []
    for p in m.parts:
        if isinstance(p, Text):
            out.append({"type": "text", "text": p.text})
        elif isinstance(p, Thinking) and m.role == "assistant":
            out.append({"type": "reasoning", "reasoning": p.text, "signature": p.signature})
        elif isinstance(p, Image) and p.kind == "image":
            place = p.url or f"data:{p.media_type};base64,{p.data}"
            out.append({"type": "image", "image": place})
    return out or ""
