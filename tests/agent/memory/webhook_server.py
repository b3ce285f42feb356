"""A real HTTP server on the loopback that answers as a memory's webhook does, or badly."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from waiting import HANG

BAD = (
    "hangs",
    "drips",
    "floods",
    "packs",
    "lies",
    "no block",
    "a number",
    "refuses",
    "redirects",
    "breaks",
    "deep",
)
"""What it may do instead of answering; each must end in a sentence."""


@contextmanager
def hook(manner="well", block="User prefers tabs."):
    """Yield address, and the requests that came: path, headers, body."""
    asked, stop = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, dict(self.headers), body))
            with suppress(OSError):  # the other side went, as it should
                answer(self, manner, block, stop)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        stop.set()
        server.shutdown()
        server.server_close()


def answer(to, manner, block, stop):
    text = {
        "lies": b"<html>",
        "no block": b"{}",
        "a number": b'{"block": 7}',
        "deep": b"[" * 200_000,
    }
    data = text.get(manner, json.dumps({"block": block}).encode())
    if manner == "hangs":
        stop.wait(HANG)
    to.send_response({"refuses": 500, "redirects": 302}.get(manner, 200))
    if manner == "redirects":
        to.send_header("Location", f"http://127.0.0.1:{to.server.server_port}/elsewhere")
    if manner == "packs":
        to.send_header("Content-Encoding", "gzip")
    if manner == "breaks":
        to.send_header("Content-Length", "1000")
    to.end_headers()
    if manner == "floods":
        for _ in range(160):
            to.wfile.write(b"x" * 65_536)
    until = time.monotonic() + HANG
    while manner == "drips" and not stop.is_set() and time.monotonic() < until:
        to.wfile.write(b" ")
        to.wfile.flush()
        time.sleep(0.05)
    to.wfile.write(data)
