"""The page of public names is what the package offers; its top level stays small."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import ctxkit as ck

DOCS = Path(__file__).parent.parent / "docs"
MAKE = runpy.run_path(str(DOCS / "make_api.py"))
MAX_FUNCTIONS = 40


def test_the_page_is_current():
    assert (DOCS / "api-overview.md").read_text(encoding="utf-8") == MAKE["format_page"]()


def test_every_public_name_stands_in_one_group():
    grouped = [name for names in MAKE["list_public_names"]().values() for name in names]
    assert sorted(grouped) == sorted(dir(ck))


def test_the_top_level_holds_few_functions():
    functions = [name for name in dir(ck) if inspect.isfunction(getattr(ck, name))]
    assert {"when", "misses"} <= set(functions)
    assert len(functions) <= MAX_FUNCTIONS
