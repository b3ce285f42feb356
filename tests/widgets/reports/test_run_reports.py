"""Reports of comparisons and sweeps: assumptions first, figures as in the frame, text of logs as text."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from builders import assistant, session, step, usage, user
from widgets.reports.hostile_logs import EVIL, hostile, intruders

import ctxkit as ck
from ctxkit._internal import format_usd
from ctxkit.errors import BadArguments
from ctxkit.widgets.reports.html_reports import (
    describe_runs_cost_accuracy,
    describe_session_cost_accuracy,
    describe_sweep_caveats,
    format_score,
    list_failed_runs,
    render_runs_table,
)


def words(path) -> str:
    html = re.sub(
        r"<(script|style)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def body(path) -> str:
    return re.sub(
        r"<script>.*?</script>",
        "<script></script>",
        path.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )


def grown(name, n=12, model="claude-sonnet-4-5"):
    log = [user("go")]
    for i in range(n):
        spent = usage(0, read=4_000 * i, write=4_000)
        log += [*step(text=f"src/part{i}.py " * 900), assistant("next", usage=spent, model=model)]
    return session(*log, id=name)


@pytest.fixture(scope="module")
def runs():
    grid = ck.grid(ck.presets.pi, context_window=[32_000, 40_000], reserve_tokens=[8_000])
    return ck.sweep([grown("one"), grown("two", 9)], grid, loss=True, progress=False)


@pytest.fixture(scope="module")
def comparison():
    return ck.compare(grown("one"), ["none", "tyrum"])


def test_a_comparison_says_first_what_it_rests_on_and_shows_its_figures(comparison, tmp_path):
    said = words(ck.export(comparison, tmp_path / "c.html"))
    assert (
        said.index("Open loop")
        < said.index("Prediction error")
        < said.index("What each would have cost")
    )
    assert said.index("o200k_base") < said.index("What each would have cost")
    for tokens in comparison["prompt_tokens"]:
        assert f"{tokens:,}" in said


def sections(path) -> dict[str, str]:
    """The sections of a page by their headings, in order."""
    return dict(re.findall(r"<section><h2>(.*?)</h2>(.*?)</section>", body(path), re.DOTALL))


def heads(html) -> list[str]:
    return re.findall(r'<th scope="col"[^>]*>(.*?)</th>', html)


def cells(html) -> list[str]:
    return re.findall(r"<td[^>]*>(.*?)</td>", html)


def test_a_section_of_a_comparison_has_its_heading_and_its_columns(tmp_path):
    frame = ck.compare(grown("one"), ["none", "tyrum"])
    frame["note"] = "odd"
    frame["error"] = pd.array([None, None, "broke"], dtype="string")
    found = sections(ck.export(frame, tmp_path / "c.html"))
    assert list(found) == [
        "What these figures rest on", "What each would have cost",
        "How the context would have grown", "How the compactions held", "What was lost",
        "What is odd", "What failed", "All figures",
    ]  # fmt: skip
    cost = found["What each would have cost"]
    assert heads(cost) == [
        "rules", "calls", "prompt tokens", "peak tokens", "cost $", "real run low $",
        "real run high $", "vs recorded", "input $", "output $", "summaries $",
    ]  # fmt: skip
    assert cells(cost)[:11] == [
        "recorded", "12", "312,000", "48,000", format_usd(frame["cost_usd"].iloc[0]),
        "–", "–", "–", format_usd(frame["input_usd"].iloc[0]), "$0.0018", "$0.00",
    ]  # fmt: skip
    assert "<caption>Dollars of prompts" in cost
    assert 'id="growth"' in found["How the context would have grown"]
    assert heads(found["How the compactions held"])[:3] == ["rules", "compactions", "not paid back"]
    lost = found["What was lost"]
    assert heads(lost)[:6] == [
        "rules", "items", "retained", "recoverable", "lost", "reused items",
    ]  # fmt: skip
    assert "<caption>Needed-later loss: " in lost
    assert heads(found["What is odd"]) == ["session", "rules", "note"]
    assert cells(found["What is odd"]) == [
        *("one", "recorded", "odd"), *("one", "none", "odd"), *("one", "tyrum", "odd"),
    ]  # fmt: skip
    assert heads(found["What failed"]) == ["session", "rules", "why"]
    assert cells(found["What failed"]) == ["one", "tyrum", "broke"]
    whole = found["All figures"]
    assert heads(whole) == ["figure", "recorded", "none", "tyrum", "meaning"]
    assert cells(whole)[:4] == ["calls_n", "12", "12", "12"]


def test_a_section_of_a_sweep_has_its_heading_and_its_columns(runs, tmp_path):
    frame = runs.copy()
    frame["needed_later_loss"] = [0.1, 0.2, 0.3, 0.4]
    frame["note"] = pd.array([None, "odd", None, None], dtype="string")
    frame["error"] = pd.array(["broke", None, None, None], dtype="string")
    found = sections(ck.export(frame, tmp_path / "s.html"))
    assert list(found) == [
        "What these figures rest on", "Dollars against loss", "Settings", "What failed",
        "What is odd", "Runs",
    ]  # fmt: skip
    assert 'id="frontier"' in found["Dollars against loss"]
    assert heads(found["Settings"]) == [
        "rules", "on the Pareto front", "sessions", "failed", "cost $", "needed later, lost",
        "not paid back",
    ]  # fmt: skip
    settings = [cells(row) for row in found["Settings"].split("<tr>")[2:]]
    assert [row[2:4] for row in settings] == [["2*", "1"], ["2*", "0"]]
    assert cells(found["What failed"])[2] == "broke"
    assert cells(found["What is odd"])[2] == "odd"
    assert heads(found["Runs"]) == [
        "rules", "session", "context window", "cost $", "prompt tokens", "peak tokens",
        "compactions", "not paid back", "needed later loss",
    ]  # fmt: skip
    assert cells(found["Runs"])[:3] == [frame["rules"].iloc[0], "one", "32,000"]


def test_tables_of_runs_cut_names_and_rows():
    frame = pd.DataFrame({"session": "s" * 99, "rules": "r" * 199, "error": "e" * 999,
                          "calls_n": range(1, 302)})  # fmt: skip
    failed = list_failed_runs(frame)
    assert failed == [("s" * 79 + "…", "r" * 99 + "…", "e" * 299 + "…")] * 300
    table = render_runs_table(frame, ["calls_n"], caption="Calls.")
    assert "<caption>The first 300 of 301. Calls.</caption>" in table
    assert cells(table)[-2:] == ["r" * 99 + "…", "300"]
    assert re.findall("<th scope[^>]*>", table)[1] == '<th scope="col" class="n">'
    assert "<caption>Calls.</caption>" in render_runs_table(
        frame.head(300), ["calls_n"], caption="Calls."
    )
    assert render_runs_table(frame.assign(calls_n=pd.NA), ["calls_n"]) == ""


def test_a_sweep_marks_few_sessions_and_names_every_setting(runs, tmp_path):
    said = words(ck.export(runs, tmp_path / "s.html"))
    assert "Only 2 sessions" in said
    assert "2*" in said
    for rules in runs["rules"]:
        assert rules in said
    assert said.index("Open loop") < said.index("Settings")


def test_a_run_that_failed_is_in_the_report_with_its_reason(tmp_path):
    frame = ck.sweep(
        grown("one"),
        ck.grid(ck.presets.pi, context_window=[32_000, 1], reserve_tokens=[8_000]),
        progress=False,
    )
    said = words(ck.export(frame, tmp_path / "s.html"))
    assert "What failed" in said
    assert "1 of 2 runs failed" in said
    assert "Loss was not worked out" in said
    assert "Dollars against loss" not in said


def test_a_slice_of_a_comparison_is_a_report_too(comparison, tmp_path):
    assert "none" in words(ck.export(comparison.tail(1), tmp_path / "r.html"))


def test_nothing_of_a_hostile_log_leaves_its_place(tmp_path):
    comparison = ck.compare(hostile(), ["none"], loss=False)
    runs = ck.sweep(hostile(), ["none", "pi"], progress=False)
    runs["error"] = pd.array([EVIL.replace("\ud800", ""), None], dtype="string")
    for frame in (comparison, runs):
        html = body(ck.export(frame, tmp_path / "r.html"))
        assert intruders(html, scripts=html.count("<script></script>")) == []
        assert "window.evil=1" in html


def test_pages_ask_nothing_of_a_network(runs, comparison, tmp_path):
    for frame in (runs, comparison):
        html = body(ck.export(frame, tmp_path / "r.html"))
        assert not re.findall(r"""(?:src|href)\s*=|url\(|@import""", html)
        assert "default-src 'none'" in html


def test_other_frames_are_refused(runs, tmp_path):
    with pytest.raises(BadArguments, match="Of frames only"):
        ck.export(pd.DataFrame({"a": [1]}), tmp_path / "r.html")
    with pytest.raises(BadArguments, match="the frame is empty"):
        ck.export(runs.head(0), tmp_path / "r.html")
    with pytest.raises(BadArguments, match=r"ends in \.html or \.ipynb"):
        ck.export(runs, tmp_path / "r.pdf")


def test_what_cannot_be_checked_is_said_not_made_up():
    bare = " ".join(describe_session_cost_accuracy(session(user(), assistant())))
    assert "Prediction error: unknown" in bare
    assert "%" not in bare
    replayed = ck.replay(grown("one"), ck.presets.none())
    assert describe_session_cost_accuracy(replayed)[0].startswith("Open loop")


BASES = {
    "session": ["a", "b"], "prediction_error": [0.01, -0.05], "prediction_low": None,
    "prediction_high": None, "prediction_note": None, "closure_error": [0.001, -0.002],
    "unexplained_miss_share": [0.1, 0.3], "priced_share": [1.0, 0.5], "counter": ["c", "d"],
    "counter_error": [0.1, -0.2],
}  # fmt: skip
CLOSED = "The books close within 0.20 %, which says that prices are put right, and no more."
MISSED = "20.0 % of the calls missed the cache without an explanation"


@pytest.mark.parametrize(("changed", "sentences"), [
    ({}, [
        ("Prediction error, without the reads of the session: median 3.0 %, largest -5.0 % (b),"
        f" over 2 of 2 sessions. {CLOSED} Differences in dollars of about that size mean nothing."),
        f"{MISSED} (the most of a session: 30.0 %).",
        "75 % of the billed calls have a price; without one, dollars are missing.",
        ("Tokens are counted by c, d, whose plain count is -20 % to +10 % off the recorded growth;"
        " sizes are scaled to the recorded usage where there is one."),
    ]),
    # 3 % is small beside the differences; a session without an error is counted apart
    ({"prediction_error": [None, 0.03], "closure_error": None, "priced_share": 1.0,
      "unexplained_miss_share": [None, 0.2], "counter": "c", "counter_error": [0.1, None]}, [
        ("Prediction error, without the reads of the session: median 3.0 %, largest +3.0 % (b),"
        " over 1 of 2 sessions."),
        f"{MISSED}.",
        ("Tokens are counted by c, whose plain count is +10 % off the recorded growth;"
        " sizes are scaled to the recorded usage where there is one."),
    ]),
    ({"prediction_error": None, "unexplained_miss_share": None, "priced_share": None,
      "counter_error": None}, [
        ("Prediction error: unknown. Without a cache split and known prices the cache model cannot"
        " be checked against the record, so trust its dollars less than their order."),
        "Tokens are counted by c, d; no recorded usage shows how far off that is.",
    ]),
    ({"counter": None}, ["No run has a figure, so nothing could be checked."]),
    ({"session": "a", "unexplained_miss_share": [0.2, 0.9], "priced_share": None,
      "counter_error": None, "prediction_error": 0.01, "closure_error": None}, [
        ("Prediction error: The cost model, which does not see this session's cache reads, predicts"
        " its input cost 1.0 % too high."),
        f"{MISSED}.",
        "Tokens are counted by c; no recorded usage shows how far off that is.",
    ]),
])  # fmt: skip
def test_what_runs_rest_on_is_said_once_a_session(changed, sentences):
    said = describe_runs_cost_accuracy(pd.DataFrame({**BASES, **changed}, index=range(2)))
    assert said[0].startswith("Open loop: a replay keeps the recorded trajectory.")
    assert said[1:] == sentences


@pytest.mark.parametrize(("count", "changed", "attrs", "sentences"), [
    (5, {}, {}, []),
    (4, {}, {}, ["Only 4 sessions: what holds here may not hold for others."]),
    (1, {}, {}, ["Only 1 session: what holds here may not hold for others."]),
    (5, {"needed_later_loss": None}, {}, [
        ("Loss was not worked out (loss=True of a sweep does), so the cheapest setting may lose the"
        " most.")]),
    (5, {"error": ["broke", None, "broke", None, None]}, {}, [
        "2 of 5 runs failed and are in no mean."]),
    (5, {}, {"interrupted": True}, [
        "The sweep was interrupted: not every session met every setting."]),
])  # fmt: skip
def test_what_a_sweep_cannot_say_is_said(count, changed, attrs, sentences):
    plain = {"session": [*map(str, range(count))], "needed_later_loss": 0.0, "error": None}
    frame = pd.DataFrame({**plain, **changed})
    frame.attrs.update(attrs)
    assert describe_sweep_caveats(frame) == sentences


def test_the_worst_of_several_sessions_is_named():
    rows = ck.sweep(
        [grown("one"), grown("two", 9), grown("dear", model="nobody-knows-it")],
        ["none"],
        progress=False,
    )
    said = " ".join(describe_runs_cost_accuracy(rows))
    assert "over 2 of 3 sessions" in said
    assert "67 % of the billed calls have a price" in said


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("cost_usd", 0.0, "$0.00"),
        ("cost_usd", pd.NA, "–"),
        ("token_savings", -0.031, "-3.1 %"),
        ("retained", 0.25, "25 %"),
        ("compactions_n", 1234, "1,234"),
        ("is_thrashing", True, "yes"),
        ("calls_to_first_use", 2.5, "2.5"),
        ("reserve_tokens", 8_000, "8,000"),
        ("reserve_tokens", np.int64(8_000), "8,000"),
        ("cache", False, "False"),
        ("model", "m" * 200, "m" * 159 + "…"),
        ("is_thrashing", False, "no"),
        ("retained", 0.1, "10 %"),
        ("retained", 0.099, "9.9 %"),
    ],
)
def test_figures_are_written_by_their_kind(name, value, text):
    assert format_score(name, value) == text


def test_what_is_odd_about_a_run_is_said(tmp_path):
    said = (
        (user("go"), assistant("ok", usage=usage(0, write=n), model="claude-sonnet-4-5"))
        for n in (70_000, 70_100)
    )
    s = session(*said)
    for name, made in {
        "sweep": ck.sweep([s], ["pulse_coder"], progress=False),
        "all": ck.compare(s, ["pulse_coder"]),
    }.items():
        assert words(ck.export(made, tmp_path / f"{name}.html")).count("these rules go by") == 1
