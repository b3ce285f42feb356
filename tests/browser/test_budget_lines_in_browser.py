"""The lines of `ck.budget` where they begin, where they are off, and what an empty log shows."""

from __future__ import annotations

import pytest
from builders import assistant, session, user

import ctxkit as ck
from browser.jupyterlab_driver import settle
from browser.test_chart_and_widget_layout import leaf
from browser.widget_page import stand

pytestmark = pytest.mark.browser

LINES = """() => Object.fromEntries([...document.querySelectorAll('.handle')].map(h => {
  const r = h.querySelector('line').getBoundingClientRect();
  return [h.getAttribute('aria-label'), { left: r.left, right: r.right, y: r.top, value: +h.getAttribute('aria-valuenow') }]; }))"""
SHOWN = """() => [...document.querySelectorAll('.ctxkit-hand :is(svg, input)')]
  .filter(e => e.checkVisibility()).length"""


def show(page, widget, *, plotly: bool = False) -> dict:
    stand(page, widget, plotly=plotly)
    page.wait_for_selector(".handle", state="attached")
    settle(page)
    return page.evaluate(LINES)


def test_lines_begin_apart_where_the_log_sets_no_budget(chromium):
    widget = ck.budget(ck.samples.path("billing"))
    with leaf(chromium, 900, "light") as page:
        lines = show(page, widget)
        assert lines["warn at"]["y"] - lines["cutover at"]["y"] > 20
        assert "The log sets no budget" in page.locator(".said").first.inner_text()
    assert 0 < widget.warn < widget.cutover
    assert "The log sets no budget" in widget.to_text()


def test_lines_that_are_off_lie_beside_each_other_and_each_can_be_dragged(chromium):
    widget = ck.budget(ck.samples.path("billing"), warn=0, cutover=0)
    with leaf(chromium, 900, "light") as page:
        lines = show(page, widget)
        warn, cut = lines["warn at"], lines["cutover at"]
        assert warn["right"] <= cut["left"]
        x = (cut["left"] + cut["right"]) / 2
        page.mouse.move(x, cut["y"])
        page.mouse.down()
        page.mouse.move(x, cut["y"] - 80, steps=8)
        settle(page, 200)
        moved = page.evaluate(LINES)
        assert moved["cutover at"]["value"] > 0
        assert abs(moved["cutover at"]["y"] - (cut["y"] - 80)) < 3  # under the pointer
        assert moved["warn at"]["value"] == 0
        page.mouse.up()


@pytest.mark.parametrize("plotly", [False, True], ids=["plain", "plotly"])
@pytest.mark.parametrize(
    ("word", "key", "other"), [("warn at", "warn", "cutover"), ("cutover at", "cutover", "warn")]
)
def test_a_drag_moves_the_line_under_the_pointer_and_no_other(chromium, plotly, word, key, other):
    widget = ck.budget(ck.samples.path("billing"))
    before = {"warn": widget.warn, "cutover": widget.cutover}
    with leaf(chromium, 900, "light") as page:
        line = show(page, widget, plotly=plotly)[word]
        x, to = line["left"] + 0.7 * (line["right"] - line["left"]), line["y"] + 31
        page.mouse.move(x, line["y"])
        page.mouse.down()
        page.mouse.move(x, to, steps=7)
        settle(page, 200)
        assert abs(page.evaluate(LINES)[word]["y"] - to) < 2
        page.mouse.up()
        settle(page, 400)  # the axis may follow, and Python hears of it
        moved = page.evaluate(LINES)
    assert getattr(widget, key) == moved[word]["value"] < before[key]
    assert getattr(widget, other) == before[other]


def test_a_number_that_no_line_can_have_is_refused_with_a_reason(chromium):
    widget = ck.budget(ck.samples.path("billing"), warn=1000)
    with leaf(chromium, 900, "light") as page:
        show(page, widget)
        field = page.locator("input[name=warn]")
        field.fill("-5")
        assert field.evaluate("e => e.validationMessage") == "A number from 0 on."
    assert widget.warn == 1000


@pytest.mark.parametrize("widget", [ck.budget, ck.savings, ck.thrash])
def test_a_log_with_nothing_to_draw_shows_a_sentence_and_no_axes(chromium, widget):
    made = widget(session(user("q"), assistant("a")))
    with leaf(chromium, 900, "light") as page:
        stand(page, made)
        page.wait_for_selector(".ctxkit-hand.empty", state="attached")
        assert page.evaluate(SHOWN) == 0
        assert page.locator(".said").first.inner_text().endswith(".")
    assert "<svg" not in made.to_html()
