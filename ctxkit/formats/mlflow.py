"""MLflow's traces: spans whose inputs and outputs are the requests and answers of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.fields import as_dict, as_list, as_str, parse_embedded_json
from ctxkit.formats.spans import sessions_from_spans

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "mlflow"
CAN = (
    "text, calls and results, usage per call (cache reads where given), model, money where MLflow"
    " worked it out, times, agents, tools"
)
CANNOT = "marks of compactions (what left a prompt is derived); failed tools; system prompts apart"
BLIND = ("tool errors",)
TRAITS = (("all", "an input of at least the cached tokens is taken to hold them"),)
_CALLS = {"CHAT_MODEL", "LLM"}
_USAGE = {
    "gen_ai.usage.input_tokens": "input_tokens",
    "gen_ai.usage.output_tokens": "output_tokens",
    "gen_ai.usage.cache_read_input_tokens": "cache_read_input_tokens",
    "gen_ai.usage.cache_creation_input_tokens": "cache_creation_input_tokens",
}


def sniff(source: Source) -> bool:
    """Say whether there are traces whose spans have attributes of MLflow."""
    return any(
        "mlflow.spanType" in as_dict(as_dict(span).get("attributes"))
        for trace in _traces(source)[:4]
        for span in as_list(as_dict(trace.get("data")).get("spans"))[:16]
    )


def _traces(source: Source) -> list[dict[str, Any]]:
    """Return a file's traces: one, a list, one a line; or packed in texts (`Trace.to_json`)."""
    document = source.document
    if document is None:
        return [record for _, record in source.records]
    found = [parse_embedded_json(t) for t in (document if type(document) is list else [document])]
    return [t for t in found if type(t) is dict]


def read(source: Source) -> list[Session]:
    """Return one session a trace, or one for all traces of a session that MLflow knows."""
    spans = [
        (n, _as_otel(as_dict(span), as_dict(trace.get("info"))))
        for n, trace in enumerate(_traces(source), 1)
        for span in as_list(as_dict(trace.get("data")).get("spans"))
        if type(span) is dict
    ]
    faults = source.faults if source.document is None else []
    return sessions_from_spans(spans, source.path.stem, NAME, faults)


def _packed(value: Any) -> str | None:
    """A value as the text of its JSON, as those conventions have it."""
    return None if value is None else msgspec.json.encode(value).decode()


def _as_otel(span: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
    """A span in the words of OpenTelemetry's conventions."""
    given = {k: parse_embedded_json(v) for k, v in as_dict(span.get("attributes")).items()}
    kind = as_str(given.get("mlflow.spanType"))
    used, cost = as_dict(given.get("mlflow.chat.tokenUsage")), as_dict(given.get("mlflow.llm.cost"))
    about = as_dict(info.get("trace_metadata"))
    talk = parse_embedded_json(about.get("mlflow.trace.session")) or info.get("trace_id")
    asked = as_dict(given.get("mlflow.spanInputs"))
    model = given.get("mlflow.llm.model") or asked.get("model")
    tools = given.get("mlflow.chat.tools") or asked.get("tools")
    heard = given.get("mlflow.chat.messages") or given.get("mlflow.spanInputs")
    told: dict[str, Any] = {"gen_ai.conversation.id": talk}
    if kind in _CALLS:
        told |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.tool.definitions": _packed(tools),
            "input.value": _packed(heard),
            "output.value": _packed(given.get("mlflow.spanOutputs")),
            "gen_ai.usage.cost": cost.get("total_cost"),
            **{name: used.get(key) for name, key in _USAGE.items()},
        }
    else:
        told["gen_ai.operation.name"] = kind.lower() or None
        told["gen_ai.agent.name"] = span.get("name") if kind == "AGENT" else None
    return {
        "spanId": span.get("span_id") or as_dict(span.get("context")).get("span_id"),
        "parentSpanId": span.get("parent_span_id") or span.get("parent_id"),
        "traceId": span.get("trace_id"),
        "startTimeUnixNano": span.get("start_time_unix_nano") or span.get("start_time"),
        "endTimeUnixNano": span.get("end_time_unix_nano") or span.get("end_time"),
        "status": span.get("status"),
        "attributes": {k: v for k, v in told.items() if v is not None},
    }
