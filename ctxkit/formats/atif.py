"""Reader and writer of ATIF trajectories (Harbor)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    encode_tool_schemas,
    parse_parts_and_results,
    parse_stop_reason,
    parse_tool_schemas,
)
from ctxkit.formats.conversion_losses import count_conversion_losses, select_sent_messages
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    format_timestamp,
    json_to_text,
    parse_arguments,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import (
    Attachment,
    Edit,
    Fault,
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

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session


NAME = "atif"
ALIASES = ("harbor",)
CAN = (
    "text, reasoning, system prompt, calls and results, usage per call (cache reads), cost, "
    "times, tools, subagents in the same file"
)
CANNOT = "cache writes; sizes of a compaction (terminus-2 marks only its place)"
BLIND = ("tool errors",)
TRAITS = (
    (
        "all",
        ("cost is as logged; summaries are not priced: estimated"),
    ),
)
# A step of an agent has its text, its calls and, as observation, their results; it becomes a reply
# and tool messages. terminus-2 compacts by a system step that refers to a summarizing subagent; the
# next user step is the hand-off that replaces everything but the first prompt. Writing is the
# reverse: a reply collects the results of its calls.
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_MAX_DEPTH = 16


def sniff(source: Source) -> bool:
    """Return True if the document names an ATIF version."""
    document = as_dict(source.document)
    return (
        as_str(document.get("schema_version")).startswith("ATIF")
        and type(document.get("steps")) is list
    )


def read(source: Source) -> list[Session]:
    """Read the trajectory of the file, with embedded ones as children."""
    return [_read_trajectory(as_dict(source.document), source.path.stem, 0)]


def _read_trajectory(document: dict[str, Any], name: str, depth: int) -> Session:
    agent = as_dict(document.get("agent"))
    reader = _StepReader(str_or_none(agent.get("model_name")))
    faults = reader.builder.faults
    for index, raw_step in enumerate(as_list(document.get("steps"))):
        with catch_damage(faults, 0, f"step {index + 1}: "):
            reader.read_step(as_dict(raw_step))
    reader.add_pending_compaction(None)
    subagents = [
        subagent
        for subagent in as_list(document.get("subagent_trajectories"))
        if type(subagent) is dict
    ]
    if depth >= _MAX_DEPTH and subagents:
        faults.append(Fault(0, f"subagents nested more than {_MAX_DEPTH} deep are left out"))
        subagents = []
    session_id = as_str(document.get("session_id")) or name
    children = tuple(
        _read_trajectory(subagent, f"{name}/{i}", depth + 1) for i, subagent in enumerate(subagents)
    )
    totals = as_dict(document.get("final_metrics"))
    details = {
        "cost_usd": float_or_none(totals.get("total_cost_usd")),
        "continued": str_or_none(document.get("continued_trajectory_ref")),
    }
    return reader.builder.session(
        id=session_id,
        format=NAME,
        product=str_or_none(agent.get("name")),
        version=str_or_none(agent.get("version")),
        agent=as_str(agent.get("name")) or "main",
        title=str_or_none(document.get("notes")),
        model=str_or_none(agent.get("model_name")),
        tools=parse_tool_schemas(agent.get("tool_definitions")),
        started=next((e.time for e in reader.builder.entries if e.time), None),
        children=tuple(replace(child, parent=child.parent or session_id) for child in children),
        parent=str_or_none(as_dict(agent.get("extra")).get("parent_session_id")),
        details={k: v for k, v in details.items() if v is not None},
    )


class _StepReader:
    """Reader of one trajectory, step by step."""

    def __init__(self, model: str | None) -> None:
        self.builder = SessionBuilder()
        self._model = model
        self._first_prompt: str | None = None
        """Id of the first user message, which compactions keep."""
        self._pending_compaction: Edit | None = None
        """A compaction whose hand-off has not been read yet."""

    def read_step(self, raw_step: dict[str, Any]) -> None:
        role = _ROLES.get(as_str(raw_step.get("source")))
        if self._pending_compaction is not None:
            self.add_pending_compaction(raw_step if role == "user" else None)
            if role == "user":
                return
        results = as_list(as_dict(raw_step.get("observation")).get("results"))
        time = parse_timestamp(raw_step.get("timestamp"))
        if role == "assistant":
            self._read_reply(raw_step, time)
            raw_calls = map(as_dict, as_list(raw_step.get("tool_calls")))
            calls = {
                as_str(c.get("tool_call_id")): as_str(c.get("function_name")) for c in raw_calls
            }
            for result in results:
                self._read_result(as_dict(result), calls, time)
        elif role is None:
            count_skipped(
                self.builder.skipped, "step: " + (as_str(raw_step.get("source")) or "no source")
            )
        elif role == "system" and any(
            as_list(as_dict(result).get("subagent_trajectory_ref")) for result in results
        ):
            self._read_compaction(raw_step, results, time)
        else:
            kind = "injected" if role == "system" and self.builder.entries else ""
            parts, message_id = (
                tuple(_parse_content(raw_step.get("message"), self.builder.skipped)),
                self._new_id(raw_step),
            )
            if role == "user" and self._first_prompt is None:
                self._first_prompt = message_id
            message_role: Role = "system" if role == "system" else "user"
            self.builder.add(
                Message(role=message_role, id=message_id, parts=parts, time=time, kind=kind)
            )

    def _new_id(self, raw_step: dict[str, Any]) -> str:
        step = count_or_none(raw_step.get("step_id"))
        return self.builder.new_id(None if step is None else f"step-{step}")

    def _read_reply(self, raw_step: dict[str, Any], time: float | None) -> None:
        metrics = as_dict(raw_step.get("metrics"))
        extra = as_dict(metrics.get("extra"))
        latency_ms = float_or_none(extra.get("latency_ms"))
        is_copied = raw_step.get("is_copied_context") is True
        thinking = str_or_none(raw_step.get("reasoning_content"))
        parts: list[Part] = [Thinking(thinking)] if thinking else []
        parts += _parse_content(raw_step.get("message"), self.builder.skipped)
        self.builder.add(
            Message(
                role="assistant",
                id=self._new_id(raw_step),
                parts=(
                    *parts,
                    *map(
                        _parse_call,
                        [c for c in as_list(raw_step.get("tool_calls")) if type(c) is dict],
                    ),
                ),
                time=time,
                kind="copied" if is_copied else "",
                usage=_parse_usage(metrics),
                model=str_or_none(raw_step.get("model_name")) or self._model,
                stop=parse_stop_reason(extra.get("finish_reason")),
                latency=None if latency_ms is None else latency_ms / 1000,
            )
        )

    def _read_result(self, raw: dict[str, Any], calls: dict[str, str], time: float | None) -> None:
        call_id = str_or_none(raw.get("source_call_id")) or (
            next(iter(calls)) if len(calls) == 1 else None
        )
        refs = [as_dict(r).get("session_id") for r in as_list(raw.get("subagent_trajectory_ref"))]
        sessions = [r for r in refs if type(r) is str]
        self.builder.add_message(
            "tool" if calls else "user",
            _parse_content(raw.get("content"), self.builder.skipped),
            time=time,
            kind="" if calls else "observation",
            tool=calls.get(call_id or ""),
            call_id=call_id,
            details={"sessions": sessions} if sessions else {},
        )

    def _read_compaction(
        self, raw_step: dict[str, Any], results: list[Any], time: float | None
    ) -> None:
        """Note a compaction of terminus-2, which the next user step completes."""
        refs = [
            as_dict(r)
            for res in results
            for r in as_list(as_dict(res).get("subagent_trajectory_ref"))
        ]
        self._pending_compaction = Edit(
            kind="summarised",
            id=self._new_id(raw_step),
            reason=json_to_text(raw_step.get("message"))[:200],
            method="handoff",
            time=time,
            details={"sessions": [s for r in refs if (s := str_or_none(r.get("session_id")))]},
        )

    def add_pending_compaction(self, handoff: dict[str, Any] | None) -> None:
        """Add the pending compaction, with its hand-off if there is one."""
        if self._pending_compaction is None:
            return
        edit, self._pending_compaction = self._pending_compaction, None
        if handoff is not None:
            parts = tuple(_parse_content(handoff.get("message"), self.builder.skipped))
            summary = Message(
                role="summary",
                id=self._new_id(handoff),
                parts=parts,
                time=parse_timestamp(handoff.get("timestamp")),
            )
            edit = replace(edit, inserted=(summary,))
        self.builder.compact(edit, () if self._first_prompt is None else (self._first_prompt,))


def _parse_content(raw: Any, skipped: dict[str, int]) -> list[Part]:
    parts = parse_parts_and_results(raw, skipped)[0]
    raw_parts = as_list(raw)
    for i, part in enumerate(parts):
        source = as_dict(as_dict(raw_parts[i]).get("source")) if i < len(raw_parts) else {}
        if isinstance(part, Attachment) and str_or_none(source.get("path")):
            parts[i] = Attachment(
                as_str(source.get("media_type")) or "image/png", url=as_str(source.get("path"))
            )
    return parts


def _parse_call(raw: dict[str, Any]) -> ToolCall:
    arguments, raw_arguments = parse_arguments(raw.get("arguments"))
    return ToolCall(
        as_str(raw.get("tool_call_id")), as_str(raw.get("function_name")), arguments, raw_arguments
    )


def _parse_usage(raw: dict[str, Any]) -> Usage | None:
    input_tokens, cache_read = (
        count_or_none(raw.get("prompt_tokens")),
        count_or_none(raw.get("cached_tokens")),
    )
    output_tokens, cost = (
        count_or_none(raw.get("completion_tokens")),
        float_or_none(raw.get("cost_usd")),
    )
    if input_tokens is None and output_tokens is None and cost is None:
        return None
    uncached = None if input_tokens is None else max(input_tokens - (cache_read or 0), 0)
    return Usage(
        input_tokens=uncached,
        cache_read_tokens=cache_read,
        output_tokens=output_tokens,
        cost_usd=cost,
    )


_SUPPORTED = {
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
    """Return the file's content (compacted messages included), and counts of what it lacks."""
    return [
        msgspec.json.format(msgspec.json.encode(_encode_trajectory(session)), indent=1),
        b"\n",
    ], _count_losses(session)


