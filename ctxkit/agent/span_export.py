"""Export of a live session's OpenTelemetry spans to an OTLP collector, in the background.

A listener notes the newest session; a daemon thread sends the spans of calls that are new in it. A
failed request is repeated later, each span is sent once, and no failure reaches the session.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit._internal.redaction import redact_json
from ctxkit.errors import BadArguments
from ctxkit.formats.otel import (
    encode_agent_span,
    encode_call_span,
    encode_resource,
    get_trace_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.agent.turn_state_and_events import LiveEvent
    from ctxkit.session.session import Session

_SENDING_EVENTS = ("model_response", "model_error", "compaction_end", "turn_end")
_MIN_INTERVAL = 1.0
"""Seconds between two exports within a turn."""
_MAX_SPANS = 64
"""Spans of one request."""
_RETRY_SECONDS = 15.0
"""Seconds until a failed request is repeated."""


@dataclass(frozen=True, kw_only=True)
class OtlpCollectorSettings:
    """Address of an OTLP collector, and what is sent to it.

    Example:
        >>> from ctxkit.agent.span_export import OtlpCollectorSettings
        >>> OtlpCollectorSettings(url="http://localhost:4318").url
        'http://localhost:4318/v1/traces'
    """

    url: str
    """URL of the collector; `/v1/traces` is appended if it is missing."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content: bool = False
    """Send prompts and replies, too, not only sizes, usage, times and compactions."""
    seconds: float = 5.0
    """Seconds that a request may take, and that closing the session may wait."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"https?://[^/\s@?#]+(/[^\s?#]*)?", self.url):
            raise BadArguments(
                "The address for spans begins with http:// or https://, and holds no password."
            )
        if not self.url.rstrip("/").endswith("/v1/traces"):
            object.__setattr__(self, "url", self.url.rstrip("/") + "/v1/traces")
        if not 0 < self.seconds <= 60:
            raise BadArguments("A request for spans may take 0 to 60 seconds.")

    @classmethod
    def of(cls, words: str, *, content: bool = False) -> OtlpCollectorSettings:
        """Return the address that a setting names: a URL, or `env` for OpenTelemetry's variables.

        The variables are OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS and
        OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT.

        Args:
            words: the URL, or "env".
            content: send the text of messages too.

        Raises:
            BadArguments: the address is not valid.
        """
        if words.strip() != "env":
            return cls(url=words.strip(), content=content)
        capture_content = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
        header_pairs = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")
        pairs = (pair.partition("=") for pair in header_pairs)
        return cls(
            url=os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
            headers={k.strip(): unquote(v.strip()) for k, _, v in pairs if v},
            content=content or capture_content.strip().lower() == "true",
        )


class SpanExporter:
    """Sends the span of each call when it is complete, and the agent's span at the end.

    Args:
        session: returns the session so far; called only in the thread that calls `on_event`.
        address: address of the collector.
        emit: called once if the collector failed, with the event `export_failed` (kind, payload).
    """

    def __init__(
        self,
        session: Callable[[], Session],
        address: OtlpCollectorSettings,
        emit: Callable[[str, dict[str, Any]], None] = lambda _kind, _payload: None,
    ) -> None:
        self.to, self._session, self._emit = address, session, emit
        self.sent = 0
        """Spans that the collector accepted."""
        self.fault = ""
        """Reason why the last request failed; empty if it succeeded."""
        self._newest: Session | None = None
        self._sent_ids: set[str] = set()
        self._last_look, self._failure_emitted, self._closing = 0.0, False, False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def on_event(self, event: LiveEvent) -> None:
        """Wake the sending thread if an event may have brought new spans, at most once a second."""
        if event.kind not in _SENDING_EVENTS:
            return
        if event.kind != "turn_end" and 0 <= event.time - self._last_look < _MIN_INTERVAL:
            return
        self._last_look, self._newest = event.time, self._session()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_thread, name="ctxkit spans", daemon=True
            )
            self._thread.start()
        self._wake.set()
        if self.fault and not self._failure_emitted:
            self._failure_emitted = True
            self._emit("export_failed", {"error": self.fault})

    def close(self) -> None:
        """Send the remaining spans; warn if that fails or takes too long."""
        if self._thread is None:
            return
        self._newest, self._closing = self._session(), True
        self._wake.set()
        self._thread.join(self.to.seconds)
        if self._thread.is_alive() or self.fault:
            why = self.fault or "it did not answer in time"
            warnings.warn(f"Spans of the session did not reach {self.to.url}: {why}.", stacklevel=2)

    # -- the thread

    def _run_thread(self) -> None:
        seconds: float | None = None
        while not self._closing:
            self._wake.wait(seconds)
            self._wake.clear()
            seconds = None if self._send_new() else _RETRY_SECONDS
        self._send_new()

    def _send_new(self) -> bool:
        """Send the new spans of the newest session; return False if anything failed."""
        # Read in this order: `close` sets the session before the flag.
        closing, session = (
            self._closing,
            self._newest,
        )
        if session is None:
            return True
        try:
            self._send_session(session, closing=closing)
            self.fault = ""
        except Exception as e:  # noqa: BLE001  whatever fails here must not cost the session
            self.fault = sanitize_line(str(e), 200) or type(e).__name__
        return not self.fault

    def _send_session(self, session: Session, *, closing: bool) -> None:
        trace, waiting = get_trace_id(session), dict[str, dict[str, Any]]()
        for call, view in session.views():
            if call.message.id not in self._sent_ids:
                content = self.to.content
                waiting[call.message.id] = encode_call_span(
                    session, call, view, trace, has_text=content
                )
            if len(waiting) >= _MAX_SPANS:
                self._post_batch(session, waiting)
        if closing and "" not in self._sent_ids:
            waiting[""] = encode_agent_span(session, trace)
        self._post_batch(session, waiting)

    def _post_batch(self, session: Session, waiting: dict[str, dict[str, Any]]) -> None:
        """Send some spans and note their ids."""
        if not waiting:
            return
        clean = [
            {**s, **{k: redact_json(s[k]) for k in ("name", "attributes", "status")}}
            for s in waiting.values()
        ]
        scope = {"scope": {"name": "ctxkit"}, "spans": clean}
        about = {"attributes": redact_json(encode_resource(session)["attributes"])}
        post_spans(self.to, {"resourceSpans": [{"resource": about, "scopeSpans": [scope]}]})
        self._sent_ids.update(waiting)
        self.sent += len(waiting)
        waiting.clear()


def post_spans(collector: OtlpCollectorSettings, body: dict[str, Any]) -> None:
    """Send spans as JSON, or as protobuf to a collector that takes nothing else (Phoenix).

    Args:
        collector: address, headers and time limit.
        body: the spans, in OTLP's JSON form.

    Raises:
        OSError: the collector did not answer, or refused them.
    """
    import httpx

    with httpx.Client(trust_env=False, follow_redirects=False, timeout=collector.seconds) as client:
        try:
            code = _post_bytes(client, collector, msgspec.json.encode(body), "application/json")
            if code == 415:
                code = _post_bytes(
                    client, collector, encode_protobuf(body), "application/x-protobuf"
                )
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            raise OSError(str(e) or type(e).__name__) from None
    if not 200 <= code < 300:
        raise OSError(f"the collector answered with HTTP {code}")


def _post_bytes(client: Any, to: OtlpCollectorSettings, data: bytes, kind: str) -> int:
    headers = {**to.headers, "Content-Type": kind}
    with client.stream("POST", to.url, content=data, headers=headers) as answer:
        return int(answer.status_code)  # the body is not read


def encode_protobuf(body: dict[str, Any]) -> bytes:
    """Return an OTLP request in protobuf's binary form.

    Raises:
        OSError: the package for it is not installed.
    """
    from base64 import b64encode

    try:
        service = import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
        parse = import_module("google.protobuf.json_format").ParseDict
    except ImportError:
        raise OSError(
            "it takes protobuf alone: install opentelemetry-proto, or choose one that takes JSON"
        ) from None
    for each in body["resourceSpans"]:
        for span in (s for scope in each["scopeSpans"] for s in scope["spans"]):
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in span:
                    span[key] = b64encode(bytes.fromhex(span[key])).decode()
    return bytes(parse(body, service.ExportTraceServiceRequest()).SerializeToString())
