"""`rules` as a newcomer uses it: in 80 columns, as JSON, of a session without rules."""

from __future__ import annotations

import json

import pytest
from builders import assistant, session, summarised, user
from cli.command_runner import run_in_this_process

import ctxkit as ck


def test_rules_say_what_went_and_stay_within_the_screen(home):
    done = run_in_this_process(home, "rules", "BILL-4127")
    assert done.returncode == 0
    assert done.stdout.startswith("3 of 5 rules of the user are still in sight; 2 went with a")
    assert "Gone since call 175: For currencies I want no silent default" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_rules_are_whole_in_json(home):
    rows = json.loads(run_in_this_process(home, "rules", "BILL-4127", "--json").stdout)
    assert [r["removed_by"] for r in rows] == [None, None, 0, 0, None]
    assert rows[1]["rule"].endswith("we must stay on Python 3.9 for this service.")


def test_rules_under_a_preset_and_of_a_log_without_any(home):
    ck.write(session(user("Hi there."), assistant()), home / "none.jsonl")
    assert "no rule" in run_in_this_process(home, "rules", "none.jsonl").stdout
    done = run_in_this_process(home, "rules", "BILL-4127", "-r", "codex")
    assert done.returncode == 0
    assert "rules of the user" in done.stdout


def test_an_exam_fits_the_screen_and_names_the_best(home):
    done = run_in_this_process(
        home, "exam", "BILL-4127", "-r", "pi", "-r", "strands", "--command", "cat"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pi answers most: of 10 questions it shows 10, in 23,640")
    assert "Not compacted by" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_an_exam_has_each_question_in_json_and_with_why(home):
    rows = json.loads(
        run_in_this_process(home, "exam", "BILL-4127", "--questions", "3", "--json").stdout
    )
    assert [(r["name"], r["right"]) for r in rows] == [("recorded", None)] * 3
    assert "Which exact value" in run_in_this_process(home, "exam", "BILL-4127", "--why").stdout


def test_a_prompt_without_a_model_is_refused_in_a_sentence(home):
    (home / "a.txt").write_text("Sum up.")
    done = run_in_this_process(home, "exam", "BILL-4127", "--prompt", "a.txt")
    assert done.returncode == 2
    assert "name one with model=" in done.stderr


def test_pauses_are_priced_within_the_screen_and_as_json(home):
    done = run_in_this_process(home, "idle", "BILL-4127")
    assert done.returncode == 0, done.stderr
    assert "pauses of about 300 s (the cache's life) or more" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    printed_json = json.loads(run_in_this_process(home, "idle", "BILL-4127", "--json").stdout)
    assert set(printed_json["usd"]) == {"nothing", "warm", "compact", "hour"}
    assert printed_json["pauses"][-1]["gap"] is None


def test_forecasts_are_added_kept_by_advice_and_shown(home):
    archive = home / ".ctxkit" / "sessions"
    assert "holds no forecast" in run_in_this_process(home, "forecasts", archive).stderr
    done = run_in_this_process(home, "forecasts", archive, "--add", "recorded")
    assert done.returncode == 0, done.stderr
    assert "No session came after the 1 forecast" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert run_in_this_process(home, "when", "BILL-4127", "--forecast", archive).returncode == 0
    assert (
        run_in_this_process(
            home, "advise", "BILL-4127", "-r", "pi", "--forecast", archive
        ).returncode
        == 0
    )
    rows = json.loads(run_in_this_process(home, "forecasts", archive, "--json").stdout)["forecasts"]
    assert [r["source"] for r in rows] == ["forecasts", "when", "advise"]


@pytest.mark.parametrize(("lost_n", "more"), [(8, ""), (10, "2 more: --json has them.")])
def test_at_most_eight_rules_out_of_sight_are_quoted(home, lost_n, more):
    demands = [user(f"Never touch file{n}.py.") for n in range(lost_n)]
    ck.write(session(*demands, assistant(), summarised(demands), assistant()), home / "log.jsonl")
    shown = " ".join(run_in_this_process(home, "rules", "log.jsonl").stdout.split())
    quoted = [f"Gone since call 1: Never touch file{n}.py." for n in range(8)]
    assert " ".join([*quoted, more, "stated, last seen"]).replace("  ", " ") in shown
    assert shown.count("Gone since") == 8
    assert shown.endswith("in the tool itself, its file of instructions (CLAUDE.md, AGENTS.md).")
