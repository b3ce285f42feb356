"""A format without a mark for compactions: no view of any of them shows a number."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from metrics.test_view_figures import sources

import ctxkit as ck
from ctxkit.formats import format_names
from ctxkit.session import hides_compactions

GOLDEN = Path(__file__).parents[1] / "formats" / "golden"
LOGS = {p.name.split(".")[0]: p for p in sorted(GOLDEN.iterdir())}


def read(name: str):
    return next(iter(ck.read_all(LOGS[name], progress=False)))


def show_texts(session) -> dict[str, str]:
    """What each view says of the number of compactions."""
    growth = ck.plots.growth(session)
    texts = {
        "growth, table": f"{growth.rows[0][-2]} compactions" if growth.rows else "–",
        "savings": ck.plots.savings(session).caption,
        "ck.savings": ck.savings(session).to_text(),
        "thrash": ck.plots.thrash(session).caption,
        "ck.thrash": ck.thrash(session).to_text(),
        "session": repr(session),
        "watch": ck.watch(session).state.text,
    }
    if "compaction" in ck.plots.budget(session).caption:
        texts["budget"] = ck.plots.budget(session).caption
    return texts


@pytest.mark.parametrize("name", LOGS)
def test_each_view_says_that_the_number_is_unknown_where_it_is(name):
    s = read(name)
    shown = {view: bool(re.search("–|cannot tell", text)) for view, text in show_texts(s).items()}
    assert set(shown.values()) == {hides_compactions(s)}, shown


@pytest.mark.parametrize("name", LOGS)
def test_each_figure_is_missing_where_the_number_is_unknown(name):
    s = read(name)
    counts = {v: f(s)["compactions_n"] for v, f in sources().items() if "compactions_n" in f(s)}
    counts["score"] = ck.score(s, loss=False)["compactions_n"]
    missing = {view: bool(pd.isna(n)) for view, n in counts.items()}
    assert set(missing.values()) == {hides_compactions(s)}, missing
    after = ck.frame(s, per="turn")["compaction_occurred"]
    assert after.isna().all() if hides_compactions(s) else after.notna().all()


def test_there_are_formats_of_both_kinds():
    """Each reader whose log has calls or messages is among the logs."""
    hidden = [name for name in LOGS if hides_compactions(read(name))]
    assert len(hidden) >= 7
    assert len(LOGS) - len(hidden) >= 15
    assert set(format_names()) - set(LOGS) <= {"crush"}
