"""Reports as notebooks: valid, what they show is what their cells give, and text of a log stays text."""

from __future__ import annotations

import re

import mistune
import nbformat
import pytest
from nbclient import NotebookClient
from widgets.reports.hostile_logs import EVIL, hostile, intruders

import ctxkit as ck
from ctxkit.widgets.reports.report_as_notebook import (
    escape_markdown,
    pack_runs,
    pack_session,
    unpack_runs,
    unpack_session,
)


@pytest.fixture(scope="module")
def billing():
    return ck.read(ck.samples.path("billing"))


@pytest.fixture(scope="module")
def comparison(billing):
    return ck.compare(billing, ["tyrum", "none"])


@pytest.fixture(scope="module")
def runs(billing):
    grid = ck.grid(ck.presets.pi, reserve_tokens=[4_000, 8_000, 200_000])
    return ck.sweep([billing], grid, loss=True, progress=False)


def ran(path):
    """The notebook after its cells ran, which must be valid and raise nothing."""
    made = nbformat.read(path, as_version=4)
    nbformat.validate(made)
    shown = [[o.data for o in c.get("outputs", [])] for c in made.cells]
    NotebookClient(made, timeout=120, kernel_name="python3").execute()
    return made, shown


def read_still_picture(html: str) -> str:
    """What a cell of a kernel stores, without the place of its live view and the note below it."""
    still = re.sub(r'<div class="ctxkit-slot [^"]*"><div class="ctxkit-still [^"]*">', "", html)
    return re.sub(
        rf"<p[^>]*><em>{re.escape('A still picture: run the cell for the interactive view.')}</em></p></div></div>",
        "",
        still,
    )


@pytest.mark.parametrize("what", ["billing", "comparison", "runs"])
def test_its_cells_run_and_give_what_it_shows(what, request, tmp_path):
    made, shown = ran(ck.export(request.getfixturevalue(what), tmp_path / "r.ipynb"))
    assert sum(map(len, shown)) >= 3
    for cell, before in zip(made.cells, shown, strict=True):
        if before:
            kind = "text/html" if "text/html" in before[0] else "text/plain"
            after = read_still_picture(cell.outputs[-1].data[kind])
            assert after == before[0][kind], cell.source[:80]
            assert before[0].keys() <= {"text/plain", "text/html"}


HEADINGS = {
    "billing": ["How the context grew", "What filled it", "Compactions", "Turns", "Go on"],
    "comparison": ["What each would have cost", "How the compactions held", "What was lost",
                   "How the context grew"],
    "runs": ["Dollars against loss", "Settings", "Runs"],
}  # fmt: skip


@pytest.mark.parametrize("what", ["billing", "comparison", "runs"])
def test_it_says_first_what_it_rests_on(what, request, tmp_path):
    made = nbformat.read(
        ck.export(request.getfixturevalue(what), tmp_path / "r.ipynb"), as_version=4
    )
    first = made.cells[0].source
    assert "Prediction error" in first
    assert "without an explanation" in first
    assert r"o200k\_base" in first
    assert ("Open loop" in first) == (what != "billing")
    headings = [c.source.partition("\n")[0] for c in made.cells if c.source.startswith("## ")]
    assert headings == [f"## {heading}" for heading in HEADINGS[what]]
    hidden = [i for i, c in enumerate(made.cells) if c.metadata.get("jupyter")]
    assert hidden == [1], "of all cells, the source of that with the data"
    assert "unpack" in made.cells[1].source


def test_a_session_comes_back_from_its_parcel_whole(billing):
    again = unpack_session(pack_session(billing))
    assert again == billing


def test_runs_come_back_from_their_parcel_with_their_types(runs, comparison):
    for frame in (runs, comparison):
        again = unpack_runs(pack_runs(frame))
        assert again.dtypes.to_dict() == frame.dtypes.to_dict()
        assert again.equals(frame.reset_index(drop=True))


def test_prose_is_only_text():
    html = mistune.html(f"- {escape_markdown(EVIL)}")
    assert intruders(html) == []
    assert "window.evil" in html


def test_a_hostile_session_is_only_text(tmp_path):
    made = nbformat.read(ck.export(hostile(), tmp_path / "r.ipynb"), as_version=4)
    for cell in made.cells:
        if cell.cell_type == "markdown":
            assert intruders(mistune.html(cell.source)) == []
        for out in cell.get("outputs", []):
            assert intruders(out.data.get("text/html", "")) == []
            assert not re.search(r"[\x00\x07\x1b\u202e\u2066\ud800]", out.data["text/plain"])
