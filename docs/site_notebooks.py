"""Notebooks as pages of the site: run, and written as Markdown with their outputs."""

from __future__ import annotations

import html
import re
import shutil
from typing import TYPE_CHECKING, Any

import nbformat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def run(notebooks: Path, *, kept_in: Path, work: Path, fast: bool) -> Iterator[tuple[Path, str]]:
    """Run notebooks in a copy of their folder; yield each with the page of what it shows.

    `fast` takes the outputs that are kept of the last time.
    """
    from nbclient import NotebookClient  # noqa: PLC0415  the tests of this script need none

    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(notebooks, work)
    kept_in.mkdir(parents=True, exist_ok=True)
    for source in sorted(notebooks.glob("*.ipynb")):
        kept = kept_in / source.name
        if not (fast and kept.is_file()):
            book = nbformat.read(source, as_version=4)
            there = {"metadata": {"path": str(work)}}
            NotebookClient(
                book, timeout=600, kernel_name="python3", store_widget_state=False, resources=there
            ).execute()
            nbformat.write(book, kept)
        yield source, as_markdown(nbformat.read(kept, as_version=4), source.name)


def as_markdown(book: Any, name: str) -> str:
    """Return a notebook that was run as Markdown."""
    out: list[str] = []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"\]\((?!http|#)([\w-]+)\.ipynb", r"](\1.md", cell.source)
            out += [re.sub(r"\]\(\.\./docs/", "](../", text), ""]
            continue
        magic = cell.source.lstrip().startswith("%")
        out += [f"```{'text' if magic else 'python'}", cell.source, "```", ""]
        out += [block for o in cell.get("outputs", ()) if (block := output(o))]
    first, *rest = out
    where = f"*This page is the notebook `notebooks/{name}`, run.*"
    return "\n".join([first, "", where, *rest]) + "\n"


def output(told: Any) -> str:
    """Return what a cell showed as a block of HTML; empty where there is nothing to see."""
    data = told.get("data", {})
    if "text/html" in data:
        return shown(data["text/html"]) + "\n"
    if "image/png" in data:
        return shown(f'<img alt="" src="data:image/png;base64,{data["image/png"].strip()}">') + "\n"
    text = told.get("text") or data.get("text/plain") or ""
    return shown(f"<pre>{html.escape(text)}</pre>") + "\n" if text.strip() else ""


def shown(made: str) -> str:
    """Return HTML as a block that Markdown leaves alone."""
    without_gaps = re.sub(r"\n\s*\n", "\n", made)
    return f'<div class="ctxkit-output">{without_gaps}</div>' if made.strip() else ""
