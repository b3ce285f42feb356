"""OpenTelemetry GenAI spans as JSON: what an OTLP exporter writes, or one span a line;
OpenInference's too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.readers.fields import items, mapping
from ctxkit.readers.span_talks import from_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "otel"
ALIASES = ("opentelemetry", "otlp", "openinference")
CAN = (
    "usage per call (cache reads where given), model, times, agents, tools; text where the exporter"
    " may log it; compactions where it marks them (gen_ai.conversation.compacted, parts of type"
    " compaction)"
)
CANNOT = "text by default; failed tools; money, but where an exporter adds it"
BLIND = ("tool errors",)
TRAITS = (
    (
        "all",
        (
            "an exporter that marks no compaction leaves only what is gone from the next prompt:"
            " derived"
        ),
    ),
)


def sniff(source: Source) -> bool:
    """Say whether this is OTLP JSON or spans with attributes of a GenAI convention."""
    document = source.document
    if type(document) is dict and type(document.get("resourceSpans")) is list:
        return True
    found = document if type(document) is list else source.head
    return any("resourceSpans" in mapping(r) or _is_genai(mapping(r)) for r in found[:16])


def _is_genai(span: dict[str, Any]) -> bool:
    given = span.get("attributes")
    keys = (
        list(given)[:200]
        if type(given) is dict
        else [mapping(a).get("key") for a in items(given)[:200]]
    )
    return any(type(k) is str and k.startswith(("gen_ai.", "llm.", "openinference.")) for k in keys)


def read(source: Source) -> list[Session]:
    """Return one session a conversation (else a trace), other agents' threads as its children."""
    found = source.document
    records: list[Any] = found if type(found) is list else [r for _, r in source.records]
    spans = (
        (n, span) for n, record in enumerate(records, 1) for span in _unwrapped(mapping(record))
    )
    return from_spans(spans, source.path.stem, NAME, [] if type(found) is list else source.faults)


def _unwrapped(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource in map(mapping, items(record.get("resourceSpans"))):
        about = items(mapping(resource.get("resource")).get("attributes"))
        for scope in map(
            mapping,
            items(resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans")),
        ):
            for span in items(scope.get("spans")):
                if type(span) is dict:
                    yield {**span, "attributes": [*about, *items(span.get("attributes"))]}
