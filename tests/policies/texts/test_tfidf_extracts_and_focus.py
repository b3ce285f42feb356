"""The extract by numbers is that of the definition, to the letter; hard texts take bounded time."""

from __future__ import annotations

import gc
import time
import tracemalloc
import weakref

import numpy as np
import pytest
from builders import assistant, result, summarised, tool_call, user
from conftest import examples, sample
from extract_reference import extract as by_definition
from hypothesis import given, settings
from hypothesis import strategies as st
from random_sessions import Fours, by_chance, shown

import ctxkit as ck
from ctxkit.engine import make_log_from_session
from ctxkit.policies import ExtractiveSummariser, History, MessageLog, SummariserInput
from ctxkit.policies.texts import message_lines_for_extracts as line_index
from ctxkit.policies.texts import tfidf_extracts_and_focus
from ctxkit.session import Message, Text

WORDS = st.sampled_from(
    [
        *("must", "error", "fix", "the", "ids", "of", "src/app.py", "README", "Bill.Ray", "12"),
        *("naïve", "İstanbul", "订单", "ß", "a", "?", ".", "!", "`x`", "exit code", "because"),
        *(
            "\n",
            "\t",
            "\x85",
            "\u2028",
            "\r\n",
            "https://a.b/c",
            line_index.FOCUS_MARK,
            "done…",
            "",
        ),
    ]
)
TEXTS = st.lists(WORDS, max_size=40).map(" ".join) | st.text(max_size=60)


@st.composite
def talks(draw):
    out = []
    for n in range(draw(st.integers(1, 12))):
        text, kind = draw(TEXTS), draw(st.integers(0, 4))
        if kind == 0:
            out.append(user(text, id=f"m{n}"))
        elif kind == 1:
            calls = [tool_call("read", path=draw(TEXTS)) for _ in range(draw(st.integers(0, 2)))]
            out.append(assistant(text, *calls, thinking=draw(TEXTS), id=f"m{n}"))
        elif kind == 2:
            out.append(result(text, "x", "shell", is_error=draw(st.booleans()), id=f"m{n}"))
        elif kind == 3:
            out.append(Message(role="summary", id=f"m{n}", parts=(Text(text),)))
        else:
            out.append(user("Use tabs, never spaces. " + text, id=f"m{n}"))
    return out


@given(talks(), st.integers(1, 400), st.integers(0, 12), st.floats(0, 1))
@settings(max_examples=examples(200), deadline=None)
def test_the_fast_extract_is_the_definition_s(talk, tokens, first, share):
    maker = ExtractiveSummariser(user=share)
    for part in (talk, talk[first:], talk):  # a part of it, and again: nothing remembered may show
        assert maker.extract(part, tokens) == by_definition(part, tokens, share)


@pytest.mark.parametrize(
    "name",
    ["pi/before-compaction.jsonl", "claude-code/entire-7f78a542.jsonl", "pi/prsui-019f8412.jsonl"],
)
def test_real_sessions_have_the_definition_s_extract(real, name):
    messages = [m for m in ck.read(real / name).messages if m.visible]
    parts = [(0, 300, 1500), (0, 90, 200), (40, 260, 1499), (0, 500, 3000)]
    for first, last, tokens in sample(parts, 2):
        part = messages[first:last]
        assert ExtractiveSummariser().extract(part, tokens) == by_definition(part, tokens)


def test_a_passage_with_an_earlier_summary_has_the_definition_s_extract():
    talk = [user(f"Rule {n}: never touch src/part{n}.py. Fine.") for n in range(40)]
    history = shown(*talk).summarise(9, "User: Rule 3 stands.\nAll else was said.")
    for first, last in ((0, 20), (0, 1), (3, 30)):
        p = SummariserInput(history, last, first)
        budget = min(1500, max(int(0.3 * p.tokens), 40))
        assert ExtractiveSummariser()(p) == by_definition(list(p.messages), budget)
        assert p.messages == tuple(history[k] for k in range(first, last))


