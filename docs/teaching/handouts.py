"""Write slides and print versions: `python docs/teaching/handouts.py FOLDER [reveal.js] [NN ...]`.

Every notebook is run, in the order of the course and without what was done in them before: the
contest begins empty. `NN.slides.html` are its slides, `NN.html` is a page, and `NN.pdf` the page
in print where Chromium is on the machine. Charts and widgets are static in all of them, no page
loads anything, and a table of more than eight columns is parted into several. So slides need a
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
LIVE = ("application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json")
"""Forms of an output that need scripts; a chart has a static twin beside it, as has a widget of the
kit."""
MOST = 8
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
SHOWN = {
    "width": 1180,
    "height": 760,
    "margin": 0.03,
    "center": False,
    "transition": "none",
    "hash": True,
}
PRINT = """<style>
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
FIT = """const fit = ({ currentSlide: slide }) => {
  if (!slide || slide.dataset.fit) return;
  slide.dataset.fit = Math.max(0.6, Math.min(1, slide.clientHeight / slide.scrollHeight));
  for (const part of slide.children) part.style.zoom = slide.dataset.fit;
};
Reveal.on("ready", fit); Reveal.on("slidechanged", fit);"""
"""A slide that is too high is drawn smaller, down to six tenths; what is higher still scrolls."""
_FOLDED = "ctxkit-folded"
"""Tag of cells whose code a slide does not show."""
_CDN = "https://unpkg.com/reveal.js@4"
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with its outputs, without the forms that need scripts."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", store_widget_state=False, resources=where
    ).execute()
    for cell in notebook.cells:
        # before the widgets, as a bar is one of them
        cell["outputs"] = [o for o in cell.get("outputs", []) if not _bar(o)]
        for out in cell["outputs"]:
            if "text/html" in out.get("data", {}):
                for mime in LIVE:
                    out["data"].pop(mime, None)
                out["data"]["text/html"] = narrow(out["data"]["text/html"])
            elif LIVE[1] in out.get("data", {}):
                out["data"] = {"text/plain": "(To be turned by hand: in the notebook.)"}
        if cell.cell_type != "code":
            del cell["outputs"]
    return notebook


def narrow(html: str) -> str:
    """Part each table of more than `MOST` columns into several, each with those first columns that
    tell its rows apart; heads are plain text.
    """
    return re.sub(r"<table\b.*?</table>", lambda found: _parted(found[0]), html, flags=re.DOTALL)


