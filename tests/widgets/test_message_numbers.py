"""One name and one number for a message in every view: report, explorer, diff, strip, break-even."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.plots.cache_charts import strip_data
from ctxkit.plots.compaction_diff_chart import diff_data
from ctxkit.widgets.savings_widget import CompactionDetails, list_session_compactions


@pytest.fixture(scope="module")
def record():
    return ck.read(ck.samples.path("billing"))


@pytest.fixture(scope="module")
def largest(record):
    """The largest message of call 299, as the report has it."""
    [first, *_] = ck.report(record, 299).contributors
    assert record.path[first.position].id == first.id
    return f"#{first.position}", first.name


def test_the_explorer_and_its_still_picture_have_the_number_and_name_of_the_report(record, largest):
    number, name = largest
    widget = ck.explore(record, 299)
    [first, *_] = widget.data["first"]["rows"]
    assert first[6] == number
    assert f"{first[3]} {first[4]}" == name
    assert f">{number}</td>" in widget.to_html()
    assert f">{name}</td>" in widget.to_html()
    [line] = [x for x in widget.to_text().splitlines() if number in x]
    assert line.endswith(name)


def test_the_strip_and_break_even_have_them_too(record, largest):
    label = " ".join(largest)
    assert label in [b.name for b in strip_data(record, 299).blocks]
    assert label in [b.name for b in ck.break_even(record, 299).results]


def test_the_diff_of_the_compaction_behind_it_has_them_too(record, largest):
    labels = {(f"#{c.position}", c.name) for c in diff_data(record, 1)}
    assert largest in labels
    rows = {row[:2] for row in ck.plots.diff(record, 1).rows}
    assert largest in rows
    one = list_session_compactions(record, "")[1]
    changes = CompactionDetails(record).of(1, one)["changes"]
    assert list(largest) in [row[:2] for row in changes]
    assert any(row[0] == "new" for row in changes)  # the summary
