"""ATIF trajectories (Harbor), read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.formats.chat_messages import (
    count_skipped,
    encode_tool_schemas,
    parse_parts,
    parse_stop_reason,
    parse_tool_schemas,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    format_timestamp,
    parse_arguments,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.formats.losses import count_losses, visible_messages
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import (
    Edit,
    Fault,
    Image,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    Usage,
    get_plain_text,
)

if TYPE_CHECKING:
    from collections import Counter

    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session


NAME = "atif"
ALIASES = ("harbor",)
CAN = (
    "text, reasoning, calls and results, usage per call (cache reads), money, times, tools,"
    " subagents inside the file"
)
CANNOT = "cache writes; sizes of a compaction (its mark is there, of terminus-2)"
BLIND = ("tool errors",)
TRAITS = (("all", "money is the log's own; summaries are not priced: estimated"),)
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_DEPTH = 16


def sniff(source: Source) -> bool:
    """Say whether the document names an ATIF version."""
    document = as_dict(source.document)
    return (
        as_str(document.get("schema_version")).startswith("ATIF")
        and type(document.get("steps")) is list
    )


def read(source: Source) -> list[Session]:
    """Return the one trajectory of the file, with those embedded in it as children."""
    return [_session(as_dict(source.document), source.path.stem, 0)]


def _session(document: dict[str, Any], name: str, depth: int) -> Session:
    agent = as_dict(document.get("agent"))
    teller = _StepReader(str_or_none(agent.get("model_name")))
    faults = teller.log.faults
    for n, raw in enumerate(as_list(document.get("steps"))):
        with catch_damage(faults, 0, f"step {n + 1}: "):
            teller.take(as_dict(raw))
    teller.compact(None)
    below = [d for d in as_list(document.get("subagent_trajectories")) if type(d) is dict]
    if depth >= _DEPTH and below:
        faults.append(Fault(0, f"subagents nested more than {_DEPTH} deep are left out"))
        below = []
    id_ = as_str(document.get("session_id")) or name
    children = tuple(_session(d, f"{name}/{i}", depth + 1) for i, d in enumerate(below))
    totals = as_dict(document.get("final_metrics"))
    details = {
        "cost_usd": float_or_none(totals.get("total_cost_usd")),
        "continued": str_or_none(document.get("continued_trajectory_ref")),
    }
    return teller.log.session(
        id=id_,
        format=NAME,
        product=str_or_none(agent.get("name")),
        version=str_or_none(agent.get("version")),
        agent=as_str(agent.get("name")) or "main",
        title=str_or_none(document.get("notes")),
        model=str_or_none(agent.get("model_name")),
        tools=parse_tool_schemas(agent.get("tool_definitions")),
        started=next((e.time for e in teller.log.entries if e.time), None),
        children=tuple(replace(c, parent=c.parent or id_) for c in children),
        parent=str_or_none(as_dict(agent.get("extra")).get("parent_session_id")),
        details={k: v for k, v in details.items() if v is not None},
    )


class _StepReader:
    """Writes steps as messages: an agent's step is a reply and then the results of its calls."""

    def __init__(self, model: str | None) -> None:
        self.log = SessionBuilder()
        self._model = model
        self._first: str | None = None
        """Id of the first prompt."""
        self._due: Edit | None = None
        """A compaction whose hand-off has yet to come."""

    def take(self, raw: dict[str, Any]) -> None:
        role = _ROLES.get(as_str(raw.get("source")))
        if self._due is not None:
            self.compact(raw if role == "user" else None)
            if role == "user":
                return
        results = as_list(as_dict(raw.get("observation")).get("results"))
        when = parse_timestamp(raw.get("timestamp"))
        if role == "assistant":
            self._reply(raw, when)
            asked = map(as_dict, as_list(raw.get("tool_calls")))
            calls = {as_str(c.get("tool_call_id")): as_str(c.get("function_name")) for c in asked}
            for r in results:
                self._result(as_dict(r), calls, when)
        elif role is None:
            count_skipped(self.log.skipped, "step: " + (as_str(raw.get("source")) or "no source"))
        elif role == "system" and any(
            as_list(as_dict(r).get("subagent_trajectory_ref")) for r in results
        ):
            self._compaction(raw, results, when)
        else:
            kind = "injected" if role == "system" and self.log.entries else ""
            said, id_ = tuple(_parts(raw.get("message"), self.log.skipped)), self._id(raw)
            if role == "user" and self._first is None:
                self._first = id_
            who: Role = "system" if role == "system" else "user"
            self.log.add(Message(role=who, id=id_, parts=said, time=when, kind=kind))

    def _id(self, raw: dict[str, Any]) -> str:
        step = count_or_none(raw.get("step_id"))
        return self.log.new_id(None if step is None else f"step-{step}")

    def _reply(self, raw: dict[str, Any], when: float | None) -> None:
        metrics = as_dict(raw.get("metrics"))
        extra = as_dict(metrics.get("extra"))
        took = float_or_none(extra.get("latency_ms"))
        copied = raw.get("is_copied_context") is True
        thought = str_or_none(raw.get("reasoning_content"))
        parts: list[Part] = [Thinking(thought)] if thought else []
        parts += _parts(raw.get("message"), self.log.skipped)
        self.log.add(
            Message(
                role="assistant",
                id=self._id(raw),
                parts=(
                    *parts,
                    *map(_call, [c for c in as_list(raw.get("tool_calls")) if type(c) is dict]),
                ),
                time=when,
                kind="copied" if copied else "",
                usage=_usage(metrics),
                model=str_or_none(raw.get("model_name")) or self._model,
                stop=parse_stop_reason(extra.get("finish_reason")),
                latency=None if took is None else took / 1000,
            )
        )

    def _result(self, raw: dict[str, Any], calls: dict[str, str], when: float | None) -> None:
        asked = str_or_none(raw.get("source_call_id")) or (
            next(iter(calls)) if len(calls) == 1 else None
        )
        refs = [as_dict(r).get("session_id") for r in as_list(raw.get("subagent_trajectory_ref"))]
        sessions = [r for r in refs if type(r) is str]
        self.log.say(
            "tool" if calls else "user",
            _parts(raw.get("content"), self.log.skipped),
            time=when,
            kind="" if calls else "observation",
            tool=calls.get(asked or ""),
            call_id=asked,
            details={"sessions": sessions} if sessions else {},
        )

    def _compaction(self, raw: dict[str, Any], results: list[Any], when: float | None) -> None:
        """Note terminus-2's summary: only the first prompt stays; the next one is the hand-off."""
        refs = [
            as_dict(r)
            for res in results
            for r in as_list(as_dict(res).get("subagent_trajectory_ref"))
        ]
        self._due = Edit(
            kind="summarised",
            id=self._id(raw),
            reason=to_text(raw.get("message"))[:200],
            method="handoff",
            time=when,
            details={"sessions": [s for r in refs if (s := str_or_none(r.get("session_id")))]},
        )

    def compact(self, handoff: dict[str, Any] | None) -> None:
        """Write the compaction that is due, with its hand-off where there is one."""
        if self._due is None:
            return
        edit, self._due = self._due, None
        if handoff is not None:
            said = tuple(_parts(handoff.get("message"), self.log.skipped))
            summary = Message(
                role="summary",
                id=self._id(handoff),
                parts=said,
                time=parse_timestamp(handoff.get("timestamp")),
            )
            edit = replace(edit, inserted=(summary,))
        self.log.compact(edit, () if self._first is None else (self._first,))


