"""Estimates against what a provider counted."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from builders import assistant, result, session, tool_call, usage, user
from msgspec.structs import replace

import ctxkit as ck
from ctxkit import tokens
from ctxkit.errors import BadArguments
from ctxkit.plots import calibration, calibration_data
from ctxkit.session import Attachment, Message, Text, Usage


def grown(*, ratio: float = 2.0, calls: int = 6):
    """A session whose provider counts `ratio` tokens for every four characters; 500 tokens are in no log."""
    log, prompt = [user("x" * 400)], 500 + round(100 * ratio)
    for i in range(calls):
        reply = assistant(
            "",
            tool_call("read", f"c{i}", path="y" * 387),
            usage=usage(prompt, output=round(100 * ratio)),
        )
        log += [reply, result("z" * 800, reply)]
        prompt += round(100 * ratio) + round(200 * ratio)
    return session(*log)


def test_the_error_is_known_by_estimator_and_kind():
    c = ck.calibrate(grown(), ["chars/4", "chars/2"])
    assert c.error("chars/4") == pytest.approx(-0.5, abs=0.01)
    assert c.error("chars/2") == pytest.approx(0.0, abs=0.01)
    assert c.error("chars/4", "tool results") == pytest.approx(-0.5)
    assert c.error("chars/4", "tool calls") == pytest.approx(-0.5, abs=0.01)
    assert pd.isna(c.error("chars/4", "user input"))
    assert set(c.kinds[c.kinds["kind"] == "all content"]["source"]) == {"recorded"}
    assert "-50 %" in repr(c)
    assert "-50 %" in c._repr_html_()


def test_a_calibration_says_first_which_estimator_is_closest_and_when_it_fires():
    c = ck.calibrate(grown(), ["chars/4", "chars/2"], thresholds=[3000])
    lines = repr(c).splitlines()
    assert lines[0].startswith("chars/2 is closest to the provider's counts: within 1 %")
    assert "chars/4 is furthest, 50 % too low." in repr(c).replace("\n", " ")
    assert "A trigger at 3,000 tokens by chars/2 fires in time." in repr(c).replace("\n", " ")
    rows = [line.split() for line in lines if line.startswith("chars/")][1:]
    assert [row[0] for row in rows] == ["chars/2", "chars/4"]  # the closest first
    assert rows[1][-1] == "never"
    head = next(line for line in lines if line.startswith("estimator "))
    assert re.split(" {2,}", head) == [
        *("estimator", "error", "tool results", "tool calls", "calls late"),
    ]
    html = c._repr_html_()
    assert re.findall('title="([^"]*)">([a-z ]+)</th>', html.partition("</thead>")[0])[1:] == [
        ("of all content: below zero the estimate is too low", "error"),
        ("error of tool results alone", "tool results"),
        ("error of tool calls alone", "tool calls"),
        ("of a trigger at 3,000 tokens", "calls late"),
    ]
    assert html.count("<th") <= 8
    assert c.detail is c.kinds


def test_a_calibration_of_prompts_that_never_grew_says_that_errors_are_unknown():
    shrinking = session(user(), assistant(usage=usage(900)), user(), assistant(usage=usage(800)))
    assert "the errors are unknown" in repr(ck.calibrate(shrinking, ["chars/4"]))


def billed_by_a_tokenizer(text):
    """A talk of one text, its usage counted by the tokenizer of a model."""
    counter, rows, size = tokens.get_counter("o200k_base"), [], 0
    for _ in range(6):
        ask, reply = user(text * 6), assistant(text * 2)
        size += counter.message(ask)
        rows += [ask, replace(reply, usage=usage(size, output=counter.message(reply)))]
        size += counter.message(reply)
    return session(*rows)


def test_other_languages_and_structured_text_are_where_it_is_most_off():
    """P8: Characters divided by four: their error on prose, on another language, on JSON."""
    rows = [{"id": n, "at": f"2027-01-{n:02}T08:{n}:00Z", "v": n * 1.37} for n in range(1, 20)]
    texts = ("The reader asks for the report of the last quarter. ", "读者要求提供上一季度的报告。",
             json.dumps(rows))  # fmt: skip
    prose, chinese, table = (
        ck.calibrate(billed_by_a_tokenizer(text), ["chars/4"]).error("chars/4") for text in texts
    )
    assert abs(prose) < 0.3
    assert chinese < -0.5
    assert table < -0.4


def test_a_low_estimate_fires_late_or_never():
    c = ck.calibrate(grown(), ["chars/4"], thresholds=[1100, 3000])
    first, last = (row for _, row in c.triggers.iterrows())
    assert c.calls["recorded"].to_list() == [700, 1300, 1900, 2500, 3100, 3700]
    assert (
        first.recorded_call,
        first.estimated_call,
        first.calls_late,
        first.tokens_at_estimate,
    ) == (1, 2, 1, 1900)
    assert last.recorded_call == 4
    assert pd.isna(last.estimated_call)


def test_a_high_estimate_fires_early():
    """P22: Calls by which it is early are below 0, and the prompt of then is the recorded one."""
    c = ck.calibrate(grown(), [tokens.estimated_counter(1)], thresholds=[3000])
    (row,) = (row for _, row in c.triggers.iterrows())
    assert (row.recorded_call, row.estimated_call, row.calls_late) == (4, 2, -2)
    assert row.tokens_at_estimate == 1900


def test_what_cannot_be_calibrated_is_told():
    with pytest.raises(BadArguments, match="fewer than two"):
        ck.calibrate(session(user(), assistant()))
    with pytest.raises(BadArguments):
        ck.calibrate([grown()])
    with pytest.raises(BadArguments):
        ck.calibrate(grown(), ["chars/5", "nonsense"])
    with pytest.raises(BadArguments, match="chars/4"):
        ck.calibrate(grown(), ["chars/4"]).error("pi")


def bill(prompt, output):
    return usage(prompt, output=output)


@pytest.fixture(scope="module")
def mixed():
    """The errors of chars/4 on five calls, whose growth is of several kinds of content."""
    call = tool_call("read", "c", path="a")
    parts = (Text("see"), Attachment())
    log = session(
        user("x" * 40),
        assistant("r" * 80, usage=bill(1_000, 30)),
        user("q" * 40),
        assistant("", call, usage=bill(1_050, 20)),
        *(result("z" * 400, call), user("m" * 40)),
        assistant("t" * 80, usage=bill(2_000, 25)),
        user("k" * 40),
        Message(role="assistant", id="picture", parts=parts, usage=bill(3_000, 40)),
        result("l" * 40, "no call"),
        assistant("end", usage=bill(3_100, 5)),
        id="mixed",
    )
    return ck.calibrate(log, ["chars/4"])


def test_growth_is_split_into_the_reply_and_what_came_after_it(mixed):
    assert mixed.session == "mixed"
    rows = mixed.kinds.drop(columns=["estimator", "error"]).to_numpy().tolist()
    assert rows == [
        # the growth of 50, 950, 1,000 and 100 tokens; a picture counts 1,200
        ["all content", 2_100, (80 + 40 + 400 + 40 + 80 + 40 + 40) // 4 + 4 + 1_201, 4, "recorded"],
        ["mixed", 950 - 20, (400 + 40) // 4, 1, "derived"],
        ["other", 40, 1_201, 1, "derived"],
        ["replies", 30 + 25, (80 + 80) // 4, 2, "derived"],
        ["tool calls", 20, 4, 1, "derived"],
        ["tool results", 100 - 40, 40 // 4, 1, "derived"],
        ["user input", 50 - 30 + 1_000 - 25, (40 + 40) // 4, 2, "derived"],
    ]
    assert mixed.error("chars/4", "replies") == pytest.approx(40 / 55 - 1)
    assert mixed.table().loc["chars/4"].to_dict() == {
        row["kind"]: row["error"] for _, row in mixed.kinds.iterrows()
    }
    # shares of the largest prompt; the estimates are 995, 1,025, 1,139, 1,169 and 2,380
    assert mixed.triggers.astype(object).to_numpy(na_value=None).tolist() == [
        ["chars/4", 775, 0, 0, 0, 1_000],
        ["chars/4", 1_550, 2, 4, 2, 3_100],
        ["chars/4", 2_325, 3, 4, 1, 3_100],
        ["chars/4", 2_790, 3, None, None, None],
    ]
    # the four kinds of most tokens are columns
    head = next(line for line in repr(mixed).splitlines() if line.startswith("estimator "))
    assert re.split(" {2,}", head)[2:-1] == ["user input", "mixed", "tool results", "replies"]


@pytest.mark.parametrize(
    ("estimator", "threshold", "fires"),
    [
        (4, 1_100, "A trigger at 1,100 tokens by chars/4 fires 1 call late."),
        (1, 3_000, "A trigger at 3,000 tokens by chars/1 fires 2 calls early."),
        (2, 1_300, "A trigger at 1,300 tokens by chars/2 fires in time."),
        (4, 3_000, "A trigger at 3,000 tokens by chars/4 never fires in this session."),
    ],
)
def test_the_answer_says_when_a_trigger_on_the_closest_estimate_fires(estimator, threshold, fires):
    errors = ck.calibrate(grown(), [tokens.estimated_counter(estimator)], thresholds=[threshold])
    assert " ".join(repr(errors).split("\n\n")[0].split()).endswith(f"over 6 calls. {fires}")


@pytest.mark.parametrize(
    "hidden",
    [
        {"usage": Usage(input_tokens=100, output_tokens=30, reasoning_tokens=20)},
        {"thinking": "a"},
        {"usage": Usage(input_tokens=100)},
    ],
)
def test_a_reply_of_unknown_size_is_no_sample_of_its_kind(hidden):
    reply = assistant("r" * 80, **{"usage": bill(100, 30)} | hidden)
    log = session(user("x"), reply, user("q" * 40), assistant("end", usage=bill(200, 1)))
    assert ck.calibrate(log, ["chars/4"]).kinds["kind"].tolist() == ["all content"]


def test_hidden_reasoning_is_not_taken_for_content():
    log = [user()]
    for i in range(3):
        log.append(
            assistant("a" * 40, thinking="t" * 4000, usage=usage(100 + 100 * i, output=1100))
        )
        log.append(user("b" * 360))
    c = ck.calibrate(session(*log), ["chars/4"])
    assert set(c.kinds["kind"]) == {"all content"}


def test_pi_counts_a_quarter_too_low_on_its_own_session(real):
    (s,) = ck.read_all(real / "pi" / "before-compaction.jsonl")
    c = ck.calibrate(s)
    assert (
        -0.30 < c.error("chars/4") < -0.20
    )  # the provider counted 1.31 tokens for each estimated one
    assert -0.30 < c.error("pi") < -0.20
    late = c.triggers[c.triggers["estimator"] == "chars/4"]["calls_late"]
    assert late.iloc[0] > 0
    assert late.fillna(10**6).is_monotonic_increasing
    assert abs(c.error("pi")) > abs(c.error("tyrum"))


def test_the_chart_shows_what_the_calibration_says():
    c = ck.calibrate(grown(), ["chars/4", tokens.estimated_counter(2)])
    data = calibration_data(c)
    assert data.recorded == tuple(c.calls["recorded"])
    assert [e.name for e in data.estimates] == ["chars/4", "chars/2"]
    assert data.threshold == round(0.9 * 3700)
    assert data.estimates[0].fires is None
    chart = calibration(c)
    assert [t["name"] for t in chart.to_plotly()["data"]][:3] == ["recorded", "chars/4", "chars/2"]
    assert "never" in chart.to_text()
    assert calibration_data(grown()).calls == data.calls


def test_prompts_of_one_small_size_have_one_threshold():
    def reply(words):
        return assistant(words, usage=usage(1, output=1))

    same = session(user("a"), reply("b"), user("c"), reply("d"), user("e"), reply("f"))
    found = ck.calibrate(same)
    assert not found.triggers.duplicated(["estimator", "threshold"]).any()
    assert "fires at call" in calibration(found).to_text()
