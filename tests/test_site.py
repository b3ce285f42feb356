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
def make_site():
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pages(make_site, tmp_path, monkeypatch):
    monkeypatch.setattr(make_site, "PAGES", tmp_path)
    return tmp_path


def test_every_page_has_a_place(make_site):
    placed = {p for pages in make_site.NAV.values() for p in pages}
    assert {p.name for p in (ROOT / "docs").glob("*.md")} <= placed
    assert {f"questions/{p.name}" for p in (ROOT / "docs/questions").glob("*.md")} <= placed


def test_the_reference_names_all_that_is_public(make_site, pages):
    make_site.write_reference()
    text = "".join(p.read_text() for p in (pages / "api").glob("*.md"))
    assert "::: ctxkit.formats.reading.read\n" in text
    assert "::: ctxkit.session.session.Session\n" in text
    assert "::: ctxkit.tokens.prices.update\n" in text


@pytest.mark.parametrize(
    ("body", "summary"),
    [
        ("`ck.read` [reads](x.md) a log. More.", "`ck.read` reads a log."),
        ("```python\nimport x\n\ny = x\n```\n\n![a](b.svg)\n\nA log\nis read. More.", "A log is read."),
        ("| a |\n| --- |\n\n## B\n\n- c\n\nThe end", "The end."),
        ("```text\nMIT\n\nAs is. More.\n```", "As is."),
    ],
)  # fmt: skip
def test_the_summary_of_a_page_is_its_first_sentence(make_site, body, summary):
    assert make_site.summarise_page(f"# Title\n\n{body}\n") == summary


def test_the_gallery_draws_every_chart(make_site, pages):
    make_site.write_gallery()
    text = (pages / "gallery.md").read_text()
    assert text.count("<svg") >= len(make_site.GALLERY)
    assert text.count("```python") == len(make_site.GALLERY) + 1


def test_links_and_hidden_words_become_those_of_the_site(make_site, pages):
    make_site.write_page("a.md", "[![run](https://x.example/a.svg)](https://x.example)\n\n[x](docs/frames.md#a) [y](../CONTRIBUTING.md) [z](docs/decisions) [n](notebooks/01-a.ipynb)\n"
                      "<!-- run\nsays('x')\n-->\n[l](LICENSE)\n")  # fmt: skip
    assert (pages / "a.md").read_text() == (
        "[x](frames.md#a) [y](contributing.md) [z](decisions/index.md) [n](notebooks/01-a.md)\n[l](license.md)\n"
    )


def test_a_page_below_leads_to_its_own_readme_and_to_that_of_the_root(make_site, pages):
    make_site.write_page("teaching/a.md", "[own](README.md) [root](../../README.md)\n")
    assert (pages / "teaching" / "a.md").read_text() == "[own](README.md) [root](../index.md)\n"


def test_outputs_of_notebooks_are_shown_without_running_on(make_site):
    html = nbformat.v4.new_output(
        "execute_result", {"text/html": "<p>a</p>\n\n<p>b</p>", "text/plain": "a"}
    )
    text = nbformat.v4.new_output("stream", text="1 < 2\n")
    cells = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("x", outputs=[html, text]),
             nbformat.v4.new_code_cell("%magic", outputs=[])]  # fmt: skip
    page = make_site.site_notebooks.format_notebook(
        nbformat.v4.new_notebook(cells=cells), "a.ipynb"
    )
    assert page.startswith("# Title\n\n*This page is the notebook")
    assert '<div class="ctxkit-output"><p>a</p>\n<p>b</p></div>' in page
    assert "<pre>1 &lt; 2\n</pre>" in page
    assert "```text\n%magic\n```" in page


def test_what_leads_nowhere_is_found(make_site, tmp_path):
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="https://fonts.example/x.css"><script src="gone.js"></script><h2 id="here"></h2>'
        '<a href="b.html#there">1</a><a href="c.html">2</a><a href="#here">3</a><a href="https://x.example">4</a>'
    )
    (tmp_path / "b.html").write_text("<p>b</p>")
    assert sorted(make_site.find_broken_links(tmp_path)) == [
        "a.html: asks https://fonts.example/x.css", "a.html: b.html#there has no such place",
        "a.html: c.html is not there", "a.html: gone.js is not there"]  # fmt: skip


@pytest.mark.long
def test_the_site_is_made_and_its_links_hold():
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    process = subprocess.run([sys.executable, str(ROOT / "docs" / "make_site.py")], capture_output=True, text=True,
                          check=False, timeout=1800)  # fmt: skip
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    site = ROOT / "build" / "site"
    assert "# ctxkit" in (site / "llms.txt").read_text()
    assert "<svg" in (site / "notebooks" / "01-read-a-session.html").read_text()
