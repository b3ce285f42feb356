"""Cells of a notebook that is written: prose in which text of a log stays text, code with the
output that it gives.
"""

from __future__ import annotations

import json
import re
from html import escape as quoted
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import line, plain

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPECIAL = re.compile(r"([\\`*_\[\]()#|~$!:{}+@.-])")


def said(text: str, limit: int = 600) -> str:
    """Return untrusted text as one line of Markdown that shows it as it is: no tag, no link, no
    formula.
    """
    return _SPECIAL.sub(r"\\\1", quoted(line(text, limit), quote=False))


def prose(*paragraphs: str, sentences: Iterable[str] = ()) -> Any:
    """Return a Markdown cell of paragraphs, which are Markdown already, and sentences of plain text
    as a list.
    """
    from nbformat.v4 import new_markdown_cell

    points = "\n".join(f"- {said(s)}" for s in sentences)
    return new_markdown_cell("\n\n".join(filter(None, [*paragraphs, points])))


def code(source: str, value: Any = None, *, hidden: bool = False) -> Any:
    """Return a code cell; `value` is what its last line gives, shown as its output.

    Args:
        source: Python.
        value: anything with a display; None: no output.
        hidden: fold the source away.
    """
    from nbformat.v4 import new_code_cell, new_output

    cell = new_code_cell(source.strip())
    if value is not None:
        cell.outputs = [new_output("execute_result", data=_bundle(value), execution_count=None)]
    if hidden:
        cell.metadata = {"jupyter": {"source_hidden": True}}
    return cell


def notebook(cells: Iterable[Any]) -> str:
    """Return a notebook as the text of its file.

    Raises:
        nbformat.ValidationError: a cell is no cell.
    """
    import nbformat

    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    made = list(cells)
    for i, cell in enumerate(made):
        cell["id"] = f"report-{i:02d}"
    whole = nbformat.v4.new_notebook(cells=made, metadata=metadata)
    nbformat.validate(whole)
    return str(nbformat.writes(whole)) + "\n"


def _bundle(value: Any) -> dict[str, Any]:
    """Return what a front end would be given, with texts that no terminal and no page takes for
    more than text.
    """
    made = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else None
    bundle: dict[str, Any] = dict(made[0] if isinstance(made, tuple) else made or {})
    if not bundle:
        bundle = {"text/plain": repr(value)}
        html = value._repr_html_() if hasattr(value, "_repr_html_") else None
        if html:
            bundle["text/html"] = html
    clean = {kind: plain(data) if isinstance(data, str) else data for kind, data in bundle.items()}
    return dict(json.loads(json.dumps(clean, allow_nan=False)))
