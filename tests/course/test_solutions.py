"""Every exercise has a solution, and each is right: by itself where it can be, else in its notebook."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import ctxkit as ck
from ctxkit.course.exercises import _all

ROOT = Path(__file__).parents[2]
OWN = {"04-a", "08-a", "08-b", "10-a", "10-b", "11-a", "11-b", "a1-a", "a1-b", "a2-b", "a3-a"}
"""Those that are about what their notebook made."""
CLAIMS = {
    "08": """
assert turns["session"].nunique() == 100 and int(turns["compaction_occurred"].sum()) == 710 < compactions_at(100_000)
assert len(resets[resets["kind"] == "compaction"]) > 710
""",
    "10": """
sent = costs["usd"].drop("time, at the top")
assert costs.loc["project", "usd"].round(3) == 0.015 and len(session.calls) == 48
assert 5 < costs.loc["time, at the top", "usd"] / sent.sum() < 6 and costs.loc["time", "usd"] < 0.001
(no, pasted), (one, _), (two, _), (pruned, _) = (ways(*n)["usd"] for n in ((0,), (1,), (2,), (2, True)))
(tokens, _), (fewer, _) = (ways(*n)["peak_tokens"] for n in ((1,), (2, True)))
assert no < pasted and abs(one / pasted - 1) < 0.1 and two > one
assert abs(fewer / tokens - 1) < 0.05 and 0 < (two - pruned) / (two - one) < 0.5
""",
    "11": """
assert made.moves["keyword"].eq("ONCE MORE").sum() == 3
views = priced.drop("shared")
assert views["token_share"].idxmin() == "artifacts" != views["cost_usd"].idxmin()
assert (views["cost_usd"] / shared["cost_usd"] > views["token_share"]).all()
usages = [c.message.usage for c in reviewer.shared.calls]
assert sum(u.cache_read_tokens for u in usages) > 0.9 * sum(u.prompt_tokens for u in usages)
rules = {view.name: view.rules("Reviewer") for view in views_of("views")}
where = {name: ck.replay(reviewer.shared, each).sent(call) for name, each in rules.items()}
where = {name: {i.message.kind or i.message.role for i in sent if CODE in i.message.text} for name, sent in where.items()}
assert where["last 3 replies"] == {"tool"} and where["fresh"] == {"assistant", "tool"} and "heard" in where["text only"]
""",
    "a1": """
savings = costs.loc["none"] - costs.loc["fuseraft"]
assert savings.max() > 1.2 * savings.min(), savings
assert (gain["headroom, after a pause"] > 0).all() and (gain["Pichay"] > 0).all()
""",
    "a2": """
late = told[(told["cut"] == 1) & told["meaning_kept"] & ~told["values_kept"].fillna(True)]
assert "queue" in late["fact"].iloc[0]
""",
}
"""What the words of a notebook say of what it made, held after its last cell."""
SLOW = {"02-c", "04-b", "07-a", "a3-b"}
"""Those that replay many times."""


@pytest.fixture(scope="module")
def solve():
    spec = importlib.util.spec_from_file_location("solve", ROOT / "docs/teaching/solve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_exercise_has_one(solve):
    assert set(solve.solutions()) == {key for key, e in _all().items() if not e.guess}


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.long)])
def test_each_that_stands_alone_is_right(slow, solve):
    wrong = []
    for key, code in solve.solutions().items():
        if key not in OWN and (key in SLOW) is slow:
            names = {"ck": ck}
            exec(code, names)
            mark = ck.check(key, names["answer"])
            wrong += [str(mark)] * (mark.right is not True)
    assert wrong == []


def test_the_dots_are_filled_in(solve):
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = [c.source for c in solve.solved(path).cells if c.cell_type == "code"]
        assert not re.search(r'ck\.check\("[^"]+", \.\.\.', "\n".join(cells))
        asked = "ck.check(" in path.read_text(encoding="utf-8")
        assert any("answer" in c for c in cells) or not asked


@pytest.mark.long
@pytest.mark.parametrize("number", ["04", "08", "10", "11", "a1", "a2", "a3"])
def test_the_others_are_right_in_their_notebook(number, solve, tmp_path):
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell

    path = next(p for p in solve.write(tmp_path / "solved") if p.stem.startswith(number))
    notebook = solve.solved(ROOT / "notebooks" / path.name)
    notebook.cells.append(new_code_cell(CLAIMS.get(number, "")))
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=where).execute()
    marks = [
        o["data"]["text/plain"]
        for c in notebook.cells
        for o in c.get("outputs", [])
        if "data" in o and re.match(r"\w\w-([a-c]|guess): ", o["data"].get("text/plain", ""))
    ]
    guesses = [m for m in marks if f"{number}-guess: You said" in m]
    marks = [m for m in marks if m not in guesses]
    assert len(guesses) == 1
    assert len(marks) >= 2
    assert [m for m in marks if ": right." not in m] == []
