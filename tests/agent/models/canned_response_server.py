"""Servers of this machine that speak a provider's protocol: they keep what they were asked, and say what they are given."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def anthropic_events(*blocks, stop="end_turn", usage=None):
    """Return the stream of a reply of Anthropic's Messages API, a list of blocks as it sends them whole."""
    usage = usage or {"input_tokens": 20, "output_tokens": 9}
    started = {"id": "m1", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": None,
               "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}  # fmt: skip
    yield {"type": "message_start", "message": started}
    for i, block in enumerate(blocks):
        kind = block["type"]
        empty = {
            "thinking": {"thinking": "", "signature": ""},
            "text": {"text": ""},
            "tool_use": {"input": {}},
        }
        yield {
            "type": "content_block_start",
            "index": i,
            "content_block": {**block, **empty.get(kind, {})},
        }
        deltas = []
        if kind == "thinking":
            deltas = (
                [{"type": "thinking_delta", "thinking": block["thinking"]}]
                if block["thinking"]
                else []
            )
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif kind == "text":
            deltas = [{"type": "text_delta", "text": block["text"]}]
        elif kind == "tool_use":
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        for delta in deltas:
            yield {"type": "content_block_delta", "index": i, "delta": delta}
        yield {"type": "content_block_stop", "index": i}
    ended = {"stop_reason": stop, "stop_sequence": None}
    yield {
        "type": "message_delta",
        "delta": ended,
        "usage": {"output_tokens": usage["output_tokens"]},
    }
    yield {"type": "message_stop"}


def openai_response(text):
    """Return the stream of a reply of OpenAI's Responses API."""
    whole = {"id": "r1", "object": "response", "created_at": 1, "status": "completed", "model": "gpt-5", "tools": [],
             "tool_choice": "auto", "parallel_tool_calls": True}  # fmt: skip
    said = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "type": "message",
        "id": "i1",
        "role": "assistant",
        "status": "completed",
        "content": [said],
    }
    usage = {"input_tokens": 30, "output_tokens": 3, "total_tokens": 33, "input_tokens_details": {"cached_tokens": 10},
             "output_tokens_details": {"reasoning_tokens": 1}}  # fmt: skip
    place = {"item_id": "i1", "output_index": 0, "content_index": 0}
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    yield {"type": "response.output_text.delta", "delta": text, **place}
    yield {"type": "response.completed", "response": {**whole, "output": [message], "usage": usage}}


@contextmanager
def server(*streams):
    """Serve one stream of events a request; give the address and the list of what was asked (path, headers, body)."""
    left, asked = list(streams), []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            asked.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in left.pop(0):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", asked
    finally:
        http.shutdown()
        http.server_close()