def _parted(table: str) -> str:
    soup = BeautifulSoup(table, "html.parser")
    if heads := soup.select("th button"):
        for button in heads:  # they sort where there are scripts; heads of further pages lose them
            button.unwrap()
        table = str(soup)
    rows = [row.find_all(["th", "td"], recursive=False) for row in soup.find_all("tr")]
    wide = max(map(len, rows), default=0)
    spans = soup.find(attrs={"colspan": True}) or soup.find(attrs={"rowspan": True})
    if wide <= MOST or spans or any(len(row) != wide for row in rows):
        return table
    texts = [[cell.get_text() for cell in row] for row in rows]
    first = next((k for k in (1, 2, 3) if len({*map(str, (t[:k] for t in texts))}) == len(rows)), 1)
    parts = -(-(wide - first) // (MOST - first))
    each = -(-(wide - first) // parts)
    ends = range(first, wide, each)
    return "".join(_columns(soup, {*range(first), *range(k, k + each)}) for k in ends)


def _columns(soup: BeautifulSoup, kept: set[int]) -> str:
    """Return a table with some of its columns."""
    part = copy(soup)
    for row in part.find_all("tr"):
        for i, cell in enumerate(row.find_all(["th", "td"], recursive=False)):
            if i not in kept:
                cell.decompose()
    return str(part)


def _bar(out: dict) -> bool:
    """Say whether an output is a progress bar, which has no meaning on paper."""
    text = out.get("data", {}).get("text/plain", "") or out.get("text", "")
    return bool(re.match(r"[\w ]+.*\d+%\|", text))


# A slide is a heading, a sentence and what its code shows. Code is folded behind a line that opens
# it, what else the notebook says goes into the notes of the speaker (key S), and cells that show
# nothing, such as imports and guesses, are left out.
def deck(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook as slides: a sentence and a picture each, the code folded."""
    shown = nbformat.v4.new_notebook(metadata=notebook.metadata)
    for cell in notebook.cells:
        place = cell.metadata.get("slideshow", {"slide_type": "-"})
        if cell.cell_type == "markdown":
            shown.cells.append(_shortened(cell.source, place))
        elif cell.outputs and "ck.check(" not in cell.source:
            copied = copy(cell)
            copied.metadata = {"slideshow": place, "tags": [_FOLDED]}
            shown.cells += [copied, _folded(cell.source)]
        elif "ck.check(" in cell.source and "..." in cell.source:
            # an exercise is read out, without the code that marks it
            copied = copy(cell)
            copied.metadata = {"slideshow": place, "tags": [_FOLDED]}
            shown.cells.append(copied)
    return shown


def _shortened(text: str, place: dict[str, str]) -> nbformat.NotebookNode:
    """Return headings with the first sentence of each section, or with what is asked there; all of
    it is in the notes.
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
    made = nbformat.v4.new_markdown_cell(source)
    made.metadata["slideshow"] = place
    return made


def _folded(source: str) -> nbformat.NotebookNode:
    code = f"<details><summary>code</summary><pre>{escape(source)}</pre></details>"
    # a blank line would end the HTML in Markdown
    made = nbformat.v4.new_markdown_cell(re.sub(r"\n\s*\n", "\n", code))
    made.metadata["slideshow"] = {"slide_type": "-"}
    return made


def slides(notebook: nbformat.NotebookNode, reveal: Path | None) -> str:
    """Return the slides as HTML that asks nothing of the network, given a copy of reveal.js."""
    settings = {"reveal_theme": "simple", "reveal_url_prefix": str(reveal or _CDN)}
    hidden = {"enabled": True, "remove_input_tags": [_FOLDED]}
    config = Config({"SlidesExporter": settings, "TagRemovePreprocessor": hidden})
    html = without_network(SlidesExporter(config=config).from_notebook_node(deck(notebook))[0])
    html = re.sub(r"<script>\s*require\(.*?</script>", "", html, flags=re.DOTALL)
    if reveal is None:
        script = f'<script src="{_CDN}/dist/reveal.js"></script>'
    else:
        html = re.sub(r"<link [^>]*/dist/(reveal|theme)[^>]*>", "", html)
        sheets = [reveal / "dist" / name for name in ("reveal.css", "theme/simple.css")]
        css = "".join(re.sub(r"@import url\([^)]*\);", "", f.read_text()) for f in sheets)
        html = html.replace("<head>", f"<head><style>{css}</style>", 1)
        script = f"<script>{(reveal / 'dist' / 'reveal.js').read_text()}</script>"
    begin = f"<script>{FIT} Reveal.initialize({json.dumps(SHOWN)})</script>"
    html = html.replace("</body>", f"{script}{begin}</body>", 1)
    return html.replace("</head>", f"{STYLE}</head>", 1)


def without_network(html: str) -> str:
    """Return a page without what nbconvert would load from elsewhere: no output here needs it."""
    html = re.sub(r'<script src="https://[^"]*">\s*</script>', "", html)
    return re.sub(r'<script type="module">\s*import mermaid.*?</script>', "", html, flags=re.DOTALL)


def page(notebook: nbformat.NotebookNode) -> str:
    """Return the page that is printed."""
    html = HTMLExporter(theme="light").from_notebook_node(notebook)[0]
    return without_network(html).replace("</head>", f"{PRINT}</head>", 1)


def printed(html: Path) -> Path | None:
    """Print a page to PDF; None where no Chromium is found."""
    browser = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if browser is None:
        return None
    target = html.with_suffix(".pdf")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    subprocess.run(  # noqa: S603  a browser found on the path, and a file written here
        [browser, *flags, f"--print-to-pdf={target}", html.resolve().as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return target


def main(folder: Path, reveal: Path | None, numbers: list[str]) -> None:
    """Write everything into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        fresh = Path(temporary) / "notebooks"
        shutil.copytree(NOTEBOOKS, fresh, ignore=shutil.ignore_patterns(".*"))
        for path in sorted(fresh.glob("*.ipynb")):
            if numbers and path.stem[:2] not in numbers:
                continue
            notebook = executed(path)
            shown = slides(notebook, reveal)
            (folder / f"{path.stem[:2]}.slides.html").write_text(shown, encoding="utf-8")
            html = folder / f"{path.stem[:2]}.html"
            html.write_text(page(notebook), encoding="utf-8")
            print(path.stem, printed(html) or "no Chromium: print the page yourself")  # noqa: T201


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rest = sys.argv[2:]
    given = next((a for a in rest if Path(a).is_dir()), None)
    main(Path(sys.argv[1]), Path(given) if given else None, [a for a in rest if a != given])
