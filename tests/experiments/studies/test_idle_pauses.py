"""What the idle ledger foretells, on made developers and on recorded pauses."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from ctxkit.experiments.studies.idle_pauses import (
    check_choice_rankings,
    make_developers,
    measure_idle,
    measure_write_errors,
)
from ctxkit.metrics.cost.idle_ledger import find_pauses

PAGE = Path(__file__).parents[3] / "docs" / "idle.md"


def test_developers_are_equal_for_equal_seeds():
    assert make_developers(2, seed=1) == make_developers(2, seed=1) != make_developers(2, seed=2)


def test_writes_after_made_pauses_are_predicted_within_a_tenth():
    developers = make_developers(3)
    every = [s for sessions in developers.values() for s in sessions]
    assert median(measure_write_errors(every)) < 0.1
    assert sum(check_choice_rankings(every)) == len(check_choice_rankings(every)) > 50


def test_habits_foretell_better_than_anothers():
    pauses = {n: [p for s in ss for p in find_pauses(s)] for n, ss in make_developers(12).items()}
    own = measure_idle(pauses)
    shifted = dict(
        zip(pauses, [*list(pauses.values())[1:], next(iter(pauses.values()))], strict=True)
    )
    mixed = {n: [*shifted[n][: len(p) // 2 + 1], *p[len(p) // 2 :]] for n, p in pauses.items()}
    others = measure_idle({n: p[: 2 * (len(p) // 2)] for n, p in mixed.items()})
    assert own.developers_n == 12
    assert own.best_share > others.best_share
    assert own.regret < others.regret


def test_recorded_writes_are_predicted_within_a_tenth(real):
    import make_answers

    errors = measure_write_errors(make_answers.read_real_sessions())
    assert len(errors) >= 20
    assert median(errors) < 0.1


def test_the_page_says_first_what_is_missed():
    measured = PAGE.read_text(encoding="utf-8").partition("<!-- measured -->\n")[2]
    assert measured.startswith("**Missed**: before it is known how long a pause will be")
    assert "not established" in measured
