"""Every chart and widget as a picture: no text is on another, none is cut off, all can be read.

Light and dark, 700, 900 and 1,300 pixels wide, on paper and exported; the short suite takes a part of it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from conftest import ALL
from widgets.team_snapshots_and_long_session import team

import ctxkit as ck
from browser.chart_samples import charts, plotly_gallery
from browser.jupyterlab_driver import Seen, browser_page, settle
from browser.layout_checks import faults, gallery
from browser.widget_page import stand

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser
LOOKS = [
    (900, "dark"),
    (700, "light"),
    (1300, "light"),
    (900, "light"),
    (700, "dark"),
    (1300, "dark"),
]
LOOKS = LOOKS if ALL else LOOKS[:2]


@contextmanager
def leaf(chromium: Any, wide: int, scheme: str):
    with browser_page(chromium, Seen(), dark=scheme == "dark", size=(wide, 1000)) as page:
        yield page


def drawn(page: Any, least: int) -> None:
    page.wait_for_function(f"() => document.querySelectorAll('.main-svg').length >= {least}")
    settle(page)


def test_what_is_wrong_is_seen(chromium):
    bad = (
        '<svg width="200" height="60" viewBox="0 0 200 60"><text x="10" y="20">one name</text>'
        '<text x="30" y="22">another</text><text x="190" y="50">is cut off</text>'
        '<text x="10" y="50" style="fill:#eeeeee">pale</text></svg>'
    )
    with leaf(chromium, 700, "light") as page:
        page.set_content(gallery({"bad": bad}))
        found = " ".join(faults(page))
    assert '"one name" lies on "another"' in found
    assert '"is cut off" is cut off' in found
    assert '"pale" has a contrast of' in found


@pytest.mark.parametrize(("wide", "scheme"), LOOKS)
def test_charts_as_they_stand_still(chromium, wide, scheme):
    with leaf(chromium, wide, scheme) as page:
        page.set_content(gallery({name: chart.to_html() for name, chart in charts(ALL).items()}))
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= wide


@pytest.mark.parametrize(("wide", "scheme"), LOOKS if ALL else LOOKS[:1])
def test_charts_as_plotly_draws_them(chromium, wide, scheme, tmp_path: Path):
    made = charts(ALL)
    file = tmp_path / "live.html"
    file.write_text(plotly_gallery(made), encoding="utf-8")
    with leaf(chromium, wide, scheme) as page:
        page.goto(file.as_uri())
        drawn(page, 2 * len(made))
        assert faults(page) == []


WIDGETS = {
    "budget": lambda: ck.budget(team(400, 3)),
    "savings": lambda: ck.savings(ck.samples.path("billing")),
    "thrash": lambda: ck.thrash(ck.replay(ck.samples.path("billing"), "pi"), window=2),
    "explore": lambda: ck.explore(ck.samples.path("billing"), call=200),
    "beside": lambda: ck.explore(
        ck.samples.path("billing"), beside=ck.replay(ck.samples.path("billing"), "pi")
    ),
}


@pytest.mark.parametrize("name", WIDGETS)
def test_widgets(chromium, name):
    made = WIDGETS[name]()
    for wide, scheme in LOOKS if ALL else LOOKS[:1]:
        with leaf(chromium, wide, scheme) as page:
            stand(page, made, plotly=ALL)
            page.wait_for_selector(
                ".ctxkit-hand .main-svg" if ALL else ".ctxkit-hand .plain text", state="attached"
            )
            settle(page)
            page.evaluate("document.getElementById('here').dataset.picture = 'widget'")
            assert faults(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= wide


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_report_on_screen_and_on_paper(chromium, scheme, tmp_path: Path):
    file = ck.export(ck.samples.path("billing"), tmp_path / "report.html")
    for wide in (700, 1300):
        with leaf(chromium, wide, scheme) as page:
            page.goto(file.as_uri())
            drawn(page, 2)
            page.evaluate(
                "document.querySelectorAll('figure').forEach((f, i) => { f.dataset.picture = 'figure ' + i; })"
            )
            assert faults(page) == []
            page.set_viewport_size({"width": 720, "height": 1018})  # A4 within its margins
            page.emulate_media(media="print", color_scheme="light")
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
            settle(page, 500)
            assert [f for f in faults(page) if "contrast" not in f] == []
            assert len(page.pdf(format="A4")) > 20_000