def _parts(raw: Any, skipped: dict[str, int]) -> list[Part]:
    out = parse_parts(raw, skipped)[0]
    given = as_list(raw)
    for i, part in enumerate(out):
        source = as_dict(as_dict(given[i]).get("source")) if i < len(given) else {}
        if isinstance(part, Image) and str_or_none(source.get("path")):
            out[i] = Image(
                as_str(source.get("media_type")) or "image/png", url=as_str(source.get("path"))
            )
    return out


def _call(raw: dict[str, Any]) -> ToolCall:
    args, written = parse_arguments(raw.get("arguments"))
    return ToolCall(
        as_str(raw.get("tool_call_id")), as_str(raw.get("function_name")), args, written
    )


def _usage(raw: dict[str, Any]) -> Usage | None:
    whole, cached = count_or_none(raw.get("prompt_tokens")), count_or_none(raw.get("cached_tokens"))
    output, cost = count_or_none(raw.get("completion_tokens")), float_or_none(raw.get("cost_usd"))
    if whole is None and output is None and cost is None:
        return None
    fresh = None if whole is None else max(whole - (cached or 0), 0)
    return Usage(input_tokens=fresh, cache_read_tokens=cached, output_tokens=output, cost_usd=cost)


_ATIF_HOLDS = {
    "usages",
    "times",
    "models of calls",
    "thoughts",
    "images",
    "subagent sessions",
    "system prompts",
    "tool schemas",
}


def encode_session(session: Session) -> tuple[list[bytes], Counter[str]]:
    """Return the file (all that stands, also what a compaction took), and what it cannot hold."""
    return [
        msgspec.json.format(msgspec.json.encode(_document(session)), indent=1),
        b"\n",
    ], _count_atif_losses(session)


def _count_atif_losses(session: Session) -> Counter[str]:
    """Return what is lost of a session, and of its subagents and theirs."""
    lost = count_losses(session, _ATIF_HOLDS)
    replies = [m.usage for m in session.messages if m.usage is not None]
    lost["cache writes"] += sum(
        1 for u in replies if u.cache_write_tokens or u.cache_write_1h_tokens
    )
    lost["counts of reasoning tokens"] += sum(1 for u in replies if u.reasoning_tokens)
    for child in session.children:
        lost.update(_count_atif_losses(child))
    return lost


def _document(session: Session) -> dict[str, Any]:
    agent: dict[str, Any] = {
        "name": session.product or "ctxkit",
        "version": session.version or "unknown",
    }
    if session.model:
        agent["model_name"] = session.model
    if session.tools:
        agent["tool_definitions"] = encode_tool_schemas(session.tools)
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
    for m in visible_messages(session.messages):
        step = asked.get(m.call_id or "")
        if m.role == "tool" and step is not None:
            step.setdefault("observation", {"results": []})["results"].append(_encode_result(m))
            continue
        step = _step(m, len(steps) + 1)
        for call in m.tool_calls:
            asked[call.id] = step
        steps.append(step)
    return steps


def _step(m: Message, number: int) -> dict[str, Any]:
    source = {"assistant": "agent", "system": "system", "tool": "system"}.get(m.role, "user")
    step: dict[str, Any] = {"step_id": number, "source": source, "message": _encode_content(m)}
    if m.time is not None:
        step["timestamp"] = format_timestamp(m.time)
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


def _encode_result(m: Message) -> dict[str, Any]:
    return {"source_call_id": m.call_id, "content": _encode_content(m)}


def _encode_content(m: Message) -> Any:
    pictures = any(isinstance(p, Image) and p.kind == "image" for p in m.parts)
    if not pictures:
        return get_plain_text(m)
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
