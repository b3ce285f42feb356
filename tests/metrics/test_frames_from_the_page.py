"""The frames, worked out again from raw logs by what docs/frames.md says and nothing else.

The parsers (`raw_log_parsers.py`) know the files' own words (which line is a reply, which field its
usage) and the page's definitions. They import nothing of the readers, so a definition that the page
does not state shows as a difference.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from conftest import sessions_folder
from metrics.raw_log_parsers import PARSERS, RawCompaction, RawLog

import ctxkit as ck

GOLDEN = Path(__file__).parents[1] / "formats" / "golden"
SUFFIXES = (".json", ".jsonl", ".traj")


def find_logs(kind: str) -> list[Path]:
    """The logs of a format; an event zoo is a list of single records, not a session."""
    real = sessions_folder()
    found = sorted((real / kind).glob("*")) if real else []
    found += sorted(GOLDEN.glob(f"{kind}.*"))
    return [p for p in found if p.suffix in SUFFIXES and "event-zoo" not in p.name][:6]


LOGS = [(kind, path) for kind in PARSERS for path in find_logs(kind)]
each_log = pytest.mark.parametrize(("kind", "path"), LOGS, ids=lambda x: getattr(x, "stem", x)[:40])


@cache
def read(path: Path):
    return next(iter(ck.read_all(path, progress=False)))


def plain(value):
    """A cell without its dtype; None: missing."""
    if pd.isna(value):
        return None
    return value if isinstance(value, str) else int(value)


def compare(row: pd.Series, mine: dict) -> None:
    mine = dict(mine)
    if (
        plain(row["output_source"]) == "estimated"
    ):  # and so at least, by the page: streams were cut off
        assert (mine.pop("output_tokens") or 0) <= row["output_tokens"]
    assert {name: plain(row[name]) for name in mine} == mine


@each_log
def test_the_page_is_enough_to_compute_the_session_frame(kind, path):
    compare(ck.frame(read(path), per="session").iloc[0], PARSERS[kind](path).session())


@each_log
def test_the_page_is_enough_to_compute_the_call_frame(kind, path):
    frame, mine = ck.frame(read(path), per="call"), PARSERS[kind](path).calls
    assert frame["call"].tolist() == list(range(len(mine)))
    for (_, row), call in zip(frame.iterrows(), mine, strict=True):
        compare(row, call.figures())


@each_log
def test_the_page_is_enough_to_compute_the_compaction_frame(kind, path):
    log: RawLog = PARSERS[kind](path)
    frame = ck.frame(read(path), per="compaction")
    frame = frame[frame["compaction"].notna()]
    assert frame["compaction"].tolist() == list(range(len(log.compactions or ())))
    for (_, row), mine in zip(frame.iterrows(), log.compactions or (), strict=True):
        assert plain(row["call"]) == (mine.call if mine.call < len(log.calls) else None)
        compare_sizes(row, mine, log)


def compare_sizes(row: pd.Series, mine: RawCompaction, log: RawLog) -> None:
    """A recorded size is the log's; else the size before is at least the prompt and its reply."""
    last = log.calls[mine.call - 1].figures() if mine.call else {}
    if mine.before is not None:
        assert row["tokens_before"] == mine.before
    elif last.get("prompt_tokens") and row["tokens_source"] == "derived":
        assert row["tokens_before"] >= last["prompt_tokens"] + (last["output_tokens"] or 0)
    if mine.after is not None:
        assert row["tokens_after"] == mine.after
    elif row["tokens_source"] == "derived" and mine.call < len(log.calls):
        following = (c.figures()["prompt_tokens"] for c in log.calls[mine.call :])
        assert row["tokens_after"] <= next(p for p in following if p is not None)
    if row["tokens_before"] and not pd.isna(row["tokens_after"]):
        share = 1 - row["tokens_after"] / row["tokens_before"]
        assert row["token_savings"] == pytest.approx(share)


def test_there_are_logs_of_each_format():
    if sessions_folder() is None:
        pytest.skip("no real logs")
    counts = {kind: sum(k == kind for k, _ in LOGS) for kind in PARSERS}
    few = {kind for kind, n in counts.items() if n < 3}
    assert few <= {"tau-bench"}, counts  # its one file holds 201 sessions
