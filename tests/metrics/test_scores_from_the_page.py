"""Every column that docs/scores.md calls computable, worked out again from the page alone."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from math import isclose
from pathlib import Path

import pandas as pd
import pytest
from builders import session as make_session
from builders import user
from conftest import sample, sessions_folder
from metrics import loss_oracle, score_oracle
from metrics.oracle_inputs import to_plain
from metrics.score_oracle import CompactionFigures, compute_derived_columns, compute_score
from metrics.test_score_and_frame_columns import FREED, HOLDS, make_cycles

import ctxkit as ck
from ctxkit.experiments import SCORE_COLUMN_NAMES, UNCOMPUTED_COLUMNS
from ctxkit.session import Message

PAGE = Path(__file__).parents[2] / "docs" / "scores.md"
SUFFIXES = (".json", ".jsonl", ".traj", ".md", ".txt")
MAX_BYTES = 1_500_000
RULES = [
    None,
    ck.presets.langchain_summary(trigger=("messages", 8), keep=("messages", 4)),
    ck.presets.anthropic_clear_tools(trigger=2000, keep=1),
    ck.presets.fuseraft(
        mode="intent", trigger_turn_count=6, keep_recent_turns=2, offload_chars=2000
    ),
]
UNCOMPUTED = {name for names in UNCOMPUTED_COLUMNS.values() for name in names}


def find_logs(logs_n: int) -> list[Path]:
    """Return logs of each format, from small to large; an event zoo is no session."""
    folder, out = sessions_folder(), []
    for of_format in sorted(p for p in folder.iterdir() if p.is_dir()) if folder else ():
        files = [p for p in of_format.rglob("*") if p.suffix in SUFFIXES and p.name != "README.md"
                 and p.parent.name != "events" and "event-zoo" not in p.name
                 and 0 < p.stat().st_size < MAX_BYTES]  # fmt: skip
        files = [p for p in sorted(files, key=lambda p: (p.stat().st_size, p.name)) if read(p)]
        places = sorted({len(files) * n // logs_n for n in range(logs_n)})
        out += [files[i] for i in places] if files else []
    return out


@cache
def read(path: Path):
    """Return the first session of a log that has calls; None: there is none."""
    try:
        sessions = ck.read_all(path, progress=False)
        return next((s for s in sessions if s.calls), None)
    except ck.CtxkitError:
        return None


@cache
def score_billing() -> dict[str, object]:
    return score_plainly(read(ck.samples.path("billing")))


def score_plainly(session) -> dict[str, object]:
    return {name: to_plain(value) for name, value in ck.score(session).items()}


def find_differences(session, score=None) -> list[str]:
    """Return the columns of which page and score differ, with both values."""
    score = score or score_plainly(session)
    page = compute_score(session) | compute_derived_columns(session, score)
    label = f"{session.format} {session.id[:30]} {score['rules']}"
    return [
        f"{label}: {name} is {page[name]} by the page, {score[name]} in the score"
        for name in page
        if not is_same(page[name], score[name])
    ]


def is_same(one: object, other: object) -> bool:
    if None in (one, other) or isinstance(one, str) or isinstance(other, str):
        return one is other or one == other
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


def compare(sessions, rules) -> list[str]:
    return [
        line
        for session in sessions
        for one in rules
        for line in find_differences(session if one is None else ck.replay(session, one))
    ]


@pytest.mark.parametrize("name", ["billing", "incident", "chat"])
def test_the_page_is_enough_for_the_samples(name):
    assert compare([ck.read(ck.samples.path(name))], RULES) == []


def test_the_page_is_enough_for_a_log_of_each_format(real):
    by_format = defaultdict(list)
    for path in find_logs(20):
        by_format[path.relative_to(real).parts[0]].append(read(path))
    assert len(by_format) >= 10
    sessions = [session for of_format in by_format.values() for session in sample(of_format, 1)]
    assert compare(sessions, RULES[::2]) == []


@pytest.mark.long
def test_the_page_is_enough_for_three_logs_of_each_format(real):
    assert compare(map(read, find_logs(3)), RULES) == []


def test_the_page_is_enough_for_a_mask_that_a_reader_inferred(real):
    session = ck.read(real / "swe-agent" / "psf__requests-1921.traj")
    assert find_differences(session) == []
    rules = ck.presets.swe_agent_mask(n=session.details["history_processor"]["n"])
    assert ck.score(session)["items_n"] == ck.score(ck.replay(session, rules))["items_n"] > 0


@pytest.mark.parametrize("rules", RULES, ids=lambda r: r.name if r else "recorded")
def test_nothing_is_counted_as_zero_where_there_is_no_call_or_no_size(rules):
    without_calls = make_session(user("Read docs/notes.txt."))
    without_sizes = make_session(*(Message(role="assistant", id=f"a{n}") for n in range(2)))
    for record in (without_calls, without_sizes):
        session = record if rules is None else ck.replay(record, rules)
        assert pd.isna(ck.score(session)["prompt_tokens"])
        assert find_differences(session) == []


def test_every_column_is_computed_or_the_page_says_on_what_it_rests():
    section = PAGE.read_text("utf-8").split("## What cannot be computed")[1].split("\n## ")[0]
    listed = {n for line in section.splitlines() if line.startswith("| `")
              for n in re.findall(r"`(\w+)`", line.split("|")[1])}  # fmt: skip
    computed = set(compute_score(ck.read(ck.samples.path("billing"))))
    assert listed == UNCOMPUTED
    assert computed | UNCOMPUTED == set(SCORE_COLUMN_NAMES)
    assert not computed & UNCOMPUTED


@pytest.mark.parametrize(
    ("module", "name", "value", "column"),
    [
        (loss_oracle, "USER_WEIGHT", 3, "weighted_loss"),
        (score_oracle, "REREAD_WINDOW", 12, "reread_rate"),
        (score_oracle, "FULL_AGAIN", 0.5, "rebound_calls"),
        (score_oracle, "MIN_PROGRESS", 0.9, "no_progress_streak"),
    ],
)
def test_another_number_than_the_page_s_is_seen(monkeypatch, module, name, value, column):
    monkeypatch.setattr(module, name, value)
    lines = find_differences(read(ck.samples.path("billing")), score_billing())
    assert any(f": {column} is" in line for line in lines)


@pytest.mark.parametrize("cycles", [
    (FREED, HOLDS, (20_000,)),
    (FREED, (98_000, 99_000), (97_000, 98_000), (96_000,)),
    (FREED, (60_000, 99_000), (60_000, 99_000), (60_000, 99_000), (60_000,)),
], ids=["one that holds", "no progress", "not paid back"])  # fmt: skip
def test_so_are_verdicts_on_compactions_that_follow_each_other(cycles):
    session = make_cycles(*cycles)
    assert to_plain(ck.score(session, loss=False)["paid_back_share"]) is not None
    assert find_differences(session) == []


def test_another_formula_is_seen(monkeypatch):
    right = CompactionFigures.count_requests
    monkeypatch.setattr(CompactionFigures, "count_requests", lambda *args: 1e-3 * right(*args))
    lines = find_differences(make_cycles(FREED, *[(60_000, 99_000)] * 3, (60_000,)))
    assert any(": not_paid_back_n is" in line for line in lines)
