"""Forecasts are kept beside an archive, and held against the sessions that came later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from ctxkit._internal import LOCK_NAME, SafeFolder
from ctxkit.errors import BadArguments, StoreError
from ctxkit.experiments import next_session_forecasts_and_outcomes as module
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


def make_outcome(values, recorded_usd=(), *, setting="recorded", tool="native", **intervals):
    forecast = msgspec.structs.replace(make_forecast(1), setting=setting, tool=tool, **intervals)
    values = {"calls": (), "usd": (), "loss": (), **values}
    return module.ForecastOutcome(forecast, values, recorded_usd)


def test_the_answer_counts_later_sessions_inside_of_the_intervals():
    wide, middle = PredictionInterval(7.0, 4.0, 9.0), PredictionInterval(7.0)
    came = {"calls": (4.0, 9.5), "usd": (7.0,)}
    one = make_outcome(came, calls=wide, usd=wide)
    few = make_outcome(came, calls=middle)

    def answer(*outcomes):
        return module.ForecastReport(outcomes).answer

    assert [one.hits(name) for name in module.FIGURES] == [(1, 2), (1, 1), (0, 0)]
    assert (
        answer(one)
        == "2 of 3 figures of later sessions lie in the 80 % intervals (67 %), from 1 forecast."
    )
    assert answer(one, few, one).startswith("4 of 6 figures")
    assert answer(few) == "1 forecast rest on too few sessions for an interval."
    none = make_outcome({}, calls=wide)
    assert (
        answer(none, none)
        == "No session came after the 2 forecasts: nothing to hold them against yet."
    )
    assert answer(none).startswith("No session came after the 1 forecast: nothing to hold it")


def test_the_table_has_a_row_for_each_predicted_figure():
    interval = PredictionInterval(0.25, 0.1, 0.5)
    name = "s" * 31
    rows = [
        make_outcome({"loss": (0.2, 0.4), "calls": (3.0,)}, setting=name, tool="t" * 21,
                     loss=interval, usd=PredictionInterval(1.5)),
        make_outcome({}, calls=PredictionInterval(1234.4, 10.0, 2000.0)),
    ]  # fmt: skip
    table = module.ForecastReport(tuple(rows)).table
    assert [[cell.text for cell in row] for row in table.rows] == [
        [f"{'t' * 19}…", f"{'s' * 29}…", "dollars", "$1.50", "", ""],
        [f"{'t' * 19}…", f"{'s' * 29}…", "loss", "25 % (10 % to 50 %)", "30 %", "2 of 2"],
        ["native", "recorded", "calls", "1,234 (10 to 2,000)", "", ""],
    ]


def test_savings_are_those_of_changed_settings_with_both_costs():
    values = {"usd": (1.0, 2.0)}
    outcomes = [
        make_outcome(values, (3.0, 5.0)),  # nothing was changed
        make_outcome(values, (), setting="a"),
        make_outcome({}, (3.0,), setting="b"),
        make_outcome(values, (3.0, 5.0), setting="c" * 61),
        make_outcome(values, (3.0,), setting="d"),
    ]
    report = module.ForecastReport(tuple(outcomes))
    assert report.savings == (
        f"native: 2 sessions cost $4.00 each; replayed under {'c' * 59}… they cost $1.50.",
        "native: 1 session cost $3.00 each; replayed under d they cost $1.50.",
    )
    assert report.to_text().splitlines()[-2:] == list(report.savings)
    assert report.rows()[4]["came"]["usd"] == (1.0, 2.0)
    assert report.rows()[4]["recorded_usd"] == (3.0,)


@pytest.mark.parametrize(
    ("best", "keep", "reserve", "kept"),
    [(80, 20, 20, 20), (100, 0, 1, 1), (10, 50, 90, 9), (1, 5, 99, 1), (2, 1, 98, 1)],
)
def test_a_trigger_is_written_as_reserve_and_kept_tokens(best, keep, reserve, kept):
    timing = SimpleNamespace(window=100, best=best, keep=keep)
    assert format_trigger_setting(timing) == (
        f"pi:context_window=100,reserve_tokens={reserve},keep_recent_tokens={kept}"
    )


def test_a_session_that_begins_at_the_time_of_the_forecast_is_a_later_one(tmp_path):
    fill(tmp_path, range(3))
    (forecast,) = write_forecast(tmp_path, now=START + 2 * 86_400)
    assert (forecast.sessions_n, forecast.created_at) == (2, START + 2 * 86_400)
    (outcome,) = ck.experiments.forecasts(tmp_path).outcomes
    assert outcome.values["calls"] == (5,)
    with pytest.raises(BadArguments, match="no session with times"):
        write_forecast(tmp_path, now=START)


def test_the_last_forecasts_are_kept_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FORECASTS", 3)
    for n in range(5):
        _append_forecasts(tmp_path, [make_forecast(n)])
    assert [f.source for f in load_forecasts(tmp_path)] == ["2", "3", "4"]
    assert len((tmp_path / FILE_NAME).read_bytes().splitlines()) == 3
    extra = msgspec.json.encode(make_forecast(9))
    (tmp_path / FILE_NAME).write_bytes((tmp_path / FILE_NAME).read_bytes() + extra)
    assert [f.source for f in load_forecasts(tmp_path)] == ["3", "4", "9"]


def test_what_a_log_does_not_hold_is_no_figure():
    from experiments.test_cost_and_loss_scores import talk

    figures = module.compute_forecast_figures
    empty = session(user("Hello."))
    assert (figures(empty, None)["calls"], figures(empty, None)["usd"]) == (None, None)
    timeless = session(user(), assistant(), user("Later.", time=5.0))
    assert module.get_first_message_time(timeless) == 5.0
    assert module.get_first_message_time(empty) is None
    refused = resolve_rules("pulse_coder:context_window_tokens=60_000")
    big = talk(4, 200, first=70_000)
    assert figures(big, None)["calls"] == 4
    assert figures(big, refused) == {"calls": None, "usd": None, "loss": None}
