"""fuseraft's snapshots: turns, marks, resets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from source_builders import source

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import fuseraft_token_snapshot_logs as fuseraft_snapshots
from ctxkit.magics.session_report_commands import ContextStatus
from ctxkit.session import get_title

if TYPE_CHECKING:
    from pathlib import Path


def row(
    turn: int, spent: int, running: int, agent: str = "Dev", session: str = "77d6be00", **more: Any
) -> dict:
    head = {
        "ts": f"2026-01-01T00:00:{turn:02}.0091413+00:00",
        "session": session,
        "agent": agent,
        "turn": turn,
    }
    return {
        **head,
        "turn_input_tokens": spent,
        "turn_output_tokens": 5,
        "cumulative_input_tokens": running,
        **more,
    }


MARK = row(2, 0, 0, agent="system", compaction_occurred=True, turn_output_tokens=0)


def test_a_row_is_a_turn_with_what_it_was_billed() -> None:
    (s,) = fuseraft_snapshots.read(
        source(row(0, 10, 10, warn_at=50), row(1, 20, 30), MARK, row(2, 5, 5))
    )
    assert [(c.agent, c.turn, c.message.kind, c.message.usage.input_tokens) for c in s.calls] == [
        ("Dev", 0, "turn", 10), ("Dev", 1, "turn", 20), ("Dev", 2, "turn", 5)]  # fmt: skip
    assert s.calls[0].message.details == {"cumulative_input_tokens": 10, "warn_at": 50}
    assert [type(e).__name__ for e in s.path] == ["Message", "Message", "Edit", "Message"]
    assert s.calls[0].message.time == pytest.approx(1767225600.009, abs=1e-3)


def test_a_sum_that_falls_without_a_mark_means_resumed() -> None:
    (s,) = fuseraft_snapshots.read(
        source(row(0, 10, 10), row(1, 20, 30), row(2, 5, 5), MARK, row(3, 4, 4))
    )
    assert ["resumed" in c.message.details for c in s.calls] == [False, False, True, False]


def test_sessions_of_one_log_are_told_apart_without_regard_to_case() -> None:
    sessions = fuseraft_snapshots.read(source(row(0, 1, 1), row(0, 1, 1, session="0000AB12"),
                                              row(1, 1, 2, session="0000ab12")))  # fmt: skip
    assert [(s.id, len(s.calls)) for s in sessions] == [("77d6be00", 1), ("0000AB12", 2)]


def test_a_damaged_row_is_counted_and_none_at_all_is_an_error() -> None:
    (s,) = fuseraft_snapshots.read(source(row(0, 1, 1), {"agent": "Dev"}, b"{torn"))
    assert [f.line for f in s.faults] == [2, 3]
    with pytest.raises(ReadError, match="expected rows"):
        fuseraft_snapshots.read(source({"agent": 1}))


def test_a_log_becomes_a_turn_frame(tmp_path: Path) -> None:
    (tmp_path / "ctx_snapshots_77d6be00.jsonl").write_bytes(
        source(row(0, 10, 10), MARK, row(1, 7, 7)).data
    )
    s = ck.read(tmp_path / "ctx_snapshots_77d6be00.jsonl")
    frame = ck.frame(s, per="turn")
    assert frame["turn_input_tokens"].tolist() == [10, 7]
    assert frame["compaction_occurred"].tolist() == [True, False]
    assert frame["context_tokens"].isna().all()


def test_counts_of_turns_are_no_context_no_window_and_no_share() -> None:
    (s,) = fuseraft_snapshots.read(
        source(row(0, 10_000, 10_000), row(1, 20_000, 30_000), MARK, row(2, 5_000, 5_000))
    )
    window = ck.report(s)
    assert (window.is_known, window.parts, window.contributors) == (False, (), ())
    for shown in (window.to_text(), window.to_html(), ck.plots.composition(s, -1).caption):
        assert "200,000" not in shown
        assert "%" not in re.sub("<[^>]*>", "", shown)
    assert window.to_text().startswith("Context of 77d6be00 2026-01-01 at call 2, turn 2\nSize unk")
    line = ContextStatus(window, 1, 5).one_line
    assert line == "Context: unknown, the log has counts of whole turns alone · Compactions: 1"
    assert not any(i.tokens for i in ck.explore(s).explorer_session.at(-1).items)
    row_of_pi = ck.compare(s, ["pi"]).loc["pi"]
    assert row_of_pi[["peak_tokens", "compactions_n"]].isna().all()
    assert "no size of a prompt" in row_of_pi["note"]


def test_logs_of_counts_are_named_by_session_and_day() -> None:
    logs = fuseraft_snapshots.read(source(row(0, 10, 10), row(0, 10, 10, session="8a")))
    assert [get_title(s) for s in logs] == ["77d6be00 2026-01-01", "8a 2026-01-01"]


def test_both_views_of_thrash_say_the_same_of_a_log_of_counts() -> None:
    (s,) = fuseraft_snapshots.read(
        source(row(0, 10_000, 10_000), row(1, 20_000, 30_000), MARK, row(2, 5_000, 5_000))
    )
    by_hand, still = repr(ck.thrash(s)), ck.plots.thrash(s).caption
    assert still.startswith("1 compaction, 0 saved less than 10 % of tokens, of 1 it is unknown")
    assert still in by_hand
    assert "the log does not tell" in by_hand


def test_a_view_of_several_logs_says_which_one_it_draws() -> None:
    logs = fuseraft_snapshots.read(source(row(0, 10, 10), MARK, row(0, 10, 10, session="8a")))
    assert "of 77d6be00 2026-01-01 (1 of 2 sessions) pay?" in repr(ck.thrash(logs))
    with pytest.raises(ck.BadArguments, match="draws one session"):
        ck.plots.thrash(logs)
