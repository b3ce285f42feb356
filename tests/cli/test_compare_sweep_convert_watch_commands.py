"""`compare`, `sweep`, `advise`, `convert` and `watch`: the same figures as the functions."""

from __future__ import annotations

import json
from itertools import pairwise
from types import SimpleNamespace

import pytest
from builders import assistant, session, summarised, usage, user
from cli.command_runner import run_in_this_process

import ctxkit as ck


def test_a_comparison_is_that_of_the_function(home):
    rows = json.loads(
        run_in_this_process(home, "compare", "billing", "-r", "pi", "-r", "codex", "--json").stdout
    )
    own = ck.compare(ck.samples.path("billing"), ["pi", "codex"], progress=False)
    assert [r["rules"] for r in rows] == list(own.index)
    assert [r["cost_usd"] for r in rows] == pytest.approx(list(own["cost_usd"]))


def test_a_sweep_sums_up_by_rules_and_keeps_its_runs(home):
    kept = home / "runs.jsonl"
    done = run_in_this_process(
        home, "sweep", home / ".ctxkit", "-r", "pi", "-r", "none", "--out", kept
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Cheapest: pi, $6.29, 9 % lost, but it thrashes.")
    table = done.stdout.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table] == ["rules", "none", "pi"]
    assert len(kept.read_text().splitlines()) == 2


def test_advice_names_the_front(home, real):
    done = run_in_this_process(home, "advise", real / "claude-code", "-r", "pi", "-r", "codex")
    assert (done.returncode, done.stderr) == (0, "")  # nobody sees a bar here
    assert "a session" in done.stdout


def test_a_session_is_converted_and_nothing_is_written_over(home):
    target = home / "talk.json"
    done = run_in_this_process(home, "convert", "billing", target, "--to", "openai")
    assert done.returncode == 0
    assert "lost:" in done.stderr
    assert len(json.loads(target.read_text())["messages"]) > 600
    before = target.read_bytes()
    assert run_in_this_process(home, "convert", "billing", target).returncode == 2
    assert target.read_bytes() == before
    assert run_in_this_process(home, "convert", "billing", target, "--replace").returncode == 0
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


WATCHED = "ctxkit.cli.list_report_spend_watch_commands"


def _calls(n, **more):
    """A session of `n` calls to a model with a window of 200,000 tokens and a price."""
    model = {"model": "claude-sonnet-4-5", **more}
    return session(user(id="asked"), *(assistant(usage=usage(10), **model) for _ in range(n)))


def _watch(home, monkeypatch, states, *words):
    """Run `watch` over a log that has one of the states at each look.

    Returns the outcome, the numbers of calls that each look shows, the reads, and the pauses.
    """
    log, reads, pauses, ends = home / "watched.jsonl", [], [], []

    def set_state(look):
        state = states[look]
        if isinstance(state, str):
            log.write_text(state)
        elif state is not None:
            ck.write(state, log)

    def open_and_count(path, indexed):
        reads.append(len(pauses) + 1)
        return ck.read(path)

    def sleep(seconds):
        import sys

        pauses.append(seconds)
        ends.append(len(sys.stdout.getvalue()))
        set_state(len(pauses))

    set_state(0)
    monkeypatch.setattr(f"{WATCHED}.open_session", open_and_count)
    monkeypatch.setattr(f"{WATCHED}.time", SimpleNamespace(sleep=sleep))
    done = run_in_this_process(home, "watch", log, "--times", len(states), *words)
    ends = [0, *ends, len(done.stdout)]
    shown = [[line.split()[0] for line in done.stdout[a:b].splitlines()] for a, b in pairwise(ends)]
    return done, shown, reads, pauses


def test_watch_reads_what_changed_and_shows_what_is_new(home, monkeypatch):
    asked = user(id="asked")
    reply = {"usage": usage(10), "model": "claude-sonnet-4-5"}
    compacted = session(
        asked,
        *(assistant(**reply) for _ in range(12)),
        summarised([asked], reason="full"),
        *(assistant(**reply) for _ in range(2)),
    )
    states = [_calls(12), None, compacted, "{torn", None, _calls(3), _calls(5), None]
    done, shown, reads, pauses = _watch(home, monkeypatch, states, "--every", "0.5")
    assert (done.returncode, done.stderr) == (0, "")
    assert shown == [
        [f"#{n}" for n in range(2, 12)],  # the first look shows the last ten
        [],
        ["compaction:", "#12", "#13"],
        [],
        [],
        [],  # a log that was written anew and is shorter
        ["#3", "#4"],
        [],
    ]
    # what could not be read is tried again without a change
    assert reads == [1, 3, 4, 5, 6, 7]
    assert pauses == [0.5] * 7


def test_watch_shows_every_call_of_a_log_that_had_none(home, monkeypatch):
    _, shown, *_ = _watch(home, monkeypatch, [_calls(0), _calls(12)])
    assert shown == [[], [f"#{n}" for n in range(12)]]


def test_watch_needs_a_log_that_can_be_read_and_looks_each_second(home, monkeypatch):
    done, _, reads, _ = _watch(home, monkeypatch, ["{torn", "{torn"])
    assert (done.returncode, done.stdout, reads) == (2, "", [1])
    *_, pauses = _watch(home, monkeypatch, [_calls(1), None])
    assert pauses == [1.0]
    for words in (("--every", "0.09"), ("--times", "0")):
        assert run_in_this_process(home, "watch", "billing", *words).returncode == 2


def test_a_line_of_watch_has_gauge_share_size_cost_and_model(home):
    log = session(
        asked := user(),
        assistant(usage=usage(250_000), model="claude-sonnet-4-5"),
        summarised([asked], reason="full"),
        summarised([asked]),
        assistant(usage=usage(1_000_000, output=0), model="claude-sonnet-4-5"),
        summarised([asked], reason="r" * 61),
        assistant(usage=usage(1_000), model="nobody-7b"),
        assistant(model="nobody-7b"),
        assistant(usage=usage(0), model="m" * 25),
        assistant(usage=usage(0, output=0), model="claude-sonnet-4-5"),
        model="claude-sonnet-4-5",
    )
    ck.write(log, home / "log.jsonl")
    assert run_in_this_process(home, "watch", "log.jsonl", "--times", "1").stdout.splitlines() == [
        "#0     ████░░░░░░░░░░░░  25 %   250,000    $0.75 claude-sonnet-4-5",
        "       compaction: full",
        "       compaction: no reason given",
        "#1     ████████████████ 100 % 1,000,000    $3.00 claude-sonnet-4-5",
        f"       compaction: {'r' * 59}…",
        "#2         1,000          nobody-7b",
        "#3                        nobody-7b",
        f"#4             0          {'m' * 23}…",
        "#5             0    $0.00 claude-sonnet-4-5",
    ]
