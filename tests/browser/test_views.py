"""Every view on a page of 900 pixels and on a telephone: all words can be read, and the page does not scroll sideways."""

from __future__ import annotations

import pytest

from browser.pictures import faults
from browser.views import list_views, write_views

pytestmark = pytest.mark.browser
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


@pytest.mark.parametrize(("wide", "scheme"), [(900, "light"), (900, "dark"), (390, "dark")])
def test_every_view_can_be_read_and_fits_the_page(pages, chromium, wide, scheme):
    assert pages.keys() == list_views().keys()
    page, found = (
        chromium.new_page(viewport={"width": wide, "height": 1000}, color_scheme=scheme),
        [],
    )
    for file in pages.values():
        page.goto(file.as_uri())
        found += [*faults(page), *page.evaluate(WIDE)]
        if page.evaluate("document.documentElement.scrollWidth") > wide:
            found.append(f"{file.stem}: the page scrolls sideways")
    page.close()
    assert found == []
