"""An exported report opened from disk: charts are drawn, nothing is asked of a network, no text of a log runs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from browser.lab import CHROMIUM, Seen, browser_page
from conftest import ALL
from reports.hostile import hostile

import ctxkit as ck

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"),
    pytest.mark.skipif(not find_spec("playwright"), reason="playwright is not installed"),
]


def opened(file: Path, picture: Path, *, dark: bool) -> tuple[Seen, dict]:
    """Open a page and return what it did and what is in it."""
    from playwright.sync_api import sync_playwright

    seen = Seen()
    with sync_playwright() as playwright, browser_page(playwright, seen, dark=dark) as page:
        page.on(
            "console", lambda m: seen.problems.append(m.text[:300]) if m.type == "error" else None
        )
        page.goto(file.as_uri())
        page.wait_for_selector("#composition .main-svg", state="attached")
        for item in page.locator("details").all():
            item.evaluate("e => { e.open = true }")
        page.mouse.move(400, 500)
        page.mouse.move(640, 600)  # hover texts are built from the log too
        page.wait_for_timeout(400)
        found = page.evaluate(
            "() => ({evil: window.evil ?? null, charts: document.querySelectorAll('.main-svg').length,"
            " wide: document.documentElement.scrollWidth - innerWidth, title: document.title,"
            " paper: getComputedStyle(document.body).backgroundColor, links: document.querySelectorAll('a[href]').length})"
        )
        picture.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=picture, full_page=True)
    return seen, found


@pytest.mark.parametrize(
    "dark", [False, True] if ALL else [False], ids=lambda d: "dark" if d else "light"
)
def test_a_report_opens_offline_in_both_themes(dark: bool, tmp_path: Path):
    file = ck.export(ck.read(ck.samples.path("billing")), tmp_path / "report.html")
    shots = Path(os.environ.get("CTXKIT_SHOTS") or tmp_path)
    seen, found = opened(file, shots / f"report-{'dark' if dark else 'light'}.png", dark=dark)
    assert (seen.problems, seen.left) == ([], [])
    assert found["charts"] >= 2
    assert found["wide"] <= 0
    assert found["title"] == "BILL-4127: the nightly export fails"
    assert found["paper"] == ("rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")


def test_a_hostile_session_is_only_text(tmp_path: Path):
    file = ck.export(hostile(), tmp_path / "report.html")
    shots = Path(os.environ.get("CTXKIT_SHOTS") or tmp_path)
    seen, found = opened(file, shots / "hostile.png", dark=False)
    assert (seen.problems, seen.left) == ([], [])
    assert (found["evil"], found["links"]) == (None, 0)
