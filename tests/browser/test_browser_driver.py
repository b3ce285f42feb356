"""The page that tests lend: it reaches nothing outside this machine, and is empty for the next test."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from browser.jupyterlab_driver import Seen, browser_page

pytestmark = pytest.mark.browser
ASK = "u => fetch(u, {mode: 'no-cors'}).then(() => 'reached', e => String(e))"
CONNECT = "u => new Promise(done => { const s = new WebSocket(u); s.onerror = done; s.onopen = done; }).then(e => e.type)"
STATE = """() => [window.mark ?? null, document.body.childElementCount, innerWidth,
  matchMedia('print').matches, matchMedia('(prefers-color-scheme: dark)').matches]"""


@pytest.fixture(scope="module")
def port():
    """The port of a server that answers under every address of this machine."""
    with ThreadingHTTPServer(("", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
def test_another_address_is_refused_and_noted(chromium, port, host):
    seen = Seen()
    with browser_page(chromium, seen) as page:
        page.goto(f"http://127.0.0.1:{port}/")
        assert page.evaluate(ASK, f"http://127.0.0.1:{port}/") == "reached"
        assert "Failed to fetch" in page.evaluate(ASK, f"http://{host}:{port}/a")
        assert page.evaluate(CONNECT, f"ws://{host}:{port}/b") == "error"
    assert seen.left == [f"http://{host}:{port}/a", f"ws://{host}:{port}/b"]


def test_the_page_is_empty_for_the_next_test(chromium):
    seen, later = Seen(), Seen()
    with browser_page(chromium, seen, dark=True, size=(500, 400)) as page:
        page.set_content("<p>words</p>")
        page.emulate_media(media="print")
        page.evaluate("window.mark = 1; setInterval(() => { throw new Error('late') }, 20)")
        page.wait_for_timeout(100)
    with browser_page(chromium, later, size=(700, 400)) as page:
        assert page.evaluate(STATE) == [None, 0, 700, False, False]
        page.wait_for_timeout(100)
    assert "late" in seen.problems[0]
    assert later == Seen()
