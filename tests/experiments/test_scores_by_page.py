"""The score, worked out again from frames and prompts by what docs/scores.md says."""

from __future__ import annotations

import re
from functools import cache
from math import isclose
from pathlib import Path

import pytest
from conftest import sample, sessions_folder
from experiments import score_by_page
from experiments.score_by_page import PageScore, plain
from metrics.test_columns_by_hand import FREED, HOLDS, make_cycles

import ctxkit as ck
from ctxkit.experiments import SCORE_COLUMN_NAMES

PAGE = Path(__file__).parents[2] / "docs" / "scores.md"
SUFFIXES = (".json", ".jsonl", ".traj", ".md", ".txt")
FORMATS = {"aider", "atif", "claude-code", "codex", "gemini-cli", "inspect-ai", "kimi-cli", "langfuse",
           "mini-swe-agent", "openai-messages", "opencode", "openhands", "pi", "swe-agent", "tau-bench"}  # fmt: skip
MAX_BYTES = 1_500_000


def find_logs() -> list[Path]:
    """Three logs of each format, from small to large; an event zoo is no session."""
    real, out = sessions_folder(), []
    for folder in (
        sorted(p for p in real.iterdir() if p.is_dir() and p.name in FORMATS) if real else []
    ):
        files = [p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.name != "README.md"
                 and p.parent.name != "events" and "event-zoo" not in p.name and p.stat().st_size < MAX_BYTES]  # fmt: skip
        files.sort(key=lambda p: (p.stat().st_size, p.name))
        out += [files[i] for i in sorted({0, len(files) // 2, len(files) - 1})] if files else []
    return out


LOGS = [*sample(find_logs(), 15), *(ck.samples.path(n) for n in ("billing", "incident", "chat"))]
each_log = pytest.mark.parametrize("path", LOGS, ids=lambda p: f"{p.parent.name}/{p.stem}"[:50])


@cache
def read(path: Path):
    return next(iter(ck.read_all(path, progress=False)))


def compare(session) -> dict[str, tuple[object, object]]:
    """The columns of which page and score differ, with both values."""
    mine, score = PageScore(session).columns(), ck.score(session)
    pairs = {name: (mine[name], plain(score[name])) for name in mine}
    return {name: pair for name, pair in pairs.items() if not is_same(*pair)}


def is_same(one: object, other: object) -> bool:
    if None in (one, other) or isinstance(one, str) or isinstance(other, str):
        return one is other or one == other
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


@each_log
def test_the_page_is_enough_to_compute_the_score(path):
    assert compare(read(path)) == {}


def test_every_column_is_computed_or_the_page_says_on_what_it_rests():
    section = PAGE.read_text("utf-8").split("## What cannot be computed")[1].split("\n## ")[0]
    rests = set(re.findall(r"`(\w+)`", section.split("Of a record these are missing")[0]))
    computed = set(PageScore(read(ck.samples.path("billing"))).columns())
    assert computed | rests == set(SCORE_COLUMN_NAMES)
    assert not computed & rests


@pytest.mark.parametrize(
    ("name", "value", "column"),
    [
        ("USER_WEIGHT", 3, "weighted_loss"),
        ("REREAD_WINDOW", 12, "reread_rate"),
        ("FULL_AGAIN", 0.5, "rebound_calls"),
        ("PROGRESS", 0.9, "no_progress_streak"),
    ],
)
def test_another_number_than_the_page_s_is_seen(monkeypatch, name, value, column):
    monkeypatch.setattr(score_by_page, name, value)
    assert column in compare(read(ck.samples.path("billing")))


@pytest.mark.parametrize("cycles", [
    (FREED, HOLDS, (20_000,)),
    (FREED, (98_000, 99_000), (97_000, 98_000), (96_000,)),
    (FREED, (60_000, 99_000), (60_000, 99_000), (60_000, 99_000), (60_000,)),
], ids=["one that holds", "no progress", "not paid back"])  # fmt: skip
def test_so_are_verdicts_on_compactions_that_follow_each_other(cycles):
    session = make_cycles(*cycles)
    assert plain(ck.score(session, loss=False)["paid_back_share"]) is not None
    assert compare(session) == {}


def test_another_formula_is_seen(monkeypatch):
    right = PageScore.pays_after
    monkeypatch.setattr(PageScore, "pays_after", lambda *args: 1e-3 * right(*args))
    assert "not_paid_back_n" in compare(make_cycles(FREED, *[(60_000, 99_000)] * 3, (60_000,)))
