"""Every view of the kit, found by what its functions take: what contracts measure and pictures show."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from widgets.team_snapshots_and_long_session import team
from widgets.test_hostile_log_displays import CHARTS, FUNCTIONS, list_forms

import ctxkit as ck
from ctxkit.errors import CtxkitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = {"frame", "misses"}
"""What returns plain data: a frame, which pandas displays, or a list."""
OTHER_ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "break_even": lambda log: ck.break_even(log, 5),
    "budget": lambda log: ck.budget(log, warn=400_000),
    "compare": lambda log: ck.compare(log, RULES, progress=False),
    "thrash": lambda log: ck.thrash(ck.replay(log, "pi"), window=2),
    "tune": lambda log: ck.tune(log, "pi"),
    "plots.budget": lambda _: ck.plots.budget(team(300, 3)),
    "plots.thrash": lambda log: ck.plots.thrash(ck.replay(log, "pi")),
    "plots.views": lambda _: ck.plots.views(ck.compare(_run_team(), "views")),
}
"""How a view is made that says little of the sample alone."""
SAMPLE = ck.samples.path("billing")
RULES = ["pi", "codex", "claude_code", "swe_agent_mask", "none", "anthropic_clear_tools"]


def _run_team() -> Any:
    """Return the session of a scripted team, which runs in a folder that is removed again."""
    with tempfile.TemporaryDirectory() as folder, ck.team("scripted", folder=folder) as scripted:
        scripted.run("Write a small program, and test it.")
        return scripted.session


def _sweep(log: Any) -> Any:
    return ck.sweep(log, RULES, loss=True, progress=False)


def _grid(log: Any) -> Any:
    grid = ck.grid("pi", reserve_tokens=[4000, 16_000], keep_recent_tokens=[2000, 8000])
    return ck.sweep(log, grid, progress=False)


MORE: dict[str, Callable[[Any], Any]] = {
    "session": lambda log: log,
    "sessions": lambda _: ck.read_all(SAMPLE, progress=False),
    "find": lambda _: ck.find(SAMPLE, "billing"),
    "sweep": _sweep,
    "plots.frontier": lambda log: ck.plots.frontier(OTHER_ARGUMENTS["compare"](log)),
    "plots.heatmap": lambda log: ck.plots.heatmap(
        _grid(log), x="reserve_tokens", y="keep_recent_tokens"
    ),
    "explore beside": lambda log: ck.explore(log, beside=ck.replay(log, "pi")),
    "board": lambda _: ck.board(SAMPLE.parent, seconds=None),
}
"""Views that a session alone does not make."""
TEAM_VIEWS: dict[str, Callable[[Any], Any]] = {
    "session of a team": lambda _: _run_team(),
    "explore a team": lambda _: ck.explore(_run_team()),
}
"""Views of a session with subagents: pictures show them, contracts do not measure them."""


def list_views() -> dict[str, Callable[[Any], Any]]:
    """Return how each view is made of a session, by name; a new function joins by its signature."""
    found = {n: f for n, f in {**FUNCTIONS, **CHARTS}.items() if n not in DATA}
    return {**found, **OTHER_ARGUMENTS, **MORE}


def list_empty_views() -> dict[str, Callable[[Any], Any]]:
    """Return the views of a log without calls, by name; those that refuse it are left out."""
    log = ck.read([{"role": "user", "content": "Fix the export."}])
    views = {}
    for name, make in {**FUNCTIONS, **CHARTS}.items():
        with suppress(CtxkitError):
            views[f"empty {name}"] = partial(lambda view, _: view, make(log))
    return {name: view for name, view in views.items() if "text/html" in list_forms(view(None))}


def render_views(views: dict[str, Callable[[Any], Any]]) -> dict[str, str]:
    """Return the HTML of each view as a notebook stores it."""
    log = ck.read(SAMPLE)
    return {name: list_forms(make(log))["text/html"] for name, make in views.items()}


def write_views(
    folder: Path, views: dict[str, Callable[[Any], Any]] | None = None
) -> dict[str, Path]:
    """Write a page for each view, with the page's own colours alone, and return their paths.

    Args:
        folder: where the pages are written.
        views: how each view is made, by name; None: all of the sample.
    """
    pages = {}
    for name, html in render_views(list_views() if views is None else views).items():
        pages[name] = folder / f"{name.replace(' ', '-')}.html"
        pages[name].write_text(PAGE.format(name=name, html=html), encoding="utf-8")
    return pages


PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title><style>'
    ":root{{color-scheme:light dark}}body{{font:14px system-ui,sans-serif;margin:12px}}"
    "@media (prefers-color-scheme:dark){{body{{background:#121212}}}}</style></head>"
    '<body><div data-picture="{name}">{html}</div></body></html>'
)
