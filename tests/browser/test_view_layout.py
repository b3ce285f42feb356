"""Every view on a page of 900 pixels and on a telephone: all words can be read, and the page does not scroll sideways."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("wide", "scheme"), sample([(900, "light"), (900, "dark"), (390, "dark")], 2)
)
def test_every_view_can_be_read_and_fits_the_page(pages, chromium, wide, scheme):
    assert pages.keys() == list_views().keys()
    found = []
    with browser_page(chromium, Seen(), dark=scheme == "dark", size=(wide, 1000)) as page:
        for file in pages.values():
            page.goto(file.as_uri())
            found += [*faults(page), *page.evaluate(WIDE)]
            if page.evaluate("document.documentElement.scrollWidth") > wide:
                found.append(f"{file.stem}: the page scrolls sideways")
    assert found == []


SMALL_WORDS = """() => [...document.querySelectorAll('[data-picture] svg text')].filter(e => e.checkVisibility() && e.textContent.trim())
  .map(e => [parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b), e.textContent]).filter(([size]) => size < 9)
  .slice(0, 3).map(([size, word]) => `"${word}" has ${size.toFixed(1)} pixels`)"""
UNSIGNED_BOXES = """() => [...document.querySelectorAll('[data-picture] *')].filter(e => e.checkVisibility()
  && /auto|scroll/.test(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1
  && !getComputedStyle(e).backgroundAttachment.includes('local')).slice(0, 3)
  .map(e => `${e.tagName} "${e.textContent.trim().slice(0, 40)}" scrolls sideways without a sign`)"""


def test_on_a_telephone_words_of_pictures_stay_large_and_boxes_show_that_they_scroll(
    pages, chromium
):
    found = []
    with browser_page(chromium, Seen(), size=(390, 1000)) as page:
        for file in pages.values():
            page.goto(file.as_uri())
            for js in (SMALL_WORDS, UNSIGNED_BOXES):
                found += [f"{file.stem}: {e}" for e in page.evaluate(js)]
    assert found == []


IN_SIGHT = """(dear) => [...document.querySelectorAll('th')].filter(e => e.checkVisibility()).map(e => {
  const own = e.getBoundingClientRect(), name = e.textContent.trim().split('\\n')[0];
  let right = document.documentElement.clientWidth;
  for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== 'visible') right = Math.min(right, p.getBoundingClientRect().right);
  return [name, own.width > 0 && own.right <= right + 1];
}).filter(([name]) => dear.includes(name))"""


def test_what_is_paid_and_where_is_in_sight_at_900_pixels(pages, chromium):
    """No table hides its costs behind a scroll bar; the board shows project, tool and model."""
    seen = {}
    with browser_page(chromium, Seen(), size=(900, 1000)) as page:
        for name, file in pages.items():
            page.goto(file.as_uri())
            heads = page.evaluate(IN_SIGHT, ["cost", "dollars", *PLACES])
            assert [head for head, in_sight in heads if not in_sight] == [], name
            seen[name] = [head for head, _ in heads]
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
