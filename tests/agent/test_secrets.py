"""Keys planted in the environment, in prompts, replies, tool results and errors reach nothing that is kept or shown."""

from __future__ import annotations

import json
import traceback
from itertools import count

import pytest
from stand_in_models import COUNT, Says, run, said

import ctxkit as ck
from ctxkit.agent import (
    ArtifactStore,
    Delta,
    Limits,
    LiveSession,
    ProviderModel,
    Workspace,
    make_unsealed_session_settings,
    tool,
)
from ctxkit.errors import ModelError, StoreError
from ctxkit.policies import Above, Rules, Summary
from ctxkit.session import ToolCall

PLANTED = "correct horse battery"
SHAPED = "sk-planted0123456789abcdef"
BEARER = "Authorization: Bearer planted.token.0123456789"
ALL = (PLANTED, SHAPED, "planted.token.0123456789")


def leak(what: str = "") -> str:
    """Say what must not be said."""
    return f"{what} PLANTED_API_KEY={PLANTED} {SHAPED} {BEARER}"


def fail() -> str:
    """Raise what must not be said."""
    raise RuntimeError(leak())


@pytest.fixture
def live(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", PLANTED)
    heard, ticks = [], count(1_800_000_000)
    model = Says(
        said(
            f"I use {SHAPED}",
            ToolCall("c1", "leak", {"what": SHAPED}),
            ToolCall("c2", "fail"),
            stop="tool",
        ),
        said(ToolCall("c3", "leak", raw='{"what": "' + SHAPED), stop="tool"),
        ModelError(f"bad key {leak()}"),
        RuntimeError(f"bad key {leak()}"),
        *[said(f"notes: {leak()}")] * 9,
    )
    rules = Rules(policy=Summary(keep_tokens=50), trigger=Above(400), counter=COUNT, window=50_000)
    with LiveSession("one", model=model, rules=rules, clock=lambda: float(next(ticks)), listener=heard.append,
                     tools=["files", tool(leak), tool(fail)], workspace=Workspace(tmp_path)) as s:  # fmt: skip
        s.heard = heard
        yield s


def clean(text):
    return [p for p in ALL if p in text] == []


def test_no_file_holds_a_key(live, tmp_path):
    prompt = f"Call the API with {BEARER} or {SHAPED}"
    outcomes = [run(live.turn(prompt)) for _ in range(3)]
    run(live.compact())
    assert {o.ended for o in outcomes} == {"error", "answered"}
    assert len(live.session.edits) >= 1
    assert "[redacted]" in live.log.path.read_text()
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or clean(path.read_text()), path


def test_a_result_that_is_kept_apart_holds_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", PLANTED)
    stub = ArtifactStore(Workspace(tmp_path), lambda: ["s"]).store_result(
        "leak", leak() + "x" * 300_000
    )
    (kept,) = tmp_path.rglob("*.txt")
    assert kept.name in stub
    assert clean(kept.read_text())
    assert kept.stat().st_mode & 0o077 == 0


def test_nothing_that_is_said_or_shown_holds_a_key(live):
    for _ in range(3):
        assert clean(repr(run(live.turn(f"with {BEARER}"))))
    assert clean(repr(live.heard))
    assert clean(repr(live.session))
    for per in ("message", "call", "turn"):
        assert clean(ck.frame(live.session, per=per).to_csv())


def test_no_report_holds_a_key(live, tmp_path):
    run(live.turn(f"with {BEARER}"))
    ck.export(live.session, tmp_path / "out.html")
    assert clean((tmp_path / "out.html").read_text())


def test_a_crash_says_no_key(live, monkeypatch):
    def broken():
        raise RuntimeError(leak())

    monkeypatch.setattr(live.agent.compactor.context.run, "last_prompt", broken)
    with pytest.raises(StoreError) as e:
        run(live.turn("go"))
    said_ = "".join(traceback.format_exception(e.value))
    assert clean(said_)
    assert "RuntimeError" in live.workspace.crash(live.id).read_text()
    assert clean(live.workspace.crash(live.id).read_text())


def test_a_summary_models_error_says_no_key(live):
    live.agent.compactor._summary_model = Says(*[ModelError(leak())] * 9)
    for _ in range(3):
        run(live.turn("go"))
    with pytest.raises(ModelError) as e:
        run(live.compact())
    assert clean(str(e.value))


def test_a_providers_repr_holds_no_option():
    made = ProviderModel(
        "openai/x", options={"api_key": SHAPED, "extra_headers": {"Authorization": BEARER}}
    )
    assert clean(repr(made))
    assert clean(str(made))


def test_a_listener_that_fails_costs_nothing(live):
    def fail(_):
        raise ValueError("x" * 400)

    live.listen(fail)
    assert run(live.turn("go")).ended in ("answered", "error")
    events = list(map(json.loads, live.workspace.events(live.id).read_text().splitlines()))
    (failed,) = (e for e in events if e["event_type"] == "listener_failed")
    assert failed["payload"] == {"error": f"ValueError: {'x' * 300}"}


class Streams:
    """A model that streams a text in small pieces, and names what must not be named."""

    name, notice, context_window = f"openai/{SHAPED}", "test model", 50_000

    def __init__(self):
        self.calls = 0

    async def __call__(self, request, emit):
        self.calls += 1
        text = f"It is {SHAPED} or {PLANTED}, I think."
        for kind in ("thinking", "text"):
            for i in range(0, len(text), 3):
                emit(Delta(kind, text[i : i + 3]))
        emit(Delta("tool_call", SHAPED))
        call = ToolCall(f"id_{SHAPED}", SHAPED, {SHAPED: {"password": "Sup3rSecret9"}})
        return said(text) if self.calls > 1 else said(text, call, stop="tool")


def test_streams_names_ids_keys_models_and_the_focus_hold_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED_API_KEY", PLANTED)
    heard = []
    with LiveSession("s", model=Streams(), rules=Rules(counter=COUNT), clock=count(10**9).__next__,
                     listener=heard.append, workspace=Workspace(tmp_path)) as live:  # fmt: skip
        outcome = run(live.turn("go"))
        run(live.compact(focus=f"keep {SHAPED}"))
    shown = "".join(e.payload["text"] for e in heard if e.kind == "delta")
    assert outcome.ended == "answered"
    assert clean(shown)
    assert clean(repr(heard))
    assert clean(repr(live.session))
    assert "Sup3rSecret9" not in repr(live.session) + repr(heard)
    assert shown.count("It is [redacted] or [redacted], I think.") == 4
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or clean(path.read_text()), path


def test_how_a_session_is_led_holds_no_key_that_became_known_meanwhile(monkeypatch):
    words, limits = {"model": "m", "root": f"/{PLANTED}/{SHAPED}"}, Limits()
    before = make_unsealed_session_settings(words, Rules(), limits).words["root"]
    monkeypatch.setenv("PLANTED_API_KEY", PLANTED)
    assert before == f"/{PLANTED}/[redacted]"
    assert (
        make_unsealed_session_settings(words, Rules(), limits).words["root"]
        == "/[redacted]/[redacted]"
    )
