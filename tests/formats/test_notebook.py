"""Notebooks: turns as their cells show them, several sessions, cuts by hand; nothing is run."""

from __future__ import annotations

import json
import time

from ctxkit.formats import Source, read_source

BILL = "1 call · 10 fresh / 0 cached / 5 out · free · context 9/16,000 (0%) · 0 compactions"


def cell(source: str, *shown: str) -> dict:
    outputs = [{"output_type": "display_data", "data": {"text/plain": s}} for s in shown]
    return {"cell_type": "code", "source": source, "outputs": outputs}


def read(*cells: object) -> list:
    notebook = {"nbformat": 4, "cells": list(cells)}
    return read_source(Source("x.ipynb", json.dumps(notebook).encode()))


def test_names_of_cells_are_sessions():
    one, other = read(
        cell("%%agent --session one\nHi.", "Hello.", BILL),
        cell("%%agent --session=two --rules none\nYou?", "Me.", BILL),
        cell("%%agent\nGo on.", "Gone on.", BILL),
        cell('%%agent --session "one"\nBack.', "Yes.", BILL),
    )
    assert [m.text for m in one.messages] == ["Hi.", "Hello.", "Back.", "Yes."]
    assert [m.text for m in other.messages] == ["You?", "Me.", "Go on.", "Gone on."]
    assert (one.context_window, one.messages[1].kind) == (16_000, "turn")
    assert one.messages[1].usage.input_tokens == 10


def test_cuts_are_read_with_their_sizes():
    (session,) = read(
        cell("%%agent\nHi.", "✂ compacted 9,000 → 1,200 tokens (window_size)\nHello.", BILL),
        cell("%compact keep names", "Compacted (858 → 777 tokens, 9% saved), 8 messages went"),
        cell("%compact", "Nothing to compact."),
    )
    cuts = [(e.tokens_before, e.tokens_after) for e in session.edits]
    assert cuts == [(9000, 1200), (858, 777)]


def test_what_a_cell_says_stays_text(tmp_path):
    mark = tmp_path / "ran"
    (session,) = read(
        cell(f"%%agent\n!touch {mark}\n__import__('os').mkdir({str(mark)!r})", "Done."),
        cell(f"open({str(mark)!r}, 'w')"),
        "no cell",
        {"cell_type": "code", "source": 5},
    )
    assert not mark.exists()
    assert "mkdir" in session.messages[0].text
    assert session.messages[1].usage is None


def test_long_lines_are_read_in_linear_time():
    said = "▸ f(" + "(" * 400_000 + "\n" + "1 calls · " * 40_000
    began = time.thread_time()
    read(cell("%%agent\nHi.", said, "%" + BILL * 1000))
    assert time.thread_time() - began < 3
