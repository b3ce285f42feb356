"""Summaries without a model."""

from __future__ import annotations

import pytest
from builders import assistant, call, result, step, summarised, user
from random_sessions import shown

from ctxkit.errors import BadArguments
from ctxkit.policies import (
    CUE_PATTERN,
    ExtractiveSummariser,
    FixedSizeSummariser,
    SummariserInput,
    offline_summarisers,
)
from ctxkit.policies.texts import message_lines_for_extracts
from ctxkit.session import Message, Text

# ruff: noqa: PT018  settings read best as keywords, twins of a rule in one line


TALK = (
    user(
        "We ship the billing service. It must never round up. See src/billing/rates.py for the table."
    ),
    assistant(
        "I will look at the table first.",
        call("read_file", path="src/billing/rates.py").tool_calls[0],
    ),
    assistant("Fine weather today. It is a nice day. All is well. Nothing to see."),
    result("Traceback: ZeroDivisionError in rates.py line 40", "x", "shell", is_error=True),
    assistant("Decided: use Decimal instead of float because of rounding."),
)


def passage(*log, **more):
    h = shown(*log)
    return SummariserInput(h, len(h), **more)


def test_an_extract_keeps_facts_in_order_within_its_room():
    text = ExtractiveSummariser(tokens=70, share=1.0)(passage(*TALK))
    assert len(text) <= 70 * 3.5
    assert "never round up" in text and "Decimal" in text and "weather" not in text
    assert text.index("never round up") < text.index("Decimal")
    assert all(
        line.split(":")[0] in ("User", "Assistant", "Call", "Result of shell")
        for line in text.splitlines()
    )


def test_an_extract_is_the_same_each_time_and_respects_the_limit():
    assert ExtractiveSummariser()(passage(*TALK)) == ExtractiveSummariser()(passage(*TALK))
    assert len(ExtractiveSummariser(share=1.0)(passage(*TALK, limit=20))) <= 70


def test_repeats_are_said_once():
    text = ExtractiveSummariser(share=1.0)(
        passage(
            *(user("Always run the linter before you commit.") for _ in range(9)), user("Use tabs.")
        )
    )
    assert text.count("linter") < 9 and "tabs" in text


def test_nothing_readable_gives_nothing():
    assert ExtractiveSummariser()(passage(user(""))) == ""


def test_what_has_no_words_is_said_as_it_stands():
    assert (
        ExtractiveSummariser().extract([user("y"), assistant("?")], 100) == "User: y\nAssistant: ?"
    )
    assert ExtractiveSummariser().extract([user("one long line " * 9)], 4) == "User: one long"
    messages = iter([user("y"), assistant("?")])  # read once
    assert ExtractiveSummariser().extract(messages, 100) == "User: y\nAssistant: ?"


def test_what_has_no_words_is_cut_at_the_budget():
    """3.5 characters per token, of the messages one per line."""
    whole = "User: ???\nAssistant: !\nUser: !!!"
    messages = [user("???"), assistant("!"), user("!!!")]
    made = [ExtractiveSummariser().extract(messages, tokens) for tokens in range(1, 12)]
    assert made == [whole[: int(3.5 * tokens)] for tokens in range(1, 12)]


def test_a_large_passage_stays_quick_and_bounded():
    text = ExtractiveSummariser(tokens=200)(
        passage(*(user(f"Fact {n}: value {n * 7} in file src/f{n}.py.") for n in range(1500)))
    )
    assert 300 < len(text) <= 700


def test_sizes_without_text():
    p = passage(*TALK)
    assert (
        FixedSizeSummariser(500)(p) == 500
        and FixedSizeSummariser(500)(passage(*TALK, limit=90)) == 90
    )
    assert offline_summarisers.InputShareSummariser(0.5, cap=4000, floor=1)(p) == round(
        0.5 * p.tokens
    )
    assert (
        offline_summarisers.InputShareSummariser(0.5, cap=20, floor=1)(p) == 20
        and offline_summarisers.InputShareSummariser(0.01, floor=30)(p) == 30
    )


def test_the_recorded_summary_stands_where_the_cut_coincides():
    old = [user("x" * 90), assistant("y" * 90)]
    h = shown(*old, user("next"))
    edit = summarised(old, "What was recorded.")
    h.log.recorded.append((1, edit))
    h = h.at(1)
    assert (
        offline_summarisers.RecordedSummariser()(SummariserInput(h, 2)).text == "What was recorded."
    )
    assert (
        offline_summarisers.RecordedSummariser(FixedSizeSummariser(7))(SummariserInput(h, 1)) == 7
    )
    assert (
        offline_summarisers.RecordedSummariser(FixedSizeSummariser(7))(SummariserInput(h.at(0), 1))
        == 7
    )  # not yet recorded at call 0


def test_a_passage_leaves_out_what_stays():
    h = shown(user("a"), user("b", pinned=True), *step())
    p = SummariserInput(h, len(h))
    assert p.messages[0].text == "a"
    assert len(p.messages) == 3
    assert p.previous is None
    new = h.summarise(1, "Earlier.")
    assert SummariserInput(new, 2).previous.text == "Earlier."


@pytest.mark.parametrize(
    ("words", "made"),
    [
        ("extractive:800", ExtractiveSummariser(800)),
        ("fixed:90", FixedSizeSummariser(90)),
        ("share:0.2:50:9", offline_summarisers.InputShareSummariser(0.2, 50, 9)),
    ],
)
def test_summarisers_have_names(words, made):
    assert offline_summarisers.parse_summariser(words) == made


@pytest.mark.parametrize("words", ["fixd:3", "fixed:many", "fixed:1:2:3"])
def test_wrong_names_are_refused(words):
    with pytest.raises(BadArguments):
        offline_summarisers.parse_summariser(words)


# -- No text makes the extractive summary slow: a long word without a cue is looked at once.


def test_a_megabyte_without_a_space_is_one_scan():
    assert CUE_PATTERN.search("y" * 1_000_000) is None
    assert ExtractiveSummariser().extract([user("z" * 1_000_000)], 100).startswith("User: zzz")


def test_a_path_is_still_a_cue():
    assert CUE_PATTERN.search("look at src/app.py")


def test_messages_without_a_log_are_read_once_for_several_extracts(monkeypatch):
    """Their index is kept until other messages are extracted, unless it has too many lines."""
    read, plain = [], message_lines_for_extracts.extract_line_words
    monkeypatch.setattr(
        message_lines_for_extracts,
        "extract_line_words",
        lambda text: read.append(text) or plain(text),
    )

    def count_lines_read(messages, tokens):
        read.clear()
        ExtractiveSummariser().extract(messages, tokens)
        return len(read)

    first, second = ([user(f"Part {n}. Never touch {n}.")] for n in range(2))
    assert [count_lines_read(first, 10), count_lines_read(first, 20)] == [2, 0]
    assert [count_lines_read(second, 10), count_lines_read(first, 10)] == [2, 2]
    first_result = {"role": "tool", "tool": "ls", "parts": (Text("Never touch it."),)}
    for other, lines_n in (
        ({}, 1),
        ({"tool": "cat"}, 2),
        ({"is_error": True}, 2),
        ({"parts": (Text("Never."),)}, 2),
        ({"role": "assistant", "tool": None}, 2),
    ):
        pair = [Message(**first_result), Message(**first_result | other)]
        assert count_lines_read(pair, 50) == lines_n  # an equal result is read once
    monkeypatch.setattr(message_lines_for_extracts, "MAX_CACHED_LINES", 2)
    assert [count_lines_read(second, 10), count_lines_read(second, 20)] == [2, 2]
