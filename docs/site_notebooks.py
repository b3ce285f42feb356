"""Run notebooks for the site, and format them with their outputs in Markdown."""

from __future__ import annotations

import html
import re
import shutil
from typing import TYPE_CHECKING, Any

import nbformat

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def run_notebooks(
    notebooks: Path, *, output_folder: Path, work_folder: Path, fast: bool
) -> Iterator[tuple[Path, str]]:
    """Run notebooks in a copy of their folder; yield the path of each with its page in Markdown.

    Args:
        notebooks: the folder of notebooks.
        output_folder: where notebooks with their outputs are stored.
        work_folder: the copy in which they run; it is made anew.
        fast: use stored outputs of an earlier run where there are any.
    """
    from nbclient import NotebookClient  # noqa: PLC0415  the tests of this script need none

    shutil.rmtree(work_folder, ignore_errors=True)
    shutil.copytree(notebooks, work_folder)
    output_folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(notebooks.glob("*.ipynb")):
        stored = output_folder / path.name
        if not (fast and stored.is_file()):
            notebook = nbformat.read(path, as_version=4)
            resources = {"metadata": {"path": str(work_folder)}}
            NotebookClient(
                notebook,
                timeout=600,
                kernel_name="python3",
                store_widget_state=False,
                resources=resources,
            ).execute()
            nbformat.write(notebook, stored)
        yield path, format_notebook(nbformat.read(stored, as_version=4), path.name)


def format_notebook(notebook: Any, name: str) -> str:
    """Return a notebook and its outputs in Markdown."""
    lines: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"\]\((?!http|#)([\w-]+)\.ipynb", r"](\1.md", cell.source)
            lines += [re.sub(r"\]\(\.\./docs/", "](../", text), ""]
            continue
        is_magic = cell.source.lstrip().startswith("%")
        lines += [f"```{'text' if is_magic else 'python'}", cell.source, "```", ""]
        lines += [block for output in cell.get("outputs", ()) if (block := format_output(output))]
    first, *rest = lines
    note = f"*This page is the notebook `notebooks/{name}`, run.*"
    return "\n".join([first, "", note, *rest]) + "\n"


def format_output(output: Any) -> str:
    """Return an output of a cell as a block of HTML; empty where it shows nothing."""
    data = output.get("data", {})
    if "text/html" in data:
        return wrap_html(data["text/html"]) + "\n"
    if "image/png" in data:
        return (
            wrap_html(f'<img alt="" src="data:image/png;base64,{data["image/png"].strip()}">')
            + "\n"
        )
    text = output.get("text") or data.get("text/plain") or ""
    return wrap_html(f"<pre>{html.escape(text)}</pre>") + "\n" if text.strip() else ""


def wrap_html(html_text: str) -> str:
    """Return HTML as a block that Markdown leaves unchanged."""
    without_gaps = re.sub(r"\n\s*\n", "\n", html_text)
    return f'<div class="ctxkit-output">{without_gaps}</div>' if html_text.strip() else ""
