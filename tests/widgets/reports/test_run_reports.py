"""Reports of comparisons and sweeps: assumptions first, figures as in the frame, text of logs as text."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from builders import assistant, session, step, usage, user
from msgspec.structs import replace
from widgets.reports.hostile_logs import EVIL, hostile, intruders
from widgets.reports.page_reading import (
    PageTable,
    drop_scripts,
    list_texts,
    read_pairs,
    read_sections,
    read_table,
)
from widgets.reports.score_frames import BROKEN, RECORDED, TIGHT, scores, sweep_rows

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.experiments import SCORE_COLUMNS, Comparison
from ctxkit.widgets.reports.html_reports import (
    describe_runs_cost_accuracy,
    describe_session_cost_accuracy,
    describe_sweep_caveats,
    format_column_heading,
    format_score,
    list_failed_runs,
    list_run_columns,
    make_frontier_chart,
    render_comparison_report,
    render_largest_messages,
    render_runs_table,
    render_sweep_report,
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


def test_a_session_says_which_calls_missed_the_cache_and_which_have_a_price():
    known = grown("one")
    last = replace(known.log[-1], model="nobody-knows-it")
    for s, priced in (
        (known, []),
        (replace(known, log=(*known.log[:-1], last)), ["92 % of the billed calls"]),
    ):
        _, missed, *prices, counted = describe_session_cost_accuracy(s)
        assert missed == "0.0 % of the calls missed the cache without an explanation."
        assert [p.partition(" have")[0] for p in prices] == priced
        assert counted.startswith("Tokens are counted by o200k_base, whose plain count is +")


def test_the_accuracy_of_a_session_has_its_interval_and_ends_with_the_notes_of_its_log(monkeypatch):
    prediction = SimpleNamespace(error=0.2, low=0.1, high=0.3, why="Few calls.")
    monkeypatch.setattr(
        "ctxkit.widgets.reports.html_reports.predict_input_cost", lambda _: prediction
    )
    noted = replace(grown("one"), notes=("The log is torn.",))
    first, *_, last = describe_session_cost_accuracy(noted)
    assert "20.0 % too high; 80 % interval +10 % to +30 %. Few calls. The books close" in first
    assert first.endswith(" Differences in dollars of about that size mean nothing.")
    assert last == "The log is torn."
    replayed = describe_session_cost_accuracy(replace(session(user("x")), origin=noted))
    assert replayed[1:] == [first, *describe_session_cost_accuracy(noted)[1:]]


def test_a_session_without_messages_has_no_largest_ones():
    assert render_largest_messages(session()) == ""


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
        ("reserve_tokens", True, "True"),
        ("keep", "x" * 160, "x" * 160),
        ("keep", "x" * 161, "x" * 159 + "…"),
        ("keep", 0.25, "0.25"),
        ("cost_usd", 0.0034, "$0.0034"),
        ("compactions_n", None, "–"),
        ("retained", 0.0996, "10.0 %"),
        ("token_savings", -0.1, "-10 %"),
        ("retained", 0.0, "0.0 %"),
        ("rebound_calls", 1234.56, "1,234.6"),
        ("calls_to_first_write", 3, "3.0"),
        ("reserve_usd", 2.5, "2.5"),
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


# -- Pages of scores that are written down here: every section, table and sentence by hand.


def test_a_comparison_shows_each_section_of_its_figures():
    page = render_comparison_report(Comparison(scores(RECORDED, TIGHT, BROKEN)))
    assert list_texts("title", page) == list_texts("h1", page) == ["s-1: 3 settings compared"]
    assert (
        page.count(f'<h1>s-1: 3 settings compared</h1><p class="soft">ctxkit {ck.__version__}</p>')
        == 1
    )
    assert "newPlot(" not in page
    sections = read_sections(page)
    assert [*sections] == [
        *("What these figures rest on", "What each would have cost", "How the compactions held"),
        *("What was lost", "What is odd", "What failed", "All figures"),
    ]
    assert list_texts("li", sections["What these figures rest on"])[0].startswith("Open loop: ")
    costs = read_table(sections["What each would have cost"])
    assert costs.caption == "Dollars of prompts, replies and summaries, without those of subagents."
    assert costs.heads == [
        *(
            "rules",
            "calls",
            "prompt tokens",
            "peak tokens",
            "cost $",
            "real run low $",
            "real run high $",
        ),
        *("vs recorded", "input $", "output $", "summaries $"),
    ]
    assert costs.numbers == [h for h in costs.heads if h not in ("rules", "vs recorded")]
    assert costs.rows == [
        ["recorded", "1,200", "2,500,000", "90,000", "$3.50", "–", "–", "–", "$2.00", "$1.25", "$0.25"],
        ["<tight>", "1,200", "1,250,000", "45,000", "$1.75", "$1.80", "$2.40", "cheaper", "–", "–", "–"],
        ["broken", *["–"] * 10],
    ]  # fmt: skip
    held = read_table(sections["How the compactions held"])
    assert (held.caption, held.heads, held.rows[0]) == (
        "",
        ["rules", "compactions", "not paid back", "token savings", "message savings", "summary tokens",
         "refilled share", "is thrashing"],
        ["recorded", "2", "1", "50 %", "62 %", "4,100", "5.0 %", "no"],
    )  # fmt: skip
    assert held.numbers == held.heads[1:-1]
    assert held.rows[1] == ["<tight>", "5", *["–"] * 5, "yes"]
    lost = read_table(sections["What was lost"])
    assert lost.heads == [
        *(
            "rules",
            "items",
            "retained",
            "recoverable",
            "lost",
            "reused items",
            "needed lost",
            "needed later loss",
        ),
        *(
            "next interval loss",
            "regret",
            "at stake items",
            "summary recall",
            "user rules kept",
            "weighted loss",
        ),
    ]
    assert lost.rows[0] == [
        *("recorded", "40", "50 %", "20 %", "30 %", "10", "1", "10 %"),
        *("25 %", "2.0 %", "8", "75 %", "100 %", "15 %"),
    ]
    sentences = lost.caption.split(". ")
    assert [s.split(":")[0] for s in sentences if ":" in s] == [
        "Needed-later loss",
        "Regret",
        "Summary recall",
    ]
    odd = PageTable("", ["session", "rules", "note"], [["s-1", "<tight>", "<odd>"]], [])
    assert read_table(sections["What is odd"]) == odd
    failed = PageTable("", ["session", "rules", "why"], [["s-1", "broken", "no <window>"]], [])
    assert read_table(sections["What failed"]) == failed


def test_the_last_section_of_a_comparison_has_every_column_that_has_a_figure():
    sections = read_sections(render_comparison_report(Comparison(scores(RECORDED, TIGHT))))[
        "All figures"
    ]
    assert sections.startswith("<details><summary>Every column, with its meaning</summary>")
    table = read_table(sections)
    assert table.heads == ["figure", "recorded", "<tight>", "meaning"]
    assert table.numbers == ["recorded", "<tight>"]
    apart = {"session", "rules", "note", "error"}
    filled = {n for row in (RECORDED, TIGHT) for n, v in row.items() if v is not None} - apart
    assert [row[0] for row in table.rows] == [c.name for c in SCORE_COLUMNS if c.name in filled]
    by_name = {row[0]: row[1:] for row in table.rows}
    assert by_name["prompt_tokens"] == ["2,500,000", "1,250,000", "tokens of their prompts"]
    assert by_name["vs_recorded"][:2] == ["–", "cheaper"]
    long = scores(RECORDED | {"rules": "r" * 61, "session": "s" * 81})
    page = render_comparison_report(Comparison(long))
    assert list_texts("h1", page) == ["s" * 79 + "…: 1 setting compared"]
    assert read_table(read_sections(page)["All figures"]).heads[1] == "r" * 59 + "…"


def test_sections_of_a_comparison_without_figures_are_left_out():
    sections = read_sections(render_comparison_report(Comparison(scores(BROKEN))))
    assert [*sections] == ["What these figures rest on", "What failed", "All figures"]
    assert list_texts("li", sections["What these figures rest on"])[1:] == [
        "No run has a figure, so nothing could be checked."
    ]
    assert list_texts("h1", render_comparison_report(Comparison(scores()))) == [
        ": 0 settings compared"
    ]


def test_a_comparison_with_replays_charts_their_growth(comparison):
    page = render_comparison_report(comparison)
    assert [*read_sections(page)][1:4] == [
        *(
            "What each would have cost",
            "How the context would have grown",
            "How the compactions held",
        ),
    ]
    assert page.count('Plotly.newPlot("growth"') == 1
    assert len(page) > 4_000_000
    comparison = Comparison(scores(RECORDED))
    comparison.replays = {"recorded": session(user("go"))}
    page = render_comparison_report(comparison)
    assert "How the context would have grown" not in read_sections(page)
    assert len(page) < 100_000


def test_tables_of_runs_and_failures_have_bounded_rows_and_texts():
    rows = [
        RECORDED | {"rules": f"r{i}", "cost_usd": float(i), "error": f"e{i}"} for i in range(301)
    ]
    for n, caption in ((301, "The first 300 of 301. Dollars."), (300, "Dollars.")):
        table = read_table(
            render_runs_table(scores(*rows[:n]), ["cost_usd", "elongation"], caption="Dollars.")
        )
        assert (table.caption, table.heads, table.numbers) == (
            caption,
            ["rules", "cost $"],
            ["cost $"],
        )
        assert (len(table.rows), table.rows[0], table.rows[-1]) == (
            300,
            ["r0", "$0.00"],
            ["r299", "$299.00"],
        )
    assert len(list_failed_runs(scores(*rows))) == 300
    assert render_runs_table(scores(*rows[:1]), ["elongation"], caption="Dollars.") == ""
    for over, end in ((0, ""), (1, "…")):
        sizes = {name: n + over for name, n in (("session", 80), ("rules", 100), ("error", 300))}
        run = scores(RECORDED | {name: "x" * n for name, n in sizes.items()})
        (texts,) = list_failed_runs(run)
        assert [(len(t), t[-1]) for t in texts] == [
            (80, end or "x"),
            (100, end or "x"),
            (300, end or "x"),
        ]
        assert read_table(render_runs_table(run, ["cost_usd"])).rows[0][0] == texts[1]
    assert list_failed_runs(scores(TIGHT, RECORDED), "note") == [("s-1", "<tight>", "<odd>")]
    assert list_failed_runs(scores(TIGHT, RECORDED)) == []


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("cost_usd", "cost $"),
        ("compactions_n", "compactions"),
        ("not_paid_back_n", "not paid back"),
        ("vs_recorded", "vs recorded"),
        ("n_usd_share", "n usd share"),
    ],
)
def test_a_heading_is_the_name_of_its_column_in_words(name, heading):
    assert format_column_heading(name) == heading


def test_a_sweep_shows_each_section_of_its_figures():
    rows = sweep_rows()
    frame = scores(*rows, window=[9_000, 9_000, 4_000, 4_000, 1, 1], keep=["all"] * 6)
    page = render_sweep_report(frame)
    words = drop_scripts(page)
    assert list_texts("title", words) == list_texts("h1", words) == ["A sweep of context settings"]
    assert f'<p class="soft">ctxkit {ck.__version__}</p><dl class="facts">' in page
    assert read_pairs(page) == [
        ("runs", "6"),
        ("sessions", "2"),
        ("settings", "3"),
        ("failed", "2"),
    ]
    assert 'Plotly.newPlot("frontier"' in page
    assert len(page) > 4_000_000
    sections = read_sections(page)
    assert [*sections] == [
        *(
            "What these figures rest on",
            "Dollars against loss",
            "Settings",
            "What failed",
            "What is odd",
            "Runs",
        ),
    ]
    assert list_texts("li", sections["What these figures rest on"])[-2:] == [
        "Only 2 sessions: what holds here may not hold for others.",
        "2 of 6 runs failed and are in no mean.",
    ]
    settings = read_table(sections["Settings"])
    assert settings == PageTable(
        "Means over sessions with their 90 % intervals; on the Pareto front: dominated by none. *:"
        " fewer than 5 sessions.",
        ["rules", "on the Pareto front", "sessions", "failed", "cost $", "needed later, lost", "not paid back"],
        [
            ["small", "yes", "2*", "0", "$1.00", "40 % (30 % to 50 %)", "2.0"],
            ["big", "yes", "2*", "0", "$3.00 ($2.00 to $4.00)", "3.0 % (2.0 % to 4.0 %)", "1.5 (0.0 to 3.0)"],
            ["bad", "", "0*", "2", "–", "–", "–"],
        ],
        ["sessions", "failed", "cost $", "needed later, lost", "not paid back"],
    )  # fmt: skip
    assert read_table(sections["What failed"]).rows == [
        ["one", "bad", "no window"],
        ["two", "bad", "no window"],
    ]
    assert read_table(sections["What failed"]).heads == ["session", "rules", "why"]
    assert read_table(sections["What is odd"]).heads == ["session", "rules", "note"]
    assert read_table(sections["What is odd"]).rows == [["two", "big", "is odd"]]
    runs = read_table(sections["Runs"])
    assert (runs.caption, runs.heads) == (
        "",
        ["rules", "session", "window", "keep", "cost $", "prompt tokens", "peak tokens", "compactions",
         "not paid back", "needed later loss"],
    )  # fmt: skip
    assert runs.rows[0] == [
        "big",
        "one",
        "9,000",
        "all",
        "$2.00",
        "10,000",
        "5,000",
        "3",
        "0",
        "2.0 %",
    ]
    assert runs.rows[4] == ["bad", "one", "1", "all", *["–"] * 6]
    assert len(runs.rows) == 6
    assert list_run_columns(frame) == [
        *("session", "window", "keep", "cost_usd", "prompt_tokens", "peak_tokens"),
        *("compactions_n", "not_paid_back_n", "needed_later_loss"),
    ]


def test_a_sweep_of_enough_sessions_has_no_star_and_no_caveat(monkeypatch):
    rows = [
        {"session": f"s{i}", "rules": "r", "cost_usd": 1.0, "needed_later_loss": 0.5}
        for i in range(5)
    ]
    assert describe_sweep_caveats(scores(*rows)) == []
    assert make_frontier_chart(scores(*rows)).title == "Needed-later loss against cost in dollars"
    settings = read_table(read_sections(render_sweep_report(scores(*rows)))["Settings"])
    assert settings.rows == [["r", "", "5", "0", "$1.00", "50 %", "–"]]
    monkeypatch.setattr("ctxkit.widgets.reports.html_reports.MAX_ROWS", 3)
    many = [
        {"session": "s", "rules": f"r{i:03}" + "x" * 97, "cost_usd": float(i)} for i in range(4)
    ]
    sections = read_sections(render_sweep_report(scores(*many)))
    assert [*sections] == ["What these figures rest on", "Settings", "Runs"]
    settings = read_table(sections["Settings"])
    assert [row[0] for row in settings.rows] == [f"r{i:03}" + "x" * 95 + "…" for i in range(3)]
    assert make_frontier_chart(scores(*many)) is None


def test_the_caveats_of_a_sweep_are_said_one_by_one():
    four = [{"session": f"s{i}", "rules": "r", "needed_later_loss": 0.5} for i in range(4)]
    few, no_loss = (
        "what holds here may not hold for others.",
        "so the cheapest setting may lose the most.",
    )
    assert describe_sweep_caveats(scores(*four)) == [f"Only 4 sessions: {few}"]
    assert describe_sweep_caveats(scores(four[0])) == [f"Only 1 session: {few}"]
    again = {"session": "s3", "rules": "other", "needed_later_loss": None}
    assert describe_sweep_caveats(scores(*four, again)) == [f"Only 4 sessions: {few}"]
    partly = scores(four[0], *({"session": f"t{i}", "rules": "r"} for i in range(4)))
    partly.attrs["interrupted"] = False
    assert describe_sweep_caveats(partly) == []
    bare = scores(
        *(row | {"needed_later_loss": None} for row in four), {"session": "s4", "rules": "r"}
    )
    assert describe_sweep_caveats(bare) == [
        f"Loss was not worked out (loss=True of a sweep does), {no_loss}"
    ]
    stopped = scores(*four, {"session": "s4", "rules": "r", "error": "why"})
    stopped.attrs["interrupted"] = True
    assert describe_sweep_caveats(stopped) == [
        "The sweep was interrupted: not every session met every setting.",
        "1 of 5 runs failed and are in no mean.",
    ]


OPEN_LOOP = (
    "Open loop: a replay keeps the recorded trajectory. It tells the bill and what was out of sight when the"
    " record needed it, not what the agent would have done instead."
)
MEAN_NOTHING = " Differences in dollars of about that size mean nothing."
UNKNOWN = (
    "Prediction error: unknown. Without a cache split and known prices the cache model cannot be checked against"
    " the record, so trust its dollars less than their order."
)
PREDICTED = "The cost model, which does not see this session's cache reads, predicts its input cost"


def books(close):
    return f" The books close within {close}, which says that prices are put right, and no more."


@pytest.mark.parametrize(
    ("rows", "sentences"),
    [
        ([{}], [UNKNOWN, "Tokens are counted by c; no recorded usage shows how far off that is."]),
        (
            [{"prediction_error": -0.03, "prediction_low": -0.1, "prediction_high": 0.05, "closure_error": -0.0012,
                  "prediction_note": "Few calls.", "unexplained_miss_share": 0.0125, "priced_share": 1.0, "counter_error": -0.04}],
            [
                f"Prediction error: {PREDICTED} 3.0 % too low; 80 % interval -10 % to +5 %. Few calls.{books('0.12 %')}",
                "1.2 % of the calls missed the cache without an explanation.",
                ("Tokens are counted by c, whose plain count is -4 % off the recorded growth; sizes are scaled to the"
                " recorded usage where there is one."),
            ],
        ),
        (
            [{"prediction_error": 0.031, "priced_share": 0.5}],
            [
                f"Prediction error: {PREDICTED} 3.1 % too high.{MEAN_NOTHING}",
                "50 % of the billed calls have a price; without one, dollars are missing.",
                "Tokens are counted by c; no recorded usage shows how far off that is.",
            ],
        ),
        (
            [
                {"session": "a", "prediction_error": 0.01, "closure_error": 0.002, "unexplained_miss_share": 0.5,
                     "priced_share": 1.0, "counter_error": 0.05},
                {"session": "b", "prediction_error": -0.05, "closure_error": -0.01, "unexplained_miss_share": 0.1,
                     "priced_share": 0.6, "counter_error": -0.02, "counter": "d"},
                {"session": "c", "prediction_error": 0.02, "unexplained_miss_share": 0.2, "counter": "d"},
                {"session": "e"},
                {"session": "a", "rules": "other", "prediction_error": 9.0},
                {"session": "f", "prediction_error": 9.0, "counter": None},
            ],
            [
                ("Prediction error, without the reads of the session: median 2.0 %, largest -5.0 % (b), over 3 of 4"
                f" sessions.{books('1.00 %')}{MEAN_NOTHING}"),
                "20.0 % of the calls missed the cache without an explanation (the most of a session: 50.0 %).",
                "80 % of the billed calls have a price; without one, dollars are missing.",
                ("Tokens are counted by c, d, whose plain count is -2 % to +5 % off the recorded growth; sizes are"
                " scaled to the recorded usage where there is one."),
            ],
        ),
        (
            [{"session": "a", "unexplained_miss_share": 0.5}, {"session": "b", "unexplained_miss_share": 0.1}],
            [
                UNKNOWN,
                "30.0 % of the calls missed the cache without an explanation (the most of a session: 50.0 %).",
                "Tokens are counted by c; no recorded usage shows how far off that is.",
            ],
        ),
        ([{"counter": None}], ["No run has a figure, so nothing could be checked."]),
    ],
    ids=["nothing known", "one session", "a large error", "several sessions", "two sessions", "no run"],
)  # fmt: skip
def test_each_sentence_on_accuracy_says_its_figure(rows, sentences):
    frame = scores(*({"session": "a", "rules": "r", "counter": "c"} | row for row in rows))
    assert describe_runs_cost_accuracy(frame) == [OPEN_LOOP, *sentences]
