"""`compare`, `sweep`, `advise`, `convert` and `watch`: the same figures as the functions."""

from __future__ import annotations

import json

import pytest
from cli.command_runner import told

import ctxkit as ck


def test_a_comparison_is_that_of_the_function(home):
    rows = json.loads(told(home, "compare", "billing", "-r", "pi", "-r", "codex", "--json").stdout)
    own = ck.compare(ck.samples.path("billing"), ["pi", "codex"], progress=False)
    assert [r["rules"] for r in rows] == list(own.index)
    assert [r["cost_usd"] for r in rows] == pytest.approx(list(own["cost_usd"]))


def test_a_sweep_sums_up_by_rules_and_keeps_its_runs(home):
    kept = home / "runs.jsonl"
    done = told(home, "sweep", home / ".ctxkit", "-r", "pi", "-r", "none", "--out", kept)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Cheapest: pi, $6.29, 9 % lost, but it thrashes.")
    table = done.stdout.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table] == ["rules", "none", "pi"]
    assert len(kept.read_text().splitlines()) == 2


def test_advice_names_the_front(home, real):
    done = told(home, "advise", real / "claude-code", "-r", "pi", "-r", "codex")
    assert (done.returncode, done.stderr) == (0, "")  # nobody sees a bar here
    assert "a session" in done.stdout


def test_a_session_is_converted_and_nothing_is_written_over(home):
    target = home / "talk.json"
    done = told(home, "convert", "billing", target, "--to", "openai")
    assert done.returncode == 0
    assert "lost:" in done.stderr
    assert len(json.loads(target.read_text())["messages"]) > 600
    before = target.read_bytes()
    assert told(home, "convert", "billing", target).returncode == 2
    assert target.read_bytes() == before
    assert told(home, "convert", "billing", target, "--replace").returncode == 0
    assert ck.read(target) == ck.read(ck.samples.path("billing"))


def test_watch_shows_what_comes(home):
    import subprocess

    from cli.command_runner import COMMAND, environment

    log = home / "growing.jsonl"
    lines = ck.samples.path("billing").read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:40]))
    words = [*COMMAND, "watch", log, "--every", "0.2", "--times", "60"]
    running = subprocess.Popen(
        words, stdout=subprocess.PIPE, cwd=home, env=environment(home), text=True
    )
    try:
        first = [running.stdout.readline() for _ in range(8)]
        with log.open("ab") as file:
            file.write(b"".join(lines[40:60]))
        then = running.stdout.readline()
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
    last = int(first[-1].split()[0].removeprefix("#"))
    assert int(then.split()[0].removeprefix("#")) == last + 1
