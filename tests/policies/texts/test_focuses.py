"""A focus moves the extract without a model, and a last line says how much was kept."""

from __future__ import annotations

import re

import pytest
from builders import assistant, result, summarised, tool_call, user
from extract_reference import extract as by_definition
from hypothesis import given
from hypothesis import strategies as st
from random_sessions import shown

from ctxkit.policies import FOCUS_MARK, ExtractiveSummariser, SummariserInput, Summary
from ctxkit.policies.texts import message_lines_for_extracts as line_index
from ctxkit.policies.texts import summary_prompts_and_audits, tfidf_extracts_and_focus
from ctxkit.policies.texts.tfidf_extracts_and_focus import parse_focus
from ctxkit.tokens import ContextBudget

IDS = [f"order-{n * 7919:05d}" for n in range(1, 13)]
TALK = [
    *(
        user(f"You must always fix the billing of src/part{n}/rates.py, it failed, never round up.")
        for n in range(40)
    ),
    *(assistant(f"It went to {name}.", tool_call("look", at=f"shelf {name}")) for name in IDS),
    *(
        assistant(f"Decided: the error in module{n} is fixed next, it should be done.")
        for n in range(40)
    ),
]


def told(focus, **more):
    history = shown(*TALK)
    return SummariserInput(
        history,
        len(history),
        instructions=summary_prompts_and_audits.format_identifier_instructions("off", focus=focus),
        **more,
    )


def held(text):
    return sum(name in text for name in IDS)


@pytest.mark.parametrize(
    ("focus", "near", "far"),
    [
        (
            "keep the ids",
            ["order-07919", "7f3a99b2", "id", "user_id", "bug123"],
            ["order", "the", "keep"],
        ),
        ("Failing tests!", ["fail", "failed", "test_it.py", "testing"], ["fast", "contest"]),
        ("which files?", ["src/app.py", "rates.py", "file"], ["profile", "app"]),
        ("费率表", ["请看费率表", "费率"], ["费", "表格"]),
        ("naïve STRASSE", ["naïve", "strasse"], ["naive"]),
    ],
)
def test_what_is_near_a_focus(focus, near, far):
    terms = tfidf_extracts_and_focus.parse_focus(focus).terms
    assert [
        w for w in near if not any(tfidf_extracts_and_focus.matches_focus_term(w, t) for t in terms)
    ] == []
    assert [
        w for w in far if any(tfidf_extracts_and_focus.matches_focus_term(w, t) for t in terms)
    ] == []


def test_a_focus_without_a_word_is_none():
    assert (
        tfidf_extracts_and_focus.parse_focus("")
        is tfidf_extracts_and_focus.parse_focus(" ?! ")
        is None
    )
    assert tfidf_extracts_and_focus.parse_focus("keep").terms == (
        "keep",
    )  # nothing but words that ask: they are meant


def test_the_extract_obeys_a_focus_and_says_how_well():
    plain, kept = (ExtractiveSummariser(300)(told(f)) for f in ("", "keep the ids"))
    assert held(plain) < 5
    assert held(kept) >= 9
    assert plain == by_definition(list(told("").messages), 300)
    *rows, audit = kept.splitlines()
    assert not any(row.startswith(FOCUS_MARK) for row in rows)
    words = re.fullmatch(
        r'\[Focus "keep the ids": (\d+) of 12 words near it are kept, (\d+)% by rarity\]', audit
    )
    assert int(words[1]) == held(kept)
    assert abs(int(words[2]) - 100 * held(kept) / 12) <= 1
    assert len(kept) <= 300 * 3.5


def test_a_focus_on_nothing_that_was_said_is_told():
    made = ExtractiveSummariser(300)(told("zebras"))
    assert made.endswith('[Focus "zebras": nothing here is near it]')


def test_rarer_words_of_a_focus_weigh_more():
    said = [user(f"The rates of part {n} are wrong.") for n in range(30)]
    history = shown(*said[:15], user("A zebra."), *said[15:])
    instructions = summary_prompts_and_audits.format_identifier_instructions(
        "off", focus="rates zebra"
    )
    made = ExtractiveSummariser(90, share=1.0)(
        SummariserInput(history, len(history), instructions=instructions)
    )
    assert "User: A zebra." in made


def test_what_is_said_of_a_focus_is_one_sentence():
    made = ExtractiveSummariser(300)(told("Keep the ids. All of them! [really]"))
    summary = summarised([user("a")], made).inserted[0]
    again = [text for _, text in line_index.split_message_lines(summary)]
    assert [row for row in made.splitlines() if row.startswith(FOCUS_MARK)]
    assert [text for text in again if "near" in text or "really" in text] == []


