"""Write slides and print versions: `python docs/teaching/handouts.py FOLDER [reveal.js] [NN ...]`.

Every notebook is run, in the order of the course and without what was done in them before: the
contest begins empty. `NN.slides.html` are its slides, `NN.html` is a page, and `NN.pdf` the page
in print where Chromium is on the machine. Charts and widgets are static in all of them, no page
loads anything, and a table of more than eight columns is split into several. So slides need a
folder with reveal.js (`npm install reveal.js@4`, then `node_modules/reveal.js`); without one they
ask a network for it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from copy import copy
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from bs4 import BeautifulSoup
from nbclient import NotebookClient
from nbconvert import HTMLExporter, SlidesExporter
from traitlets.config import Config

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SCRIPTED_MIME_TYPES = ("application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json")
"""Forms of an output that need scripts; a chart has a static twin beside it, as has a widget of the
kit."""
MAX_COLUMNS = 8
"""Columns of a table on paper."""
STYLE = """<style>
.reveal { font-size: 22px; }
.reveal h1 { font-size: 1.9em; } .reveal h2 { font-size: 1.5em; }
.reveal .slides { text-align: left; }
.reveal .slides section { max-height: 100%; overflow-y: auto; }
.reveal section .jp-Cell, .reveal section .jp-MarkdownCell { max-width: 100%; }
.reveal pre, .reveal code { font-size: 15px; line-height: 1.35; }
.reveal pre { white-space: pre-wrap !important; word-break: normal !important;
  overflow-wrap: anywhere; }
