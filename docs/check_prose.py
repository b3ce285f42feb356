"""Check the English of the pages with proselint: the sentences alone, without code and tables.

python docs/check_prose.py [PAGES ...]
"""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = sorted(chain(*(ROOT.glob(f"{at}*.md") for at in ("", "docs/", "docs/teaching/"))))
CONFIG = DEFAULT | {"checks": DEFAULT["checks"] | {"typography": False}}
"""Quotation marks and accents are those of a keyboard, as in code."""
_NO_PROSE = re.compile(
    r"""<!--.*?--> | ^```.*?^```$ | ^[ ]*(?:\||\#).*?$ | `[^`]+` | \]\([^)]*\) | https?://\S+""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def list_findings(page: str) -> list[str]:
    """Return what proselint finds in a page, as `line: rule: message`.

    Args:
        page: the page in Markdown.
    """
    if not (registry := CheckRegistry()).checks:
        registry.register_many(__register__)
    findings = []
    for line, paragraph in _iter_paragraphs(page):
        for result, (offset, _) in LintFile("page", paragraph).lint(CONFIG):
            findings.append(f"{line + offset - 1}: {result.check_path}: {result.message}")
    return findings


def _iter_paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph of sentences with its first line; its other lines keep their numbers."""
    prose = _NO_PROSE.sub(lambda found: "·" + "\n" * found[0].count("\n"), page)
    for paragraph in re.finditer(r"(?:^[^\n]*\w[^\n]*\n?)+", prose, re.MULTILINE):
        yield prose.count("\n", 0, paragraph.start()) + 1, paragraph[0]


def main(pages: list[Path]) -> int:
    """Print what is found in each page."""
    found = [
        f"{page.relative_to(ROOT)}:{finding}"
        for page in pages
        for finding in list_findings(page.read_text(encoding="utf-8"))
    ]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main([Path(name).resolve() for name in sys.argv[1:]] or PAGES))
