"""Spans of live sessions on their way to a collector: what arrives, what never does, and a turn
that a broken collector does not hold up.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from agent.test_live_session import live
from builders import assistant, user
from waiting import HANG, wait_until

import ctxkit as ck
from ctxkit.agent import LiveEvent, OtlpCollectorSettings, SpanExporter, get_script, span_export
from ctxkit.errors import BadArguments

SECRET = "sk-ant-api03-" + "a1B2" * 20


@contextmanager
def collector(code=200, answers=None, codes=()):
    """A collector on the loopback; it yields its address and the bodies that came.

    It answers once the event `answers` is set, where there is one, and at its own end. The first
    requests get the status codes of `codes`, all others `code`.
    """
    came, first_codes = [], list(codes)

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            data = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.path, dict(self.headers), data))
            if answers is not None:
                answers.wait(HANG)
            self.send_response(first_codes.pop(0) if first_codes else code)
            self.send_header("Location", "http://127.0.0.1:9/")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        if answers is not None:
            answers.set()
        server.shutdown()
        thread.join()
        server.server_close()


def spans_of(came):
    bodies = [json.loads(data) for _, _, data in came]
    return [s for b in bodies for r in b["resourceSpans"] for s in r["scopeSpans"][0]["spans"]]


def talk(folder, to, prompts=("Go on.",), **more):
    session = live(folder, **more)
    spans = session.export(to)
    for said in prompts:
        asyncio.run(session.turn(said))
    return session, spans


def test_what_arrives_is_the_session(tmp_path):
    """Every call once, the agent's span last; read back it is the session with its compactions."""
    with collector() as (url, came):
        prompts = get_script("audit").prompts
        session, _ = talk(tmp_path, OtlpCollectorSettings(url=url, content=True), prompts)
        session.close()
    found = spans_of(came)
    done = session.session
    assert len(found) == len({s["spanId"] for s in found}) == len(done.calls) + 1
    assert {path for path, *_ in came} == {"/v1/traces"}
    assert found[-1]["name"] == "invoke_agent main"
    assert {s.get("parentSpanId") for s in found[:-1]} == {found[-1]["spanId"]}
    ck.write(done, tmp_path / "written.json", format="otel")
    (tmp_path / "sent.json").write_text(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": found}]}]})
    )
    sent, written = ck.read(tmp_path / "sent.json"), ck.read(tmp_path / "written.json")
    assert [m.text for m in sent.messages] == [m.text for m in written.messages]
    assert len(sent.edits) == len(done.edits) > 0


def test_a_session_that_rests_before_it_ends_is_told_once(tmp_path):
    with collector() as (url, came):
        session, spans = talk(tmp_path, OtlpCollectorSettings(url=url))
        wait_until(lambda: spans.sent == len(session.session.calls))
        time.sleep(0.1)  # its thread waits by now
        session.close()
    names = [s["name"] for s in spans_of(came)]
    assert names.count("invoke_agent main") == 1
    assert len(names) == len(session.session.calls) + 1


def test_without_content_nothing_said_arrives(tmp_path):
    with collector() as (url, came):
        session, _ = talk(tmp_path, OtlpCollectorSettings(url=url), ["Say the word marzipan."])
        session.close()
    sent = b"".join(data for *_, data in came)
    assert b"gen_ai.usage.input_tokens" in sent
    assert b"marzipan" not in sent
    assert b"gen_ai.input.messages" not in sent


def test_no_secret_arrives(tmp_path):
    with collector() as (url, came):
        to = OtlpCollectorSettings(url=url, content=True, headers={"Authorization": "Bearer own"})
        session, spans = talk(tmp_path, to, [f"My key is {SECRET}."])
        session.close()
    sent = b"".join(data for *_, data in came)
    assert b"My key is" in sent
    assert SECRET.encode() not in sent
    assert came[0][1]["Authorization"] == "Bearer own"
    assert "Bearer own" not in repr(to) + repr(spans.__dict__)


@pytest.mark.parametrize("code", [301, 404, 415, 500])
def test_a_collector_that_refuses_costs_nothing_but_its_spans(tmp_path, code):
    with collector(code) as (url, came):
        session, spans = talk(tmp_path, OtlpCollectorSettings(url=url), ["One.", "Two."])
        with pytest.warns(UserWarning, match="did not reach"):
            session.close()
    assert came
    assert spans.sent == 0
    assert spans.fault
    assert len(set(session.session.turns)) == 2


def test_a_collector_that_hangs_holds_no_turn_up(tmp_path):
    answers = threading.Event()
    with collector(answers=answers) as (url, came):
        session, spans = talk(tmp_path, OtlpCollectorSettings(url=url, seconds=60), [])
        began = time.monotonic()
        asyncio.run(session.turn("Go on."))
        assert time.monotonic() - began < 45  # who waits for the answer waits for a minute
        wait_until(lambda: came)
        assert spans.sent == 0
        answers.set()
        session.close()
    assert spans.sent > 0


def test_a_collector_that_hangs_is_given_up_at_the_end(tmp_path):
    with collector(answers=threading.Event()) as (url, _):
        session, spans = talk(tmp_path, OtlpCollectorSettings(url=url, seconds=0.2))
        with pytest.warns(UserWarning, match="did not reach"):
            session.close()
        assert spans.sent == 0  # the collector answers when it ends


def test_nobody_there_is_told_once(tmp_path):
    said = []
    export = SpanExporter(
        lambda: ck.Session(id="x", log=(assistant("a"),)),
        OtlpCollectorSettings(url="http://127.0.0.1:9", seconds=1),
        lambda kind, payload: said.append((kind, payload["error"])),
    )
    for _ in range(3):
        export.on_event(LiveEvent("turn_end", 0.0, 1, {}))
        time.sleep(0.05 if export.fault else 0.3)
    with pytest.warns(UserWarning, match="127.0.0.1:9/v1/traces"):
        export.close()
    assert [kind for kind, _ in said] == ["export_failed"]


def test_a_failed_request_is_repeated_without_another_event(monkeypatch):
    """Both failures are followed by another request after the wait; a success ends the repeats."""
    monkeypatch.setattr(span_export, "_RETRY_SECONDS", 0.02)
    session = ck.Session(id="x", log=(user(), assistant("a")))
    with collector(codes=(500, 503)) as (url, came):
        export = SpanExporter(lambda: session, OtlpCollectorSettings.of(url))
        export.on_event(LiveEvent("turn_end", 0.0, 1, {}))
        wait_until(lambda: export.sent == 1)
        wait_until(lambda: not export.fault)
        time.sleep(0.1)  # five waits
        assert len(came) == 3
        export.close()
    assert len(came) == 4  # the last one has the span of the agent
    assert len(spans_of(came[2:])) == 2


@pytest.mark.parametrize(
    "bad", ["", "ftp://a", "http://me:pw@host", "http://h/v1?x=1", "file:///x"]
)
def test_addresses_that_are_refused(bad):
    with pytest.raises(BadArguments, match="http://"):
        OtlpCollectorSettings.of(bad)


def test_the_variables_of_opentelemetry(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example:4318/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=1")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "True")
    to = OtlpCollectorSettings.of("env")
    assert to.url == "https://collector.example:4318/v1/traces"
    assert to.content
    assert dict(to.headers) == {"api-key": "a b", "x": "1"}
