"""The page of formats is what the readers say of themselves."""

from __future__ import annotations

import runpy
from pathlib import Path

from ctxkit.formats import all_readers

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_current():
    made = runpy.run_path(str(DOCS / "make_formats.py"))["format_page"]()
    assert (DOCS / "formats.md").read_text(encoding="utf-8") == made


def test_names_and_aliases_are_unambiguous():
    words = [w for m in all_readers() for w in (m.NAME, *getattr(m, "ALIASES", ()))]
    assert len(words) == len(set(words))
