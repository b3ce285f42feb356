"""Reader and writer of OpenTelemetry GenAI spans as OTLP JSON.

Names follow the semantic conventions for generative AI, including `gen_ai.conversation.compacted`
and parts of type `compaction` for summaries (pull request 162 of the conventions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.formats.sessions_from_trace_spans import build_sessions_from_spans
from ctxkit.formats.untrusted_record_parsing import as_dict, as_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session


NAME = "otel"
ALIASES = ("opentelemetry", "otlp", "openinference")
CAN = (
    "usage per call (cache reads if given), model, times, agents, tools; text if the exporter "
    "may log it; compactions if it marks them (gen_ai.conversation.compacted, parts of type "
    "compaction)"
)
CANNOT = "text by default; failed tools; cost, unless an exporter adds it"
BLIND = ("tool errors",)
TRAITS = (
    (
        "all",
        (
            "without the exporter's marks, compactions are derived from messages missing in the "
            "next prompt"
        ),
    ),
)


# Reading: `spans.build_sessions_from_spans` groups the spans into sessions. Writing: one span per
# agent and one below it per model call. The span of a call repeats its whole prompt, so that the
# file is quadratic in the length of the session; it is produced as a stream, and `_PromptEncoder`
# encodes each message once and shares full pieces of text between the prompts.
def sniff(source: Source) -> bool:
    """Return True for OTLP JSON or spans with attributes of a GenAI convention."""
    document = source.document
    if type(document) is dict and type(document.get("resourceSpans")) is list:
        return True
    records = document if type(document) is list else source.head
    return any("resourceSpans" in as_dict(r) or _is_genai(as_dict(r)) for r in records[:16])


def _is_genai(span: dict[str, Any]) -> bool:
    attributes = span.get("attributes")
    keys = (
        list(attributes)[:200]
        if type(attributes) is dict
        else [as_dict(a).get("key") for a in as_list(attributes)[:200]]
    )
    return any(
        type(key) is str and key.startswith(("gen_ai.", "llm.", "openinference.")) for key in keys
    )


def read(source: Source) -> list[Session]:
    """Read one session per conversation (or trace), with other agents' threads as children."""
    document = source.document
    records: list[Any] = document if type(document) is list else [r for _, r in source.records]
    spans = (
        (n, span) for n, record in enumerate(records, 1) for span in _iter_spans(as_dict(record))
    )
    return build_sessions_from_spans(
        spans, source.path.stem, NAME, [] if type(document) is list else source.faults
    )


def _iter_spans(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource_spans in map(as_dict, as_list(record.get("resourceSpans"))):
        resource_attributes = as_list(as_dict(resource_spans.get("resource")).get("attributes"))
        for scope_spans in map(
            as_dict,
            as_list(
                resource_spans.get("scopeSpans")
                or resource_spans.get("instrumentationLibrarySpans")
            ),
        ):
            for span in as_list(scope_spans.get("spans")):
                if type(span) is dict:
                    yield {
                        **span,
                        "attributes": [*resource_attributes, *as_list(span.get("attributes"))],
                    }
