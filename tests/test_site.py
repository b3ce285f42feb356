"""The site: every page is on it, links are checked, and it asks nothing of a network."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pages(made, tmp_path, monkeypatch):
    monkeypatch.setattr(made, "PAGES", tmp_path)
    return tmp_path


def test_every_page_has_a_place(made):
    placed = {p for pages in made.NAV.values() for p in pages}
    assert {p.name for p in (ROOT / "docs").glob("*.md")} <= placed
    assert {f"questions/{p.name}" for p in (ROOT / "docs/questions").glob("*.md")} <= placed


def test_the_reference_names_all_that_is_public(made, pages):
    made.reference()
    text = "".join(p.read_text() for p in (pages / "api").glob("*.md"))
    assert "::: ctxkit.formats.reading.read\n" in text
    assert "::: ctxkit.session.session.Session\n" in text
    assert "::: ctxkit.tokens.prices.update\n" in text


def test_the_gallery_draws_every_chart(made, pages):
    made.gallery()
    text = (pages / "gallery.md").read_text()
    assert text.count("<svg") >= len(made.GALLERY)
    assert text.count("```python") == len(made.GALLERY) + 1


def test_links_and_hidden_words_become_those_of_the_site(made, pages):
    made.page("a.md", "[![run](https://x.example/a.svg)](https://x.example)\n\n[x](docs/frames.md#a) [y](../CONTRIBUTING.md) [z](docs/decisions) [n](notebooks/01-a.ipynb)\n"
                      "<!-- run\nsays('x')\n-->\n[l](LICENSE)\n")  # fmt: skip
    assert (pages / "a.md").read_text() == (
        "[x](frames.md#a) [y](contributing.md) [z](decisions/index.md) [n](notebooks/01-a.md)\n[l](license.md)\n"
    )


def test_a_page_below_leads_to_its_own_readme_and_to_that_of_the_root(made, pages):
    made.page("teaching/a.md", "[own](README.md) [root](../../README.md)\n")
    assert (pages / "teaching" / "a.md").read_text() == "[own](README.md) [root](../index.md)\n"


def test_outputs_of_notebooks_are_shown_without_running_on(made):
    html = nbformat.v4.new_output(
        "execute_result", {"text/html": "<p>a</p>\n\n<p>b</p>", "text/plain": "a"}
    )
    text = nbformat.v4.new_output("stream", text="1 < 2\n")
    cells = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("x", outputs=[html, text]),
             nbformat.v4.new_code_cell("%magic", outputs=[])]  # fmt: skip
    told = made.site_notebooks.as_markdown(nbformat.v4.new_notebook(cells=cells), "a.ipynb")
    assert told.startswith("# Title\n\n*This page is the notebook")
    assert '<div class="ctxkit-output"><p>a</p>\n<p>b</p></div>' in told
    assert "<pre>1 &lt; 2\n</pre>" in told
    assert "```text\n%magic\n```" in told


def test_what_leads_nowhere_is_found(made, tmp_path):
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="https://fonts.example/x.css"><script src="gone.js"></script><h2 id="here"></h2>'
        '<a href="b.html#there">1</a><a href="c.html">2</a><a href="#here">3</a><a href="https://x.example">4</a>'
    )
    (tmp_path / "b.html").write_text("<p>b</p>")
    assert sorted(made.broken(tmp_path)) == [
        "a.html: asks https://fonts.example/x.css", "a.html: b.html#there has no such place",
        "a.html: c.html is not there", "a.html: gone.js is not there"]  # fmt: skip


@pytest.mark.long
def test_the_site_is_made_and_its_links_hold():
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "make_site.py")], capture_output=True, text=True,
                          check=False, timeout=1800)  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    site = ROOT / "build" / "site"
    assert "# ctxkit" in (site / "llms.txt").read_text()
    assert "<svg" in (site / "notebooks" / "01-read-a-session.html").read_text()
