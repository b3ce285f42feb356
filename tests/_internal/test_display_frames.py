"""Frames with a display: a sentence above at most eight columns, and still frames."""

from __future__ import annotations

import pickle
import re
from html import unescape

import pandas as pd
import pytest
from magics.ipython_shells import new_shell
from widgets.reports.hostile_logs import hostile, intruders

import ctxkit as ck
from ctxkit._internal import display_width
from ctxkit._internal.data_frame_display import DisplayFrame
from ctxkit.experiments import display_advice
from ctxkit.experiments.score_columns import _SCORE_ROWS
from ctxkit.formats.archive_and_search import _searchable_text

BILLING = ck.samples.path("billing")
RULES = ["pi", "codex", "strands", "inspect_edit"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    folder = home / ".pi" / "agent" / "sessions" / "work"
    folder.mkdir(parents=True)
    ck.write(ck.read(BILLING), folder / "one.jsonl", "pi")
    return home


@pytest.fixture(scope="module")
def shown(home):
    """Each frame with a display, by the call that makes it."""
    shell = new_shell()
    shell.run_line_magic("load_ext", "ctxkit")

    def context(line):
        return shell.run_line_magic("context", line)

    context(f"use {BILLING}")
    paths = [BILLING, ck.samples.path("research")]
    return {
        "sweep": ck.sweep(paths, RULES, loss=True, progress=False),
        "sweep without loss": ck.sweep(BILLING, RULES, progress=False),
        "advise": ck.advise(BILLING, RULES, progress=False),
        "advise on six": ck.advise(ck.samples.paths(), RULES, progress=False),
        "score": ck.score(BILLING),
        "calibrate": ck.calibrate(BILLING),
        "validate": ck.validate({"COMPACT_TRIGGER": "many"}, system="pulse_coder"),
        "find": ck.find(BILLING, "credit"),
        "find nothing": ck.find(BILLING, "no such words"),
        "discover": ck.discover(home),
        "discover nothing": ck.discover(home / "nothing"),
        "compare": ck.compare(BILLING, RULES, progress=False),
        "context list": context("list"),
        "context user": context("user"),
        "context checkpoints": context("checkpoints"),
    }


NAMES = [
    "sweep", "sweep without loss", "advise", "advise on six", "score", "calibrate", "validate",
    "find", "find nothing", "discover", "discover nothing", "compare", "context list", "context user",
    "context checkpoints",
]  # fmt: skip


def table_of(frame):
    return frame.summary if hasattr(frame, "summary") else frame.display.table


def test_each_of_them_is_looked_at(shown):
    assert list(shown) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_at_most_eight_columns_are_shown_the_same_in_text_and_html(shown, name):
    table = table_of(shown[name])
    assert len(table.heads) <= 8
    text, html = repr(shown[name]), shown[name]._repr_html_()
    assert max(map(display_width, text.split("\n"))) <= 80
    assert 'class="dataframe"' not in html
    if table.rows:
        for head in table.heads:
            assert head.spare or re.search(rf"\b{re.escape(head.name)}\b", text)
            assert head.name in html


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_stands_above_the_table(shown, name):
    first = repr(shown[name]).split("\n\n")[0]
    assert first.rstrip().endswith(".") or "Context: " in first
    assert " ".join(first.split())[:40] in unescape(shown[name]._repr_html_())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "calibrate"])
def test_they_are_frames_and_detail_has_all(shown, name):
    frame = shown[name]
    kind = pd.Series if name == "score" else pd.DataFrame
    assert isinstance(frame, kind)
    assert type(frame.head(2)) is kind
    if name != "compare":
        assert type(frame.detail) is kind
        assert frame.detail.equals(kind(frame))
    again = pickle.loads(pickle.dumps(frame))
    assert repr(again) == repr(frame)
    assert again.attrs == frame.attrs


def test_texts_of_a_log_stay_text(tmp_path):
    ck.write(hostile(), tmp_path / "evil.jsonl")
    for frame in (
        ck.find(tmp_path, "script"),
        ck.score(hostile()),
        ck.sweep([hostile()], ["none"], loss=True, progress=False),
    ):
        assert isinstance(frame, DisplayFrame) or frame.ndim == 1
        assert intruders(frame._repr_html_()) == []
        assert "\x1b" not in repr(frame)


def test_texts_that_were_found_start_and_end_at_a_word():
    found = ck.find(BILLING, "credit")
    session = ck.read(BILLING)
    for position, text in zip(found["position"], found["text"], strict=True):
        whole = " ".join(_searchable_text(session.path[position]).split())
        part = " ".join(text.strip("…").split())
        at = whole.find(part)
        if at <= 0:
            continue
        assert whole[at - 1].isspace(), (whole[at - 20 : at + 20], text)
    assert (found["text"].str.startswith("…")).any()


