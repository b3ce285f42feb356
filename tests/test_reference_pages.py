"""Generated references are tables: around these each page has at most ten lines of prose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
GENERATED = ("systems.md", "formats.md", "configs.md", "magics.md", "api-overview.md")
MAX_PROSE_LINES = 10


def list_prose_lines(text: str) -> list[str]:
    """Return the lines outside tables, headings, code and hidden blocks."""
    text = re.sub(r"^<!-- run\n.*?^-->$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [line for line in text.splitlines() if line.strip() and line[0] not in "|#"]


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_has_few_lines_of_prose(name):
    lines = list_prose_lines((DOCS / name).read_text(encoding="utf-8"))
    assert 0 < len(lines) <= MAX_PROSE_LINES, lines


@pytest.mark.parametrize("name", GENERATED)
def test_the_rows_of_a_table_have_as_many_cells_as_its_head(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        assert set(cells) == {cells[0]}, table.splitlines()[0]


def test_prose_is_what_is_neither_table_nor_heading_nor_code():
    page = "# A\n\nOne.\nTwo.\n\n```python\nx\n\ny\n```\n\n<!-- run\nz\n-->\n| a |\n| --- |\n\n* three\n"
    assert list_prose_lines(page) == ["One.", "Two.", "* three"]
