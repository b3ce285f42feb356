"""A server of this machine that speaks five formats and fails as it is told, one play a request."""

from __future__ import annotations

import json
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

from agent.models.provider_request_checks import bind

FORMATS = {
    "chat": ("openai/own-model", "/v1"),
    "responses": ("openai/responses/gpt-5", "/v1"),
    "anthropic": ("anthropic/claude-sonnet-4-5", ""),
    "gemini": ("gemini/gemini-2.5-pro", ""),
    "ollama": ("ollama_chat/own-model", ""),
}
"""LiteLLM's name and the end of the address for each format."""
IDS = count(1)
PROMPT, OUT = 1219, 25
"""Tokens that every whole reply is billed."""


@dataclass(frozen=True)
class Play:
    """What the server does with one request."""

    text: str = ""
    calls: tuple[tuple[str, object], ...] = ()
    """Name and arguments of each call: an object, or a text that is sent as it is."""
    status: int = 200
    said: str = ""
    """The error's text, where the status is none of success."""
    headers: tuple[tuple[str, str], ...] = ()
    page: bool = False
    reset: bool = False
    cut: bool = False
    """The stream ends in good order in the middle of the text."""
    stop: str = ""
    """A finish reason in the words of Chat Completions, or of the format, in place of the right one."""
    usage: str = "told"
    """`told`, `counted` (so many tokens a character that was asked, `rate`), `none` or `zero`."""
    rate: float = 1 / 3
    ids: bool = True
    apart: bool = False
    """Each call in a piece of its own, all at index 0."""
    raw: bytes = b""
    """Sent in place of the stream."""
    flood: bytes = b""
    """Sent after it again and again, until the client hangs up."""
    thinks: bool = False
    """Anthropic: the reply begins with thinking, signed by what came before it."""


def _sse(events, named=False):
    for event in events:
        head = f"event: {event['type']}\n" if named else ""
        yield f"{head}data: {json.dumps(event)}\n\n".encode()


