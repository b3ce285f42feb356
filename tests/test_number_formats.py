"""Numbers are written alike in every view: one function for shares."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "ctxkit"

OWN_PERCENT_FORMATS = {
    "_internal/formatting_and_sanitizing.py": "the functions themselves",
    "policies": "reasons and notes, which sessions store",
    "presets": "the same",
}
"""Where a share may be formatted without `format_percent`, and why."""


def _list_percent_formats(path: Path) -> list[int]:
    """Return the lines that format a share as Python does, `72%`; CSS needs that form."""
    lines, text = [], path.read_text(encoding="utf-8")
    if "%}" not in text:  # as each such format ends
        return []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for before, part in zip([None, *node.values], node.values, strict=False):
            spec = getattr(part, "format_spec", None)
            ending = spec.values[-1] if spec is not None and spec.values else None
            is_percent = isinstance(ending, ast.Constant) and str(ending.value).endswith("%")
            is_css = isinstance(before, ast.Constant) and str(before.value).endswith("width:")
            if is_percent and not is_css:
                lines.append(node.lineno)
    return lines


def test_a_share_is_written_by_one_function_in_every_view():
    """`72 %` and `72%` do not stand in one view."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(tuple(OWN_PERCENT_FORMATS)) and (
            lines := _list_percent_formats(path)
        ):
            found[name] = lines
    assert found == {}
