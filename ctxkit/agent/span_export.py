"""Export OpenTelemetry spans of a live session to an OTLP collector in the background."""

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

from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.redaction import redact, redact_json
from ctxkit.errors import BadArguments
from ctxkit.formats.otel import encode_agent_span, encode_call_span, encode_resource, get_trace_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.agent.turn import LiveEvent
    from ctxkit.session.session import Session

_WHEN = ("model_response", "model_error", "compaction_end", "turn_end")
_PAUSE = 1.0
"""Seconds between two looks within a turn."""
_SPANS = 64
"""Spans of one request at most."""
_RETRY = 15.0
"""Seconds until a collector that failed is asked again."""


@dataclass(frozen=True, kw_only=True)
class SpanAddress:
    """Where spans go, and what they say."""

    url: str
    """Of the collector; `/v1/traces` is added where no path is given."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content: bool = False
    """Whether prompts and replies go along; else sizes, usage, times, compactions alone."""
    seconds: float = 5.0
    """How long a request may take, and the end of the session may wait."""

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
    def of(cls, words: str, *, content: bool = False) -> SpanAddress:
        """Return the address that a setting names: an URL, or `env` for OpenTelemetry's variables.

        Read are OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, and
        OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT.

        Raises:
            BadArguments: it is no address.
        """
        if words.strip() != "env":
            return cls(url=words.strip(), content=content)
        said = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
        given = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")
        pairs = (pair.partition("=") for pair in given)
        return cls(
            url=os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"),
            headers={k.strip(): unquote(v.strip()) for k, _, v in pairs if v},
            content=content or said.strip().lower() == "true",
        )


class SpanExport:
    """Sends each call's span once it is there, and the agent's at the end.

    Args:
        session: gives the session as it stands; asked only in the thread that calls `hear`.
        to: where to.
        say: is told once that a collector failed, as event `export_failed`.
    """

    def __init__(
        self,
        session: Callable[[], Session],
        to: SpanAddress,
        say: Callable[[str, dict[str, Any]], None] = lambda _kind, _payload: None,
    ) -> None:
        self.to, self._session, self._say = to, session, say
        self.sent = 0
        """Spans that arrived."""
        self.fault = ""
        """Why the last request failed; empty: it did not."""
        self._newest: Session | None = None
        self._done: set[str] = set()
        self._looked, self._told, self._ends = 0.0, False, False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def hear(self, event: LiveEvent) -> None:
        """Note that there may be more to send; within a turn at most once a second."""
        if event.kind not in _WHEN:
            return
        if event.kind != "turn_end" and 0 <= event.time - self._looked < _PAUSE:
            return
        self._looked, self._newest = event.time, self._session()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ctxkit spans", daemon=True)
            self._thread.start()
        self._wake.set()
        if self.fault and not self._told:
            self._told = True
            self._say("export_failed", {"error": self.fault})

    def close(self) -> None:
        """Send what is left, and warn where it does not arrive in time."""
        if self._thread is None:
            return
        self._newest, self._ends = self._session(), True
        self._wake.set()
        self._thread.join(self.to.seconds)
        if self._thread.is_alive() or self.fault:
            why = self.fault or "it did not answer in time"
            warnings.warn(f"Spans of the session did not reach {self.to.url}: {why}.", stacklevel=2)

    # -- the thread

    def _work(self) -> None:
        while not self._ends:
            self._wake.wait()
            self._wake.clear()
            if not self._flush() and not self._ends:
                self._wake.wait(_RETRY)
        self._flush()

    def _flush(self) -> bool:
        """Send what is new of the newest session; False where a request failed."""
        ends, session = self._ends, self._newest  # in this order: the end comes after the newest
        if session is None:
            return True
        try:
            self._send(session, ends=ends)
            self.fault = ""
        except Exception as e:  # noqa: BLE001  whatever fails here must not cost the session
            self.fault = sanitize_line(redact(str(e)), 200) or type(e).__name__
        return not self.fault

    def _send(self, session: Session, *, ends: bool) -> None:
        trace, waiting = get_trace_id(session), dict[str, dict[str, Any]]()
        for call, shown in session.views():
            if call.message.id not in self._done:
                content = self.to.content
                waiting[call.message.id] = encode_call_span(
                    session, call, shown, trace, content=content
                )
            if len(waiting) >= _SPANS:
                self._post(session, waiting)
        if ends and "" not in self._done:
            waiting[""] = encode_agent_span(session, trace)
        self._post(session, waiting)

    def _post(self, session: Session, waiting: dict[str, dict[str, Any]]) -> None:
        """Send some spans, and note that they are done."""
        if not waiting:
            return
        clean = [
            {**s, **{k: redact_json(s[k]) for k in ("name", "attributes", "status")}}
            for s in waiting.values()
        ]
        scope = {"scope": {"name": "ctxkit"}, "spans": clean}
        about = {"attributes": redact_json(encode_resource(session)["attributes"])}
        post_spans(self.to, {"resourceSpans": [{"resource": about, "scopeSpans": [scope]}]})
        self._done.update(waiting)
        self.sent += len(waiting)
        waiting.clear()


def post_spans(to: SpanAddress, body: dict[str, Any]) -> None:
    """Send spans as JSON, or as protobuf to a collector that takes nothing else (Phoenix).

    Raises:
        OSError: it did not answer, or answered that it does not take them.
    """
    import httpx

    with httpx.Client(trust_env=False, follow_redirects=False, timeout=to.seconds) as client:
        try:
            code = _post_bytes(client, to, msgspec.json.encode(body), "application/json")
            if code == 415:
                code = _post_bytes(client, to, encode_protobuf(body), "application/x-protobuf")
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            raise OSError(str(e) or type(e).__name__) from None
    if not 200 <= code < 300:
        raise OSError(f"the collector answered with HTTP {code}")


def _post_bytes(client: Any, to: SpanAddress, data: bytes, kind: str) -> int:
    headers = {**to.headers, "Content-Type": kind}
    with client.stream("POST", to.url, content=data, headers=headers) as answer:
        return int(answer.status_code)  # its text is not read


def encode_protobuf(body: dict[str, Any]) -> bytes:
    """Return a request in OTLP's binary form.

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
