"""Reader of MLflow traces, whose spans are converted to OpenTelemetry's conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.sessions_from_trace_spans import build_sessions_from_spans
from ctxkit.formats.untrusted_record_parsing import as_dict, as_list, as_str, parse_embedded_json

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "mlflow"
CAN = (
    "text, system prompt (in messages), calls and results, usage per call (cache reads if given),"
    " model, cost if MLflow computed it, times, agents, tools"
)
CANNOT = "marks of compactions (removals are derived); failed tools; separate system prompts"
BLIND = ("tool errors",)
TRAITS = (
    (
        "all",
        ("an input is taken to include the cached tokens if it is at least as large"),
    ),
)
_CALL_TYPES = {"CHAT_MODEL", "LLM"}
_USAGE_KEYS = {
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.cache_read_input_tokens": "cache_read_input_tokens",
    "gen_ai.usage.cache_creation_input_tokens": "cache_creation_input_tokens",
}


# Only the attributes differ from OpenTelemetry's: their values are JSON strings, inputs and outputs
# are those of the traced function, and usage and cost are objects. Each span is rewritten with the
# attributes that `spans` reads; the MLflow session, if there is one, becomes the conversation.
def sniff(source: Source) -> bool:
    """Return True for traces whose spans have MLflow's attributes."""
    return any(
        "mlflow.spanType" in as_dict(as_dict(span).get("attributes"))
        for trace in _get_traces(source)[:4]
        for span in as_list(as_dict(trace.get("data")).get("spans"))[:16]
    )


def _get_traces(source: Source) -> list[dict[str, Any]]:
    """Return a file's traces: one, a list, one per line, or JSON strings (`Trace.to_json`)."""
    document = source.document
    if document is None:
        return [record for _, record in source.records]
    documents = [
        parse_embedded_json(item) for item in (document if type(document) is list else [document])
    ]
    return [item for item in documents if type(item) is dict]


def read(source: Source) -> list[Session]:
    """Read one session per trace, or one for all traces of an MLflow session."""
    spans = [
        (number, _to_otel_span(as_dict(span), as_dict(trace.get("info"))))
        for number, trace in enumerate(_get_traces(source), 1)
        for span in as_list(as_dict(trace.get("data")).get("spans"))
        if type(span) is dict
    ]
    faults = source.faults if source.document is None else []
    return build_sessions_from_spans(spans, source.path.stem, NAME, faults)


def _encode_json(value: Any) -> str | None:
    """Return a value as JSON text, as the conventions require."""
    return None if value is None else msgspec.json.encode(value).decode()


def _to_otel_span(span: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
    """Convert an MLflow span to one with OpenTelemetry's attributes."""
    attributes = {
        k: parse_embedded_json(value) for k, value in as_dict(span.get("attributes")).items()
    }
    span_type = as_str(attributes.get("mlflow.spanType"))
    usage, cost = (
        as_dict(attributes.get("mlflow.chat.tokenUsage")),
        as_dict(attributes.get("mlflow.llm.cost")),
    )
    metadata = as_dict(info.get("trace_metadata"))
    conversation = parse_embedded_json(metadata.get("mlflow.trace.session")) or info.get("trace_id")
    inputs = as_dict(attributes.get("mlflow.spanInputs"))
    model = attributes.get("mlflow.llm.model") or inputs.get("model")
    tools = attributes.get("mlflow.chat.tools") or inputs.get("tools")
    messages = attributes.get("mlflow.chat.messages") or attributes.get("mlflow.spanInputs")
    otel_attributes: dict[str, Any] = {"gen_ai.conversation.id": conversation}
    if span_type in _CALL_TYPES:
        otel_attributes |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.tool.definitions": _encode_json(tools),
            "input.value": _encode_json(messages),
            "output.value": _encode_json(attributes.get("mlflow.spanOutputs")),
            "gen_ai.usage.cost": cost.get("total_cost"),
            **{name: usage.get(key) for name, key in _USAGE_KEYS.items()},
        }
    else:
        otel_attributes["gen_ai.operation.name"] = span_type.lower() or None
        otel_attributes["gen_ai.agent.name"] = span.get("name") if span_type == "AGENT" else None
    return {
        "spanId": span.get("span_id") or as_dict(span.get("context")).get("span_id"),
        "parentSpanId": span.get("parent_span_id") or span.get("parent_id"),
        "traceId": span.get("trace_id"),
        "startTimeUnixNano": span.get("start_time_unix_nano") or span.get("start_time"),
        "endTimeUnixNano": span.get("end_time_unix_nano") or span.get("end_time"),
        "status": span.get("status"),
        "attributes": {k: value for k, value in otel_attributes.items() if value is not None},
    }
