"""The script that records a pair of runs works without a model, too: with the one that looks up what it cannot see."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import ctxkit as ck
from ctxkit.messages import Text
from ctxkit.studies.seekers import world


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parents[2] / "notebooks/make_pair.py"
    spec = importlib.util.spec_from_file_location("make_pair", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_runs_are_kept_and_held_against_the_replay(script, tmp_path):
    at = world(questions=8, services=5, lines=20)
    table = script.main("scripted/ports", tmp_path / "pair", at)
    assert table["right"].tolist() == ["8 of 8"] * 2
    assert (table["calls foretold"] == table["calls real"]["none"]).all()
    assert table["calls real"]["mask 3"] > table["calls real"]["none"]
    kept = {p.name: ck.read(p) for p in sorted((tmp_path / "pair").glob("*.jsonl"))}
    assert list(kept) == ["mask-3.jsonl", "none.jsonl"]
    assert len(kept["none.jsonl"].calls) == table["calls real"]["none"]


def test_wrong_sums_are_counted(script):
    at = world(questions=3, services=5, lines=20)
    session = ck.Session(
        id="s", format="native", agent="main",
        log=tuple(m for n in range(3) for m in _asked(at, n, wrong=n == 1)),
    )  # fmt: skip
    assert script.right(session, at) == 2


def _asked(at, n, *, wrong):
    total = sum(at.ports[name] for name in at.asked[n]) + wrong
    yield ck.Message(role="user", id=f"u{n}", parts=(Text(at.question(n)),))
    yield ck.Message(role="assistant", id=f"a{n}", parts=(Text(f"It is {total:,}."),), stop="stop")
