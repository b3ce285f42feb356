"""A window is learnt: from an overflow's text, from a server's own word; and the next prompt fits."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from stand_in_models import agent, run
from waiting import HANG, PATIENCE

from ctxkit import tokens
from ctxkit.agent import ProviderModel, make_model
from ctxkit.agent.models.model_factory import fetch_context_window
from ctxkit.session import OVERFLOW_TEXTS, is_overflow, parse_window

WELL = Play("All is well.")
SAID = {
    "chat": "This model's maximum context length is 5000 tokens. However, your messages resulted in 9,999 tokens.",
    "anthropic": "prompt is too long: 9999 tokens > 5000 maximum",
    "gemini": "The input token count (9999) exceeds the maximum number of tokens allowed (5000).",
}
NAMED = {
    "Anthropic": 200_000, "Bedrock Mantle": 278_528, "OpenAI-compatible": 131_072, "SGLang": 262_144,
    "Gemini": 1_048_575, "xAI": 131_072, "OpenRouter": 128_000, "Poolside": 131_040, "Together": 262_144,
    "GitHub Copilot": 128_000, "Kimi": 262_144, "Mistral": 131_072, "vLLM": 32_768,
}  # fmt: skip


@pytest.mark.parametrize("row", OVERFLOW_TEXTS, ids=lambda row: row.provider)
def test_the_window_is_read_where_a_provider_names_it(row):
    assert parse_window(row.sample) == NAMED.get(row.provider)


def test_the_size_of_a_prompt_is_never_taken_for_the_window():
    assert parse_window("prompt too long; exceeded max context length by 100918 tokens") is None


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", SAID)
def test_it_is_learnt_from_an_overflow_and_the_next_prompt_fits(kind):
    full = Play(status=400, said=SAID[kind])
    with wire(kind, WELL, WELL, full, WELL) as up:
        asked = ProviderModel(FORMATS[kind][0], context_window=200_000,
                         options={"api_base": up.url, "api_key": "none"})  # fmt: skip
        a = agent(model=asked)
        outcomes = [run(a.turn(f"{n} " + "many words of a long prompt " * 400)) for n in range(3)]
        assert [o.ended for o in outcomes] == ["answered"] * 3
        assert outcomes[2].context_window == 5_000
        asked_after = len(up.asked)
        assert run(a.turn("more")).ended == "answered"
        assert len(up.asked) == asked_after + 1  # it fits at once
        assert (
            len(json.dumps(up.asked[-1]["contents" if kind == "gemini" else "messages"]))
            < 4 * 5_000
        )
        again = agent(at=a.session, model=asked)  # another kernel
        assert again.compactor.context.run.budget.limit == 5_000


@contextmanager
def answers(paths):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            data = json.dumps(paths.get(self.path, {})).encode()
            self.send_response(200 if self.path in paths else 404)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1"
    finally:
        http.shutdown()
        http.server_close()


@pytest.mark.parametrize(
    ("paths", "window"),
    [
        ({"/v1/models": {"data": [{"id": "m", "max_model_len": 32_768}]}}, 32_768),
        ({"/v1/models": {"data": [{"id": "o", "max_model_len": 1_024}, {"id": "m", "max_context_length": 4_096}]}}, 4_096),
        ({"/props": {"default_generation_settings": {"n_ctx": 8_192}}, "/v1/models": {"data": [{"id": "m", "meta": {"n_ctx": 1_024}}]}}, 8_192),
        ({"/v1/models": {"data": [{"id": "m", "meta": {"n_ctx": 2_048}}]}}, 2_048),
        ({"/v1/models": {"data": [{"id": "m", "max_model_len": "many"}]}}, None),
        ({"/v1/models": [1, 2]}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_server_of_ones_own_is_asked(paths, window):
    with answers(paths) as url:
        assert fetch_context_window(url, "m") == window
        made = make_model(
            f"openai/m?api_base={url}", counter=tokens.get_counter("chars/4"), clock=lambda: 0.0
        )
    assert made.context_window == window


def test_others_are_not_asked_and_a_dead_one_says_nothing():
    assert fetch_context_window("https://api.example.com/v1", "m") is None
    with answers({}) as url:
        gone = url
    assert fetch_context_window(gone, "m") is None
    assert is_overflow(SAID["chat"])


@pytest.mark.parametrize(
    ("piece", "wait"), [(b" " * 65_536, 0.0), (b" ", 0.05)], ids=["long", "slow"]
)
def test_an_answer_without_an_end_is_left(piece, wait, monkeypatch):
    monkeypatch.setattr("ctxkit.agent.models.model_factory._REQUEST_SECONDS", 0.3)
    left = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            end = time.monotonic() + HANG
            try:
                while time.monotonic() < end:
                    self.wfile.write(piece)
                    time.sleep(wait)
            except OSError:
                left.set()

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        assert fetch_context_window(f"http://127.0.0.1:{http.server_port}/v1", "m") is None
        assert left.wait(PATIENCE)
    finally:
        http.shutdown()
        http.server_close()
