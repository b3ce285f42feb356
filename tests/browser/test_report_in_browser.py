"""An exported report opened from disk: charts are drawn, nothing is asked of a network, no text of a log runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import ALL
from widgets.reports.hostile_logs import hostile

import ctxkit as ck
from browser.jupyterlab_driver import Seen, browser_page, settle

pytestmark = pytest.mark.browser


def opened(chromium, file: Path, name: str, *, dark: bool) -> tuple[Seen, dict]:
    """Open a page and return what it did and what is in it."""
    seen = Seen()
    with browser_page(chromium, seen, dark=dark) as page:
        page.on(
            "console", lambda m: seen.problems.append(m.text[:300]) if m.type == "error" else None
        )
        page.goto(file.as_uri())
        page.wait_for_selector("#composition .main-svg", state="attached")
        for item in page.locator("details").all():
            item.evaluate("e => { e.open = true }")
        page.mouse.move(400, 500)
        page.mouse.move(640, 600)  # hover texts are built from the log too
        settle(page, 400)
        found = page.evaluate(
            "() => ({evil: window.evil ?? null, charts: document.querySelectorAll('.main-svg').length,"
            " wide: document.documentElement.scrollWidth - innerWidth, title: document.title,"
            " paper: getComputedStyle(document.body).backgroundColor, links: document.querySelectorAll('a[href]').length})"
        )
        if os.environ.get("CTXKIT_SHOTS"):
            page.screenshot(path=Path(os.environ["CTXKIT_SHOTS"]) / name, full_page=True)
    return seen, found


@pytest.mark.parametrize(
    "dark", [False, True] if ALL else [False], ids=lambda d: "dark" if d else "light"
)
def test_a_report_opens_offline_in_both_themes(dark: bool, chromium, tmp_path: Path):
    file = ck.export(ck.read(ck.samples.path("billing")), tmp_path / "report.html")
    seen, found = opened(chromium, file, f"report-{'dark' if dark else 'light'}.png", dark=dark)
    assert (seen.problems, seen.left) == ([], [])
    assert found["charts"] >= 2
    assert found["wide"] <= 0
    assert found["title"] == "BILL-4127: the nightly export fails"
    assert found["paper"] == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")


def test_a_hostile_session_is_only_text(chromium, tmp_path: Path):
    file = ck.export(hostile(), tmp_path / "report.html")
    seen, found = opened(chromium, file, "hostile.png", dark=False)
    assert (seen.problems, seen.left) == ([], [])
    assert (found["evil"], found["links"]) == (None, 0)


PAPER = {"width": 718, "height": 1018}
"""A4 within its margins, in pixels."""


def test_tables_of_a_report_fit_a_sheet_of_paper(chromium, tmp_path: Path):
    rules = ["none", "pi", "anthropic_clear_tools", "clear:keep_last=5 | summary:keep_tokens=8000"]
    table = ck.compare(ck.samples.path("billing"), rules, progress=False)
    runs = ck.sweep(ck.samples.paths()[:2], rules, loss=True, progress=False)
    for given in (table, runs):
        file = ck.export(given, tmp_path / "report.html")
        with browser_page(chromium, Seen(), dark=False) as page:
            page.goto(file.as_uri())
            page.set_viewport_size(PAPER)
            page.emulate_media(media="print")
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            cells = page.evaluate(
                "() => [...document.querySelectorAll('table')].filter(t => !t.closest('details')).map(t =>"
                " [t.getBoundingClientRect().width, Math.max(...[...t.querySelectorAll('td')].map(d => d.offsetHeight))])"
            )
        assert len(cells) >= 2
        assert max(wide for wide, _ in cells) <= PAPER["width"]  # none is cut off
        assert max(high for _, high in cells) < 80, "words stand letter by letter"