def test_there_is_no_audit_where_it_would_take_the_room():
    made = ExtractiveSummariser(30)(told("keep the ids"))
    assert FOCUS_MARK not in made
    assert made
    assert len(made) <= 30 * 3.5


@pytest.mark.parametrize(
    "write",
    [
        lambda i, f: summary_prompts_and_audits.format_identifier_instructions("strict", focus=f),
        summary_prompts_and_audits.add_focus,
    ],
)
def test_the_focus_is_found_in_the_instructions(write):
    history = shown(user("a"))
    asked = write("Summarise it.", "keep the ids\nand paths")
    assert SummariserInput(history, 1, instructions=asked).focus == "keep the ids\nand paths"
    assert SummariserInput(history, 1, instructions="Summarise it.").focus == ""


def test_a_focus_of_a_preset_and_one_by_hand_are_both_meant():
    asked = summary_prompts_and_audits.add_focus("Summarise it.", "ids")
    by_hand = summary_prompts_and_audits.format_identifier_instructions(
        "strict", focus="paths\n\nand names"
    )
    both = SummariserInput(
        shown(user("a")), 1, instructions=f"{asked}\n\nWrite these sections: A.\n\n{by_hand}"
    )
    assert both.focus == "ids\npaths\n\nand names"


def test_the_same_passage_has_one_extract_whatever_other_runs_wrote():
    history = shown(*TALK)
    instructions = summary_prompts_and_audits.format_identifier_instructions("off", focus="ids")
    first = ExtractiveSummariser(300)(SummariserInput(history, 60, instructions=instructions))
    for n in range(5):  # other runs bring summaries into the lines of the session
        made = history.summarise(30, f"User: order-{n}1111 is one more id.")
        ExtractiveSummariser(300)(SummariserInput(made, 20))
    history.log.memo["lines"][0].extracts.clear()
    assert (
        ExtractiveSummariser(300)(SummariserInput(history, 60, instructions=instructions)) == first
    )


@given(st.text(max_size=80), st.integers(1, 300))
def test_any_focus_keeps_the_room(text, tokens):
    talk = [
        user("Never round up."),
        result("order-12345 failed", "x", "shell", is_error=True),
        user("还有费率表。"),
    ]
    history = shown(*talk)
    passage = SummariserInput(
        history,
        3,
        instructions=summary_prompts_and_audits.format_identifier_instructions("off", focus=text),
    )
    made = ExtractiveSummariser(tokens, share=1.0)(passage)
    assert len(made) <= max(3.5 * min(tokens, max(passage.tokens, 40)), 1)


def test_a_policy_with_a_focus_writes_another_summary():
    history = shown(*TALK, user("Go on."), assistant("Yes."))
    budget = ContextBudget(10_000, 0, history.log.counter)
    plain, kept = (
        Summary(keep_messages=1, focus=f)(history, budget)[0].text for f in ("", "keep the ids")
    )
    assert held(kept) > held(plain)
    assert FOCUS_MARK in kept
    assert FOCUS_MARK not in plain


# -- The focus of a summary is one line of at most 2,000 characters, whatever was typed.


def test_a_focus_is_one_bounded_line():
    assert parse_focus("the\n  cache   key").text == "the cache key"
    long = parse_focus("cache " * 2000)
    assert len(long.text) <= 2000
    assert long.terms == parse_focus("cache").terms


@pytest.mark.parametrize(("near_n", "kept"), [(20, (6, 3, 0)), (1, (8, 1, 0))])
def test_half_of_the_budget_goes_first_to_what_is_near_a_focus(near_n, kept):
    """Without a focus, a share of 1 for the user leaves nothing to the replies.

    Of 350 characters a line of the user takes 27, so 12 fit. The last line of a focus takes up to
    81; of the other 269 three near lines of 34 take most of one half, and six of the user the rest.
    What one near line leaves of its half is the user's, although the other replies have cues.
    """
    asked = [user(f"Never touch part {n:02}.") for n in range(20)]
    done = [assistant(f"Fixed the error of src/rates{n:02}.py.") for n in range(20)]
    near = [assistant(f"The zebra {n:02} was here.") for n in range(near_n)]
    history = shown(*(m for pair in zip(asked, done, strict=True) for m in pair), *near)
    lines_n = []
    for focus in ("", "zebras"):
        instructions = summary_prompts_and_audits.format_identifier_instructions("off", focus=focus)
        passage = SummariserInput(history, len(history), instructions=instructions)
        text = ExtractiveSummariser(100, share=1.0, user=1.0)(passage)
        starts = ("User: Never touch part ", "Assistant: The zebra ", "Assistant: Fixed ")
        lines_n.append(tuple(text.count(start) for start in starts))
    assert lines_n == [(12, 0, 0), kept]
