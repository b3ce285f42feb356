"""The counter `ccusage` (npm) finds the same calls and input tokens in every Claude Code session.

It lists a reply that the program made up (model `<synthetic>`, no tokens) as an entry; here it is an
event. Outputs differ by design: it adds up the first pieces of streams, which are estimated here.
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


def run(folder: Path, *arguments: str) -> dict:
    environment = {**os.environ, "CLAUDE_CONFIG_DIR": str(folder), "HOME": str(folder)}
    done = subprocess.run(
        [PROGRAM, "session", "--json", "--offline", *arguments],
        env=environment, capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    return json.loads(done.stdout)


def count_entries(folder: Path, name: str) -> tuple[int, int, int]:
    """Calls, input tokens and output tokens of a session, by its entries there."""
    classes = ("inputTokens", "cacheReadTokens", "cacheCreationTokens")
    entries = [e for e in run(folder, "--id", name)["entries"] if e["model"] != "<synthetic>"]
    prompts = sum(e[c] for e in entries for c in classes)
    return len(entries), prompts, sum(e["outputTokens"] for e in entries)


def count_calls(file: Path) -> tuple[int, int, int]:
    usages = [
        c.message.usage
        for s in every(ck.read_all(file, progress=False))
        for c in s.calls
        if c.message.usage is not None
    ]
    prompts = sum(u.prompt_tokens or 0 for u in usages)
    return len(usages), prompts, sum(u.output_tokens or 0 for u in usages)


@pytest.mark.skipif(PROGRAM is None, reason="ccusage is not installed: npm install -g ccusage")
def test_another_counter_finds_the_same_calls_and_input_tokens(real: Path, tmp_path: Path):
    (tmp_path / "projects" / "p").mkdir(parents=True)
    files = {f.stem: f for f in sorted((real / "claude-code").glob("*.jsonl"))}
    for file in files.values():
        shutil.copyfile(file, tmp_path / "projects" / "p" / file.name)
    names = [s["period"] for s in run(tmp_path)["session"]]
    assert set(names) == set(files)
    theirs = {name: count_entries(tmp_path, name) for name in names}
    ours = {name: count_calls(files[name]) for name in names}
    assert {n: c[:2] for n, c in ours.items()} == {n: c[:2] for n, c in theirs.items()}
    for name in names:  # pieces of streams there are the least that was written
        assert theirs[name][2] <= ours[name][2]
