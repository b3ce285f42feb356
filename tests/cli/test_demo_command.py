"""`ctxkit demo`: what a bundled session says, in the terminal, as a page and as a notebook."""

from __future__ import annotations

import re

import nbformat
from cli.command_runner import run_as_in_terminal, run_in_this_process

import ctxkit as ck


def test_it_answers_and_names_the_page_and_the_notebook_that_it_wrote(tmp_path):
    session = ck.read(ck.samples.path("billing"))
    done = run_in_this_process(tmp_path, "demo", "shown")
    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    assert f"{session.calls[-1].message.usage.prompt_tokens:,} tokens" in shown
    assert "$3.29 in 343 calls" in shown
    assert " ".join(ck.metrics.when_to_compact(session).sentences()[1].split()) in shown
    rows = ck.compare(session, ["pi", "claude_code", "codex", "none"], progress=False)
    assert f"${rows.loc['claude_code', 'cost_usd']:,.2f}" in shown
    answers = re.split(r"^(.+\?)\n(─+)\n", done.stdout.partition("\npage: ")[0], flags=re.MULTILINE)
    assert answers[0] == "\n"
    assert [len(question) for question in answers[1::3]] == [*map(len, answers[2::3])]
    bill = ck.spend(session)
    expected = {
        "What fills the window?": ck.report(session).to_text(),
        "Where did the money go?": " ".join([bill.answer, *bill.sentences]),
        "When to compact?": ck.metrics.when_to_compact(session).to_text(),
        "What would other rules have cost, and lost?": rows.to_text(),
    }
    assert answers[1::3] == list(expected)
    assert [text.split() for text in answers[3::3]] == [t.split() for t in expected.values()]
    page, notebook = re.findall(r"^(?:page|notebook): +(\S+)$", done.stdout, re.MULTILINE)
    assert (tmp_path / page).read_text(encoding="utf-8").startswith("<!doctype html>")
    book = nbformat.read(tmp_path / notebook, as_version=4)
    nbformat.validate(book)
    assert len([c for c in book.cells if c.cell_type == "code"]) >= 3
    assert {p.name for p in (tmp_path / "shown").iterdir()} == {"billing.html", "billing.ipynb"}
    assert f"jupyter lab {notebook}" in shown
    assert shown.endswith("Sessions of your own: ctxkit list, then ctxkit report last.")


def test_a_terminal_of_80_columns_is_enough(tmp_path):
    code, shown = run_as_in_terminal(tmp_path, "demo", "shown")
    assert code == 0
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_where_it_cannot_write_it_says_so(tmp_path):
    (tmp_path / "shown").write_text("a file")
    done = run_in_this_process(tmp_path, "demo", "shown")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "shown" in done.stderr
