"""A home with sessions of three tools, made by hand."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

import ctxkit as ck

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = ck.samples.path("billing")
EVIL = "\x1b]0;owned\x07\x1b[31mred\u202e\x9b2J title"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A native session, one of Pi with a hostile title, and a file that is none."""
    own = tmp_path / ".ctxkit" / "sessions"
    own.mkdir(parents=True)
    shutil.copy(SAMPLE, own / "billing.jsonl")
    pi = tmp_path / ".pi" / "agent" / "sessions" / "work"
    pi.mkdir(parents=True)
    session = ck.read(
        [{"role": "user", "content": "Sum up."}, {"role": "assistant", "content": "Done."}]
    )
    ck.write(session, pi / "2026.jsonl", "pi")
    lines = (pi / "2026.jsonl").read_text().splitlines()
    lines.append(json.dumps({"type": "session_info", "id": "t1", "parentId": None, "name": EVIL}))
    (pi / "2026.jsonl").write_text("\n".join(lines) + "\n")
    (pi / "broken.jsonl").write_text('{"what": "is this"}\n')
    return tmp_path