.reveal table { font-size: 15px; }
.reveal figure table:has(tbody tr:nth-child(13)) { display: none; } /* on paper it stands */
.reveal img { margin: 0 !important; }
.reveal svg { max-width: 1000px !important; max-height: 400px; }
.reveal .jp-InputPrompt, .reveal .jp-OutputPrompt { display: none; }
</style>"""
REVEAL_SETTINGS = {
    "width": 1180,
    "height": 760,
    "margin": 0.03,
    "center": False,
    "transition": "none",
    "hash": True,
}
PRINT_STYLE = """<style>
@page { size: A4; margin: 14mm; }
@media print {
  body, .jp-Notebook { padding: 0 !important; overflow: visible !important; }
  .jp-InputPrompt, .jp-OutputPrompt { display: none !important; }
  table { font-size: 8pt !important; }
  td, th { padding: 1px 4px !important; white-space: normal !important; }
  pre { white-space: pre-wrap !important; word-break: normal !important; overflow-wrap: anywhere;
    font-size: 8.5pt !important; }
  h1, h2, figcaption, .jp-InputArea { break-after: avoid; }
  figcaption, svg, tr, pre { break-inside: avoid; }
  .jp-Cell, .jp-OutputArea-child, .jp-OutputArea-output { break-inside: auto !important; }
  body .ctxkit-table :is(td, th) { max-width: 34em !important; }
  .jp-Cell { overflow: visible !important; }
  .jp-OutputArea div { max-height: none !important; overflow: visible !important; }
}
</style>"""
FIT_SCRIPT = """const fit = ({ currentSlide: slide }) => {
  if (!slide || slide.dataset.fit) return;
  slide.dataset.fit = Math.max(0.6, Math.min(1, slide.clientHeight / slide.scrollHeight));
  for (const part of slide.children) part.style.zoom = slide.dataset.fit;
};
Reveal.on("ready", fit); Reveal.on("slidechanged", fit);"""
"""A slide that is too high is drawn smaller, down to six tenths; what is higher still scrolls."""
_FOLDED_TAG = "ctxkit-folded"
"""Tag of cells whose code a slide does not show."""
_CDN = "https://unpkg.com/reveal.js@4"
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def run_notebook(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with its outputs, without the forms that need scripts."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", store_widget_state=False, resources=resources
    ).execute()
    for cell in notebook.cells:
        # before the widgets, as a bar is one of them
        cell["outputs"] = [
            candidate for candidate in cell.get("outputs", []) if not _is_progress_bar(candidate)
        ]
        for output in cell["outputs"]:
            if "text/html" in output.get("data", {}):
                for mime in SCRIPTED_MIME_TYPES:
                    output["data"].pop(mime, None)
                output["data"]["text/html"] = split_wide_tables(output["data"]["text/html"])
            elif SCRIPTED_MIME_TYPES[1] in output.get("data", {}):
                output["data"] = {"text/plain": "(To be turned by hand: in the notebook.)"}
        if cell.cell_type != "code":
            del cell["outputs"]
    return notebook


def split_wide_tables(html: str) -> str:
    """Split each table of more than `MAX_COLUMNS` columns into several with plain heads.

    Each part repeats the first columns that identify its rows.
    """
    return re.sub(
        r"<table\b.*?</table>", lambda match: _split_table(match[0]), html, flags=re.DOTALL
    )


def _split_table(table: str) -> str:
    soup = BeautifulSoup(table, "html.parser")
    if heads := soup.select("th button"):
        for button in heads:  # buttons sort only where there are scripts; heads become plain text
            button.unwrap()
        table = str(soup)
    rows = [row.find_all(["th", "td"], recursive=False) for row in soup.find_all("tr")]
    width = max(map(len, rows), default=0)
    has_spans = soup.find(attrs={"colspan": True}) or soup.find(attrs={"rowspan": True})
    if width <= MAX_COLUMNS or has_spans or any(len(row) != width for row in rows):
        return table
    texts = [[cell.get_text() for cell in row] for row in rows]
    key_columns = next(
        (n for n in (1, 2, 3) if len({str(row_texts[:n]) for row_texts in texts}) == len(rows)),
        1,
    )
    parts_n = -(-(width - key_columns) // (MAX_COLUMNS - key_columns))
    part_columns = -(-(width - key_columns) // parts_n)
    starts = range(key_columns, width, part_columns)
    return "".join(
        _select_columns(soup, {*range(key_columns), *range(start, start + part_columns)})
        for start in starts
    )


def _select_columns(soup: BeautifulSoup, columns: set[int]) -> str:
    """Return a table with some of its columns."""
    table = copy(soup)
    for row in table.find_all("tr"):
        for i, cell in enumerate(row.find_all(["th", "td"], recursive=False)):
            if i not in columns:
                cell.decompose()
    return str(table)


def _is_progress_bar(output: dict) -> bool:
    """Return whether an output is a progress bar, which has no meaning on paper."""
    text = output.get("data", {}).get("text/plain", "") or output.get("text", "")
    return bool(re.match(r"[\w ]+.*\d+%\|", text))


# A slide is a heading, a sentence and what its code shows. Code is folded behind a line that opens
# it, what else the notebook says goes into the notes of the speaker (key S), and cells that show
# nothing, such as imports and guesses, are left out.
def make_deck(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook as slides, each with a sentence, a picture and folded code."""
    deck = nbformat.v4.new_notebook(metadata=notebook.metadata)
    for cell in notebook.cells:
        slideshow = cell.metadata.get("slideshow", {"slide_type": "-"})
        if cell.cell_type == "markdown":
            deck.cells.append(_shorten_markdown(cell.source, slideshow))
        elif cell.outputs and "ck.check(" not in cell.source:
            copied = copy(cell)
            copied.metadata = {"slideshow": slideshow, "tags": [_FOLDED_TAG]}
            deck.cells += [copied, _fold_code(cell.source)]
        elif "ck.check(" in cell.source and "..." in cell.source:
            # an exercise is read out, without the code that marks it
            copied = copy(cell)
            copied.metadata = {"slideshow": slideshow, "tags": [_FOLDED_TAG]}
            deck.cells.append(copied)
    return deck


def _shorten_markdown(text: str, slideshow: dict[str, str]) -> nbformat.NotebookNode:
    """Return headings, each with the first sentence or the exercise of its section.

    The whole text is in the notes.
    """
    sections = re.split(r"^(?=#)", text, flags=re.MULTILINE)
    parts = []
    for section in filter(str.strip, sections):
        head, _, rest = section.partition("\n") if section.startswith("#") else ("", "", section)
        first = rest.strip().split("\n\n")[0]
        sentence = re.split(r"(?<=[.?!:])\s+(?=[A-Z*`])", first)[0]
        if re.match(r"#+ (Guess|Predict)", head):
            sentence = first  # with the question, which stands at its end
        exercise = re.search(r"\*\*Exercise.*", section, re.DOTALL)
        parts += [head, sentence if not exercise else exercise[0]]
    notes = f'<aside class="notes">{escape(text)}</aside>'
    source = "\n\n".join([*filter(None, parts), notes])
    cell = nbformat.v4.new_markdown_cell(source)
    cell.metadata["slideshow"] = slideshow
    return cell


