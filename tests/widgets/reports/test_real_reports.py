"""Reports and explorers of real sessions of every format: nothing breaks, nothing of a log leaves its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from conftest import sample, sessions_folder
from widgets.reports.hostile_logs import intruders

import ctxkit as ck

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = sessions_folder()
FILES = (
    sorted(
        p
        for p in FOLDER.rglob("*")
        if p.suffix in (".json", ".jsonl", ".md") and p.parent != FOLDER
    )
    if FOLDER
    else []
)


@pytest.mark.parametrize(
    "file", sample(FILES, 6) or [None], ids=lambda p: p and f"{p.parent.name}/{p.name}"
)
def test_a_real_session_has_a_report_and_an_explorer(file: Path, real: Path, tmp_path: Path):
    for session in list(ck.read_all(file, progress=False))[:2]:
        html = re.sub(
            r"<script>.*?</script>",
            "<script></script>",
            ck.export(session, tmp_path / "report.html").read_text(encoding="utf-8"),
            flags=re.DOTALL,
        )
        assert intruders(html, scripts=html.count("<script></script>")) == []
        shown = ck.explore(session, call=0 if session.calls else -1)
        assert intruders(shown.to_html()) == []
        rows = shown.data["first"]["rows"]
        assert all(
            shown._answer_or_error({"kind": "text", "call": shown.call, "row": r[0]}) for r in rows
        )
        assert repr(shown)