def _count_losses(session: Session) -> Counter[str]:
    """Count what is lost of a session and of its descendants."""
    losses = count_conversion_losses(session, _SUPPORTED)
    replies = [m.usage for m in session.messages if m.usage is not None]
    losses["cache writes"] += sum(
        1 for usage in replies if usage.cache_write_tokens or usage.cache_write_1h_tokens
    )
    losses["counts of reasoning tokens"] += sum(1 for usage in replies if usage.reasoning_tokens)
    for child in session.children:
        losses.update(_count_losses(child))
    return losses


def _encode_trajectory(session: Session) -> dict[str, Any]:
    agent: dict[str, Any] = {
        "name": session.product or "ctxkit",
        "version": session.version or "unknown",
    }
    if session.model:
        agent["model_name"] = session.model
    if session.tools:
        agent["tool_definitions"] = encode_tool_schemas(session.tools)
    steps = _encode_steps(session)
    document = {
        "schema_version": "ATIF-v1.7",
        "session_id": session.id,
        "agent": agent,
        "steps": steps,
        "final_metrics": _encode_totals(session, len(steps)),
    }
    if session.children:
        document["subagent_trajectories"] = [_encode_trajectory(c) for c in session.children]
    return document


def _encode_steps(session: Session) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    step_by_call: dict[str, dict[str, Any]] = {}
    for message in select_sent_messages(session.messages):
        step = step_by_call.get(message.call_id or "")
        if message.role == "tool" and step is not None:
            step.setdefault("observation", {"results": []})["results"].append(
                _encode_result(message)
            )
            continue
        step = _encode_step(message, len(steps) + 1)
        for call in message.tool_calls:
            step_by_call[call.id] = step
        steps.append(step)
    return steps


