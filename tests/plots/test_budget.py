"""fuseraft's chart: running sums an agent, thresholds, compactions between the turns."""

from __future__ import annotations

import colorsys

import pandas as pd
import pytest
from builders import assistant, session, summarised, usage

import ctxkit as ck
from ctxkit.plots import get_cumulative_input_data
from ctxkit.session import Message


def turn(agent, number, tokens):
    details = {"warn_at": 50, "cutover_at": 90}
    return Message(
        role="assistant",
        id=f"t{number}",
        kind="turn",
        agent=agent,
        turn=number,
        usage=usage(tokens),
        details=details,
    )


def team():
    return session(turn("Dev", 0, 10), turn("Rev", 1, 20), summarised([]), turn("Dev", 2, 30))


def plain(data):
    agents = {
        a.name: (a.turns.tolist(), a.cumulative.tolist(), a.inputs.tolist(), a.outputs.tolist())
        for a in data.agents
    }
    return agents, data.compactions, data.warn_at, data.cutover_at


def test_the_data_are_running_sums_an_agent():
    """F113: A line for each agent: its input tokens added up, over the numbers of the turns."""
    lines = ck.plots.budget(session(turn("Dev", 0, 10), turn("Rev", 1, 20), turn("Dev", 2, 30)))
    drawn = {t["name"]: (list(t["x"]), list(t["y"])) for t in lines.to_plotly()["data"][:2]}
    assert drawn == {"Dev": ([0, 2], [10, 40]), "Rev": ([1], [20])}
    agents = {"Dev": ([0, 2], [10, 30], [10, 30], [10, 10]), "Rev": ([1], [20], [20], [10])}
    assert plain(get_cumulative_input_data(team())) == (agents, (1.5,), 50, 90)


def test_a_turn_frame_gives_the_same():
    assert plain(get_cumulative_input_data(ck.frame(team()))) == plain(
        get_cumulative_input_data(team())
    )


def test_compactions_are_unknown_where_the_column_is_empty_and_none_where_it_is_missing():
    frame = ck.frame(team())
    assert not get_cumulative_input_data(frame).hides_compactions
    without = get_cumulative_input_data(frame.drop(columns="compaction_occurred"))
    assert (without.compactions, without.hides_compactions) == ((), False)
    assert get_cumulative_input_data(frame.assign(compaction_occurred=pd.NA)).hides_compactions


def test_markers_of_a_snapshot_log_are_no_agent_and_count_one_ahead():
    rows = [
        ("Dev", 0, 10, 1, 10, 60, 100, False),
        ("system", 1, 0, 0, 0, None, None, True),
        ("Dev", 1, 7, 2, 7, 60, 100, False),
    ]
    names = [
        "agent",
        "turn",
        "turn_input_tokens",
        "turn_output_tokens",
        "cumulative_input_tokens",
        "warn_at",
        "cutover_at",
    ]
    log = pd.DataFrame(rows, columns=[*names, "compaction_occurred"])
    assert plain(get_cumulative_input_data(log)) == (
        {"Dev": ([0, 1], [10, 7], [10, 7], [1, 2])},
        (0.5,),
        60,
        100,
    )


def test_the_figure_has_agents_and_thresholds():
    assert [t.name for t in ck.plots.budget(team()).figure().data] == [
        "Dev",
        "Rev",
        "warn at 50",
        "cutover at 90",
    ]


def test_hover_tells_the_turns_input_and_output():
    twice = session(turn("Dev", 0, 10), turn("Dev", 1, 30))
    text = ck.plots.budget(twice).to_plotly()["data"][0]["hovertext"][1]
    assert "in 30, out 10" in text
    assert "40 cumulative" in text


def test_agents_of_several_sessions_are_told_apart():
    s = session(assistant(usage=usage(5)), id="one"), session(assistant(usage=usage(5)), id="two")
    assert [a.name for a in get_cumulative_input_data(s).agents] == ["one · main", "two · main"]


def test_another_frame_is_refused_by_its_missing_columns():
    with pytest.raises(ck.BadArguments, match="turn_input_tokens"):
        ck.plots.budget(pd.DataFrame({"agent": ["a"], "turn": [0]}))


def test_rows_without_an_agent_belong_to_no_total():
    rows = {
        "session": ["a", "a", "b", "b", "b"],
        "agent": ["Dev", None, "Dev", "Rev", None],
        "turn": [0, 1, 0, 1, 2],
        "turn_input_tokens": [10, 20, 30, 40, 50],
        "turn_output_tokens": [1, 2, 3, 4, 5],
        "cumulative_input_tokens": [10, 20, 30, 40, 50],
    }
    data = get_cumulative_input_data(pd.DataFrame(rows))
    # a list, for two sums may have one name
    assert [(a.name, a.inputs.tolist()) for a in data.agents] == [
        ("a · Dev", [10]),
        ("b · Dev", [30]),
        ("b · Rev", [40]),
    ]


def test_compactions_are_dashed_lines_with_fuserafts_label():
    """F114: Upright, dashed and grey, labelled `⚡ compact`; of many the label is left out."""
    from snapshot_logs import MARKER, ROW

    from ctxkit.plots.cumulative_agent_input_and_threshold_charts import _compaction_marks

    lines = [ROW, MARKER, ROW.replace('"turn":3', '"turn":4')]
    layout = ck.plots.budget(snapshots_of(lines)).to_plotly()["layout"]
    [shape], [label] = layout["shapes"], layout["annotations"]
    assert (shape["line"]["dash"], shape["x0"] == shape["x1"]) == ("dash", True)
    assert label["text"] == "⚡ compact"
    page = str(ck.plots.budget(snapshots_of(lines)).page())
    assert "\\u26a1 compact" in page or "⚡ compact" in page
    assert {m.label for m in _compaction_marks(range(13), 12.0)} == {""}
    labels = [m.label for m in _compaction_marks((10.5, 12.5, 40.5), 88.0)]
    assert labels == ["⚡ compact", "", "⚡ compact"]  # two labels side by side would overlap


def snapshots_of(lines):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ctx_snapshots_s.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return ck.read(path)


def test_thresholds_are_level_dashed_lines_in_yellow_and_red():
    """F115: Warn_at is a dashed yellow line across the chart, cutover_at a dashed red one; where
    neither is set there is none.
    """

    def lines(chart):
        figure = chart.to_plotly()
        return {t["name"]: t for t in figure["data"] if t["name"].startswith(("warn", "cutover"))}

    drawn = lines(ck.plots.budget(team()))
    hues = {}
    for name, line in drawn.items():
        assert "dash" in line["line"]["dash"]
        assert line["y"][0] == line["y"][-1]
        red, green, blue = (int(line["line"]["color"][i : i + 2], 16) / 255 for i in (1, 3, 5))
        hues[name] = 360 * colorsys.rgb_to_hsv(red, green, blue)[0]
    assert list(hues) == ["warn at 50", "cutover at 90"]
    assert 40 < hues["warn at 50"] < 65
    assert hues["cutover at 90"] < 30
