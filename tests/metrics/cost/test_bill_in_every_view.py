"""One bill: of a record and of replays, in frames, score, spend, board, list and report."""

from __future__ import annotations

import json
import shutil

import pandas as pd
import pytest
from builders import assistant, session, summarised, usage, user
from cli.command_runner import run_in_this_process

import ctxkit as ck
from ctxkit.metrics import session_bill

SAMPLE = ck.samples.path("billing")
MODEL = "claude-sonnet-4-5"


@pytest.mark.parametrize("rules", ["claude_code", "tyrum", "none"])
def test_the_frame_of_a_replay_is_billed_as_compare_bills_it(rules):
    """Calls at the price of a write, misses of the record carried over, and the summaries."""
    found = ck.compare(SAMPLE, [rules], loss=False, progress=False)
    replay, row = found.replays[rules], found.loc[rules]
    (of_session,) = ck.frame(replay, per="session").itertuples()
    assert of_session.cost_usd == pytest.approx(row["cost_usd"])
    assert of_session.summaries_usd == pytest.approx(row["summaries_usd"])
    assert of_session.cache_read_tokens == row["cache_read_tokens"]
    assert of_session.cost_source == row["cost_source"] == "derived"
    calls, turns, cuts = (ck.frame(replay, per=p) for p in ("call", "turn", "compaction"))
    assert calls["cost_usd"].sum() == pytest.approx(of_session.calls_usd)
    assert turns["cost_usd"].sum() == pytest.approx(of_session.calls_usd)
    assert cuts["cost_usd"].sum() == pytest.approx(of_session.summaries_usd)
    assert calls["cache_read_tokens"].sum() == turns["cache_read_tokens"].sum()
    assert calls["cache_read_tokens"].sum() == row["cache_read_tokens"]
    assert calls["cache_write_tokens"].sum() == row["cache_write_tokens"]


def test_the_cost_of_a_session_has_its_summaries_in_it():
    (row,) = ck.frame(SAMPLE, per="session").itertuples()
    assert row.summaries_usd > 0
    assert row.cost_usd == pytest.approx(row.calls_usd + row.summaries_usd)
    assert row.cost_usd == pytest.approx(ck.score(SAMPLE, loss=False)["cost_usd"])


def test_a_summary_without_a_price_leaves_the_session_without_a_cost_in_every_view(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "cache"))
    asked = user()
    log = session(
        asked,
        assistant(usage=usage(1000), model=MODEL),
        summarised([asked], usage=usage(9000), model="no-such-model"),
        assistant(usage=usage(1000), model=MODEL),
    )
    (row,) = ck.frame(log, per="session").itertuples()
    assert row.calls_usd > 0
    assert pd.isna(row.cost_usd)
    assert pd.isna(ck.score(log, loss=False)["cost_usd"])
    path = ck.write(log, tmp_path / "log.jsonl").path
    [on_board], [listed] = (
        ck.board(path, seconds=None).rows,
        json.loads(run_in_this_process(tmp_path, "list", path, "--json").stdout),
    )
    assert on_board.usd is listed["cost_usd"] is ck.spend(log).cost_usd is None
    assert ck.spend(log).total_usd == pytest.approx(row.calls_usd)
    assert session_bill.bill_session(log).unpriced_summaries_n == 1


def test_a_total_that_the_log_states_is_the_cost_in_every_view():
    from ctxkit.cli.session_index import index_session
    from ctxkit.widgets import make_board_row

    log = session(user(), assistant("ok"), details={"cost_usd": 0.25})
    assert ck.frame(log, per="session")["cost_usd"].tolist() == [0.25]
    assert ck.score(log, loss=False)["cost_usd"] == 0.25
    assert ck.spend(log).total_usd == 0.25
    assert [p.usd for p in ck.spend(log).by("tool")] == [0.25]
    listed = index_session(log)
    assert listed.cost_usd == listed.with_subagents_usd == make_board_row(log).usd == 0.25


def test_several_sessions_are_spent_together():
    chat = ck.samples.path("chat")
    both = ck.spend([SAMPLE, chat])
    each = [ck.spend(SAMPLE).total_usd, ck.spend(chat).total_usd]
    assert both.total_usd == pytest.approx(sum(each))
    for way in both.ways:
        assert sum(part.usd for part in both.by(way)) == pytest.approx(both.total_usd), way
    assert both.frame("session")["usd"].tolist() == pytest.approx(sorted(each, reverse=True))
    assert "in 2 sessions" in both.to_text()
    assert "<details" in both._repr_html_()


def test_a_folder_has_one_total_in_spend_and_in_the_command_line(real, tmp_path):
    folder = real / "claude-code"
    rows = json.loads(run_in_this_process(tmp_path, "spend", folder, "--json").stdout)
    whole = ck.spend(ck.read_all(folder, progress=False))
    assert sum(r["total_usd"] or 0.0 for r in rows) == pytest.approx(whole.total_usd)
    children = sum(usd for s in whole.spends for _, usd in s.children)
    assert children > 0
    assert whole.total_usd == pytest.approx(sum(s.cost_usd for s in whole.spends) + children)
    # a subagent that is given beside its parent is counted once
    nested = [child for s in whole.sessions for child in s.children]
    assert ck.spend([*whole.sessions, *nested]).total_usd == pytest.approx(whole.total_usd)


def test_a_folder_has_one_total_on_the_board_in_the_list_and_in_the_frames(
    real, tmp_path, monkeypatch
):
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "cache"))
    folder = shutil.copytree(real / "claude-code", tmp_path / "logs")
    (folder / "damaged.jsonl").write_text("{")
    whole, board = ck.read_all(folder, progress=False), ck.board(folder, seconds=None)
    rows = json.loads(run_in_this_process(tmp_path, "list", folder, "--all", "--json").stdout)
    own, each = (ck.frame(whole, per="session", children=c) for c in (False, True))
    total = pytest.approx(ck.spend(whole).total_usd)
    assert each["cost_usd"].sum() == sum(r.usd for r in board.rows) == total
    assert sum(r["with_subagents_usd"] for r in rows) == total
    assert sum(r["cost_usd"] for r in rows) == pytest.approx(own["cost_usd"].sum())
    assert (len(rows), len(board)) == (len(own), len(each))
    assert len(own) < len(each)
    parts = [ck.frame(whole, per=per)["cost_usd"].sum() for per in ("call", "compaction")]
    assert parts == pytest.approx([own["calls_usd"].sum(), own["summaries_usd"].sum()])
    assert sum(parts) == pytest.approx(own["cost_usd"].sum())
    assert board.failed_n == len(whole.failed) == 1


def test_errors_of_a_common_sign_do_not_cancel_out():
    """Ten sessions whose dollars are each known within $1: their mean is known within $1."""
    from ctxkit.metrics import average_cost_uncertainty_usd

    runs = pd.DataFrame(
        [
            {"rules": "pi", "session": f"s{i}", "cost_low_usd": 9.0, "cost_high_usd": 11.0}
            for i in range(10)
        ]
    )
    assert average_cost_uncertainty_usd(runs) == {"pi": pytest.approx(1.0)}
