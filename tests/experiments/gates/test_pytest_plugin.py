"""The pytest fixture, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = """
import ctxkit as ck

def test_mine(ctxkit_gate):
    ctxkit_gate(ck.samples.path(), {rules!r})

def test_compactor(ctxkit_gate):
    ctxkit_gate(compact={compact}, rounds=3)
"""


SERVER = """
import os, sys
import ctxkit as ck, pandas, pytest
import ctxkit.experiments.gates.pytest_plugin
ck.compare, ck.experiments
for line in sys.stdin:
    child = os.fork()
    if not child:
        code = pytest.main(line.split())
        sys.stdout.flush()
        os._exit(code)
    print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process that has imported everything and runs each pytest in a fork of itself."""


@pytest.fixture
def server(tmp_path):
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        yield running
        running.stdin.close()


def run(server, *words):
    """Run pytest; return its exit code and what it printed."""
    plugins = ["-p", "ctxkit.experiments.gates.pytest_plugin", "-p", "no:cacheprovider"]
    print("-q", *plugins, *words, file=server.stdin, flush=True)
    lines = []
    while not (line := server.stdout.readline()).startswith("ended with"):
        assert line, "the server ended"
        lines.append(line)
    return int(line.split()[-1]), "".join(lines)


def test_a_baseline_is_made_held_and_got_worse(tmp_path, server):
    file = tmp_path / "test_own.py"
    file.write_text(TEST.format(rules="codex", compact="lambda m: m"))
    code, told = run(server)
    assert code == 1
    assert "make it with --update" in told
    assert run(server, "--ctxkit-update")[0] == 0
    assert sorted(p.name for p in (tmp_path / "baselines").iterdir()) == [
        "test_compactor.json",
        "test_mine.json",
    ]
    assert run(server)[0] == 0
    base = tmp_path / "baselines" / "test_mine.json"
    base.write_text(base.read_text().replace("42233.0", "12233.0"))
    file.write_text(TEST.format(rules="codex", compact="lambda m: m[:1] + m[-1:]"))
    code, told = run(server)
    assert code == 1
    assert "peak_tokens" in told
    assert "cliff_round" in told
