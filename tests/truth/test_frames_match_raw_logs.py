"""The frames of every real file hold what small parsers of their own find in it, figure by figure.

Where a definition of the frames differs from the plain count, it is in `DIFFERS` with its
reason, and in docs/frames.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from real_logs import rows
from truth.raw_log_figures import PARSERS

import ctxkit as ck

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

_ZOO = "claude-code/agent-sessions-event-zoo.jsonl"
DIFFERS: dict[tuple[str, str], Any] = {
    # A made file whose ids are all one word: there a call ends where another line follows. Its
    # first lines are marked as a sidechain that nothing started, and count as the conversation.
    (_ZOO, "calls_n"): 9,
    (_ZOO, "tool_calls_n"): 3,
    (_ZOO, "tool_errors_n"): 1,
    (_ZOO, "results_n"): 3,
    # What a program printed and an answer follows at once was sent: it counts as the user's.
    ("aider/add-test.md", "users_n"): 4,
    # Five aborted replies have the output of the start of their streams: theirs is estimated.
    ("pi/before-compaction.jsonl", "output_tokens"): 187_895 + 843,
}
"""File and figure to what the frame holds."""
FILES = [r for r in rows() if "/events/" not in r["file"]]


@pytest.mark.parametrize("row", FILES, ids=lambda r: r["file"])
def test_the_frame_holds_what_the_log_holds(row: dict[str, str], real: Path) -> None:
    frame = figures_of(ck.read_all(real / row["file"], progress=False))
    if row["format"] == "inspect-ai":
        frame = frame.sort_values(["prompt_tokens", "output_tokens"], na_position="first")
    expected = PARSERS[row["format"]](real / row["file"])
    assert len(frame) == len(expected)
    wrong = []
    for (_, found), figures in zip(frame.iterrows(), expected, strict=True):
        for name, value in figures.items():
            should = DIFFERS.get((row["file"], name), value)
            if not _same(found[name], should):
                wrong.append((found["session"], name, found[name], should))
    assert wrong == []


def figures_of(sessions: list[Session]) -> pd.DataFrame:
    """Return the session frame with sums of the call frame and counts of the message frame."""
    frame = ck.frame(sessions, per="session").set_index("session", drop=False)
    frame["cost_usd"] = frame["calls_usd"]  # the parsers add up calls, without summaries
    calls, messages = (ck.frame(sessions, per=per) for per in ("call", "message"))
    sums = calls.groupby("session")[["input_tokens", "cache_write_tokens"]].sum(min_count=1)
    roles = (
        messages.groupby(["session", "role"])
        .size()
        .unstack(fill_value=0)
        .reindex(columns=["user", "tool"])
    )
    times = messages.groupby("session")["ts"].agg(["min", "max"])
    return frame.assign(
        input_tokens=sums["input_tokens"],
        cache_write_tokens=sums["cache_write_tokens"],
        users_n=roles["user"].fillna(0),
        results_n=roles["tool"].fillna(0),
        first=times["min"],
        last=times["max"],
    )


def _same(found: Any, expected: Any) -> bool:
    if pd.isna(found) or expected is None:
        return bool(pd.isna(found)) and expected is None
    if isinstance(expected, pd.Timestamp):
        return abs(found - expected) < pd.Timedelta("1ms")
    return found == pytest.approx(expected)
