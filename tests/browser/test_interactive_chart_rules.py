"""The rules of the charts turned by hand: the browser's are those of Python; without plotly the picture is there too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from conftest import ALL, SEED
from widgets.team_snapshots_and_long_session import team

import ctxkit as ck
from browser.jupyterlab_driver import Seen, browser_page, settle
from ctxkit.plots import (
    CumulativeAgentTokens,
    find_guard_closing,
    is_guard_off,
    is_saving_too_small,
)
from ctxkit.widgets import (
    judge_turns,
    pack_agent_for_browser,
    read_widget_asset,
    translate_function_to_javascript,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser
OPENED = """cases => cases.map(([a, warn, cut, again]) => { const o = opened(a), r = judge_turns(o.inputs, o.sums, warn, cut, again);
  return [[...o.turns], [...o.sums], r.warned, r.cutovers]; })"""

# Boxes of texts that are on each other, of one widget; the layer's words have a halo and may be on marks.
OVERLAPS = """() => { const boxes = [...document.querySelectorAll('.ctxkit-hand text, .ctxkit-hand td, .ctxkit-hand label')]
  .filter(e => e.textContent.trim() && e.checkVisibility({visibilityProperty: true})).map(e => [e.textContent, e.getBoundingClientRect()])
  .filter(([, r]) => r.width && r.height);
  const out = [];
  for (let i = 0; i < boxes.length; i++) { const [a, p] = boxes[i];
    if (p.left < -1 || p.right > innerWidth + 1) out.push('out: ' + a);
    for (let k = i + 1; k < boxes.length; k++) { const [b, q] = boxes[k];
      if (Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2 && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3) out.push(a + ' | ' + b); } }
  return out; }"""


def agents(rng: random.Random) -> CumulativeAgentTokens:
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
    return CumulativeAgentTokens("a", turns, np.array(sums), inputs, inputs)


def test_the_browser_and_python_judge_alike(chromium, tmp_path: Path):
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
    rules = (judge_turns, is_saving_too_small, is_guard_off, find_guard_closing)
    columns = read_widget_asset("budget.js").split("function render")[0]
    code = "\n".join([columns, *map(translate_function_to_javascript, rules)])
    file = tmp_path / "rules.html"
    file.write_text(f"<script>{code}</script>", encoding="utf-8")
    with browser_page(chromium, Seen()) as page:
        page.goto(file.as_uri())
        found = page.evaluate(
            OPENED, [[pack_agent_for_browser(a), warn, cut, again] for a, warn, cut, again in cases]
        )
        shut = page.evaluate(
            "cases => cases.map(([shares, least, window]) => find_guard_closing(shares, least, window))",
            guards,
        )
    for (agent, warn, cut, again), (turns, sums, warned, cutovers) in zip(
        cases, found, strict=True
    ):
        assert (turns, sums) == (agent.turns.tolist(), agent.cumulative.tolist())
        columns = agent.inputs.tolist(), agent.cumulative.tolist()
        mine = judge_turns(*columns, warn, cut, restarts_sum=again)
        assert (warned, cutovers) == (mine["warned"], mine["cutovers"])
    assert sum(len(f[3]) for f in found) > 100
    assert shut == [find_guard_closing(*case) for case in guards]
    assert len({*shut}) > 3


@pytest.fixture(scope="module")
def charts():
    record = ck.read(ck.samples.path("billing"))
    replay = ck.replay(record, "pi")
    many = team(300, 9, name="an agent with rather a long name")
    return {
        "budget": ck.budget(team(1000, 3)),
        "near": ck.budget(many, warn=2_990_000),
        "savings": ck.savings(replay),
        "thrash": ck.thrash([replay, record], window=2, min_savings=0.07),
    }


@pytest.mark.parametrize(
    ("wide", "dark"), [(1300, False), (700, True), (700, False), (1300, True)][: 4 if ALL else 2]
)
def test_no_text_lies_on_another_in_any_width_and_theme(
    charts, wide, dark, chromium, tmp_path: Path
):
    parts = [c.page(plotly=not i).html for i, c in enumerate(charts.values())]
    file = tmp_path / "all.html"
    file.write_text(
        "<!doctype html><meta charset=utf-8><style>:root{color-scheme:light dark}</style>"
        + "".join(parts)
    )
    seen = Seen()
    with browser_page(chromium, seen, dark=dark, size=(wide, 900)) as page:
        page.goto(file.as_uri())
        page.wait_for_function(
            f"() => document.querySelectorAll('.ctxkit-hand:has(.main-svg)').length === {len(charts)}"
        )
        settle(page)
        assert page.evaluate(OVERLAPS) == []
    assert (seen.problems, seen.left) == ([], [])


def test_without_plotly_the_same_is_drawn_plainly_and_answers(charts, chromium, tmp_path: Path):
    for name, chart in charts.items():
        file = tmp_path / f"{name}.html"
        file.write_text(f"<meta charset=utf-8>{chart.page(plotly=False).html}", encoding="utf-8")
    seen = Seen()
    with browser_page(chromium, seen) as page:
        page.goto((tmp_path / "budget.html").as_uri())
        assert page.locator(".plain path").count() == 3
        before = page.locator(".said").first.inner_text()
        page.locator("[aria-label='cutover at']").focus()
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
