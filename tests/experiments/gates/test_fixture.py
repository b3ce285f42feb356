"""The pytest fixture, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TEST = """
import ctxkit as ck

def test_mine(ctxkit_gate):
    ctxkit_gate(ck.samples.path(), {rules!r})

def test_compactor(ctxkit_gate):
    ctxkit_gate(compact={compact}, rounds=3)
"""


def run(folder, *words):
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "ctxkit.experiments.gates.pytest_plugin",
            "-p",
            "no:cacheprovider",
            *words,
        ],
        check=False,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


def test_a_baseline_is_made_held_and_got_worse(tmp_path):
    file = tmp_path / "test_own.py"
    file.write_text(TEST.format(rules="codex", compact="lambda m: m"))
    code, told = run(tmp_path)
    assert code == 1
    assert "make it with --update" in told
    assert run(tmp_path, "--ctxkit-update")[0] == 0
    assert sorted(p.name for p in (tmp_path / "baselines").iterdir()) == [
        "test_compactor.json",
        "test_mine.json",
    ]
    assert run(tmp_path)[0] == 0
    base = tmp_path / "baselines" / "test_mine.json"
    base.write_text(base.read_text().replace("42233.0", "12233.0"))
    file.write_text(TEST.format(rules="codex", compact="lambda m: m[:1] + m[-1:]"))
    code, told = run(tmp_path)
    assert code == 1
    assert "peak_tokens" in told
    assert "cliff_round" in told
