"""What a class is handed: tables that fit a page, nothing of an earlier run."""

from __future__ import annotations

import importlib.util
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def handouts():
    spec = importlib.util.spec_from_file_location("handouts", ROOT / "docs/teaching/handouts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("columns", [1, 7, 8, 14, 15, 30])
def test_a_wide_table_is_parted_and_loses_nothing(handouts, columns):
    made = pd.DataFrame([[f"{r}-{c}" for c in range(columns)] for r in range(3)], index=[*"abc"])
    html = handouts.split_wide_tables(f"<p>before</p>{made.to_html()}<svg viewBox='0 0 1 1'></svg>")
    parts = [
        t.set_index(t.columns[0]) for t in pd.read_html(StringIO(html), dtype_backend="pyarrow")
    ]
    assert max(len(t.columns) + 1 for t in parts) <= handouts.MAX_COLUMNS
    together = pd.concat(parts, axis=1)
    assert together.astype(str).to_numpy().tolist() == made.astype(str).to_numpy().tolist()
    assert list(together.index) == [*"abc"]
    assert html.startswith("<p>before</p>")
    assert html.endswith("<svg viewBox='0 0 1 1'></svg>")


def test_every_part_of_a_table_says_what_its_rows_are(handouts):
    made = pd.DataFrame([[i // 2, "ab"[i % 2], *range(12)] for i in range(4)])
    html = handouts.split_wide_tables(made.to_html(index=False))
    for part in pd.read_html(StringIO(html), dtype_backend="pyarrow"):
        assert len(part.columns) <= handouts.MAX_COLUMNS
        assert part.iloc[:, :2].astype(str).to_numpy().tolist() == [
            ["0", "a"],
            ["0", "b"],
            ["1", "a"],
            ["1", "b"],
        ]


def test_a_table_whose_cells_span_others_is_left(handouts):
    table = f"<table><tr><th colspan='12'>all</th></tr><tr>{'<td>1</td>' * 12}</tr></table>"
    assert handouts.split_wide_tables(table) == table


def test_heads_are_text_as_chromium_prints_no_button_again_on_the_next_page(handouts):
    table = "<table><tr><th><button onclick='(r=>r)(1)'>cost</button></th></tr><tr><td>1</td></tr></table>"
    assert "<th>cost</th>" in handouts.split_wide_tables(table)
    assert "button" not in handouts.split_wide_tables(table)


def test_a_notebook_is_run_without_what_was_done_before(handouts, tmp_path, monkeypatch):
    from nbformat import v4, write

    books = tmp_path / "books"
    (books / ".ctxkit").mkdir(parents=True)
    cell = "from pathlib import Path\nprint('there is', Path('.ctxkit').exists())"
    bar = "from tqdm.notebook import tqdm\nfor _ in tqdm(range(2), desc='sweep'): pass"
    cells = [v4.new_code_cell(each) for each in (cell, bar)]
    write(v4.new_notebook(cells=cells), books / "01-one.ipynb")
    monkeypatch.setattr(handouts, "NOTEBOOKS", books)
    monkeypatch.setattr(handouts, "print_pdf", lambda html: None)
    handouts.main(tmp_path / "out", None, [])
    assert "there is False" in (tmp_path / "out" / "01.html").read_text(encoding="utf-8")
    assert "by hand" not in (tmp_path / "out" / "01.html").read_text(encoding="utf-8"), "a bar"
    assert "slide.dataset.fit" in (tmp_path / "out" / "01.slides.html").read_text(encoding="utf-8")


def test_a_slide_is_a_sentence_and_a_picture_with_the_code_folded(handouts):
    from nbformat import v4

    text = "## Why\n\nThe first sentence. A second one that is longer.\n\nAnother paragraph."
    picture = v4.new_output("display_data", data={"text/html": "<svg id='drawn'></svg>"})
    cells = [
        v4.new_markdown_cell(text, metadata={"slideshow": {"slide_type": "slide"}}),
        v4.new_code_cell("import this_is_left_out"),
        v4.new_code_cell("draw(1 < 2)\n\nx", outputs=[picture]),
        v4.new_markdown_cell("Words.\n\n**Exercise 01-a.** How many? Say it."),
    ]
    html = handouts.format_slides(v4.new_notebook(cells=cells), None)
    assert "this_is_left_out" not in html
    assert "drawn" in html
    assert "<summary>code</summary>" in html
    assert html.count("draw(1 &lt; 2)") == 1, "the code stands once, folded"
    body = html.split('<aside class="notes">')
    assert "The first sentence." in body[0]
    assert "A second one" not in body[0]
    assert "A second one" in body[1]
    assert "How many? Say it." in html


def test_the_slide_of_a_guess_asks_its_question(handouts):
    import nbformat

    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        made = handouts.make_deck(nbformat.read(path, as_version=4))
        said = [c.source.split("<aside")[0] for c in made.cells if c.cell_type == "markdown"]
        (guess,) = [s for s in said if "## Guess" in s or "## Predict\n" in s]
        assert "?" in guess, path.stem


def test_each_lesson_has_slides_with_few_words(handouts):
    import nbformat

    for path in sorted((ROOT / "notebooks").glob("0[1-7]*.ipynb")):
        made = handouts.make_deck(nbformat.read(path, as_version=4))
        said = [
            c.source.split("<aside")[0].split() for c in made.cells if c.cell_type == "markdown"
        ]
        assert max(map(len, said)) < 110, path.stem
        assert sum(map(len, said)) / len(said) < 45, path.stem
