"""What marks mean: turns, segments, compactions and resumes; on logs that the writer made."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pandas as pd
import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.formats import snapshots
from ctxkit.metrics import FRAME_COLUMNS

NOW = datetime(2026, 9, 19, tzinfo=UTC)


@pytest.fixture
def write(tmp_path):
    def writer(session="77d6be00", name="a.jsonl", **more):
        return snapshots.SnapshotWriter(tmp_path / name, session, now=lambda: NOW, **more)

    return writer


def read(tmp_path, name="a.jsonl"):
    return ck.read_snapshots(tmp_path / name, cache=False)


@pytest.fixture
def log(write, tmp_path):
    """Two agents; a compaction after turn 2, a resume before turn 5, nothing after turn 6."""
    with write(warn_at=50, cutover_at=100) as w:
        w.turn("Dev", 0, 30, 1)
        w.turn("Rev", 1, 10, 2)
        w.turn("dev", 2, 80, 3)
        w.marker(3)
        w.turn("Dev", 3, 20, 4)
        w.turn("Rev", 4, 5, 5)
    with write(warn_at=50, cutover_at=100) as w:
        w.turn("Rev", 5, 40, 6)
        w.turn("Dev", 6, 15, 7)
    return read(tmp_path)


def test_turns_have_the_shape_of_the_turn_frame_and_no_zero_rows(log):
    df = snapshots.turns(log)
    assert list(df.columns) == [c.name for c in FRAME_COLUMNS["turn"]]
    assert [str(t) for t in df.dtypes] == [str(ck.frame([]).dtypes[c]) for c in df.columns]
    assert df["turn"].to_list() == [0, 1, 2, 3, 4, 5, 6]
    assert df["turn_input_tokens"].mean() == sum([30, 10, 80, 20, 5, 40, 15]) / 7
    assert df["compaction_occurred"].to_list() == [False, False, True, False, False, False, False]
    assert df["context_tokens"].isna().all()


def test_compactions_have_before_and_after_of_each_agent(log):
    df = snapshots.compactions(log).set_index(["compaction", "agent"])
    assert df.loc[0, "kind"].to_list() == ["compaction", "compaction"]
    dev, rev = df.loc[(0, "Dev")], df.loc[(0, "Rev")]
    assert (
        dev.turn_before,
        dev.turn_after,
        dev.turn_input_tokens_before,
        dev.turn_input_tokens_after,
    ) == (
        2,
        3,
        80,
        20,
    )
    assert (dev.cumulative_input_tokens_before, dev.cumulative_input_tokens_after) == (110, 20)
    assert (rev.turn_before, rev.turn_after) == (1, 4)
    assert (dev.marker_turn, dev.after_turn, dev.source, dev.sizes_source) == (
        3,
        2,
        "recorded",
        "derived",
    )


def test_a_drop_without_a_marker_is_one_resume_for_all_agents(log):
    df = snapshots.compactions(log)
    resumed = df[df["kind"] == "resume"]
    assert resumed["compaction"].to_list() == [1, 1]
    assert set(resumed["source"]) == {"derived"}
    assert resumed["marker_turn"].isna().all()
    assert set(resumed["after_turn"]) == {4}
    assert dict(zip(resumed["agent"], resumed["turn_after"], strict=True)) == {"Dev": 6, "Rev": 5}


def test_segments_sum_up_between_resets(log):
    df = snapshots.segments(log).set_index(["segment", "agent"])
    assert list(df["turns_n"].items()) == [  # in the order of their first turns
        ((0, "Dev"), 2),
        ((0, "Rev"), 1),
        ((1, "Dev"), 1),
        ((1, "Rev"), 1),
        ((2, "Rev"), 1),
        ((2, "Dev"), 1),
    ]
    assert (
        df.loc[(0, "Dev"), "turn_input_tokens"]
        == df.loc[(0, "Dev"), "cumulative_input_tokens"]
        == 110
    )
    assert df["reached"].to_list() == ["cutover", "", "", "", "", ""]
    assert df["ended_by"].to_list() == [
        "compaction",
        "compaction",
        "resume",
        "resume",
        "end",
        "end",
    ]
    assert df["gaps_n"].sum() == 0


def test_lost_lines_are_gaps_and_no_resumes(write, tmp_path):
    with write() as w:
        for i in range(5):
            w.turn("Dev", i, 10, 1)
    path = tmp_path / "a.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2] + lines[3:]))
    assert snapshots.segments(read(tmp_path))["gaps_n"].to_list() == [1]
    assert len(snapshots.compactions(read(tmp_path))) == 0


def test_a_marker_without_turns_is_still_a_compaction(write, tmp_path):
    with write() as w:
        w.marker(7)
        w.turn("Dev", 7, 10, 1)
    with write("other") as w:
        w.marker(0)
    df = snapshots.compactions(read(tmp_path))
    assert df["session"].to_list() == ["77d6be00", "other"]
    assert df["after_turn"].isna().all()
    assert not snapshots.turns(read(tmp_path))["compaction_occurred"].any()


@pytest.mark.parametrize("make", [snapshots.turns, snapshots.compactions, snapshots.segments])
def test_empty_logs_and_wrong_frames(tmp_path, make):
    (tmp_path / "a.jsonl").touch()
    empty = make(read(tmp_path))
    assert len(empty) == 0
    assert "session" in empty
    with pytest.raises(BadArguments, match="agent"):
        make(pd.DataFrame({"session": []}))


def test_the_budget_chart_takes_logs_and_turns_and_stays_light(log):
    for of in (log, snapshots.turns(log)):
        chart = ck.plots.budget(of)
        drawn = chart.to_plotly()
        assert len(drawn["layout"]["shapes"]) == 1  # the compaction
        assert "cutover at 100" in [line["name"] for line in drawn["data"]]
        assert sum(int(turns) for _, turns, *_ in chart.rows) == 7
    many = log.iloc[[0] * 200_000].reset_index(drop=True)
    many["turn"] = pd.array(range(len(many)), dtype="Int64")
    assert len(json.dumps(ck.plots.budget(many).to_plotly())) < 100_000


STEP = st.one_of(
    st.tuples(st.sampled_from("ABC"), st.integers(1, 99)), st.sampled_from(["compact", "resume"])
)


@settings(max_examples=examples(25))
@given(st.lists(STEP, max_size=30))
def test_resets_are_found_wherever_the_numbers_show_them(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("log") / "a.jsonl"
    sums, shown = (
        {},
        [],
    )  # a resume shows at the first turn of an agent that had one since the last reset
    w = snapshots.SnapshotWriter(path, "s", now=lambda: NOW)
    turn = 0
    for step in steps:
        if step == "compact":
            w.marker(turn)
            shown.append("compaction")
            sums = {}
        elif step == "resume":
            w.close()
            w = snapshots.SnapshotWriter(path, "s", now=lambda: NOW)
            sums = dict.fromkeys(sums, "old")
        else:
            agent, n = step
            if sums.get(agent) == "old":
                shown.append("resume")
                sums = {}
            sums[agent] = "new"
            w.turn(agent, turn, n, 1)
            turn += 1
    w.close()
    df = snapshots.compactions(ck.read_snapshots(path, cache=False))
    assert df.drop_duplicates("compaction")["kind"].to_list() == shown
