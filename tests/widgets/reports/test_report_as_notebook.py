"""Reports as notebooks: valid, what they show is what their cells give, and text of a log stays text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import mistune
import nbformat
import numpy as np
import pandas as pd
import pytest
from builders import assistant, session, summarised, usage, user
from nbclient import NotebookClient
from widgets.reports.hostile_logs import EVIL, hostile, intruders
from widgets.reports.score_frames import BROKEN, RECORDED, TIGHT, scores, sweep_rows

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.experiments import Comparison
from ctxkit.widgets.reports.report_as_notebook import (
    encode_notebook,
    escape_markdown,
    make_code_cell,
    make_comparison_cells,
    make_markdown_cell,
    make_session_cells,
    make_sweep_cells,
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


# -- Cells of reports that are written down here.


def outline(cells):
    """The first line of each cell, with the kinds of its outputs; the data of a hidden cell left out."""
    out = []
    for cell in cells:
        source = re.sub(r'unpack(_runs)?\("[^"]+"\)', r"unpack\1(…)", cell.source)
        kinds = [(o.output_type, sorted(o.data)) for o in cell.get("outputs", [])]
        out.append((cell.cell_type, source, kinds))
    return out


def table_rows(cell):
    """The cells of each row of the table that a cell shows, its heads first."""
    html = cell.outputs[0].data["text/html"]
    rows = re.findall(r"<tr\b.*?</tr>", html, flags=re.DOTALL)
    return [re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL) for row in rows]


PAGE = [("execute_result", ["text/html", "text/plain"])]
TURNS = ["turn", "calls_n", "context_tokens", "turn_input_tokens", "turn_output_tokens", "cost_usd"]
COMPACTIONS = [
    *("compaction", "call", "reason", "tokens_before", "tokens_after"),
    *("token_savings", "messages_before", "messages_after", "cost_usd", "tokens_source"),
]
AGAIN = "Everything below runs again, and can be changed. The data lie in the folded cell above."


@pytest.fixture
def whole_texts():
    with pd.option_context("display.max_colwidth", None):
        yield


def literal(names):
    return ", ".join(f'"{n}"' for n in names)


@pytest.mark.usefixtures("whole_texts")
def test_a_notebook_of_a_session_has_each_cell_in_order():
    asked = user("ask <b>")
    log = [e for i in range(51) for e in (user(f"t{i}"), assistant("y", usage=usage(100 + i)))]
    edits = [summarised([asked], reason="r" * 161), *(summarised([]) for _ in range(50))]
    s = session(asked, assistant("y", usage=usage(9)), *log[2:], *edits, title="New session")
    cells = list(make_session_cells(s))
    assert cells[0].source.startswith("# ask\n\nWhat this report rests on:\n\n- Prediction error")
    assert outline(cells)[1:] == [
        (
            "code",
            ("from ctxkit.widgets.reports.report_as_notebook import unpack_session as unpack\n\n"
            "session = unpack(…)"),
            [],
        ),
        ("markdown", AGAIN, []),
        ("code", "import ctxkit as ck\n\nsession", PAGE),
        ("markdown", "## How the context grew", []),
        ("code", "ck.plots.growth(session)", PAGE),
        ("markdown", "## What filled it", []),
        ("code", "ck.plots.composition(session)", PAGE),
        ("markdown", "The last call and its largest contributors.", []),
        ("code", "ck.report(session)", PAGE),
        ("markdown", "## Compactions", []),
        ("code", f'columns = [{literal(COMPACTIONS)}]\nck.frame(session, per="compaction")[columns].head(50)', PAGE),
        ("code", 'for edit in session.edits:\n    print(*(m.text for m in edit.inserted), sep="\\n")', []),
        ("markdown", "## Turns", []),
        ("code", f'columns = [{literal(TURNS)}]\nck.frame(session, per="turn")[columns].head(50)', PAGE),
        (
            "markdown",
            "## Go on\n\nThe same session under other rules: what they would have cost, and what they would have lost.",
            [],
        ),
        ("code", 'ck.compare(session, ["pi", "none"])', []),
    ]  # fmt: skip
    assert [i for i, cell in enumerate(cells) if cell.metadata] == [1]
    assert cells[1].metadata == {"jupyter": {"source_hidden": True}}
    for place, shown in ((5, ck.plots.growth(s)), (7, ck.plots.composition(s))):
        assert cells[place].outputs[0].data["text/plain"] == shown.to_text()
    compactions, turns = table_rows(cells[11]), table_rows(cells[14])
    assert compactions[0][1:] == COMPACTIONS
    assert turns[0][1:] == TURNS
    assert len(compactions) == len(turns) == 51
    assert compactions[1][3] == "r" * 159 + "…"
    assert turns[50][1:4] == ["49", "1", "149"]


def test_a_notebook_of_a_session_without_calls_ends_with_the_session():
    cells = list(make_session_cells(session(user("hi"), summarised([]))))
    assert [kind for kind, _, _ in outline(cells)] == ["markdown", "code", "markdown", "code"]
    without_edits = list(make_session_cells(session(user("hi"), assistant("y"))))
    assert "for edit in" not in " ".join(c.source for c in without_edits)


def test_a_notebook_of_a_comparison_has_its_figures_and_its_record():
    frame = Comparison(scores(RECORDED, TIGHT | {"counter": "<odd>"}, BROKEN))
    cells = list(make_comparison_cells(frame))
    assert cells[0].source.startswith(
        "# s\\-1: 3 settings compared\n\nWhat these figures rest on:\n\n- Open loop"
    )
    assert [(kind, source.split("\n")[0], bool(out)) for kind, source, out in outline(cells)][
        1:
    ] == [
        (
            "code",
            "from ctxkit.widgets.reports.report_as_notebook import unpack_session as unpack, unpack_runs",
            False,
        ),
        ("markdown", AGAIN, False),
        ("markdown", "## What each would have cost", False),
        ("code", f'runs.set_index("rules")[[{literal(table_rows(cells[4])[0][1:])}]]', True),
        ("markdown", "## How the compactions held", False),
        ("code", f'runs.set_index("rules")[[{literal(table_rows(cells[6])[0][1:])}]]', True),
        ("markdown", "## What was lost", False),
        ("code", f'runs.set_index("rules")[[{literal(table_rows(cells[8])[0][1:])}]]', True),
        ("markdown", "## What failed", False),
        ("code", 'runs[runs["error"].notna()][["session", "rules", "error"]].head(50)', True),
    ]
    assert "\nsession = " not in cells[1].source
    assert cells[1].metadata == {"jupyter": {"source_hidden": True}}
    assert table_rows(cells[4])[0][1:5] == ["calls_n", "prompt_tokens", "peak_tokens", "cost_usd"]
    assert table_rows(cells[6])[0][1:3] == ["compactions_n", "not_paid_back_n"]
    assert table_rows(cells[8])[0][1:3] == ["items_n", "retained"]
    assert [row[1:] for row in table_rows(cells[10])[1:]] == [
        ["s-1", "broken", "no &lt;window&gt;"]
    ]
    s = session(user("x"), assistant("y", usage=usage(9)))
    frame.replays = {"recorded": s}
    cells = list(make_comparison_cells(frame))
    assert cells[1].source.endswith(f'\nsession = unpack("{pack_session(s)}")')
    assert outline(cells)[11:] == [
        (
            "markdown",
            "## How the context grew\n\nAs recorded. `ck.compare` makes the replays again, for any rules:",
            [],
        ),
        ("code", "import ctxkit as ck\n\nck.plots.growth(session)", PAGE),
        ("code", 'again = ck.compare(session, ["pi", "none"])\nck.plots.growth(again.replays)', []),
    ]
    frame.replays = {"recorded": session(user("x"))}
    assert len(list(make_comparison_cells(frame))) == 11
    assert len(list(make_comparison_cells(Comparison(scores(RECORDED))))) == 9


def test_a_notebook_of_a_sweep_has_its_front_its_failures_and_its_runs():
    wide = {f"setting{i}": range(6) for i in range(20)}
    frame = scores(*sweep_rows(), **wide)
    cells = list(make_sweep_cells(frame))
    assert cells[0].source.startswith(
        "# A sweep of context settings\n\nWhat these figures rest on:\n\n- Open loop"
    )
    assert "2 of 6 runs failed and are in no mean" in cells[0].source
    columns = ["rules", "session", *[*wide][:16]]
    assert outline(cells)[2:] == [
        ("markdown", AGAIN, []),
        ("code", "import ctxkit as ck\n\nruns.shape", [("execute_result", ["text/plain"])]),
        ("markdown", "## Dollars against loss", []),
        ("code", "ck.plots.frontier(runs)", PAGE),
        (
            "markdown",
            (
                "## Settings\n\nMeans over sessions with their 90 % intervals; no other setting dominates those on the Pareto"
                " front."
            ),
            [],
        ),
        ("code", "front(runs).head(50)", PAGE),
        ("markdown", "## What failed", []),
        ("code", 'runs[runs["error"].notna()][["session", "rules", "error"]].head(50)', PAGE),
        ("markdown", "## Runs", []),
        ("code", f"columns = {columns}\nruns[columns].head(50)", PAGE),
    ]
    assert cells[3].outputs[0].data["text/plain"] == repr(frame.shape)
    assert table_rows(cells[7])[0][1] == "rules"
    assert [row[1] for row in table_rows(cells[7])[1:]] == ["small", "big", "bad"]
    assert [row[2] for row in table_rows(cells[9])[1:]] == ["bad", "bad"]
    assert table_rows(cells[11])[0][1:] == columns


@pytest.mark.usefixtures("whole_texts")
def test_tables_of_a_sweep_in_a_notebook_have_fifty_rows():
    rows = [{"session": "s", "rules": f"r{i}", "error": "<e>" + "e" * 300} for i in range(51)]
    cells = list(make_sweep_cells(scores(*rows)))
    assert "## Dollars against loss" not in [c.source for c in cells]
    shown = [table_rows(c) for c in cells if "head(50)" in c.source]
    assert [len(rows) for rows in shown] == [51, 51, 51]
    assert shown[1][50][2:] == ["r49", "&lt;e&gt;" + "e" * 296 + "…"]


def test_text_of_a_markdown_cell_is_escaped_and_empty_paragraphs_are_left_out():
    cell = make_markdown_cell("# A", "", "b *c*", sentences=["1. <x>", "a_b"])
    assert cell.source == "# A\n\nb *c*\n\n- 1\\. &lt;x&gt;\n- a\\_b"
    assert make_markdown_cell("x").source == "x"
    marks = "\\`*_[]()#|~$!:{}+@.-"
    assert escape_markdown(marks) == "".join(f"\\{c}" for c in marks)
    assert escape_markdown("a\n b & \"c\" 'd'") == "a b &amp; \"c\" 'd'"
    assert escape_markdown("x" * 601) == "x" * 599 + "…"
    assert escape_markdown("x" * 600) == "x" * 600
    assert escape_markdown("x" * 9, 8) == "x" * 7 + "…"


class ValueWithDisplays:
    """A value that a front end shows in the given ways."""

    def __init__(self, **displays):
        for name, shown in displays.items():
            setattr(self, f"_repr_{name}_", lambda shown=shown: shown)

    def __repr__(self):
        return "plain \x1b[31m"


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (ValueWithDisplays(mimebundle={"text/plain": "a\x00", "application/x+json": (1, 2)}), {"text/plain": "a", "application/x+json": [1, 2]}),
        (ValueWithDisplays(mimebundle=({"text/plain": "a"}, {"meta": 1}), html="b"), {"text/plain": "a"}),
        (ValueWithDisplays(mimebundle=None, html="<b>\x1b</b>"), {"text/plain": "plain \x1b[31m", "text/html": "<b></b>"}),
        (ValueWithDisplays(html=None), {"text/plain": "plain \x1b[31m"}),
        ((3, 4), {"text/plain": "(3, 4)"}),
    ],
    ids=["bundle", "bundle with metadata", "html", "no html", "plain"],
)  # fmt: skip
def test_an_output_is_what_a_front_end_would_be_given(value, data):
    cell = make_code_cell("\n x = 1 \n", value)
    (out,) = cell.outputs
    shown = {
        kind: text.replace("\x1b[31m", "") if isinstance(text, str) else text
        for kind, text in data.items()
    }
    assert out.data == shown
    assert (out.output_type, out.execution_count, cell.source, cell.metadata) == (
        "execute_result",
        None,
        "x = 1",
        {},
    )


def test_a_cell_without_a_value_has_no_output_and_nan_is_refused():
    assert make_code_cell("x").outputs == []
    assert make_code_cell("x", 0).outputs[0].data == {"text/plain": "0"}
    assert make_code_cell("x", hidden=True).metadata == {"jupyter": {"source_hidden": True}}
    with pytest.raises(ValueError, match="JSON"):
        make_code_cell("x", ValueWithDisplays(mimebundle={"application/x+json": float("nan")}))


def test_the_file_of_a_notebook_names_its_kernel_and_numbers_its_cells():
    text = encode_notebook(make_markdown_cell(f"c{i}") for i in range(11))
    assert text.endswith("}\n")
    made = json.loads(text)
    assert [c["id"] for c in made["cells"]] == [f"report-{i:02}" for i in range(11)]
    assert made["metadata"] == {
        "kernelspec": {
            "name": "python3",
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
        },
        "language_info": {"name": "python"},
    }
    with pytest.raises(nbformat.ValidationError):
        encode_notebook([{"cell_type": "none"}])


def test_what_is_too_large_for_a_notebook_is_refused_with_what_to_do(monkeypatch):
    s, size = session(user("x")), 64 << 20

    class Packed(bytes):
        def __len__(self):
            return size

    monkeypatch.setattr("zlib.compress", lambda data, level: Packed(data))
    assert pack_session(s)
    size += 1
    with pytest.raises(BadArguments) as refused:
        pack_session(s)
    assert str(refused.value) == (
        "64 MB do not fit into a notebook: export an .html report, or keep the data in a file of its own (ctxkit.write, or"
        " out= of a sweep)."
    )
    with pytest.raises(BadArguments, match="64 MB do not fit"):
        pack_runs(scores(RECORDED))


def test_settings_that_json_does_not_know_are_packed_as_numbers_and_texts():
    frame = scores(
        RECORDED, TIGHT, size=np.array([np.float32(2.5), None], object), path=[Path("a/b"), None]
    )
    again = unpack_runs(pack_runs(frame))
    assert again["size"].iloc[0] == 2.5
    assert again["path"].iloc[0] == str(Path("a/b"))
    assert again[["size", "path"]].isna().to_numpy().tolist() == [[False, False], [True, True]]
    assert again.columns.tolist() == frame.columns.tolist()
