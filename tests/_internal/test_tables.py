"""Tables within 80 columns, and in a page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from widgets.reports.hostile_logs import EVIL, intruders

from ctxkit._internal import Cell, Column, Table, cut_and_pad_to_width, display_width

HEADS = (Column("name", number=False), Column("cost", "dollars"), Column("spare", spare=True))


@given(
    st.lists(
        st.tuples(st.text(max_size=200), st.text("0123456789,.$", max_size=12)),
        min_size=1,
        max_size=5,
    )
)
def test_a_text_is_never_wider_than_a_terminal(rows):
    made = Table(HEADS, tuple((Cell(a), Cell(b), Cell(b)) for a, b in rows)).to_text()
    assert max(map(display_width, made.split("\n"))) <= 80


def test_wide_letters_take_two_columns():
    assert display_width("漢字") == 4
    assert display_width(cut_and_pad_to_width("漢字漢字", 5)) == 5


def test_spare_columns_go_first_and_firm_texts_stay():
    heads = (
        Column("a", number=False),
        Column("b", spare=True),
        Column("word", number=False, firm=True),
    )
    made = Table(heads, ((Cell("x" * 60), Cell("9" * 40), Cell("y" * 30)),)).to_text()
    assert "9" not in made
    assert "y" * 30 in made


def test_nothing_of_a_log_leaves_its_cell():
    made = Table(
        HEADS, ((Cell(EVIL, None, EVIL), Cell(EVIL, 1.0, EVIL, "bad"), Cell(EVIL)),), EVIL, EVIL
    )
    assert intruders(made.to_html(is_sortable=False)) == []
    assert not {"\x1b", "\u202e", "\x00"} & set(made.to_text())


def test_a_missing_value_is_sorted_last():
    shown = Table(HEADS, ((Cell("a"), Cell("–"), Cell("1", 1.0)),)).to_html()
    assert shown.count("data-value=") == 2


def test_no_rows_are_no_table():
    assert (Table(HEADS).to_html(), Table(HEADS).to_text()) == ("", "")