def test_the_same_passage_is_written_once_for_all_logs_of_a_session(monkeypatch):
    session, made = by_chance(7, 40), []
    written = tfidf_extracts_and_focus._compose_extract
    monkeypatch.setattr(
        tfidf_extracts_and_focus, "_compose_extract", lambda *a: made.append(a) or written(*a)
    )
    texts = set()
    for _ in range(3):
        log = make_log_from_session(session)
        texts.add(ExtractiveSummariser()(SummariserInput(History.start(log, log.calls - 1), 60)))
    assert len(texts) == len(made) == 1
    ExtractiveSummariser(99)(SummariserInput(History.start(log, log.calls - 1), 60))
    assert len(made) == 2


def test_lines_live_as_long_as_their_log():
    history = shown(user("Never round up."), user("Use tabs."))
    ExtractiveSummariser()(SummariserInput(history, 2))
    known = weakref.ref(history.log.memo["lines"][0])
    assert known() is not None
    del history
    gc.collect()
    assert known() is None


def test_lines_are_made_anew_where_summaries_have_filled_them(monkeypatch):
    history = shown(*(user(f"Never touch part {n}.") for n in range(9)))
    before = ExtractiveSummariser()(SummariserInput(history, 8))
    old = history.log.memo["lines"][0]
    monkeypatch.setattr(line_index, "MAX_CACHED_CHARS", 10)
    for n in range(3):
        made = history.summarise(4, f"Summary {n}.")
        assert "Earlier: Summary" in ExtractiveSummariser(share=1.0)(SummariserInput(made, 3))
    assert ExtractiveSummariser()(SummariserInput(history, 8)) == before
    assert history.log.memo["lines"][0] is not old


def test_what_is_said_of_a_focus_is_not_taken_over_again():
    old = [user("a b c")]
    told = f'User: Keep it.\n{line_index.FOCUS_MARK}"ids": 1 of 2 words near it are kept, 50% by rarity]'
    summary = summarised(old, told).inserted[0]
    assert [text for _, text in line_index.split_message_lines(summary)] == ["User: Keep it."]


