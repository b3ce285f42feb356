"""Requests of spans to a collector: what is sent when, which settings are taken, and what is said of failures."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import httpx
import pytest
from builders import assistant, session, user

from ctxkit.agent import LiveEvent, OtlpCollectorSettings, SpanExporter, encode_protobuf, post_spans
from ctxkit.errors import BadArguments

URL = "http://h:4318/v1/traces"
NAMES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:4318", URL),
        ("http://h:4318/", URL),
        (URL, URL),
        (f"{URL}/", f"{URL}/"),
        ("https://h/a/b", "https://h/a/b/v1/traces"),
    ],
)
def test_the_address_of_a_collector(url, expected):
    assert OtlpCollectorSettings.of(f" {url} ") == OtlpCollectorSettings(url=expected)
    assert OtlpCollectorSettings.of(url, content=True).content
    assert "Bearer" not in repr(OtlpCollectorSettings(url=url, headers={"a": "Bearer x"}))


@pytest.mark.parametrize("seconds", [0, -1, 60.5])
def test_the_time_of_a_request_is_bounded(seconds):
    with pytest.raises(BadArguments, match=r"^A request for spans may take 0 to 60 seconds\.$"):
        OtlpCollectorSettings(url=URL, seconds=seconds)
    assert OtlpCollectorSettings(url=URL, seconds=60).seconds == 60
    assert OtlpCollectorSettings(url=URL).seconds == 5


def test_variables_that_are_not_set(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    assert OtlpCollectorSettings.of(" env ") == OtlpCollectorSettings(url="http://localhost:4318")
    assert OtlpCollectorSettings.of("env", content=True).content
    monkeypatch.setenv(NAMES[1], "a=1,none,b=,c = x=y ")
    monkeypatch.setenv(NAMES[2], " false ")
    settings = OtlpCollectorSettings.of("env")
    assert (dict(settings.headers), settings.content) == ({"a": "1", "c": "x=y"}, False)


@pytest.fixture
def collector(monkeypatch):
    """Answer requests with the given statuses or errors, 200 behind them; give the requests."""
    requests, answers, client = [], [], httpx.Client

    def handle(request):
        requests.append(request)
        answer = answers.pop(0) if answers else 200
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer)

    monkeypatch.setattr(
        httpx, "Client", lambda **more: client(transport=httpx.MockTransport(handle), **more)
    )
    return requests, answers


SETTINGS = OtlpCollectorSettings(url=URL, headers={"X-Key": "k", "Content-Type": "other"})


def test_spans_are_sent_as_json(collector):
    requests, answers = collector
    answers += [200, 299]
    for _ in range(2):
        post_spans(SETTINGS, {"resourceSpans": []})
    assert [(r.method, str(r.url), r.content) for r in requests] == [
        ("POST", URL, b'{"resourceSpans":[]}')
    ] * 2
    assert (requests[0].headers["x-key"], requests[0].headers["content-type"]) == (
        "k",
        "application/json",
    )


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (199, "the collector answered with HTTP 199"),
        (300, "the collector answered with HTTP 300"),
        (503, "the collector answered with HTTP 503"),
        (httpx.ConnectError("no route"), "no route"),
        (httpx.ConnectTimeout(""), "ConnectTimeout"),
        (httpx.InvalidURL("odd"), "odd"),
    ],
)
def test_a_collector_that_refuses(collector, answer, error):
    collector[1].append(answer)
    with pytest.raises(OSError) as raised:
        post_spans(SETTINGS, {"resourceSpans": []})
    assert str(raised.value) == error


def make_modules(monkeypatch):
    """Put modules in place of those of protobuf: a request is written as its JSON."""

    class Request:
        def SerializeToString(self):  # noqa: N802  the name that protobuf gives
            return json.dumps(self.body).encode()

    def parse(body, request):
        request.body = body
        return request

    name = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
    for module, fields in (
        (name, {"ExportTraceServiceRequest": Request}),
        ("google.protobuf.json_format", {"ParseDict": parse}),
    ):
        parts = module.split(".")
        for n in range(1, len(parts) + 1):
            made = ModuleType(".".join(parts[:n]))
            made.__path__ = []
            monkeypatch.setitem(sys.modules, made.__name__, made)
        vars(sys.modules[module]).update(fields)


def test_a_collector_that_takes_protobuf_alone(collector, monkeypatch):
    requests, answers = collector
    make_modules(monkeypatch)
    answers.append(415)
    span = {"traceId": "00ff", "spanId": "01", "parentSpanId": "02", "name": "a"}
    post_spans(SETTINGS, {"resourceSpans": [{"scopeSpans": [{"spans": [span, {"name": "b"}]}]}]})
    assert [r.headers["content-type"] for r in requests] == [
        "application/json",
        "application/x-protobuf",
    ]
    spans = json.loads(requests[1].content)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    # its ids are bytes, which JSON has in base64
    assert spans == [
        {"traceId": "AP8=", "spanId": "AQ==", "parentSpanId": "Ag==", "name": "a"},
        {"name": "b"},
    ]
    answers += [415, 415]
    with pytest.raises(OSError, match=r"^the collector answered with HTTP 415$"):
        post_spans(SETTINGS, {"resourceSpans": []})


def test_without_protobuf_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None
    )
    with pytest.raises(
        OSError, match=r"^it takes protobuf alone: install opentelemetry-proto, or choose"
    ):
        encode_protobuf({"resourceSpans": []})


def test_each_call_is_sent_once_and_the_agent_at_the_end(collector):
    requests, _ = collector
    log = [user(), assistant("a" * 9), user(), assistant("b")]
    current = [session(*log[:2])]
    exporter = SpanExporter(lambda: current[0], OtlpCollectorSettings(url=URL))

    def take():
        bodies = [json.loads(r.content) for r in requests]
        requests.clear()
        return [
            [s["name"] for b in body["resourceSpans"] for c in b["scopeSpans"] for s in c["spans"]]
            for body in bodies
        ]

    exporter._send_session(current[0], closing=False)
    (first,) = take()
    assert len(first) == exporter.sent == 1
    exporter._send_session(current[0], closing=False)
    assert take() == []
    current[0] = session(*log)
    exporter._send_session(current[0], closing=True)
    (last,) = take()
    assert (len(last), exporter.sent) == (2, 3)
    exporter._send_session(current[0], closing=True)
    assert take() == []
    many = session(*(m for i in range(66) for m in (user(), assistant(id=f"n{i}"))))
    exporter._send_session(many, closing=False)
    assert [len(names) for names in take()] == [64, 2]


def test_what_brings_new_spans(monkeypatch):
    looks = []
    exporter = SpanExporter(lambda: looks.append(1) or session(), OtlpCollectorSettings(url=URL))
    monkeypatch.setattr(exporter, "_run_thread", lambda: None)
    for kind, time, looked in (
        ("delta", 100.0, 0),
        ("model_response", 100.0, 1),
        ("model_error", 100.9, 1),  # less than a second later
        ("compaction_end", 101.0, 2),
        ("turn_end", 101.1, 3),  # the end of a turn always does
        ("model_response", 50.0, 4),  # the clock was set back
    ):
        exporter.on_event(LiveEvent(kind, time, 0, {}))
        assert len(looks) == looked, kind


def test_a_failure_is_noted_until_a_request_succeeds(collector):
    _, answers = collector
    events = []
    exporter = SpanExporter(
        lambda: session(user(), assistant()),
        OtlpCollectorSettings(url=URL),
        lambda *e: events.append(e),
    )
    assert exporter._send_new()  # there is no session yet
    exporter._newest = session(user(), assistant())
    answers += [httpx.ConnectError("no\nroute"), ValueError("")]
    assert not exporter._send_new()
    assert (exporter.fault, exporter.sent) == ("no route", 0)
    assert not exporter._send_new()
    assert exporter.fault == "ValueError"
    assert exporter._send_new()
    assert (exporter.fault, exporter.sent, events) == ("", 1, [])
    SpanExporter(session, OtlpCollectorSettings(url=URL)).close()  # nothing was begun
