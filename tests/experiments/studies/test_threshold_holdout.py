"""Thresholds of made developers, chosen from half of their sessions."""

from __future__ import annotations

from pathlib import Path

import make_answers

from ctxkit.experiments.studies.threshold_holdout import make_developers, try_thresholds

PAGE = Path(__file__).parents[3] / "docs" / "when.md"


def test_developers_are_equal_for_equal_seeds():
    assert make_developers(2, seed=1) == make_developers(2, seed=1) != make_developers(2, seed=2)


def test_the_cache_is_that_of_the_documentation():
    sessions = [s for ss in make_developers(5).values() for s in ss]
    usages = [c.message.usage for s in sessions for c in s.calls]
    assert any(u.cache_write_1h_tokens for u in usages)
    for s in sessions:
        for before, after in zip(s.calls, s.calls[1:], strict=False):
            read = after.message.usage.cache_read_tokens
            assert read in {0, before.message.usage.prompt_tokens}


def test_a_trial_of_the_page_is_that_of_the_command():
    name = "dev-6"
    developers = {name: make_developers(7)[name]}
    ((trial,),) = try_thresholds(developers, (0.05,)).values()
    row = make_answers._trial_row(trial)
    assert f"| {' | '.join(row)} |" in PAGE.read_text(encoding="utf-8")
    assert trial.saves_within(0.05)
    assert not trial.saves_within(0.0)
    assert not trial.near_step
    assert trial.is_possible


def test_a_choice_that_holds_later_was_possible():
    developers = make_developers(3, seed=5, sessions=4)
    for share, trials in try_thresholds(developers, (0.0, 1.0)).items():
        for trial in trials:
            assert trial.is_possible or not trial.saves_within(share)
    assert any(t.is_possible for t in trials)


def test_the_page_says_first_what_is_missed_and_shows_the_losers():
    measured = PAGE.read_text(encoding="utf-8").partition("<!-- measured -->\n")[2]
    assert measured.startswith("**Missed** (asked for: 70 % of developers)")
    assert measured.count("| dev-") == make_answers.THRESHOLD_DEVELOPERS >= 10
    assert "loses more |" in measured
    assert "not established" in measured
