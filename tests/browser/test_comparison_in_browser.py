"""The table of a comparison in a browser: in the order asked for, until a head is clicked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from browser.jupyterlab_driver import Seen, browser_page

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser


def test_a_click_on_a_head_sorts_and_the_next_turns_it_round(chromium, tmp_path: Path):
    s = session(
        *(
            m
            for i in range(9)
            for m in (user("w " * 400), assistant("ok " * 50, usage=usage(300 * (i + 1))))
        )
    )
    found = ck.compare(s, ["tail:messages=4", "none", "tail:messages=2"], loss=False)
    file = tmp_path / "table.html"
    file.write_text(f"<meta charset=utf-8>{found._repr_html_()}", encoding="utf-8")
    seen = Seen()
    with browser_page(chromium, seen) as page:
        page.goto(file.as_uri())
        order = lambda: page.locator("tbody th:visible").all_inner_texts()
        head = lambda name: page.get_by_role("button", name=name, exact=True).first
        assert order() == list(found.index)
        head("peak").click()
        largest_first = found.sort_values("peak_tokens", ascending=False, kind="stable").index
        assert order() == list(largest_first)
        head("peak").click()
        assert order() == list(found.sort_values("peak_tokens", kind="stable").index)
        head("rules").click()
        assert order() == list(found.index)  # the first column brings the order asked for back
    assert seen.problems == []
