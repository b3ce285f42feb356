"""The counter `ccusage` (npm) finds the same input tokens in every Claude Code session at hand.

Outputs differ by design: it adds up the first pieces of streams, which are estimated here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import ctxkit as ck

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = shutil.which("ccusage")


def every(sessions):
    for s in sessions:
        yield s
        yield from every(s.children)


@pytest.mark.skipif(PROGRAM is None, reason="ccusage is not installed: npm install -g ccusage")
def test_another_counter_finds_the_same_input_tokens(real: Path, tmp_path: Path):
    (tmp_path / "projects" / "p").mkdir(parents=True)
    ours = {}
    for file in sorted((real / "claude-code").glob("*.jsonl")):
        shutil.copyfile(file, tmp_path / "projects" / "p" / file.name)
        usages = [
            c.message.usage
            for s in every(ck.read_all(file, progress=False))
            for c in s.calls
            if c.message.usage is not None
        ]
        ours[file.stem] = sum(u.prompt_tokens or 0 for u in usages)
    environment = {**os.environ, "CLAUDE_CONFIG_DIR": str(tmp_path), "HOME": str(tmp_path)}
    told = subprocess.run(
        [PROGRAM, "session", "--json", "--offline"],
        env=environment, capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    classes = ("inputTokens", "cacheReadTokens", "cacheCreationTokens")
    theirs = {s["period"]: sum(s[c] for c in classes) for s in json.loads(told.stdout)["session"]}
    assert theirs
    assert {name: ours[name] for name in theirs} == theirs