def _fold_code(source: str) -> nbformat.NotebookNode:
    code = f"<details><summary>code</summary><pre>{escape(source)}</pre></details>"
    # a blank line would end the HTML in Markdown
    cell = nbformat.v4.new_markdown_cell(re.sub(r"\n\s*\n", "\n", code))
    cell.metadata["slideshow"] = {"slide_type": "-"}
    return cell


def format_slides(notebook: nbformat.NotebookNode, reveal: Path | None) -> str:
    """Return the slides as HTML that asks nothing of the network, given a copy of reveal.js."""
    settings = {"reveal_theme": "simple", "reveal_url_prefix": str(reveal or _CDN)}
    hidden_inputs = {"enabled": True, "remove_input_tags": [_FOLDED_TAG]}
    config = Config({"SlidesExporter": settings, "TagRemovePreprocessor": hidden_inputs})
    html = remove_network_scripts(
        SlidesExporter(config=config).from_notebook_node(make_deck(notebook))[0]
    )
    html = re.sub(r"<script>\s*require\(.*?</script>", "", html, flags=re.DOTALL)
    if reveal is None:
        script = f'<script src="{_CDN}/dist/reveal.js"></script>'
    else:
        html = re.sub(r"<link [^>]*/dist/(reveal|theme)[^>]*>", "", html)
        sheets = [reveal / "dist" / name for name in ("reveal.css", "theme/simple.css")]
        css = "".join(re.sub(r"@import url\([^)]*\);", "", f.read_text()) for f in sheets)
        html = html.replace("<head>", f"<head><style>{css}</style>", 1)
        script = f"<script>{(reveal / 'dist' / 'reveal.js').read_text()}</script>"
    start_script = f"<script>{FIT_SCRIPT} Reveal.initialize({json.dumps(REVEAL_SETTINGS)})</script>"
    html = html.replace("</body>", f"{script}{start_script}</body>", 1)
    return html.replace("</head>", f"{STYLE}</head>", 1)


def remove_network_scripts(html: str) -> str:
    """Return a page without the scripts that nbconvert loads; no output needs them."""
    html = re.sub(r'<script src="https://[^"]*">\s*</script>', "", html)
    return re.sub(r'<script type="module">\s*import mermaid.*?</script>', "", html, flags=re.DOTALL)


def format_page(notebook: nbformat.NotebookNode) -> str:
    """Return a notebook as the HTML page that is printed."""
    html = HTMLExporter(theme="light").from_notebook_node(notebook)[0]
    return remove_network_scripts(html).replace("</head>", f"{PRINT_STYLE}</head>", 1)


def print_pdf(page_file: Path) -> Path | None:
    """Print a page to PDF; None where no Chromium is found."""
    browser = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if browser is None:
        return None
    target = page_file.with_suffix(".pdf")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    subprocess.run(  # noqa: S603  a browser found on the path, and a file written here
        [browser, *flags, f"--print-to-pdf={target}", page_file.resolve().as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return target


def main(folder: Path, reveal: Path | None, numbers: list[str]) -> None:
    """Write slides, pages and PDFs into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        work_folder = Path(temporary) / "notebooks"
        shutil.copytree(NOTEBOOKS, work_folder, ignore=shutil.ignore_patterns(".*"))
        for path in sorted(work_folder.glob("*.ipynb")):
            if numbers and path.stem[:2] not in numbers:
                continue
            notebook = run_notebook(path)
            slides_html = format_slides(notebook, reveal)
            (folder / f"{path.stem[:2]}.slides.html").write_text(slides_html, encoding="utf-8")
            page_file = folder / f"{path.stem[:2]}.html"
            page_file.write_text(format_page(notebook), encoding="utf-8")
            print(path.stem, print_pdf(page_file) or "no Chromium: print the page yourself")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rest = sys.argv[2:]
    given = next((a for a in rest if Path(a).is_dir()), None)
    main(Path(sys.argv[1]), Path(given) if given else None, [a for a in rest if a != given])
