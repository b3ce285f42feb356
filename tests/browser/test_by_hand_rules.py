"""The rules of the charts turned by hand: the browser's are those of Python; without plotly the picture is there too."""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browser.lab import CHROMIUM, Seen, browser_page
from conftest import ALL, SEED
from widgets.made_teams import team

import ctxkit as ck
from ctxkit.plots._budget import AgentSums
from ctxkit.plots._thrash import closes
from ctxkit.widgets.byhand.budgeted import packed, reached
from ctxkit.widgets.byhand.charted import text

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"),
    pytest.mark.skipif(not find_spec("playwright"), reason="playwright is not installed"),
]
OPENED = """cases => cases.map(([a, warn, cut, again]) => { const o = opened(a), r = reached(o, warn, cut, again);
  return [[...o.turns], [...o.sums], r.warned, r.cuts]; })"""

# Boxes of texts that lie on each other, of one widget; the layer's words have a halo and may lie on marks.
OVERLAPS = """() => { const boxes = [...document.querySelectorAll('.ctxkit-hand text, .ctxkit-hand td, .ctxkit-hand label')]
  .filter(e => e.textContent.trim() && e.checkVisibility({visibilityProperty: true})).map(e => [e.textContent, e.getBoundingClientRect()])
  .filter(([, r]) => r.width && r.height);
  const out = [];
  for (let i = 0; i < boxes.length; i++) { const [a, p] = boxes[i];
    if (p.left < -1 || p.right > innerWidth + 1) out.push('out: ' + a);
    for (let k = i + 1; k < boxes.length; k++) { const [b, q] = boxes[k];
      if (Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2 && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3) out.push(a + ' | ' + b); } }
  return out; }"""


def agents(rng: random.Random) -> AgentSums:
    n = rng.choice([1, 2, 7, 40])
    turns = np.cumsum([rng.choice([0, 1, 1, 3]) for _ in range(n)])
    inputs = np.array([rng.randrange(0, 30) for _ in range(n)])
    sums, total = [], 0
    for i in range(n):  # restarts, and lines that were lost
        total = (
            int(inputs[i])
            if rng.random() < 0.1
            else total + int(inputs[i]) + (5 if rng.random() < 0.1 else 0)
        )
        sums.append(total)
    return AgentSums("a", turns, np.array(sums), inputs, inputs)


def test_the_browser_and_python_judge_alike(tmp_path: Path):
    from playwright.sync_api import sync_playwright

    rng = random.Random(SEED)
    cases = [
        (agents(rng), rng.randrange(0, 90), rng.randrange(0, 120), rng.random() < 0.5)
        for _ in range(300)
    ]
    guards = [
        (
            [rng.choice([None, 0.0, -0.2, 0.05, 0.1, 0.3]) for _ in range(rng.randrange(0, 12))],
            rng.choice([0, 0.05, 0.1, 0.5]),
            rng.randrange(0, 4),
        )
        for _ in range(300)
    ]
    code = (
        text("budget.js").split("function render")[0]
        + text("thrash.js").split("function render")[0]
    )
    file = tmp_path / "rules.html"
    file.write_text(f"<script>{code}</script>", encoding="utf-8")
    with sync_playwright() as playwright, browser_page(playwright, Seen()) as page:
        page.goto(file.as_uri())
        found = page.evaluate(
            OPENED, [[packed(a), warn, cut, again] for a, warn, cut, again in cases]
        )
        shut = page.evaluate(
            "cases => cases.map(([shares, least, window]) => closing(shares, least, window))",
            guards,
        )
    for (agent, warn, cut, again), (turns, sums, warned, cuts) in zip(cases, found, strict=True):
        assert (turns, sums) == (agent.turns.tolist(), agent.cumulative.tolist())
        mine = reached(agent.inputs.tolist(), agent.cumulative.tolist(), warn, cut, again=again)
        assert (tuple(warned), tuple(cuts)) == mine
    assert sum(len(f[3]) for f in found) > 100
    assert shut == [closes(*case) for case in guards]
    assert len({*shut}) > 3


def charts():
    replay = ck.replay(ck.samples.path("billing"), "pi")
    yield "budget", ck.budget(team(1000, 3))
    yield "near", ck.budget(team(300, 9, name="an agent with rather a long name"), warn=2_990_000)
    yield "savings", ck.savings(replay)
    yield (
        "thrash",
        ck.thrash([replay, ck.read(ck.samples.path("billing"))], window=2, min_savings=0.07),
    )


def test_no_text_lies_on_another_in_any_width_and_theme(tmp_path: Path):
    from playwright.sync_api import sync_playwright

    found = {}
    files = [(name, chart.write_html(tmp_path / f"{name}.html")) for name, chart in charts()]
    sizes = {False: (700, 1300), True: (700, 1300)} if ALL else {False: (1300,), True: (700,)}
    for dark, widths in sizes.items():
        seen = Seen()
        with sync_playwright() as playwright, browser_page(playwright, seen, dark=dark) as page:
            for name, file in files:
                for width in widths:
                    page.set_viewport_size({"width": width, "height": 900})
                    page.goto(file.as_uri())
                    page.wait_for_selector(".ctxkit-hand .main-svg", state="attached")
                    page.wait_for_timeout(300)
                    found[name, width, dark] = page.evaluate(OVERLAPS)
        assert (seen.problems, seen.left) == ([], [])
    assert {key: texts for key, texts in found.items() if texts} == {}


def test_without_plotly_the_same_is_drawn_plainly_and_answers(tmp_path: Path):
    from playwright.sync_api import sync_playwright

    for name, chart in charts():
        file = tmp_path / f"{name}.html"
        file.write_text(f"<meta charset=utf-8>{chart.page(plotly=False).html}", encoding="utf-8")
    seen = Seen()
    with sync_playwright() as playwright, browser_page(playwright, seen) as page:
        page.goto((tmp_path / "budget.html").as_uri())
        assert page.locator(".plain path").count() == 3
        before = page.locator(".said").first.inner_text()
        page.locator("[aria-label='cut over at']").focus()
        page.keyboard.press("PageDown")
        page.wait_for_function(
            "was => document.querySelector('.said').textContent !== was", arg=before
        )
        page.goto((tmp_path / "savings.html").as_uri())
        assert page.locator(".plain rect").count() >= 40
        box = page.locator(".box").bounding_box()
        page.mouse.click(box["x"] + 400, box["y"] + 200)
        page.wait_for_selector("text=/out of sight/")
        page.goto((tmp_path / "thrash.html").as_uri())
        assert page.locator(".plain path").count() == 1
    assert (seen.problems, seen.left) == ([], [])
