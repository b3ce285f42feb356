"""A prompt counted by its provider: over real HTTP on this machine, bounded, and never made up."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from builders import assistant, result, system, tool_call, user
from waiting import HANG, PATIENCE

from ctxkit.agent import ProviderModel, Request
from ctxkit.agent.models import litellm_provider
from ctxkit.errors import ModelError
from ctxkit.session import ToolSchema

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM takes its own warnings for failures
CALL = tool_call("read_file", "c1", path="a.py")
PROMPT = Request(
    messages=(system("Be brief."), user("Read it."), assistant("", CALL), result("x = 1", CALL)),
    tools=(ToolSchema(name="read_file", description="Read.", parameters={"type": "object"}),),
)


@contextmanager
def counting(answer=None, status=200, wait=0.0):
    """Serve both providers' endpoints: `answer`, or the characters of the request."""
    asked, over = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append((self.path, json.loads(body)))
            over.wait(wait)
            said = (
                answer if answer is not None else json.dumps({"input_tokens": len(body)}).encode()
            )
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def counted(name, url, prompt=PROMPT):
    model = ProviderModel(name, options={"api_base": url, "api_key": "none"})
    return asyncio.run(model.count(prompt))


@pytest.mark.parametrize(
    ("name", "end", "path"),
    [
        ("anthropic/claude-sonnet-4-5", "", "/v1/messages/count_tokens"),
        ("openai/gpt-5", "/v1", "/v1/responses/input_tokens"),
    ],
)
def test_the_providers_own_endpoint_is_asked(name, end, path):
    """P25: Its count is returned as it stands; the prompt it was asked about is all of it."""
    with counting() as (url, asked):
        told = counted(name, url + end)
    assert [where for where, _ in asked] == [path]
    body = asked[0][1]
    assert told == len(json.dumps(body).encode()) or told == len(
        json.dumps(body, separators=(",", ":"))
    )
    sent = json.dumps(body)
    for word in ("Be brief.", "Read it.", "a.py", "x = 1", "read_file"):
        assert word in sent
    (tool,) = body["tools"]
    schema_key = "input_schema" if "anthropic" in name else "parameters"
    assert (tool["name"], tool["description"]) == ("read_file", "Read.")
    assert tool[schema_key] == {"type": "object"}


@pytest.mark.parametrize(
    ("answer", "status"),
    [(b'{"error": "no"}', 500), (b"not json", 200), (b'{"input_tokens": 0}', 200), (b"{}", 200)],
)
def test_what_the_provider_does_not_count_is_missing(answer, status):
    """A count of LiteLLM's own, by a vocabulary, is no count of the provider's."""
    with counting(answer, status) as (url, _):
        assert counted("anthropic/claude-sonnet-4-5", url) is None


def test_a_provider_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(litellm_provider, "COUNT_SECONDS", 0.3)
    with counting(wait=HANG) as (url, _):
        began = time.monotonic()
        assert counted("anthropic/claude-sonnet-4-5", url) is None
    assert time.monotonic() - began < PATIENCE


def test_without_a_key_the_variable_is_named(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY"):
        asyncio.run(ProviderModel("anthropic/claude-sonnet-4-5").count(PROMPT))


@pytest.mark.parametrize("name", ["anthropic/claude-sonnet-4-5", "openai/gpt-5"])
def test_a_server_that_counts_nothing_leaves_no_lines(name, capfd, caplog):
    """Neither an error of LiteLLM's nor a connection that was left open."""
    gc.collect()  # what other tests left is not this count's
    capfd.readouterr()
    caplog.clear()
    with counting(b"Not Found", 404) as (url, asked):
        assert counted(name, url) is None
    assert asked
    gc.collect()
    said = "".join(capfd.readouterr()) + caplog.text
    assert "LiteLLM" not in said
    assert "Unclosed" not in said


def test_a_count_closes_its_own_clients_alone(monkeypatch):
    """Those of another loop may be at work in the background: they stay, open."""
    litellm = litellm_provider.load_litellm()
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    closed, close = [], AsyncHTTPHandler.close

    async def note(client):
        closed.append(client)
        await close(client)

    monkeypatch.setattr(AsyncHTTPHandler, "close", note)
    cache = litellm.in_memory_llm_clients_cache
    monkeypatch.setattr(cache, "max_size_in_memory", 10_000)  # what others left does not make room
    clients = cache.cache_dict
    other, made_meanwhile, mine = (AsyncHTTPHandler() for _ in range(3))
    monkeypatch.setitem(clients, "async_httpx_clientanthropic-1", other)
    ask = litellm.acount_tokens

    async def ask_beside_another(**request):
        monkeypatch.setitem(clients, "async_httpx_clientanthropic-2", made_meanwhile)
        return await ask(**request)

    monkeypatch.setattr(litellm, "acount_tokens", ask_beside_another)

    async def count_in_a_loop_with_a_client(url):
        key = f"async_httpx_clientopenai-{id(asyncio.get_running_loop())}"
        clients[key] = mine
        model = ProviderModel(
            "anthropic/claude-sonnet-4-5", options={"api_base": url, "api_key": "none"}
        )
        assert await model.count(PROMPT)
        assert clients.pop(key) is mine

    with counting() as (url, _):
        asyncio.run(count_in_a_loop_with_a_client(url))
    assert clients["async_httpx_clientanthropic-1"] is other
    assert clients["async_httpx_clientanthropic-2"] is made_meanwhile
    assert closed
    for client in (other, made_meanwhile, mine):
        assert client not in closed
        assert not client.client.is_closed
