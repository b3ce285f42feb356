"""What the notebooks say in words is so: each sentence is in its notebook, and is worked out here."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from statistics import quantiles

import nbformat
import pytest
from course.notebook_assertions import NOTEBOOK_CLAIMS
from course.prose_claims import BECAUSE, CLAIMS, NOTEBOOKS, code
from numpy import median

import ctxkit as ck
from ctxkit.course import load_exercises
from ctxkit.course.sample_replays_and_scores import replay_sample
from ctxkit.metrics import compaction_outcomes


def printed(number):
    """What the cells print whose output is compared whenever the notebook runs."""
    path = next(NOTEBOOKS.glob(f"{number}-*.ipynb"))
    cells = nbformat.read(path, as_version=4).cells
    compared = [c for c in cells if "nbval-check-output" in c.metadata.get("tags", [])]
    return " ".join(o.get("text", "") for c in compared for o in c.outputs)


@cache
def savings(folder):
    """What tool frames are of what a further agent would hear, and of its whole first prompt."""
    spec = spec_from_file_location("view_savings", NOTEBOOKS.parent / "docs/view_savings.py")
    script = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(script)
    found = script.measure_folder(folder)
    return [s.history for s in found], [s.prompt for s in found if s.prompt is not None]


def told(folder):
    """The words that notebook 11 and the guide have for it."""
    history, prompt = savings(folder)
    low, _, high = (f"{x:.0%}".replace("%", " %") for x in quantiles(history, n=4))
    mid, first = (f"{median(x):.0%}".replace("%", " %") for x in (history, prompt))
    return {
        "11": f"Over {len(history)} recorded sessions, tool frames are {mid} of what a further agent would hear "
        f"(median; a quarter lies below {low}), and {first} of its first prompt as it is billed",
        "guide": f"In {len(history)} recorded sessions of nine programs with at least ten tool calls, tool messages are {mid} of what "
        f"the last agent would receive (median; quartiles {low} and {high}; {sum(x >= 0.9 for x in history)} of {len(history)} reach "
        f"90 %). Of a whole first prompt, with system prompt and tools, they are {first} (median of {len(prompt)}; none reaches 90 %)",
    }  # fmt: skip


@cache
def largest_parts(folder):
    """The largest part of the last prompt of each real session with ten calls of tools, and whether bills tell its size."""
    read = (s for s in ck.read_all(folder, progress=False) if s.has_text)
    busy = [s for s in read if sum(len(m.tool_calls) for m in s.messages) >= 10]
    reports = [(s.product or s.format, ck.report(s)) for s in busy]
    return [
        (program, max((of := r.groups()), key=lambda part: of[part] or 0), r.prompt_source == "recorded")
        for program, r in reports
    ]  # fmt: skip


def told_of_parts(folder):
    """The words that notebook 01 has for it."""
    found = largest_parts(folder)
    programs, results = (
        len({of for of, _, _ in found}),
        sum(part == "tool results" for _, part, _ in found),
    )
    return (
        f"in {results} of {len(found)} public sessions of {('nine' if programs == 9 else programs)} programs (with ten calls of tools or more), "
        "results of tools are the largest part of the last prompt. In the others it is the fixed part, the system prompt, or talk. "
        f"({sum(not billed for *_, billed in found)} of the {len(found)} have no bills, so their fixed part is unknown.)"
    )


REAL = {
    "01": ("51 of 61 public sessions", "45 of the 61 have no bills"),
    "11": ("Over 61 recorded sessions", "the 90 % of fuseraft's page is the upper end"),
}
"""What is said of real sessions, which are not in the repository. (What 11 says of subagents is held
by `test_a_real_session_with_subagents`.)
"""


def test_what_is_said_of_real_sessions_is_so(real):
    guide = (NOTEBOOKS.parent / "docs/teams.md").read_text(encoding="utf-8")
    assert told(real)["11"] in prose("11")
    assert told_of_parts(real) in prose("01")
    others = {part for _, part, _ in largest_parts(real)} - {"tool results"}
    assert others >= {"not in the log", "system prompt", "user", "assistant text"}
    assert told(real)["guide"] in " ".join(guide.split())
    assert all(said in prose(number) for number, of in REAL.items() for said in of)
    history, prompt = savings(real)
    assert median(history) < 0.9
    assert max(prompt) < 0.9


@cache
def prose(number: str) -> str:
    path = next(NOTEBOOKS.glob(f"{number}-*.ipynb"))
    cells = nbformat.read(path, as_version=4).cells
    text = " ".join(c.source for c in cells if c.cell_type == "markdown")
    return " ".join(re.sub(r"\]\([^)]*\)", "", text).replace("[", "").split())


@pytest.mark.parametrize(
    ("number", "said"), [(n, s) for n, of in NOTEBOOK_CLAIMS.items() for s in of]
)
def test_what_is_held_in_the_notebook_itself_stands_there(number, said):
    assert said in prose(number)


FIGURE = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?![\w-])")
NUMBERS = sorted(p.stem[:2] for p in NOTEBOOKS.glob("*.ipynb"))


def unheld(number: str, text: str) -> list[str]:
    """Sentences whose figures are neither held, nor set by the code, nor printed and compared, nor
    those of an exercise.
    """
    held = [*CLAIMS.get(number, {}), *NOTEBOOK_CLAIMS.get(number, {}), *REAL.get(number, ())]
    asked = " ".join(e.question for key, e in load_exercises().items() if key.startswith(number))
    known = re.sub(r"(?<=\d)[_,](?=\d)", "", f"{code(number)} {printed(number)} {asked}")
    found = []
    for sentence in re.split(
        r"(?<=[.?!:])\s+(?=[A-Z*`$(])", re.sub(r"[Nn]otebook \d\d|\(\d\d\)|\bA\d\b", "", text)
    ):
        figures = [f.replace(",", "").rstrip(".") for f in FIGURE.findall(sentence)]
        loose = [
            f
            for f in figures
            if not re.search(rf"(?<![\d.])({re.escape(f)}|{float(f) / 100:g})(?![\d])", known)
        ]
        if loose and not any(claim in sentence or sentence in claim for claim in held):
            found.append(sentence)
    return found


@pytest.mark.parametrize("number", NUMBERS)
def test_each_figure_of_the_prose_is_held_set_or_printed(number):
    assert unheld(number, prose(number)) == []


@pytest.mark.parametrize(("key", "said"), [(k, s) for k, of in BECAUSE.items() for s in of])
def test_what_a_right_answer_is_told_is_so(key, said):
    assert said in load_exercises()[key].explanation
    assert BECAUSE[key][said]()


@pytest.mark.parametrize("number", NUMBERS)
def test_an_exercise_asks_with_the_figures_of_its_notebook(number):
    here = set(FIGURE.findall(f"{prose(number)} {code(number)}".replace("_", ",")))
    asked = [e for key, e in load_exercises().items() if key.startswith(number)]
    words = (
        re.sub(r"\(Within[^)]*\)|notebook \d\d", "", f"{e.question} {e.explanation}") for e in asked
    )
    figures_asked = {f for each in words for f in FIGURE.findall(each)}
    assert sorted(figures_asked - here) == []


def test_a_figure_that_nothing_holds_is_found():
    assert unheld("05", "It costs $2.71 in all. Above 26,000 tokens it does not.") == [
        "It costs $2.71 in all."
    ]


@pytest.mark.parametrize(
    ("number", "said"), [(n, s) for n, claims in CLAIMS.items() for s in claims]
)
def test_a_sentence_stands_there_and_is_so(number, said):
    assert said in prose(number)
    assert CLAIMS[number][said]()


def test_claude_code_keeps_what_the_teacher_says_it_keeps():
    """In a window of 48,000 it is due at 15,000: it keeps 33,000 free."""
    assert [
        c.before for c in compaction_outcomes.get_compaction_outcomes(replay_sample("claude_code"))
    ] == pytest.approx([15_000] * 8, abs=1_600)
