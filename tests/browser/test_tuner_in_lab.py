"""The tuner in a real lab: toggles, what is folded, a pin, and the guard of what is tried, dragged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browser.jupyterlab_driver import written

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser


CHANGED = """() => { const said = [...[...document.querySelectorAll('table')].find(t => t.offsetParent).rows].map(r => [...r.cells].map(c => c.innerText));
  const row = name => said.find(r => r[0] === name)?.slice(1).join(); return row('now') && row('pinned') && row('now') !== row('pinned'); }"""
"""The live table shows other figures for what is set than for what was pinned."""


@pytest.mark.long
def test_a_mode_is_chosen_pinned_and_judged(jupyter, tmp_path: Path):
    code = "import ctxkit as ck\nt = ck.tune(ck.samples.path('billing'), 'fuseraft')\nt"
    told: dict = {}

    def use(page, _) -> None:
        page.locator("button:text-is('pin')").click()
        page.wait_for_selector("td:has-text('pinned')")
        page.locator("button:text-is('window')").click()
        page.wait_for_function(CHANGED)
        told["rows"] = page.locator("table:visible").first.inner_text()
        page.locator("text=more settings").click()
        page.wait_for_selector("text=/Neither end of their ranges|They change this replay less/")
        page.locator("text='Guard'").click()
        page.wait_for_selector(".ctxkit-hand.empty .said", state="attached")  # no empty axes
        page.locator(".ctxkit-hand").first.scroll_into_view_if_needed()
        told["guard"] = page.locator(".ctxkit-hand .said").first.inner_text()

    seen = jupyter.run(written(tmp_path / "tune", code), act=use)
    assert seen.problems == []
    lines = {line.split("\t")[0]: line for line in told["rows"].splitlines()}
    assert lines["pinned"].split("\t")[1:] == lines["as begun"].split("\t")[1:]
    assert lines["now"].split("\t")[1:] != lines["as begun"].split("\t")[1:]
    assert (
        told["guard"] == "Nothing was compacted."
    )  # a window drops at each call and calls it no compaction
