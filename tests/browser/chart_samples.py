"""One of every chart, on the shipped sample and on made-up logs: what the pictures are taken of."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from widgets.team_snapshots_and_long_session import team

import ctxkit as ck
from browser.layout_checks import gallery

if TYPE_CHECKING:
    from ctxkit.plots import Chart

RULES = ["pi", "codex", "claude_code", "swe_agent_mask", "none", "anthropic_clear_tools"]


@cache
def charts(every: bool = True) -> dict[str, Chart]:
    """Every chart by name; else those that need neither a comparison nor a sweep."""
    from msgspec.structs import replace

    plots: Any = ck.plots
    record = ck.read(ck.samples.path("billing"))
    pi = ck.replay(record, "pi")
    long = replace(record, title="A very long title that goes on " * 12)
    made = {
        "growth": plots.growth(record),
        "growth of a long title": plots.growth([record, long]),
        "composition": plots.composition(record),
        "budget of a team": plots.budget(team(300, 3)),
        "budget of many agents": plots.budget(team(400, 9)),
        "cache": plots.cache(record),
        "calibration": plots.calibration(record),
        "diff": plots.diff(record),
        "loss": plots.loss(record),
        "idle": plots.idle(record),
        "rules": plots.user_rules(record),
        "savings": plots.savings(record),
        "savings of a replay": plots.savings(pi),
        "thrash": plots.thrash(pi),
        "one call": plots.growth(record.branch(record.calls[0].message.id)),
    }
    if every:
        two = ck.compare(record, RULES)
        made |= {"growth of six settings": plots.growth(two), "frontier": plots.frontier(two)}
        rules = ck.grid("pi", reserve_tokens=[4000, 16_000], keep_recent_tokens=[2000, 8000])
        grid = ck.sweep(record, rules)
        made["heatmap"] = plots.heatmap(grid, x="reserve_tokens", y="keep_recent_tokens")
    return made


def plotly_gallery(made: dict[str, Chart]) -> str:
    """The same charts as plotly draws them, in one page."""
    from plotly.offline import get_plotlyjs

    from ctxkit._internal import PLOTLY_TEXT_CSS
    from ctxkit.widgets import render_chart

    page = gallery({n: render_chart(c, f"c{i}") for i, (n, c) in enumerate(made.items())})
    library = str(get_plotlyjs()).replace("</script", "<\\/script")
    head = f"<style>{PLOTLY_TEXT_CSS}</style><script>{library}</script></head>"
    return page.replace("</head>", head, 1)