def _encode_step(message: Message, number: int) -> dict[str, Any]:
    source = {"assistant": "agent", "system": "system", "tool": "system"}.get(message.role, "user")
    step: dict[str, Any] = {
        "step_id": number,
        "source": source,
        "message": _encode_content(message),
    }
    if message.time is not None:
        step["timestamp"] = format_timestamp(message.time)
    if message.role != "assistant":
        return step
    thinking = "\n".join(p.text for p in message.parts if isinstance(p, Thinking) and p.text)
    if message.model:
        step["model_name"] = message.model
    if thinking:
        step["reasoning_content"] = thinking
    if message.tool_calls:
        step["tool_calls"] = [
            {
                "tool_call_id": c.id,
                "function_name": c.name,
                "arguments": c.arguments if c.raw is None else {"raw": c.raw},
            }
            for c in message.tool_calls
        ]
    if message.usage is not None:
        step["metrics"] = _encode_metrics(message)
    return step


def _encode_metrics(message: Message) -> dict[str, Any]:
    usage = message.usage
    if usage is None:
        return {}
    metrics = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cache_read_tokens,
        "cost_usd": usage.cost_usd,
    }
    return {k: v for k, v in metrics.items() if v is not None}


def _encode_result(message: Message) -> dict[str, Any]:
    return {"source_call_id": message.call_id, "content": _encode_content(message)}


def _encode_content(message: Message) -> Any:
    has_images = any(
        isinstance(part, Attachment) and part.kind == "image" for part in message.parts
    )
    if not has_images:
        return get_plain_text(message)
    encoded: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Text):
            encoded.append({"type": "text", "text": part.text})
        elif isinstance(part, Attachment):
            address = part.url or f"data:{part.media_type};base64,{part.data}"
            encoded.append(
                {"type": "image", "source": {"media_type": part.media_type, "path": address}}
            )
    return encoded


def _encode_totals(session: Session, n_steps: int) -> dict[str, Any]:
    usages = [c.message.usage for c in session.calls if c.message.usage is not None]
    totals: dict[str, Any] = {"total_steps": n_steps}
    for name, values in (
        ("total_prompt_tokens", [u.prompt_tokens for u in usages]),
        ("total_completion_tokens", [u.output_tokens for u in usages]),
        ("total_cached_tokens", [u.cache_read_tokens for u in usages]),
        ("total_cost_usd", [u.cost_usd for u in usages]),
    ):
        present_values = [v for v in values if v is not None]
        if present_values:
            totals[name] = sum(present_values)
    return totals
