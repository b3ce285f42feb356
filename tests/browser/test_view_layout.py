"""Every view on a page of 900 pixels and on a telephone: all words can be read, and the page does not scroll sideways."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
from conftest import sample

import ctxkit as ck
from browser.jupyterlab_driver import Seen, browser_page
from browser.layout_checks import faults
from browser.view_pages import SAMPLE, list_views, write_views
from browser.widget_page import stand

pytestmark = pytest.mark.browser
PLACES = ["project", "tool", "model"]
WIDE = """() => [...document.querySelectorAll('[data-picture] *')].filter(e => {
  if (e.closest('svg, .ctxkit-hidden') || !e.checkVisibility()) return false;
  for (let p = e.parentElement; p; p = p.parentElement) if (/auto|scroll|hidden/.test(getComputedStyle(p).overflowX)) return false;
  return e.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
}).slice(0, 3).map(e => `${e.tagName} "${e.textContent.trim().slice(0, 40)}" is wider than the page`)"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CTXKIT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        return write_views(tmp_path_factory.mktemp("views"))


SMALL_WORDS = """() => [...document.querySelectorAll('[data-picture] svg text')].filter(e => e.checkVisibility() && e.textContent.trim())
  .map(e => [parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b), e.textContent]).filter(([size]) => size < 9)
  .slice(0, 3).map(([size, word]) => `"${word}" has ${size.toFixed(1)} pixels`)"""
UNSIGNED_BOXES = """() => [...document.querySelectorAll('[data-picture] *')].filter(e => e.checkVisibility()
  && /auto|scroll/.test(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1
  && !getComputedStyle(e).backgroundAttachment.includes('local')).slice(0, 3)
  .map(e => `${e.tagName} "${e.textContent.trim().slice(0, 40)}" scrolls sideways without a sign`)"""


IN_SIGHT = """(dear) => [...document.querySelectorAll('th')].filter(e => e.checkVisibility()).map(e => {
  const own = e.getBoundingClientRect(), name = e.textContent.trim().split('\\n')[0];
  let right = document.documentElement.clientWidth;
  for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== 'visible') right = Math.min(right, p.getBoundingClientRect().right);
  return [name, own.width > 0 && own.right <= right + 1];
}).filter(([name]) => dear.includes(name))"""


class ViewChecks(NamedTuple):
    """What the checks say of one view at one width and in one scheme."""

    faults: list[str]
    scroll_width: int
    heads: list[tuple[str, bool]]
    """Heads of tables that hold a cost or a place, and whether each is in sight."""
    light_faults: list[str]
    """Small words and boxes that scroll without a sign, in the light scheme."""


@pytest.fixture(scope="module")
def check_views(pages, chromium):
    """Check all views at a width and in a scheme; several tests read the result of one visit."""

    @cache
    def check(wide: int, scheme: str) -> dict[str, ViewChecks]:
        checks = {}
        with browser_page(chromium, Seen(), dark=scheme == "dark", size=(wide, 1000)) as page:
            for name, file in pages.items():
                page.emulate_media(color_scheme=scheme)
                page.goto(file.as_uri())
                found = [*faults(page), *page.evaluate(WIDE)]
                scroll_width = page.evaluate("document.documentElement.scrollWidth")
                heads = page.evaluate(IN_SIGHT, ["cost", "dollars", *PLACES])
                page.emulate_media(color_scheme="light")
                light = [e for js in (SMALL_WORDS, UNSIGNED_BOXES) for e in page.evaluate(js)]
                checks[name] = ViewChecks(found, scroll_width, heads, light)
        return checks

    return check


@pytest.mark.parametrize(
    ("wide", "scheme"), sample([(900, "light"), (900, "dark"), (390, "dark")], 2)
)
def test_every_view_can_be_read_and_fits_the_page(check_views, wide, scheme):
    checks = check_views(wide, scheme)
    assert checks.keys() == list_views().keys()
    assert [fault for check in checks.values() for fault in check.faults] == []
    assert [name for name, check in checks.items() if check.scroll_width > wide] == []


def test_on_a_telephone_words_of_pictures_stay_large_and_boxes_show_that_they_scroll(check_views):
    checks = check_views(390, "dark")
    assert {name: check.light_faults for name, check in checks.items() if check.light_faults} == {}


def test_what_is_paid_and_where_is_in_sight_at_900_pixels(check_views):
    """No table hides its costs behind a scroll bar; the board shows project, tool and model."""
    seen = {}
    for name, check in check_views(900, "light").items():
        assert [head for head, in_sight in check.heads if not in_sight] == [], name
        seen[name] = [head for head, _ in check.heads]
    assert seen["board"] == ["cost", *PLACES]
    assert sum("cost" in heads or "dollars" in heads for heads in seen.values()) >= 6


@pytest.mark.parametrize(("wide", "names"), [(900, PLACES), (760, [])])
def test_the_live_board_shows_where_a_session_was_at_900_pixels(chromium, wide, names):
    with browser_page(chromium, Seen(), size=(wide, 1000)) as page:
        stand(page, ck.board(SAMPLE.parent, seconds=None).view())
        page.wait_for_selector(".row.board[role=option]")
        for row in (".row.board.heads", ".row.board[role=option]"):
            shown = page.locator(row).first.locator("> *:visible")
            boxes = [shown.nth(i).bounding_box() for i in range(shown.count())]
            assert max(b["x"] + b["width"] for b in boxes) <= wide
            assert len({round(b["y"] + b["height"] / 2, -1) for b in boxes}) == 1  # one line
        heads = page.locator(".row.board.heads > *:visible").all_inner_texts()
        assert [h for h in heads if h in PLACES] == names
        assert "cost" in heads