def _words(play):
    words = [w + " " for w in play.text.split(" ")] if play.text else []
    return words[: max(1, len(words) // 2)] if play.cut else words


def billed(play, body):
    """Return the prompt tokens that a reply is billed; 0: it tells none."""
    if play.usage == "counted":
        asked = json.dumps([body.get(k) for k in ("system", "messages", "tools")])
        return int(len(asked) * play.rate)
    return PROMPT if play.usage == "told" else 0


def _text(arguments):
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def chat(play, body):
    def piece(delta, stop=None, **more):
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "own-model",
                "choices": [{"index": 0, "delta": delta, "finish_reason": stop}], **more}  # fmt: skip

    events = [piece({"role": "assistant", "content": ""})]
    events += [piece({"content": w}) for w in _words(play)]
    for i, (name, arguments) in enumerate(play.calls):
        text, at = _text(arguments), 0 if play.apart else i
        call = {"index": at, "id": f"call_{next(IDS)}" if play.ids else None, "type": "function"}
        events.append(
            piece({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
        )
        long = max(5, len(text) // 20)
        events += [piece({"tool_calls": [{"index": at, "function": {"arguments": text[k : k + long]}}]})
                   for k in range(0, len(text), long)]  # fmt: skip
    if play.cut:
        return _sse(events)
    events.append(piece({}, play.stop or ("tool_calls" if play.calls else "stop")))
    n = billed(play, body)
    usage = {"prompt_tokens": n, "completion_tokens": OUT, "total_tokens": n + OUT}
    if play.usage != "none":
        events.append({**piece({}), "choices": [], "usage": usage if n else None})
    return [*_sse(events), b"data: [DONE]\n\n"]


def responses(play, _body):
    base = {"id": "r1", "object": "response", "created_at": 1, "model": "own-model", "tools": [],
            "tool_choice": "auto", "parallel_tool_calls": True, "output": []}  # fmt: skip
    items = []
    if play.text:
        content = [{"type": "output_text", "text": "".join(_words(play)), "annotations": []}]
        items.append(
            {
                "type": "message",
                "id": "m1",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    for name, arguments in play.calls:
        items.append({"type": "function_call", "id": f"fc_{next(IDS)}", "call_id": f"call_{next(IDS)}", "name": name,
                      "arguments": _text(arguments), "status": "completed"})  # fmt: skip
    events = [{"type": "response.created", "response": {**base, "status": "in_progress"}}]
    for i, item in enumerate(items):
        at = {"output_index": i, "item_id": item["id"]}
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
        events.append(
            {"type": "response.output_item.added", "output_index": i, "item": {**item, **empty}}
        )
        if item["type"] == "message":
            events += [
                {"type": "response.output_text.delta", "delta": w, "content_index": 0, **at}
                for w in _words(play)
            ]
        else:
            events.append(
                {"type": "response.function_call_arguments.delta", "delta": item["arguments"], **at}
            )
        if play.cut:
            return _sse(events, named=True)
        events.append({"type": "response.output_item.done", "output_index": i, "item": item})
    usage = {"input_tokens": PROMPT, "output_tokens": OUT, "total_tokens": PROMPT + OUT,
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    done = {
        **base,
        "status": "completed",
        "output": items,
        "usage": usage if play.usage == "told" else None,
    }
    why = {"length": "max_output_tokens"}.get(play.stop, play.stop)
    if why:
        done |= {"status": "incomplete", "incomplete_details": {"reason": why}}
    end = "response.incomplete" if why else "response.completed"
    return _sse([*events, {"type": end, "response": done}], named=True)


def anthropic(play, body):
    stops = {"content_filter": "refusal", "length": "max_tokens", "tool_calls": "tool_use"}
    n = billed(play, body)
    first = {"input_tokens": n, "output_tokens": 1 if n else 0}
    start = {"id": f"msg_{next(IDS)}", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": None,
             "stop_sequence": None, "usage": first}  # fmt: skip
    events, at = [{"type": "message_start", "message": start}], count()
    if play.thinks:
        i = next(at)
        block = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = (
            {"type": "thinking_delta", "thinking": "I think."},
            {"type": "signature_delta", "signature": bind(body)},
        )
        events.append({"type": "content_block_start", "index": i, "content_block": block})
        events += [{"type": "content_block_delta", "index": i, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": i})
    if play.text:
        i = next(at)
        events.append(
            {
                "type": "content_block_start",
                "index": i,
                "content_block": {"type": "text", "text": ""},
            }
        )
        events += [
            {"type": "content_block_delta", "index": i, "delta": {"type": "text_delta", "text": w}}
            for w in _words(play)
        ]
        if play.cut:
            return _sse(events, named=True)
        events.append({"type": "content_block_stop", "index": i})
    for name, arguments in play.calls:
        i, text = next(at), _text(arguments)
        block = {"type": "tool_use", "id": f"toolu_{next(IDS)}", "name": name, "input": {}}
        events.append({"type": "content_block_start", "index": i, "content_block": block})
        events.append(
            {
                "type": "content_block_delta",
                "index": i,
                "delta": {"type": "input_json_delta", "partial_json": text},
            }
        )
        events.append({"type": "content_block_stop", "index": i})
    stop = stops.get(play.stop, play.stop) or ("tool_use" if play.calls else "end_turn")
    ended = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None},
             "usage": {"output_tokens": OUT if n else 0}}  # fmt: skip
    return _sse([*events, ended, {"type": "message_stop"}], named=True)


def gemini(play, _body):
    parts = [{"text": w} for w in _words(play)]
    parts += [
        {"functionCall": {"name": n, "args": a if isinstance(a, dict) else {}}}
        for n, a in play.calls
    ]
    usage = {
        "promptTokenCount": PROMPT,
        "candidatesTokenCount": OUT,
        "totalTokenCount": PROMPT + OUT,
    }
    stop = {"content_filter": "SAFETY", "length": "MAX_TOKENS"}.get(play.stop, play.stop or "STOP")
    for i, part in enumerate(parts or [{"text": ""}]):
        last = i == len(parts or [0]) - 1
        one = {"content": {"role": "model", "parts": [part]}, "index": 0}
        one |= {"finishReason": stop} if last and not play.cut else {}
        event = {
            "candidates": [one],
            "modelVersion": "gemini",
            **({"usageMetadata": usage} if play.usage == "told" else {}),
        }
        yield f"data: {json.dumps(event)}\r\n\r\n".encode()


def ollama(play, _body):
    def line(message, **more):
        whole = {"model": "own-model", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", **message},
                 "done": False, **more}  # fmt: skip
        return (json.dumps(whole) + "\n").encode()

    yield from (line({"content": w}) for w in _words(play))
    calls = [
        {"function": {"name": n, "arguments": a if isinstance(a, dict) else {}}}
        for n, a in play.calls
    ]
    for group in [[c] for c in calls] if play.apart else [calls] if calls else []:
        yield line({"content": "", "tool_calls": group})
    if not play.cut:
        counts = {"prompt_eval_count": PROMPT, "eval_count": OUT} if play.usage == "told" else {}
        yield line(
            {"content": ""}, done=True, done_reason=play.stop or "stop", total_duration=1, **counts
        )


WRITERS = {
    "chat": chat,
    "responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "ollama": ollama,
}


def refusal(kind, play):
    """Return an error as the format writes it."""
    if kind == "anthropic":
        what = {429: "rate_limit_error", 529: "overloaded_error", 400: "invalid_request_error"}
        error = {"type": what.get(play.status, "api_error"), "message": play.said}
        return {"type": "error", "error": error}
    if kind == "gemini":
        return {"error": {"code": play.status, "status": "INVALID_ARGUMENT", "message": play.said}}
    return (
        {"error": play.said} if kind == "ollama" else {"error": {"message": play.said, "type": "x"}}
    )


@dataclass
class Wire:
    """A server that is up: its address, and what it was asked."""

    kind: str
    url: str
    plays: list[Play]
    asked: list[dict] = field(default_factory=list)
    find_fault: object = None
    """Says of a format's body why it is refused, or None; None: nothing is."""
    refused: list[str] = field(default_factory=list)
    """Why requests were refused."""
    account: list[int] = field(default_factory=list)
    """Tokens that each prompt was billed which got a reply."""
    on_reply: object = None
    """Called with each body that got a reply, and the stream of the reply; None: nothing is."""


def _handler(wire):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(
                self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}"
            )
            if self.path.startswith("/api/show"):
                return self._whole(
                    200, "application/json", b'{"model_info": {}, "capabilities": ["tools"]}'
                )
            wire.asked.append(body)
            if why := wire.find_fault and wire.find_fault(wire.kind, body):
                wire.refused.append(why)
                data = json.dumps(refusal(wire.kind, Play(status=400, said=why))).encode()
                return self._whole(400, "application/json", data)
            play = wire.plays.pop(0) if len(wire.plays) > 1 else wire.plays[0]
            if play.reset:  # closed with a reset in place of an answer
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                return self.connection.close()
            if play.page:
                return self._whole(200, "text/html", b"<html><body>Please sign in</body></html>")
            if play.status != 200:
                data = json.dumps(refusal(wire.kind, play)).encode()
                return self._whole(play.status, "application/json", data, play.headers)
            wire.account.append(billed(play, body))
            data = play.raw or b"".join(WRITERS[wire.kind](play, body))
            if wire.on_reply:
                wire.on_reply(body, data)
            kind = "application/x-ndjson" if wire.kind == "ollama" else "text/event-stream"
            if play.flood:
                return self._flood(kind, data, play.flood)
            return self._whole(200, kind, data)

        def _flood(self, kind, data, more):
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(data)
                while True:
                    self.wfile.write(more)

        def _whole(self, status, kind, data, headers=()):
            self.send_response(status)
            for name, value in (
                ("content-type", kind),
                ("content-length", str(len(data))),
                *headers,
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    return Handler


def endless(kind):
    """Return a play of a reply that says words for ever, as fast as they are read."""
    events = list(WRITERS[kind](Play("word " * 3), {}))
    n = next(n for n, event in enumerate(events) if b"word" in event)
    said = (events[n].replace(b"word", b"w%d" % i) for i in range(200))  # LiteLLM minds repetitions
    return Play(raw=b"".join(events[:n]), flood=b"".join(said))


@contextmanager
def wire(kind, *plays, find_fault=None, on_reply=None):
    """Serve plays in order, the last one for ever."""
    up = Wire(kind, "", list(plays), find_fault=find_fault, on_reply=on_reply)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(up))
    up.url = f"http://127.0.0.1:{http.server_port}{FORMATS[kind][1]}"
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield up
    finally:
        http.shutdown()
        http.server_close()
