"""Reference texts: what a display showed when it was last looked at.

A reference holds what no test says by hand: order, names, formats, hovers, geometry, every column.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def get_reference(folder: Path, name: str) -> Path:
    """Return where the reference of a scenario stands."""
    return folder / f"{name.replace(' ', '-')}.txt"


def write_references(folder: Path, scenarios: Mapping[str, Callable[[], str]]) -> None:
    """Write the reference of each scenario anew."""
    folder.mkdir(exist_ok=True)
    for name, make in scenarios.items():
        get_reference(folder, name).write_text(make(), encoding="utf-8")


def list_differences(folder: Path, name: str, text: str) -> list[tuple[str, str]]:
    """Return the first lines of a reference that differ from those of a text."""
    expected = get_reference(folder, name).read_text(encoding="utf-8").splitlines()
    lines = text.splitlines()
    if len(lines) != len(expected):
        return [(f"{len(expected)} lines", f"{len(lines)} lines")]
    return [(a, b) for a, b in zip(expected, lines, strict=True) if a != b][:3]


def write_json(value: Any) -> str:
    """Return plain data on one line, its numbers with nine digits: more differ by machine."""
    return json.dumps(_round_numbers(value), ensure_ascii=False, sort_keys=True, default=str)


def _round_numbers(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _round_numbers(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_round_numbers(value) for value in part]
    return float(f"{part:.9g}") if isinstance(part, float) else part
