"""A live session as a person uses it: the chart at a turn's end, the watcher beside it, the tuner and its copies, Stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ctxkit as ck
from browser.jupyterlab_driver import written

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser

TUNE = """\
def rules(trigger=20_000, keep=6_000):
    policy, trigger = f"summary:keep_tokens={keep}", ck.policies.triggers.Above(trigger)
    return ck.policies.Rules(policy=policy, trigger=trigger)

ck.tune(ck.read(ck.samples.path()), rules)"""
COPY = 'ck.tune(ck.read(ck.samples.path()), "pi")'
CELLS = (
    "%load_ext ctxkit",
    "%%agent\nWrite it",
    'import ctxkit as ck\nck.watch("main")',
    "%%agent --model scripted/audit\nGo",
    TUNE,
    COPY,
    "import time\ndef write_file(path, content):\n    'Write.'\n    time.sleep(300)",
    "%%agent --background --tools write_file --out turn\nGo on",
)
POINTS = """() => [...document.querySelectorAll('div[role=img] > div > svg')].filter(p => p.checkVisibility()).map(
    p => p.querySelector('path').getAttribute('d').match(/[ML]/g).length)"""


def test_a_session_is_run_watched_stopped_and_tuned(jupyter, tmp_path: Path):
    seen_points: list[int] = []
    copied: list[str] = []

    def use(page, _) -> None:
        seen_points.extend(page.evaluate(POINTS))
        page.locator("button:has-text('Stop')").click()
        page.wait_for_selector("text=The turn of session 'main' is over")
        page.wait_for_selector(".ctxkit-watch >> text=at rest")
        page.locator(".widget-slider .noUi-handle").first.focus()
        for _key in range(3):
            page.keyboard.press("ArrowRight")
        page.wait_for_selector("text=Each summary is taken to have")
        page.locator("button:has-text('exact, with loss')").first.click()
        page.wait_for_selector(".ctxkit-live-view >> text=needed, lost >> visible=true")
        page.context.grant_permissions(["clipboard-read"])
        page.locator('button:has-text("Copy as pi\'s config")').click()
        page.wait_for_selector("text=copied")
        copied.append(page.evaluate("() => navigator.clipboard.readText()"))

    seen = jupyter.run(written(tmp_path / "live", *CELLS), act=use)
    assert seen.problems == []
    assert seen_points[:2] == [
        4,
        10,
    ]  # the turns; then the watcher, both tuners, the turn beside it
    assert copied == [ck.presets.pi().to_config()]
