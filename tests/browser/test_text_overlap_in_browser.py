"""Faces, comparison, frontier, spend and board as a page draws them: no text on another, none cut by the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ctxkit as ck
from browser.jupyterlab_driver import Seen, browser_page

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser
STYLE = (
    "<style>:root{color-scheme:light dark}body{font:13px system-ui,sans-serif;margin:8px}</style>"
)
OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll('td, th, svg text, summary, li, strong')]
    .filter(e => e.textContent.trim() && e.checkVisibility())
    .map(e => ({t: e.textContent.trim().slice(0, 40), r: e.getBoundingClientRect(), e}));
  const out = [];
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
    const a = boxes[i], b = boxes[j];
    if (a.e.contains(b.e) || b.e.contains(a.e)) continue;
    const w = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
    const h = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
    const scrolls = e => e.closest('[style*="overflow"]');
    if (w > 1.5 && h > 2.5 && scrolls(a.e) === scrolls(b.e)) out.push([a.t, b.t]);
  }
  return out.slice(0, 5);
}"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("faces")
    sample = ck.samples.path("billing")
    session = ck.read(sample)
    compared = ck.compare(session, progress=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTXKIT_CACHE_DIR", str(folder / "cache"))
        board = ck.board(sample, seconds=None)._repr_html_()
    shown = {
        "session": session._repr_mimebundle_()["text/html"],
        "sessions": ck.read_all(sample, progress=False)._repr_mimebundle_()["text/html"],
        "comparison": compared._repr_html_(),
        "frontier": ck.plots.frontier(compared).to_html(),
        "spend": ck.spend(session)._repr_html_(),
        "board": board,
    }
    for name, html in shown.items():
        (folder / f"{name}.html").write_text(
            f"<!doctype html><meta charset=utf-8>{STYLE}{html}", encoding="utf-8"
        )
    return {name: folder / f"{name}.html" for name in shown}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("wide", [700, 1300])
@pytest.mark.parametrize(
    "name", ["session", "sessions", "comparison", "frontier", "spend", "board"]
)
def test_no_text_stands_on_another(pages, chromium, name, wide, scheme):
    with browser_page(chromium, Seen(), dark=scheme == "dark", size=(wide, 900)) as page:
        page.goto(pages[name].as_uri())
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= wide


def test_the_check_finds_an_overlap(chromium):
    with browser_page(chromium, Seen()) as page:
        page.set_content("<ul><li>one</li><li style='margin-top:-12px'>two</li></ul>")
        assert page.evaluate(OVERLAPS) == [["one", "two"]]


def test_a_board_is_filtered_by_typing(pages, chromium):
    with browser_page(chromium, Seen()) as page:
        page.goto(pages["board"].as_uri())
        rows = page.locator("table").last.locator("tbody tr:visible")
        assert rows.count() == 1
        page.get_by_role("searchbox").fill("nothing holds this")
        assert rows.count() == 0
        page.get_by_role("searchbox").fill("NIGHTLY billing")
        assert rows.count() == 1
