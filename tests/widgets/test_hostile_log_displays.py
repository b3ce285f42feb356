"""Whatever of the kit takes a session, shown of a hostile one: text stays text, and is bounded.

A display may have scripts and attributes of its own: those that it has of a harmless session, too.
"""

from __future__ import annotations

from inspect import Parameter, isfunction, signature

import pytest
from ipywidgets import Widget
from widgets.reports.hostile_logs import EVIL, SECRET, hostile, list_leaks

import ctxkit as ck
from ctxkit.errors import CtxkitError


def takes_a_session(public) -> bool:
    """Say whether a session alone is enough for a function."""
    if not isfunction(public):
        return False
    first, *more = signature(public).parameters.values()
    needed = [p for p in more if p.default is p.empty and p.kind != Parameter.VAR_KEYWORD]
    return first.name in {"session", "of", "sessions", "source"} and not needed


FUNCTIONS = {n: f for n in ck.__all__ if takes_a_session(f := getattr(ck, n))}
CHARTS = {
    f"plots.{n}": getattr(ck.plots, n)
    for n in ck.plots.__all__
    if takes_a_session(getattr(ck.plots, n))
}

DATA = {"frame"}
"""What returns a plain data frame: its texts are those of the log, as SECURITY.md says."""


def list_forms(value) -> dict[str, str]:
    """Return all forms in which a notebook shows a value."""
    bundle = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else {}
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    out = {kind: text for kind, text in data.items() if isinstance(text, str)}
    html = getattr(value, "_repr_html_", None)
    if html is not None:
        out["text/html"] = html() or ""
    if hasattr(value, "to_html") and not hasattr(value, "iloc"):
        out["page text/html"] = value.to_html()
    return {"text/plain": repr(value)} | out


def test_the_functions_are_found():
    assert {"explore", "report", "spend", "frame", "score"} <= FUNCTIONS.keys()
    assert len(CHARTS) > 8


@pytest.mark.parametrize("name", [*FUNCTIONS, *CHARTS])
def test_text_of_a_log_stays_text(name):
    leaks, own = list_leaks_of(name, f"{SECRET} {EVIL}"), list_leaks_of(name, "harmless words")
    assert {k: v for k, v in leaks.items() if v != own.get(k, [])} == {}


def list_leaks_of(name: str, text: str) -> dict[str, list[str]]:
    """Return what leaks into each form of what a function makes of a session full of a text."""
    function = FUNCTIONS.get(name) or CHARTS[name]
    try:
        forms = list_forms(function(hostile(text=text)))
    except CtxkitError as error:
        forms = {"error": str(error)}
    Widget.close_all()
    leaks = {kind: list_leaks(text, html=kind.endswith("html")) for kind, text in forms.items()}
    if name in DATA:
        leaks = {kind: [leak for leak in found if leak != "a key"] for kind, found in leaks.items()}
    return leaks
