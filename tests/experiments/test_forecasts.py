"""Forecasts are kept beside an archive, and held against the sessions that came later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from ctxkit._internal import LOCK_NAME, SafeFolder
from ctxkit.errors import BadArguments, StoreError
from ctxkit.experiments import write_forecast
from ctxkit.experiments.next_session_forecasts_and_outcomes import (
    FILE_NAME,
    MAX_FILE_BYTES,
    Forecast,
    _append_forecasts,
    format_trigger_setting,
    load_forecasts,
)
from ctxkit.metrics import PredictionInterval, predict_interval
from ctxkit.presets import resolve_rules

START = 1_770_000_000.0


def fill(archive, days, calls=lambda _: 5):
    """Write a session for each day, with so many calls."""
    for day in days:
        log = []
        for n in range(calls(day)):
            time = START + day * 86_400 + n * 60
            log += [
                user(f"Part {n}.", time=time),
                assistant(f"Done {n}.", usage=usage(1_000 + n), time=time + 5),
            ]
        talk = session(*log, id=f"s{day}", model="claude-sonnet-4-5")
        ck.write(talk, archive / f"s{day}.jsonl")


def test_an_interval_by_ranks_holds_as_often_as_it_says():
    assert predict_interval([]) is None
    assert predict_interval([3.0, 5.0]) == PredictionInterval(4.0)
    ranks = predict_interval(range(1, 20))
    assert (ranks.low, ranks.middle, ranks.high) == (pytest.approx(2), 10, pytest.approx(18))
    inside = [
        predict_interval([v for v in range(1, 41) if v != held]).contains(held)
        for held in range(1, 41)
    ]
    assert 0.75 <= sum(inside) / len(inside) <= 0.85


def test_few_values_get_a_wider_interval_and_zeros_none():
    few, more = predict_interval([10, 20, 30, 40]), predict_interval([10, 20, 30, 40] * 2)
    assert few.low < more.low < more.high < few.high
    assert predict_interval([0, 1, 2, 3]).contains(1) is None


def test_what_came_is_held_against_what_was_predicted(tmp_path):
    fill(tmp_path, range(12), calls=lambda day: 4 + day % 3)
    write_forecast(tmp_path, now=START + 30 * 86_400, source="me")
    fill(tmp_path, (40, 41), calls=lambda _: 5)
    fill(tmp_path, (42,), calls=lambda _: 30)
    report = ck.experiments.forecasts(tmp_path)
    (outcome,) = report.outcomes
    assert (outcome.forecast.sessions_n, outcome.forecast.source) == (12, "me")
    assert outcome.values["calls"] == (5, 5, 30)
    assert outcome.hits("calls") == (2, 3)
    assert "of 9 figures" in report.answer or "of 6 figures" in report.answer
    assert "2 of 3" in report.to_text()


def test_sessions_that_were_there_are_not_what_came(tmp_path):
    fill(tmp_path, range(5))
    write_forecast(tmp_path, now=START + 30 * 86_400)
    assert "nothing to hold it against yet" in ck.experiments.forecasts(tmp_path).answer


def test_a_forecast_does_not_know_what_comes_after_it(tmp_path):
    fill(tmp_path, range(10), calls=lambda day: 3 if day < 5 else 40)
    (forecast,) = write_forecast(tmp_path, now=START + 4.5 * 86_400)
    assert (forecast.sessions_n, forecast.calls.middle) == (5, 3)
    assert ck.experiments.forecasts(tmp_path).outcomes[0].values["calls"] == (40,) * 5


def test_under_other_rules_later_sessions_are_replayed(tmp_path):
    fill(tmp_path, range(5))
    write_forecast(tmp_path, "none", now=START + 30 * 86_400)
    fill(tmp_path, (40,))
    report = ck.experiments.forecasts(tmp_path)
    assert "replayed under none they cost" in report.to_text()


def test_half_an_interval_in_the_file_is_no_interval(tmp_path):
    fill(tmp_path, (40,))
    line = {**json.loads(msgspec.json.encode(make_forecast(0))), "calls": {"middle": 7.0}}
    both = {**line, "calls": {"middle": 7.0, "low": 4.0, "high": 9.0}}
    ends = [{**line, "calls": {"middle": 7.0, end: 4.0}} for end in ("low", "high")]
    lines = [json.dumps(x) for x in (both, line, *ends)]
    (tmp_path / FILE_NAME).write_text("\n".join(lines))
    table = ck.experiments.forecasts(tmp_path).table
    assert [row[3].text for row in table.rows] == ["7 (4 to 9)", "7", "7", "7"]
    assert [row[5].text for row in table.rows] == ["1 of 1", "", "", ""]


def test_when_promises_rules_that_compact_at_its_trigger():
    timing = ck.when(ck.samples.path("billing"))
    made = resolve_rules(format_trigger_setting(timing))
    assert made.window - made.reserve == timing.best


def test_damage_is_left_out_and_what_is_missing_is_said(tmp_path):
    with pytest.raises(BadArguments, match="holds no forecast"):
        ck.experiments.forecasts(tmp_path)
    with pytest.raises(BadArguments, match="no session with times"):
        write_forecast(tmp_path)
    fill(tmp_path, range(2))
    write_forecast(tmp_path)
    path = tmp_path / FILE_NAME
    path.write_bytes(
        b"{broken\n\xff\n" + path.read_bytes() + json.dumps({"created_at": "x"}).encode()
    )
    assert [type(f) for f in load_forecasts(tmp_path)] == [Forecast]
    with pytest.raises(BadArguments, match="no folder"):
        write_forecast(tmp_path / "nowhere")


def make_forecast(n: int) -> Forecast:
    return Forecast(
        created_at=START + n, source=str(n), tool="native", setting="none", sessions_n=1
    )


def test_old_lines_stay_as_they_are_and_damaged_ones_too(tmp_path):
    path = tmp_path / FILE_NAME
    path.write_bytes(b"{broken\n\xff\n{}")
    _append_forecasts(tmp_path, [make_forecast(1)])
    assert path.read_bytes().splitlines()[:3] == [b"{broken", b"\xff", b"{}"]
    assert [f.source for f in load_forecasts(tmp_path)] == ["1"]
    path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadArguments, match="move it away"):
        _append_forecasts(tmp_path, [make_forecast(2)])
    assert path.stat().st_size == MAX_FILE_BYTES + 1


def test_two_processes_keep_the_forecasts_of_both(tmp_path):
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]; from pathlib import Path;"
        " from experiments.test_forecasts import _append_forecasts, make_forecast;"
        " print(flush=True); sys.stdin.readline();"
        " [_append_forecasts(Path(sys.argv[1]), [make_forecast(n)]) for n in range(40)]"
    )
    tests = Path(__file__).parents[1]
    words = [sys.executable, "-c", code, str(tmp_path), str(tests), str(tests.parent)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = [subprocess.Popen(words, **pipes) for _ in range(2)]
    for process in running:
        process.stdout.readline()  # both have imported all before either begins
    for process in running:
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=120)
    assert [p.returncode for p in running] == [0, 0]
    assert len(load_forecasts(tmp_path)) == 80


@pytest.mark.parametrize("name", ["fsync", "replace", "write"])
def test_an_interrupted_write_leaves_the_old_file_whole(tmp_path, monkeypatch, name):
    _append_forecasts(tmp_path, [make_forecast(1)])
    before = (tmp_path / FILE_NAME).read_bytes()

    def stop(*_, **__):
        raise KeyboardInterrupt

    target = SafeFolder if name == "write" else os
    monkeypatch.setattr(target, name, stop)
    with pytest.raises(KeyboardInterrupt):
        _append_forecasts(tmp_path, [make_forecast(2)])
    monkeypatch.undo()
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {FILE_NAME, LOCK_NAME}
    _append_forecasts(tmp_path, [make_forecast(3)])
    assert [f.source for f in load_forecasts(tmp_path)] == ["1", "3"]


def test_a_folder_that_may_not_be_written_is_named(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SafeFolder, "write", refuse)
    with pytest.raises(StoreError, match="No space left on device"):
        _append_forecasts(tmp_path, [make_forecast(1)])
    assert load_forecasts(tmp_path) == []