def test_the_verdict_of_a_sweep_says_that_its_winner_thrashes(shown):
    alone = ck.sweep(BILLING, ["pi"], loss=True, progress=False)
    assert " ".join(repr(alone).split("\n\n")[0].split()) == (
        "Cheapest: pi, $6.29, 9 % lost, but it thrashes. 1 session says little about others."
    )
    both = ck.sweep([BILLING, ck.samples.path("research")], ["pi"], loss=True, progress=False)
    assert "but it thrashes in 1 of 2 runs" in " ".join(repr(both).split())


def test_a_config_file_is_judged_in_a_sentence(shown):
    assert repr(shown["validate"]).startswith("The system would not start: 1 error")
    fine = ck.validate({"KEEP_LAST_TURNS": "2"}, system="pulse_coder")
    assert repr(fine) == "No fault was found: the system would start with these settings."


def test_a_long_frame_says_how_much_is_not_shown():
    found = ck.find(BILLING, "e")
    assert len(found) > 20
    assert f"The first 20 of {len(found):,} rows: .detail" in repr(found)
    html = found._repr_html_()
    assert html.count("<tr") == 21
    assert "max-height" not in html  # no row is cut, and none is below an edge without a sign
    assert len(found.display.table.rows) == 20


def test_the_sweep_names_both_ends_and_takes_a_bound(shown):
    verdict = " ".join(repr(shown["sweep"]).split("\n\n")[0].split())
    assert verdict.startswith("Cheapest: strands, $1.64, 65 % lost. Loses least: inspect_edit")
    bounded = ck.sweep([BILLING], RULES, loss=True, progress=False, max_loss=0.1)
    assert repr(bounded).startswith("Cheapest of those that lose no more than 10 %: inspect_edit,")


def test_a_sweep_says_of_each_setting_what_its_sentence_says():
    rules = ["pi", "codex", "claude_code", "none"]
    shown = ck.sweep(BILLING, rules, loss=True, progress=False).display
    assert shown.verdict.startswith("Cheapest that does not thrash: codex, $3.32")
    assert {row[0].text: row[-1].text for row in shown.table.rows} == {
        "claude_code": "cheapest of all; thrashes",
        "codex": "cheapest that does not thrash",
        "none": "over window, left out",
        "pi": "loses least; thrashes",
    }
    assert {cell.tone for cell in shown.table.rows[2]} == {"grey"}
    assert not {"from", "to"} & {head.name for head in shown.table.heads}


def test_one_session_is_answered_and_says_how_little_it_carries(shown):
    text = " ".join(repr(shown["advise"]).split())
    assert text.startswith(
        "Cheapest of those that lose no more than 69 % (5 points above the 64 % that compacting at "
        "the window puts at stake): codex, $3.32, 57 % lost."
    )
    assert "Saved: against no compaction at all" in text
    assert [head.name for head in shown["advise"].display.table.heads] == [
        "rules", "cost", "saved", "lost", "not paid back",
    ]  # fmt: skip
    assert "This holds for this one session and says little about the next: advice needs 5." in text
    assert shown["advise"]["advised"].tolist() == [False] * 3


def test_advice_of_one_row_is_displayed(shown):
    """Where one setting is both the cheapest and the one that loses least, it is the whole front."""
    text = " ".join(display_advice(shown["advise"].tail(1)).to_text().split())
    assert text.startswith(
        "Cheapest of those that lose no more than 69 % (5 points above the 64 % that compacting at "
        "the window puts at stake): inspect_edit, $3.44, 0 % lost. This holds for this one session "
        "and says little about the next: advice needs 5. rules "
    )
    text = " ".join(display_advice(shown["advise"].head(1)).to_text().split())
    assert (
        "Cheapest of all: strands, $1.19, 81 % lost. No other loses less. This holds for this one "
        "session and says little about the next: advice needs 5. rules "
    ) in text


def test_advice_begins_with_the_setting_that_is_advised(shown):
    advice = shown["advise on six"]
    first = advice[advice["advised"]]["advice"].iloc[0] if advice["advised"].any() else "Nothing is"
    assert " ".join(repr(advice).split()).startswith(" ".join(first.split()))


def test_what_is_advised_on_needs_usage_and_prices():
    talk = [{"role": "user", "content": "Sum up."}, {"role": "assistant", "content": "Done."}]
    with pytest.raises(ck.BadArguments, match="Advice needs sessions with text, usage and prices"):
        ck.advise([ck.read(talk)], RULES, progress=False)


def test_each_figure_of_a_display_is_a_column_of_its_frame():
    """A name that is in no score would be left out of the display without a word."""
    from ctxkit.experiments import SCORE_COLUMN_NAMES

    assert {name for name, _ in _SCORE_ROWS} <= set(SCORE_COLUMN_NAMES)