def test_an_interrupt_leaves_nothing_half_read(monkeypatch):
    history = shown(*(user(f"Never touch part {n}.") for n in range(9)))
    plain = line_index.extract_line_words

    def interrupted(text):
        if "part 5" in text:
            raise KeyboardInterrupt
        return plain(text)

    monkeypatch.setattr(line_index, "extract_line_words", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ExtractiveSummariser()(SummariserInput(history, 8))
    monkeypatch.undo()
    made = ExtractiveSummariser(share=1.0)(SummariserInput(history, 8))
    assert made == by_definition(list(history.messages[:8]), SummariserInput(history, 8).tokens)


def test_a_message_that_is_repeated_makes_its_words_no_more_common():
    """The weight of a term of a focus counts different messages."""
    messages = [user("The alpha release."), user("The beta release."), user("Neither of both.")]
    lines = line_index.index_for_messages(messages)
    parts = lines.parts(messages)
    weighed = tfidf_extracts_and_focus.weigh_lines(lines, parts)
    focus = tfidf_extracts_and_focus.parse_focus("alpha beta")
    once, often = (
        tfidf_extracts_and_focus.FocusMatcher(lines, focus, all_parts).lines(weighed).tolist()
        for all_parts in (parts, np.repeat(parts, (1, 9, 1)))
    )
    assert once == often == [0.5, 0.5, 0.0]


def test_equal_results_and_summaries_share_their_lines():
    """A result of an unchanged file comes again and again; words of a person are few."""
    text = "Port 8080 is open.\nPort 9090 is not."
    messages = [
        *(result(text, tool="read"), result(text, tool="read")),
        result(text, tool="grep"),
        result(text, tool="read", is_error=True),
        result("Port 8080 is open.", tool="read"),
        *(summarised([], text).inserted[0], summarised([], text).inserted[0]),
        *(user(text), user(text)),
    ]
    lines = line_index.LineIndex()
    assert lines.parts(messages).tolist() == [0, 0, 1, 2, 3, 4, 4, 5, 6]
    assert lines.parts(messages[1:2]).tolist() == [0]


def test_texts_outside_the_log_fill_the_index_once_each(monkeypatch):
    """A message counts its characters and 500 more; a full index is replaced by a new one."""
    monkeypatch.setattr(line_index, "MAX_CACHED_CHARS", 1_499)
    lines = line_index.index_for_messages([user("Of the log.")])
    summary = [user("a" * 400)]
    for _ in range(3):
        lines.parts_outside_log(summary)
    assert not lines.full
    lines.parts_outside_log([user("b" * 100)])
    assert lines.full


def test_a_log_without_a_message_has_no_extract():
    log = MessageLog(Fours())
    log.open()
    assert ExtractiveSummariser()(SummariserInput(History.start(log, 0), 0)) == ""
    assert ExtractiveSummariser().extract([], 100) == ""


HARD = {
    "CJK": "这个服务必须永远不要四舍五入。请看费率表。",
    "one endless sentence": "word ",
    "one endless word": "z",
    "nothing but code": "    if (a[i] != b[j]) { return x->y(z, 0x1f); }\n",
    "short lines": "ab\n",
    "signs": "? ",
    "lone quotes": "`\n",
    "blanks": " ",
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_hard_texts_have_the_definition_s_extract(name, role):
    text = "Go on. " + HARD[name] * (20_000 // len(HARD[name]))
    message = user(text) if role == "user" else result(text, "x", "shell", is_error=True)
    talk = [user("Never round up."), message, assistant("Done.")]
    for tokens in (20, 300):
        assert ExtractiveSummariser().extract(talk, tokens) == by_definition(talk, tokens)


@pytest.mark.parametrize("name", sample(list(HARD), 1))
@pytest.mark.parametrize("role", ["user", "tool"])
def test_fifty_megabytes_in_one_message_cost_no_more_than_what_is_read(name, role):
    text = HARD[name] * (50_000_000 // len(HARD[name].encode("utf-8")))
    message = user(text) if role == "user" else result(text, "x", "shell")
    start = time.thread_time()
    made = ExtractiveSummariser().extract([user("Never round up."), message], 1500)
    assert time.thread_time() - start < 20  # some 4 s on a slow core
    assert "Never round up." in made
    assert len(made) <= 1500 * 3.5


def test_the_lines_of_a_huge_message_are_bounded_in_memory(monkeypatch):
    monkeypatch.setattr(line_index, "MAX_READ_CHARS", 400_000)
    text = "\n".join(f"Fact {n}: x{n * 31:x} in src/f{n}.py." for n in range(120_000))
    tracemalloc.start()
    try:
        ExtractiveSummariser().extract([user(text)], 1500)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(text) > 4_000_000
    assert peak < 12_000_000  # of all of it some 70 MB


def test_a_message_longer_than_any_window_is_read_at_both_ends(monkeypatch):
    monkeypatch.setattr(line_index, "MAX_READ_CHARS", 60)
    monkeypatch.setattr("extract_reference.MAX_READ_CHARS", 60)
    talk = [user("First of all. " + "Nothing here. " * 99 + "Last of all.")]
    made = ExtractiveSummariser().extract(talk, 300)
    assert made == by_definition(talk, 300)
    assert "First of all." in made
    assert "Last of all." in made
    assert made.count("Nothing here.") < 9


def test_of_more_than_four_hundred_lines_the_weightiest_are_candidates():
    """Lines alike weigh more the later they stand, and the first half as much again."""
    letters = ["".join("abcdefghij"[int(d)] for d in f"{n:03}") for n in range(450)]
    lines = [f"alpha{w} beta{w}" for w in letters]
    text = ExtractiveSummariser().extract([assistant("\n".join(lines))], 100_000)
    assert [row.rpartition(": ")[2] for row in text.splitlines()] == [lines[0], *lines[51:]]
