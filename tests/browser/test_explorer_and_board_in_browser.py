"""The reader and the board in a page, their questions answered by Python: clicks, filters, a session below."""

from __future__ import annotations

import shutil

import pytest

import ctxkit as ck
from browser.jupyterlab_driver import Seen, browser_page
from browser.widget_page import stand

pytestmark = pytest.mark.browser
SAMPLE = ck.samples.path("billing")


def test_a_click_on_the_chart_a_filter_and_a_session_of_the_board(chromium, tmp_path, monkeypatch):
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "logs").mkdir()
    for i in range(3):
        shutil.copy(SAMPLE, tmp_path / "logs" / f"{i}.jsonl")
    seen, reader = Seen(), ck.explore(SAMPLE, call=10)
    board = ck.board(tmp_path / "logs", seconds=None).view()
    with browser_page(chromium, seen) as page:
        stand(page, reader, plotly=True)
        page.wait_for_selector(".main-svg", state="attached")
        page.wait_for_selector(".row")
        box = page.locator(".box").bounding_box()
        page.mouse.click(box["x"] + 64 + (box["width"] - 80) * 0.75, box["y"] + 80)
        page.wait_for_selector("text=/Call 25[67] .of 0 to 342/")
        assert reader.call in (256, 257)
        page.locator("input[name=whole]").check()
        page.locator("input[name=words]").fill("fin-import-7")
        page.wait_for_selector(".read mark")
        assert page.locator(".read mark").first.inner_text() == "fin-import-7"
        page.locator("input[name=regex]").check()
        page.locator("input[name=words]").fill("(")
        page.wait_for_selector("text=That is no regular expression")
    with browser_page(chromium, seen) as page:
        stand(page, board)
        page.wait_for_selector(".row.board[role=option] span")
        page.locator("input[name=words]").fill("nothing like this")
        page.wait_for_selector("text=0 of 3 sessions")
        page.locator("input[name=words]").fill("")
        page.wait_for_selector("text=/^3 sessions/")
        page.locator(".row.board[role=option]").nth(1).click()
        page.wait_for_selector(".inner .row span")
        page.wait_for_selector(".inner >> text=/Call 342 .of 0 to 342/")
    assert (seen.problems, seen.left) == ([], [])
