"""Numbers by student, tries that are counted, a report by consent, and no answer that raises."""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ctxkit as ck
from ctxkit.course import load_exercises, students
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, triggers

EXERCISES = load_exercises()
NUMBERED = [key for key, e in EXERCISES.items() if e.numbers]
BISECTED = {
    "01-b": (0, 1), "02-a": (0, 400), "02-b": (0, 400), "01-c": (0, 100), "03-a": (0, 80_000),
    "05-a": (0, 1), "05-b": (0, 1_000), "05-c": (0, 4), "07-a": (0, 50), "09-a": (0, 100),
    "04-b": (0, 1_000), "a2-a": (0, 200),
}  # fmt: skip
"""Each numeric exercise about a sample, with an interval that holds its answer."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Let each test begin as nobody, in an empty folder, without the shell of another test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: None)
    monkeypatch.setattr(students, "_current", {})
    monkeypatch.setattr(students, "_unnamed", {})
    return tmp_path


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_numbers_are_those_of_the_page_until_somebody_begins():
    assert ck.course.numbers("05-b") == {"taken": 2_000, "behind": 30_000}
    drawn = set()
    for name in ("Ada", "Bo", "Cy", "Dee", "Eve", "Finn"):
        ck.course.begin(name)
        drawn.add(tuple(ck.course.numbers("05-b").values()))
        assert f"{ck.course.numbers('05-b')['behind']:,}" in ck.check("05-b").said
    assert len(drawn) >= 3
    ck.course.begin("ADA ")
    upper = ck.course.numbers("05-a")
    ck.course.begin("Ada")
    assert ck.course.numbers("05-a") == upper


def test_at_least_ten_exercises_have_numbers_of_their_own_and_no_two_are_alike():
    assert len(NUMBERED) >= 10
    for key in NUMBERED:
        several = [tuple(each.items()) for each in EXERCISES[key].numbers]
        assert len(several) == len(set(several)) >= 4
    assert ck.course.numbers("06-a") == {}


WITHOUT_NUMBERS = {
    "02-c", "04-a", "06-a", "07-b", "07-c", "08-a", "09-b", "10-a", "11-b", "a1-a", "a3-b",
    "capstone",
}  # fmt: skip
"""They ask for rules, a view, names or a word; the sessions of 07-b are made from the name."""


def test_every_exercise_that_asks_for_a_number_draws_it():
    asked = {key for key, each in EXERCISES.items() if not each.is_guess}
    assert asked - set(NUMBERED) == WITHOUT_NUMBERS


@pytest.mark.long
@pytest.mark.parametrize("key", ["01-a", "01-b", "01-c", "05-c", "07-a", "a2-a"])
def test_what_is_right_differs_between_the_numbers_of_an_exercise(key, monkeypatch):
    """The solution of each draw is right, and at most one other draw takes it, too."""
    text = (Path(__file__).parents[2] / "docs/teaching/solutions.md").read_text(encoding="utf-8")
    solution = re.search(rf"^### {key}\n```py\n(.*?)```$", text, re.DOTALL | re.MULTILINE)[1]
    answers = []
    for drawn in EXERCISES[key].numbers:
        monkeypatch.setattr("ctxkit.course.exercises.draw_numbers", lambda *_, of=drawn: dict(of))
        exec(solution, names := {"ck": ck})
        assert ck.check(key, names["answer"]).right, drawn
        answers.append(names["answer"])
    for drawn in EXERCISES[key].numbers:
        monkeypatch.setattr("ctxkit.course.exercises.draw_numbers", lambda *_, of=drawn: dict(of))
        assert sum(bool(ck.check(key, answer).right) for answer in answers) <= 2


def test_one_students_answer_is_not_anothers():
    ck.course.begin("Ada")
    hers = 11.5 * (n := ck.course.numbers("05-b"))["behind"] / n["taken"]
    assert ck.check("05-b", hers).right
    others = []
    for name in ("Bo", "Cy", "Dee", "Eve"):
        ck.course.begin(name)
        others.append(ck.check("05-b", hers).right)
    assert others.count(False) >= 3


# -- tries -------------------------------------------------------------------------------------------------------------


def test_the_second_wrong_answer_is_told_how_to_get_there(folder):
    first, second = ck.check("05-b", 3), ck.check("05-b", 4)
    assert EXERCISES["05-b"].hint not in first.said
    assert EXERCISES["05-b"].hint in second.said
    assert "(Try 2.)" in str(second)
    assert ck.check("05-b", 4).tries == 2, "the same answer again is no try"
    assert list(folder.iterdir()) == [], "nothing is kept of somebody without a name"


def test_every_exercise_says_how_to_get_there():
    hints = {key: each.hint for key, each in EXERCISES.items() if not each.is_guess}
    assert len(hints) > 30
    assert {key: hint for key, hint in hints.items() if len(hint) <= 20} == {}


def test_tries_go_on_in_the_next_kernel(monkeypatch):
    ck.course.begin("Ada")
    for wrong in (1, 2, 3):
        ck.check("09-a", wrong)
    monkeypatch.setattr(students, "_current", {})
    assert ck.check("09-a", 4).tries == 4
    assert ck.course.report().set_index("key")["tries"]["09-a"] == 4


def test_two_students_in_one_folder_are_asked_who_answers_and_lose_nothing(monkeypatch):
    ck.course.begin("Ada")
    ck.check("09-a", 1)
    ck.course.begin("Bo")
    ck.check("09-a", 2)
    monkeypatch.setattr(students, "_current", {})
    assert "say who you are" in ck.check("09-a", 3).said
    for name in ("Ada", "Bo"):
        ck.course.begin(name)
        assert ck.course.report().set_index("key")["tries"]["09-a"] == 1


def test_two_kernels_of_one_student_lose_no_try():
    ck.course.begin("Ada")

    def answer(first):
        mine = students.Student("Ada", students.get_student_and_ambiguity_note()[0].path)
        for n in range(first, first + 20):
            mine.add("09-a", f"{n}", right=False)

    threads = [threading.Thread(target=answer, args=(20 * k,)) for k in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    ck.course.begin("Ada")
    assert len(students.get_student_and_ambiguity_note()[0].tries("09-a")) == 60


def test_a_damaged_file_loses_its_damaged_lines_alone():
    ck.course.begin("Ada")
    ck.check("09-a", 1)
    path = next(Path(".ctxkit/course").glob("*.jsonl"))
    path.write_bytes(path.read_bytes() + b'{"key": \n')
    ck.course.begin("Ada")
    ck.check("09-a", 2)
    assert ck.course.report().set_index("key")["tries"]["09-a"] == 2


def test_a_folder_that_cannot_be_written_is_one_warning(monkeypatch):
    def refused(*args, **more):
        raise OSError(30, "Read-only file system")

    ck.course.begin("Ada")
    monkeypatch.setattr(students.SafeFolder, "open_or_create", refused)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ck.check("09-a", 1)
        assert ck.check("09-a", 2).tries == 2
    assert ["in this kernel alone" in str(w.message) for w in seen] == [True]


def in_a_folder_that_cannot_be_written(act):
    """Return what a function returns in an empty folder where nobody may write, and what it left."""
    students.get_student_and_ambiguity_note()  # what is imported later is out of another user's reach
    act(warm=True)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o555)
        ours, theirs = os.pipe()
        if (child := os.fork()) == 0:
            try:
                if os.geteuid() == 0:
                    os.setuid(20_001)
                os.chdir(name)
                os.write(theirs, json.dumps(act()).encode())
            finally:
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours, "rb") as pipe:
            said = json.loads(pipe.read())
        os.waitpid(child, 0)
        left = list(Path(name).iterdir())
        Path(name).chmod(0o755)
    return said, left


def use_the_course(*, warm=False):
    """Begin, answer, report and enter; return each sentence that is said."""
    said = [ck.course.begin("Ada")]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        said += [str(ck.check("09-a", wrong)) for wrong in (1, 2)]
    said += [str(each.message) for each in seen]
    for write in (
        lambda: ck.course.report(to="mine.csv"),
        lambda: ck.contest().enter("mine", "pi"),
    ):
        try:
            write()
        except BadArguments as error:
            said.append(str(error))
    return said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process of another user")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_in_a_folder_that_cannot_be_written_all_is_said_once_and_nothing_is_left():
    said, left = in_a_folder_that_cannot_be_written(use_the_course)
    assert left == []
    began, first, second, reported, entered = said
    assert "in this kernel alone" in began
    assert "09-a: not yet." in first
    assert "(Try 2.)" in second, "tries are counted all the same"
    assert "cannot be written" in reported
    assert "cannot be kept" in entered


# -- a report ----------------------------------------------------------------------------------------------------------


def test_points_fall_with_tries_and_a_choice_counts_once(folder):
    ck.course.begin("=Ada")
    b = ck.course.numbers("05-b")
    ck.check("05-b", paid := round(11.5 * b["behind"] / b["taken"], 1))
    for wrong in (1, 2, 3):
        ck.check("05-a", wrong)
    n = ck.course.numbers("05-a")
    ck.check(
        "05-a", (n["fresh"] * 3 + n["read"] * 0.3 + n["written"] * 3.75 + n["reply"] * 15) / 1e6
    )
    for word in ("bill", "behaviour"):
        ck.check("07-c", word)
    ck.check("06-guess", 12)
    report = ck.course.report(to="mine.csv").set_index("key")
    assert report["points"][["05-b", "05-a", "07-c"]].tolist() == [1.0, 0.5, 0.0]
    assert report["right"][["05-b", "05-a", "07-c"]].all()
    assert pd.isna(report["points"]["06-guess"])
    assert report["tries"]["06-guess"] == 1
    assert set(report.index) == set(EXERCISES)
    written = (folder / "mine.csv").read_text()
    assert "'=Ada,05-a,4,True,0.5" in written
    kept = "".join(p.read_text() for p in Path(".ctxkit/course").iterdir())
    assert str(paid) not in kept, "answers are not kept"
    assert "behaviour" not in kept


def test_a_report_that_cannot_be_written_is_one_sentence(folder):
    (folder / "wall").write_text("a file")
    with pytest.raises(BadArguments, match="cannot be written"):
        ck.course.report(to="wall/mine.csv")


# -- bots --------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("key", BISECTED)
def test_halving_an_interval_finds_no_answer(key):
    """The bot reads what is said, and goes where a direction is named."""
    low, high = BISECTED[key]
    for _ in range(25):
        mark = ck.check(key, middle := (low + high) / 2)
        if mark.right:
            break
        up = any(word in mark.said for word in ("low", "early", "small", "more than"))
        low, high = (middle, high) if up else (low, middle)
    # with ten or fifteen per cent of leave a number may be hit by chance, after many tries
    assert ck.course.report().set_index("key")["points"][key] == 0


def test_who_tries_all_words_gets_no_point():
    for word in ("bill", "loss", "behaviour"):
        ck.check("07-c", word)
    assert ck.course.report().set_index("key")["points"]["07-c"] == 0


# -- any object --------------------------------------------------------------------------------------------------------


class Hostile:
    """Raises whatever one does with it."""

    def __getattribute__(self, name):
        raise RuntimeError("hostile")

    def __eq__(self, other):
        raise RuntimeError("hostile")

    __hash__ = None

    def __repr__(self):
        raise RuntimeError("hostile")


def raising(history, budget):
    return 1 / 0


ODD = [
    [], {}, set(), "", "x", b"x", 0, -1, 1e99, 10**400, float("nan"), float("inf"), 4j, True, (), (1,), (None, 1),
    ("3", "9"), [[1]], {"a": 1}, object(), object, len, itertools, range(3), itertools.count(), pd.NA, pd.NaT,
    np.array([1, 2]), np.array([[1]]), np.nan, np.float64(1), pd.Series([1, 2]), pd.DataFrame({"x": [1]}),
    lambda *a: a, lambda: 1 / 0, Hostile(), RuntimeError("x"), (n for n in [1]), "none", "pi", "clear:keep_last=5",
    Rules(policy=raising, trigger=triggers.Above(9_000), name="raises"), Rules(), ck.samples.path(), "\ud800",
]  # fmt: skip
SLOW_RULES = {"02-c", "03-b", "06-b", "07-b"}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("key", sorted(EXERCISES))
def test_no_object_raises(key):
    """Each of some fifty objects is marked in a sentence, by itself and with one more behind it."""
    odd = ODD if key not in SLOW_RULES else [o for o in ODD if type(o) is not str]
    for answer in odd:
        mark = ck.check(key, answer)
        assert str(mark)
        assert mark._repr_html_()
    for given in ODD:
        assert str(ck.check(key, 1, given))


def test_rules_that_fail_say_how():
    said = ck.check(
        "06-b", Rules(policy=raising, trigger=triggers.Above(9_000), name="raises")
    ).said
    assert "ZeroDivisionError" in said


@pytest.mark.parametrize("key", [None, 3, [], {}, "x" * 10_000, object()])
def test_what_is_no_key_is_refused_in_a_sentence(key):
    with pytest.raises(BadArguments, match="no exercise"):
        ck.check(key, 1)


@pytest.mark.parametrize("name", [None, 3, "", "  ", [], "\n"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(BadArguments, match="Give a name"):
        ck.course.begin(name)
