"""Tables of a session at a glance say what its frames say."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.formats import samples
from ctxkit.widgets.reports.session_summary import tabulate_turns

BILLING = ck.read(samples.path("billing"))


@pytest.mark.parametrize(
    "session",
    [BILLING, ck.replay(BILLING, "fased:context_window=48000")],
    ids=["recorded", "replayed"],
)
def test_each_compaction_stands_in_the_turn_that_it_fell_in(session):
    table = tabulate_turns(session, None)
    at = [h.name for h in table.heads].index("compactions")
    assert sum(row[at].value for row in table.rows) == len(session.edits) > 1
    places = [call.position for call in session.calls]
    turns = {row[0].value for row in table.rows if row[at].text}
    assert turns == {
        session.calls[max(sum(p < e for p in places) - 1, 0)].turn
        for e, entry in enumerate(session.path)
        if entry in session.edits
    }
