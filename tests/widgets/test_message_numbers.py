"""One name and one number for a message in every view: report, explorer, diff, strip, break-even."""

from __future__ import annotations

import html
import re

import pytest
from browser.view_pages import list_views
from conftest import ALL
from widgets.test_hostile_log_displays import list_forms

import ctxkit as ck
from ctxkit.session import describe_message, pair_with_calls
from ctxkit.widgets.session_compactions_widget import CompactionDetails, list_session_compactions


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
    assert label in str(ck.plots.strip(record, 299).to_plotly()["data"])
    assert label in [b.name for b in ck.break_even(record, 299).results]


def test_the_diff_of_the_compaction_behind_it_has_them_too(record, largest):
    rows = {row[:2] for row in ck.plots.diff(record, 1).rows}
    assert largest in rows
    one = list_session_compactions(record, "")[1]
    changes = CompactionDetails(record).of(1, one)["changes"]
    assert list(largest) in [row[:2] for row in changes]
    assert any(row[0] == "new" for row in changes)  # the summary


VIEWS = ("report", "explore", "explore beside", "break_even", "plots.strip", "plots.diff")
"""Views that name messages; the long suite asks all."""
NUMBERED = re.compile(r"#(\d+)\s+(?:[\d,]+\s+)?(\S[^\n#]{0,40})")
"""A number, perhaps the size of the message, and what follows."""
COMPARED_CHARS = 14


def read_numbered_names(view) -> list[tuple[int, str]]:
    """Return the numbers of messages in all forms of a view, each with the text after it."""
    found = []
    for kind, form in list_forms(view).items():
        text = form
        if kind.endswith("html"):
            scripts_removed = re.sub(r"<(style|script)\b.*?</\1>", "", form, flags=re.DOTALL)
            text = html.unescape(re.sub(r"<[^>]+>", " ", scripts_removed))
        found += [
            (int(number), " ".join(after.split())) for number, after in NUMBERED.findall(text)
        ]
    return found


def list_names(session) -> dict[int, str]:
    """Return the beginning of each message's name by its number."""
    messages = {i: entry for i, entry in enumerate(session.path) if isinstance(entry, ck.Message)}
    paired = zip(messages, pair_with_calls(messages.values()), strict=True)
    return {i: describe_message(*pair, session.cwd)[:COMPARED_CHARS] for i, pair in paired}


@pytest.mark.parametrize("name", list_views() if ALL else VIEWS)
def test_whatever_view_numbers_a_message_names_it_as_all_others_do(record, name):
    shown = [record, ck.replay(record, "pi")] if name == "explore beside" else [record]
    names = [list_names(session) for session in shown]
    numbered = read_numbered_names(list_views()[name](record))
    wrong = [
        (n, text) for n, text in numbered if not any(text.startswith(e.get(n, "?")) for e in names)
    ]
    assert name == "find" or wrong == []  # which shows the words that were looked for
    assert numbered or name not in VIEWS


def test_what_find_and_the_audience_list_has_the_number_too(record):
    numbers = {f"#{i}" for i, entry in enumerate(record.path) if isinstance(entry, ck.Message)}
    [row] = [r for r in repr(ck.find(record, "Ticket BILL-4127")).splitlines() if " user " in r]
    assert set(re.findall(r"#\d+", row)) == {"#1"} <= numbers
