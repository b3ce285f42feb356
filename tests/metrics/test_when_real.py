"""When to compact, asked of real sessions: an answer within the window, or a sentence why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from conftest import sample, sessions_folder

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import when_to_compact

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = sessions_folder()
FILES = sorted(p for p in FOLDER.rglob("*.jsonl") if p.parent != FOLDER) if FOLDER else []


@pytest.mark.parametrize(
    "file", sample(FILES, 5) or [None], ids=lambda p: p and f"{p.parent.name}/{p.name}"
)
def test_a_real_session_has_an_answer_or_a_reason(file: Path, real: Path):
    for session in list(ck.read_all(file, progress=False))[:2]:
        try:
            told = when_to_compact(session)
        except BadArguments as error:
            assert str(error).endswith(".")  # noqa: PT017  either is an answer
            continue
        assert told.floor < told.best <= told.window
        assert all(c.usd > 0 for c in told.ceilings)
        assert repr(told)
