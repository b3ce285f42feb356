"""What a log prices itself stays recorded; the table's price is beside it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from builders import assistant, session, user

import ctxkit as ck
from ctxkit.session import Usage


def made(*costs: float | None):
    log = [
        m
        for usd in costs
        for m in (
            user(),
            assistant(
                usage=Usage(input_tokens=1000, output_tokens=100, cost_usd=usd), model="gpt-4o"
            ),
        )
    ]
    return session(*log)


def test_the_logs_own_price_is_the_score_and_the_tables_stands_beside():
    table = 2 * (1000 * 2.5e-6 + 100 * 10e-6)
    row = ck.score(made(0.5, 0.25), loss=False)
    assert (row["cost_usd"], row["cost_source"]) == (0.75, "recorded")
    assert row["list_price_usd"] == pytest.approx(table)
    frame = ck.frame(made(0.5, 0.25), per="session").iloc[0]
    assert (frame["cost_usd"], frame["cost_source"]) == (0.75, "recorded")
    assert frame["list_price_usd"] == pytest.approx(table)
    assert ck.frame(made(0.5, 0.25), per="call")["list_price_usd"].sum() == pytest.approx(table)


def test_a_call_that_the_log_does_not_price_is_priced_by_the_table():
    row = ck.score(made(0.5, None), loss=False)
    assert row["cost_usd"] == pytest.approx(0.5 + 0.0035)
    assert row["cost_source"] == "derived"


def test_real_logs_score_what_they_say(real):
    path = real / "openhands/llm-log-deepseek-nonfncall-1757015076.651.json"
    row = ck.score(ck.read(path), loss=False)
    assert row["cost_usd"] == json.loads(path.read_text())["cost"]
    assert row["list_price_usd"] < row["cost_usd"] / 2
    for s in [
        *ck.read_all(real / "atif", progress=False),
        *ck.read_all(real / "mini-swe-agent", progress=False),
    ]:
        frame, row = ck.frame(s, per="session").iloc[0], ck.score(s, loss=False)
        if not s.edits and frame["cost_usd"] is not pd.NA and frame["cost_source"] == "recorded":
            assert row["cost_usd"] == pytest.approx(frame["cost_usd"])


def test_the_frame_and_the_score_have_one_cost_with_the_summaries(real):
    for file in (
        "kimi-cli/assistant_tools.jsonl",
        "claude-code/entire-7f78a542.jsonl",
        "pi/before-compaction.jsonl",
    ):
        s = ck.read(real / file)
        frame, row = ck.frame(s, per="session").iloc[0], ck.score(s, loss=False)
        assert frame["cost_usd"] == pytest.approx(row["cost_usd"])
        assert frame["cost_usd"] == pytest.approx(frame["calls_usd"] + frame["summaries_usd"])


def test_a_run_that_prices_itself_alone_scores_that(real):
    row = ck.score(ck.read(real / "swe-agent/psf__requests-1921.traj"), loss=False)
    assert (row["cost_usd"], row["cost_source"]) == (4.026444, "recorded")
