"""The conformance page names every numbered case, and is current."""

import runpy
from pathlib import Path

MADE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "make_conformance.py"))


def test_the_page_is_current():
    assert MADE["PAGE"].read_text(encoding="utf-8") == MADE["format_page"]()


def test_every_case_is_a_test_or_has_a_reason():
    known = {*MADE["collect_numbered_cases"](), *MADE["NOT_YET"]}
    numbered = {"TY": 13, "GO": 17, "PC": 10, "PI": 16, "OC": 7, "FA": 28, "FU": 48}
    assert [
        f"{s}{i}" for s, n in numbered.items() for i in range(1, n + 1) if f"{s}{i}" not in known
    ] == []
