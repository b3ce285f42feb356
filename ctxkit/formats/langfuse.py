"""Langfuse trace exports: observations whose generations each hold the whole context of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_tool_schemas,
    subtract_cached,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    parse_embedded_json,
    parse_timestamp,
    str_or_none,
)
from ctxkit.formats.prompt_threads import (
    KeyedMessage,
    PromptThreads,
    key_message,
    threads_to_session,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.spans import extract_prompt_and_reply, extract_raw_messages
from ctxkit.session.messages import Fault, Message, ToolSchema, Usage

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "langfuse"
CAN = (
    "text, calls and results, usage per call (cache reads), money, latency, agents; what left a"
    " prompt (derived)"
)
CANNOT = "replies that a framework did not log (taken from the next prompt); marks of compactions"
TRAITS = (
    (
        "all",
        "money is the log's own; generations without usage and output are events of a framework",
    ),
)


def sniff(source: Source) -> bool:
    """Say whether this is an export: a trace beside observations (or a trace that holds them)."""
    found = _observations(source)
    first = as_dict(found[0]) if found else {}
    return as_str(first.get("type")) in _KINDS and "startTime" in first


_KINDS = {
    "GENERATION",
    "SPAN",
    "EVENT",
    "AGENT",
    "TOOL",
    "CHAIN",
    "RETRIEVER",
    "EVALUATOR",
    "EMBEDDING",
    "GUARDRAIL",
}


def _observations(source: Source) -> list[Any]:
    """Return the observations of an export, of a trace or page of the API, or one a line."""
    document = source.document
    if type(document) is dict and "traceId" not in document:
        return as_list(document.get("observations")) or as_list(document.get("data"))
    return document if type(document) is list else [r for _, r in source.records]


def read(source: Source) -> list[Session]:
    """Return the main thread of each trace, with the others as its children."""
    document, found = as_dict(source.document), _observations(source)
    if "observations" in document:
        return [_session(as_dict(document.get("trace")) or document, found, source.path.stem)]
    traces: dict[str, list[Any]] = {}
    for o in found:
        traces.setdefault(as_str(as_dict(o).get("traceId")), []).append(o)
    made = [_session({"id": id_}, told, source.path.stem) for id_, told in traces.items()]
    faults = source.faults if source.document is None else []
    return [replace(made[0], faults=(*faults, *made[0].faults)), *made[1:]] if made else []


def _session(trace: dict[str, Any], observations: list[Any], name: str) -> Session:
    reading = _Trace(observations)
    reading.take()
    threads = reading.threads.all
    made = threads_to_session(
        threads,
        as_str(trace.get("id")) or name,
        reading.tools,
        format=NAME,
        product="langfuse",
        title=str_or_none(trace.get("name")),
        started=parse_timestamp(trace.get("timestamp")) if threads else None,
    )
    return replace(made, skipped=reading.skipped, faults=tuple(reading.faults))


class _Trace:
    """The generations of a trace in order of time, as threads."""

    def __init__(self, observations: list[Any]) -> None:
        found = [o for o in observations if type(o) is dict]
        self._by_id = {as_str(o.get("id")): o for o in found}
        self._sorted = sorted(found, key=lambda o: parse_timestamp(o.get("startTime")) or 0.0)
        self.skipped, self.faults = dict[str, int](), list[Fault]()
        if len(found) < len(observations):
            self.faults.append(
                Fault(0, f"{len(observations) - len(found)} observations are no objects")
            )
        self.threads = PromptThreads()
        self.tools: tuple[ToolSchema, ...] = ()
        self._asked: dict[str, str] = {}

    def take(self) -> None:
        for o in self._sorted:
            if o.get("type") != "GENERATION":
                count_skipped(self.skipped, "observation: " + (as_str(o.get("type")) or "no type"))
                continue
            with catch_damage(self.faults, 0, f"observation {as_str(o.get('id'))[:40]}: "):
                self._generation(o)

    def _generation(self, o: dict[str, Any]) -> None:
        given, told = parse_embedded_json(o.get("input")), parse_embedded_json(o.get("output"))
        prompt, reply = extract_raw_messages(given), extract_raw_messages(told)
        if not prompt and not reply:
            attributes = as_dict(as_dict(parse_embedded_json(o.get("metadata"))).get("attributes"))
            if (
                "gen_ai.input.messages" in attributes
                or "llm.input_messages.0.message.role" in attributes
            ):
                prompt, reply = extract_prompt_and_reply(attributes, [])
        usage = _usage(o)
        if not prompt and not reply and usage is None:
            count_skipped(self.skipped, "generation without content")
            return
        system = as_str(as_dict(told).get("instructions"))  # Responses: they stand on the reply
        if system:
            prompt = [{"role": "system", "content": system}, *prompt]
        self.tools = self.tools or parse_tool_schemas(
            as_dict(told).get("tools") or as_dict(given).get("tools")
        )
        heard = self._heard(prompt)
        self.threads.call(heard, self._reply(o, reply, usage), self._agent(o))

    def _reply(self, o: dict[str, Any], reply: list[Any], usage: Usage | None) -> Message:
        begun, ended = parse_timestamp(o.get("startTime")), parse_timestamp(o.get("endTime"))
        failed = o.get("level") == "ERROR"
        parts = [
            p
            for _, m in self._heard(
                [{"role": "assistant", **r} if "type" not in r else r for r in reply]
            )
            for p in m.parts
        ]
        return Message(
            role="assistant",
            id=as_str(o.get("id")),
            parts=tuple(parts),
            time=ended or begun,
            usage=usage,
            model=str_or_none(o.get("model")),
            latency=ended - begun if begun and ended and ended >= begun else None,
            is_error=failed,
            error=as_str(o.get("statusMessage"))[:2000] or None,
            stop="error" if failed else None,
        )

    def _heard(self, raw: list[Any]) -> list[KeyedMessage]:
        out = [
            m
            for r in raw
            for m in fill_tool_names(
                parse_chat_message(r, SessionBuilder(), self.skipped), self._asked
            )
        ]
        calls: dict[str, str] = {}
        for i, m in enumerate(out):
            calls |= {c.name: c.id for c in m.tool_calls}
            if (
                m.role == "user" and m.kind in calls
            ):  # LangGraph's handler gives a result the tool's name as role
                out[i] = replace(m, role="tool", tool=m.kind, kind="", call_id=calls[m.kind])
        return [key_message(m) for m in out]

    def _agent(self, o: dict[str, Any]) -> str | None:
        for _ in range(64):
            o = self._by_id.get(as_str(o.get("parentObservationId")), {})
            if o.get("type") == "AGENT":
                return str_or_none(o.get("name"))
        return None


def _usage(o: dict[str, Any]) -> Usage | None:
    """Usage of a generation: `input` holds the cache, unless the classes add up to the total."""
    told, money = as_dict(o.get("usageDetails")), as_dict(o.get("costDetails"))
    if not told:
        return _older_usage(o)

    def found(*words: str) -> int | None:
        keys = [k for k in told if all(w in k for w in words)]
        known = [n for k in keys if (n := count_or_none(told[k])) is not None]
        return sum(known) if known else None

    read, write = found("cache", "read"), found("cache", "creation")
    if read is None:
        read = found("cached")
    reasoning = found("reasoning")
    whole, output, total = (count_or_none(told.get(k)) for k in ("input", "output", "total"))
    apart = (
        total is not None
        and (whole or 0) + (output or 0) + (read or 0) + (write or 0) + (reasoning or 0) == total
    )
    if apart and output is not None:
        output += reasoning or 0
    return Usage(
        input_tokens=whole if apart else subtract_cached(whole, read, write),
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=reasoning,
        cost_usd=float_or_none(money.get("total")),
    )


def _older_usage(o: dict[str, Any]) -> Usage | None:
    """Usage as older versions wrote it: `usage` of `input` and `output`, or flat `promptTokens`."""
    told = as_dict(o.get("usage"))
    whole = count_or_none(told.get("input", told.get("promptTokens", o.get("promptTokens"))))
    output = count_or_none(
        told.get("output", told.get("completionTokens", o.get("completionTokens")))
    )
    if not whole and not output:  # zeros: not counted
        return None
    return Usage(
        input_tokens=whole,
        output_tokens=output,
        cost_usd=float_or_none(o.get("calculatedTotalCost")) or None,
    )
