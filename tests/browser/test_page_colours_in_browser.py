"""Words of plotly's figures in a dark page that holds no style of ours, as a reopened notebook is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import ctxkit as ck
from browser.jupyterlab_driver import Seen, browser_page
from browser.view_pages import SAMPLE, list_views
from ctxkit._internal import read_plotly_javascript

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser

# Words on the cells of a heat map have a colour of their own.
GREY_WORDS = """() => [...document.querySelectorAll('.js-plotly-plot text:not(.heatmap-label *)')].flatMap(text => {
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT), grey = [];
  while (walker.nextNode()) {
    const word = walker.currentNode;
    if (word.data.trim() && getComputedStyle(word.parentElement).fill !== 'rgb(250, 250, 250)') grey.push(word.data);
  }
  return grey;
})"""
DRAW = "f => { for (const [n, x] of Object.entries(f)) Plotly.newPlot(n, x.data, x.layout) }"


def test_words_have_the_colour_of_the_page_where_nothing_of_ours_runs(chromium, tmp_path: Path):
    log = ck.read(SAMPLE)
    charts = {n: make(log) for n, make in list_views().items() if n.startswith("plots.")}
    figures = {
        n: chart._repr_mimebundle_()["application/vnd.plotly.v1+json"]
        for n, chart in charts.items()
    }
    library = read_plotly_javascript().decode().replace("</script", "<\\/script")
    places = "".join(f'<div id="{name}"></div>' for name in figures)
    page_file = tmp_path / "page.html"
    page_file.write_text(
        "<!doctype html><meta charset=utf-8><style>body{background:#111;"
        f"--jp-content-font-color1:#fafafa}}</style><script>{library}</script>{places}",
        encoding="utf-8",
    )
    with browser_page(chromium, Seen()) as page:
        page.goto(page_file.as_uri())
        page.evaluate(DRAW, json.loads(json.dumps(figures)))
        page.wait_for_function("() => document.querySelectorAll('.xtick text').length > 4")
        assert page.evaluate(GREY_WORDS) == []
        assert page.evaluate("() => document.querySelectorAll('.legendtext').length") > 0
