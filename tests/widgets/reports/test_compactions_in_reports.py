"""A compaction of several edits is one in reports and tables."""

from __future__ import annotations

from builders import assistant, session, summarised, user
from msgspec.structs import replace

from ctxkit.widgets.reports.html_reports import render_session_report


def test_edits_of_one_compaction_share_its_number():
    a, b = user("find it"), assistant("found")
    first = replace(summarised([a], "one"), id="pi-0.0", source="derived")
    second = replace(summarised([b], "two"), id="pi-0.1", source="derived")
    page = render_session_report(session(a, b, first, second, assistant("done")))
    assert page.count("What compaction 0 wrote") == 2
    assert "What compaction 1 wrote" not in page
