"""The page of config files is current."""

import runpy
from pathlib import Path

MADE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "make_configs.py"))


def test_the_page_is_current():
    assert MADE["PAGE"].read_text(encoding="utf-8") == MADE["format_page"]()
