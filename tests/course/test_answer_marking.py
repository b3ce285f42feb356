"""The course: an answer is marked by what is wrong with it.

The right answers are in `docs/teaching/solutions.md`, whose blocks `test_docs_run` runs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from statistics import pstdev, stdev

import numpy as np
import pandas as pd
import pytest

import ctxkit as ck
from ctxkit.course import exercises as marks
from ctxkit.course import judge_rules, load_exercises
from ctxkit.course.lessons import lesson_07_sweeps
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, triggers

ROOT = Path(__file__).parents[2]
CLEAR = Rules(policy="clear:keep_last=5", trigger=triggers.Above(25_000), name="clear")
NUMBERS = ["01-b", "01-c", "02-a", "02-b", "03-a", "05-a", "05-b", "05-c", "09-a"]


def test_a_number_is_marked_by_what_is_wrong_with_it():
    slips = {"You forgot the cache.": 7.0}
    assert marks.mark_number(4.2, 4.2) == ""
    assert marks.mark_number(7.0, 4.2, common_mistakes=slips) == "You forgot the cache."
    assert "factor of 100" in marks.mark_number(420, 4.2)
    assert "million" in marks.mark_number(4.2e6, 4.2)
    assert marks.mark_number(-4.2, 4.2) == "The sign is wrong."
    assert marks.mark_number(4.5, 4.2) == marks.mark_number(1, 4.2) == "It is another number."
    for nothing in (
        "4.2",
        None,
        True,
        float("nan"),
        [4.2],
        10**400,
        np.True_,
        np.array([1, 2]),
        4j,
    ):
        assert "without quotes" in marks.mark_number(nothing, 4.2)


@pytest.mark.parametrize(
    "four",
    [4, 4.0, np.int64(4), np.float32(4), Decimal(4), Fraction(4), np.array([4]), pd.Series([4])],
)
def test_a_number_is_right_in_any_form_that_python_or_a_table_gives(four):
    assert marks.mark_number(four, 4) == ""
    assert "well guessed" in marks.score_guess(four, 4)
    assert marks.mark_span((four, four), (4, 4)) == ""


def test_words_lists_and_spans_are_marked():
    assert marks.mark_choice(" Loss. ", "loss", ("bill", "loss"), {}) == ""
    assert (
        marks.mark_choice("bill", "loss", ("bill", "loss"), {"bill": "It is known."})
        == "It is known."
    )
    assert "one of" in marks.mark_choice("x", "loss", ("bill", "loss"), {})
    assert marks.mark_list(["a", "b"], "ab") == ""
    assert marks.mark_list(["a", "x"], "ab") == "1 of yours does not belong there and 1 is missing."
    assert marks.mark_list(["x", "y"], "ab") == "2 of yours do not belong there and 2 are missing."
    assert marks.mark_list("ab", "ab") == "Give a list."
    assert marks.mark_list([" It is. "], ["it is"]) == ""
    assert "do not belong there and 1 is missing" in marks.mark_list(count(), "a")
    assert "one of" in marks.mark_choice(10**5_000, "loss", ("bill", "loss"), {})
    assert "3 of yours" in marks.mark_list([8, 9, 10], "ab")
    assert marks.mark_list([["a"]], "a") == "1 of yours does not belong there and 1 is missing."
    for pair in ((3, 9), [3.0, 9], np.array([3, 9]), pd.Series([3, 9])):
        assert marks.mark_span(pair, (3, 9)) == ""
    assert marks.mark_span([2, 10], (3, 9)) == "It is not right yet: the first and the last."
    for nothing in (3, ("3", "9"), (None, 9), (1, 2, 3)):
        assert "two numbers" in marks.mark_span(nothing, (3, 9))


def test_a_guess_is_told_what_is_so():
    assert "it is 75 %" in marks.score_guess(40, 75, "%")
    assert "well guessed" in marks.score_guess(74, 75, "%")
    assert "guess first" in marks.score_guess("many", 75, "%")
    assert "You said 0.75 %" in marks.score_guess(0.75, 75, "%")
    assert "You said 1 cent, it is 15 cents: off by 14 cents" in marks.score_guess(1, 15, "cents")


def test_a_figure_may_be_rounded_as_a_notebook_prints_it():
    for key, rounded in {
        "01-b": 0.122,
        "05-a": 0.055,
        "05-c": 0.51,
        "07-a": 4.5,
        "09-a": 21,
    }.items():
        assert ck.check(key, rounded).right, key


@pytest.mark.parametrize("key", NUMBERS)
def test_a_wrong_number_is_refused_and_the_right_one_not_said(key):
    for wrong in (0, -1, 123_456_789, "no"):
        mark = ck.check(key, wrong)
        assert mark.right is False
        assert not re.search(r"\d", mark.said.replace("1,000", "").replace("100", ""))


def test_an_exercise_without_an_answer_is_read_out():
    told = ck.check("03-a")
    assert told.right is None
    assert "three dots" in str(told)
    with pytest.raises(BadArguments, match="Did you mean '03-a'"):
        ck.check("03-aa", 1)


def test_a_place_is_marked_by_what_stands_there():
    said = {at: ck.check("02-a", at).said for at in range(101, 108)}
    shown = ck.read(ck.samples.path()).view(150)
    unsafe = {
        at
        for at in said
        if "without its call" in said[at] and at > 101 and "Between" not in said[at]
    }
    assert unsafe == {at for at in range(102, 108) if shown[at].role == "tool"}
    assert {at for at in said if "not the first" in said[at]} == {105, 107}
    assert "what its messages hold" in ck.check("01-c", 4.5).said
    assert "number of tokens" in ck.check("01-c", 60_000).said


def test_rules_are_marked_by_what_they_do():
    assert "older than five turns" in ck.check("02-c", CLEAR).said
    assert "changed nothing" in ck.check("02-c", "none").said
    assert "facts" in ck.check("06-b", "pi").said
    assert "largest prompt" in ck.check("03-b", "none").said
    assert "no preset" in ck.check("03-b", "nonsense").said


@pytest.mark.filterwarnings("error")
def test_what_is_no_answer_is_refused_in_a_sentence():
    odd = ("x", ("3", "9"), [["a"]], {"a": 1}, float("inf"), 1e99, object(), b"x", (None, None))
    for key in ("01-a", "02-a", "03-b", "06-a", "07-c", "10-a", "a3-a"):
        assert [each for each in odd if ck.check(key, each).right] == []


def test_a_row_that_is_a_question_is_no_section():
    costs = pd.DataFrame({"section": ["project", "time, at the top"], "cost_usd": [0.015, 0.15]})
    assert ck.check("10-a", "project", costs).right
    assert "a question" in ck.check("10-a", "time, at the top", costs).said
    assert "15 cents" in ck.check("10-guess", 1, costs).said


def test_rules_that_take_more_than_results_are_told_so():
    def dropped(history, budget):
        start = history.nth_last("user", 5)
        return history.drop(history.safe(start), "older than five turns") if start > 0 else history

    rules = Rules(policy=dropped, trigger=triggers.Above(0), name="dropped")
    assert "more is gone than results" in ck.check("02-c", rules).said


def test_rules_that_shorten_words_are_told_so():
    def shortened(history, room):
        start = max(history.nth_last("user", 5), 0)
        return history.shorten(list(range(start)), "[cleared]", "all of it") if start else history

    rules = Rules(policy=shortened, trigger=triggers.Above(0), name="shortened")
    assert "words of the user or the assistant are changed" in ck.check("02-c", rules).said


def test_both_standard_deviations_are_right():
    losses = [100 * each for each in lesson_07_sweeps.measure_losses_near_trigger()]
    assert pstdev(losses) < 0.95 * stdev(losses)
    for right in (stdev(losses), pstdev(losses)):
        assert ck.check("07-a", right).right
    for wrong in (1.06 * stdev(losses), 0.94 * pstdev(losses)):
        assert ck.check("07-a", wrong).right is False


def test_a_share_beyond_the_bound_is_not_rounded_to_the_bound():
    rules = Rules(policy="clear:keep_last=5", trigger=triggers.Above(25_000), name="clear")
    entry = replace(judge_rules("mine", rules), needed_later_loss=0.052)
    assert entry.why == "loses 5.2 %"


def test_own_frames_and_sessions_are_asked_for():
    assert "turns" in ck.check("08-a", "x").said
    assert "the log" in ck.check("08-guess", 5).said
    assert "the table" in ck.check("10-guess", 5).said
    assert "session" in ck.check("04-a", ["x"]).said
    assert "in one list" in ck.check("01-a", 300, 331).said
    assert (
        "not what the notebook made"
        in ck.check("08-b", 3, pd.DataFrame({"turn_input_tokens": [1]})).said
    )


def test_every_notebook_has_its_guess_and_its_exercises():
    """Each key is used in a notebook, which has a guess and two or three exercises, or in the page."""
    asked = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        found = re.findall(r'ck\.check\(\\?"([^"\\]+)', path.read_text(encoding="utf-8"))
        asked[path.stem[:2]] = list(dict.fromkeys(found))
    used = {key for keys in asked.values() for key in keys}
    capstone = re.findall(r'ck\.check\("(\w+)", \{', (ROOT / "docs/course.md").read_text("utf-8"))
    assert used | set(capstone) == set(load_exercises())
    for number, keys in asked.items():
        assert f"{number}-guess" in keys
        assert 3 <= len(keys) <= 4
        assert keys == [f"{number}-guess", *sorted(keys[1:])]


def test_facts_are_listed_with_the_sample_alone():
    kept = ck.course.facts_kept(ck.samples.path())
    assert (len(kept), sum(kept.values())) == (15, 12)
    with pytest.raises(BadArguments, match="lists no facts"):
        ck.course.facts_kept(ck.samples.path("chat"))
