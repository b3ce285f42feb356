"""Reader of Langfuse trace exports, whose generations each have the whole prompt of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    fill_tool_names,
    parse_chat_message,
    parse_tool_schemas,
    subtract_cached,
)
from ctxkit.formats.conversations_from_requests import (
    KeyedMessage,
    PromptThreads,
    build_session_from_threads,
    make_keyed_message,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.sessions_from_trace_spans import extract_prompt_and_reply, extract_raw_messages
from ctxkit.formats.untrusted_record_parsing import (
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
from ctxkit.session.messages import Fault, Message, ToolSchema, Usage

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "langfuse"
CAN = (
    "text, system prompt, tools, calls and results, usage per call (cache reads), cost, times, "
    "latency, agents; removed messages (derived)"
)
CANNOT = "replies that a framework did not log (taken from the next prompt); marks of compactions"
BLIND = ("tool errors",)
TRAITS = (
    (
        "all",
        ("cost is as logged; generations without usage and output are events of a framework"),
    ),
)


# Generations in order of time are assigned to threads (`PromptThreads`), by prompt and by the AGENT
# observation above them. Prompt and reply are taken from input and output, else from OpenTelemetry
# attributes in the metadata. A generation without content and usage is an event of a framework.
def sniff(source: Source) -> bool:
    """Return True for an export: a trace beside its observations, or around them."""
    observations = _get_observations(source)
    first_observation = as_dict(observations[0]) if observations else {}
    return (
        as_str(first_observation.get("type")) in _OBSERVATION_TYPES
        and "startTime" in first_observation
    )


_OBSERVATION_TYPES = {
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


def _get_observations(source: Source) -> list[Any]:
    """Return the observations of an export, of a trace or page of the API, or of lines."""
    document = source.document
    if type(document) is dict and "traceId" not in document:
        return as_list(document.get("observations")) or as_list(document.get("data"))
    return document if type(document) is list else [r for _, r in source.records]


def read(source: Source) -> list[Session]:
    """Read one session per trace: its main thread, with the others as children."""
    document, observations = as_dict(source.document), _get_observations(source)
    if "observations" in document:
        return [
            _read_trace(as_dict(document.get("trace")) or document, observations, source.path.stem)
        ]
    traces: dict[str, list[Any]] = {}
    for observation in observations:
        traces.setdefault(as_str(as_dict(observation).get("traceId")), []).append(observation)
    sessions = [_read_trace({"id": id_}, group, source.path.stem) for id_, group in traces.items()]
    faults = source.faults if source.document is None else []
    return (
        [replace(sessions[0], faults=(*faults, *sessions[0].faults)), *sessions[1:]]
        if sessions
        else []
    )


def _read_trace(trace: dict[str, Any], observations: list[Any], name: str) -> Session:
    reader = _TraceReader(observations)
    reader.read_observations()
    threads = reader.threads.all
    session = build_session_from_threads(
        threads,
        as_str(trace.get("id")) or name,
        reader.tools,
        format=NAME,
        product="langfuse",
        title=str_or_none(trace.get("name")),
        started=parse_timestamp(trace.get("timestamp")) if threads else None,
    )
    return replace(session, skipped=reader.skipped, faults=tuple(reader.faults))


class _TraceReader:
    """Reader of one trace: its generations, in order of time, as threads."""

    def __init__(self, observations: list[Any]) -> None:
        valid = [observation for observation in observations if type(observation) is dict]
        self._by_id = {as_str(observation.get("id")): observation for observation in valid}
        self._sorted_observations = sorted(
            valid, key=lambda observation: parse_timestamp(observation.get("startTime")) or 0.0
        )
        self.skipped, self.faults = dict[str, int](), list[Fault]()
        if len(valid) < len(observations):
            self.faults.append(
                Fault(0, f"{len(observations) - len(valid)} observations are no objects")
            )
        self.threads = PromptThreads()
        self.tools: tuple[ToolSchema, ...] = ()
        self._tool_by_call: dict[str, str] = {}

    def read_observations(self) -> None:
        for observation in self._sorted_observations:
            if observation.get("type") != "GENERATION":
                count_skipped(
                    self.skipped, "observation: " + (as_str(observation.get("type")) or "no type")
                )
                continue
            with catch_damage(
                self.faults, 0, f"observation {as_str(observation.get('id'))[:40]}: "
            ):
                self._read_generation(observation)

    def _read_generation(self, observation: dict[str, Any]) -> None:
        prompt_value, output = (
            parse_embedded_json(observation.get("input")),
            parse_embedded_json(observation.get("output")),
        )
        prompt, reply = extract_raw_messages(prompt_value), extract_raw_messages(output)
        if not prompt and not reply:
            attributes = as_dict(
                as_dict(parse_embedded_json(observation.get("metadata"))).get("attributes")
            )
            if (
                "gen_ai.input.messages" in attributes
                or "llm.input_messages.0.message.role" in attributes
            ):
                prompt, reply = extract_prompt_and_reply(attributes, [])
        usage = _parse_usage(observation)
        if not prompt and not reply and usage is None:
            count_skipped(self.skipped, "generation without content")
            return
        system = as_str(as_dict(output).get("instructions"))  # the Responses API repeats them there
        if system:
            prompt = [{"role": "system", "content": system}, *prompt]
        self.tools = self.tools or parse_tool_schemas(
            as_dict(output).get("tools") or as_dict(prompt_value).get("tools")
        )
        prompt_messages = self._parse_messages(prompt)
        self.threads.add_call(
            prompt_messages,
            self._parse_reply(observation, reply, usage),
            self._find_agent(observation),
        )

    def _parse_reply(
        self, observation: dict[str, Any], reply: list[Any], usage: Usage | None
    ) -> Message:
        started, ended_at = (
            parse_timestamp(observation.get("startTime")),
            parse_timestamp(observation.get("endTime")),
        )
        is_error = observation.get("level") == "ERROR"
        parts = [
            p
            for _, m in self._parse_messages(
                [{"role": "assistant", **r} if "type" not in r else r for r in reply]
            )
            for p in m.parts
        ]
        return Message(
            role="assistant",
            id=as_str(observation.get("id")),
            parts=tuple(parts),
            time=ended_at or started,
            usage=usage,
            model=str_or_none(observation.get("model")),
            latency=ended_at - started if started and ended_at and ended_at >= started else None,
            is_error=is_error,
            error=as_str(observation.get("statusMessage"))[:2000] or None,
            stop="error" if is_error else None,
        )

    def _parse_messages(self, raw: list[Any]) -> list[KeyedMessage]:
        messages = [
            message
            for item in raw
            for message in fill_tool_names(
                parse_chat_message(item, SessionBuilder(), self.skipped), self._tool_by_call
            )
        ]
        calls: dict[str, str] = {}
        for i, message in enumerate(messages):
            calls |= {c.name: c.id for c in message.tool_calls}
            # LangGraph's handler writes the tool's name as the role of a result.
            if message.role == "user" and message.kind in calls:
                messages[i] = replace(
                    message, role="tool", tool=message.kind, kind="", call_id=calls[message.kind]
                )
        return [make_keyed_message(message) for message in messages]

    def _find_agent(self, observation: dict[str, Any]) -> str | None:
        for _ in range(64):
            observation = self._by_id.get(as_str(observation.get("parentObservationId")), {})
            if observation.get("type") == "AGENT":
                return str_or_none(observation.get("name"))
        return None


def _parse_usage(observation: dict[str, Any]) -> Usage | None:
    """Return the usage of a generation.

    `input` includes cached tokens, unless all classes together add up to the total.
    """
    details, costs = (
        as_dict(observation.get("usageDetails")),
        as_dict(observation.get("costDetails")),
    )
    if not details:
        return _parse_older_usage(observation)

    def sum_matching(*words: str) -> int | None:
        keys = [k for k in details if all(w in k for w in words)]
        counts = [n for k in keys if (n := count_or_none(details[k])) is not None]
        return sum(counts) if counts else None

    cache_read, cache_write = sum_matching("cache", "read"), sum_matching("cache", "creation")
    if cache_read is None:
        cache_read = sum_matching("cached")
    reasoning = sum_matching("reasoning")
    input_tokens, output_tokens, total = (
        count_or_none(details.get(k)) for k in ("input", "output", "total")
    )
    is_disjoint = (
        total is not None
        and (input_tokens or 0)
        + (output_tokens or 0)
        + (cache_read or 0)
        + (cache_write or 0)
        + (reasoning or 0)
        == total
    )
    if is_disjoint and output_tokens is not None:
        output_tokens += reasoning or 0
    return Usage(
        input_tokens=input_tokens
        if is_disjoint
        else subtract_cached(input_tokens, cache_read, cache_write),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        output_tokens=output_tokens,
        reasoning_tokens=reasoning,
        cost_usd=float_or_none(costs.get("total")),
    )


def _parse_older_usage(observation: dict[str, Any]) -> Usage | None:
    """Return the usage as older versions wrote it: in `usage`, or as flat `promptTokens`."""
    usage = as_dict(observation.get("usage"))
    input_tokens = count_or_none(
        usage.get("input", usage.get("promptTokens", observation.get("promptTokens")))
    )
    output_tokens = count_or_none(
        usage.get("output", usage.get("completionTokens", observation.get("completionTokens")))
    )
    if not input_tokens and not output_tokens:  # zeros mean that tokens were not counted
        return None
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=float_or_none(observation.get("calculatedTotalCost")) or None,
    )
