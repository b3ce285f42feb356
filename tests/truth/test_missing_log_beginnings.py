"""What a first prompt held of a missing beginning is conversation that a compaction removes."""

from __future__ import annotations

import pytest
from truth.claude_code_transcripts import Transcript, said, use

import ctxkit as ck
from ctxkit.session import MISSING_START_KIND
from ctxkit.tokens import measure_sizes

KEEPS = {"inspect_trim"}
"""Presets that never drop what comes before the first user message, as their systems do."""


def made(parent: str | None = "elsewhere", *, cut: bool = True) -> Transcript:
    t = Transcript(parent)
    t.ask("go on")
    prompt = 150_000
    for i in range(3):
        t.reply(
            f"a{i}",
            prompt,
            60,
            said("word " * 30),
            use(f"c{i}"),
            stop="tool_use",
            read=prompt - 1000 if i else 11_000,
        )
        t.answer(f"c{i}", "word " * 40)
        prompt += 200
    if cut:
        t.compact(prompt, "what was done " * 100)
    t.ask("next")
    t.reply(
        "b",
        45_000 if cut else prompt,
        20,
        said("yes"),
        stop="end_turn",
        read=11_000 if cut else prompt - 1000,
    )
    return t


def test_what_the_smallest_later_prompt_does_not_hold_was_conversation():
    session = made().read()
    head = [m for m in session.messages if m.kind == MISSING_START_KIND]
    assert {m.role for m in head} == {"summary"}
    assert measure_sizes(session).fixed <= 45_000
    assert sum(m.parts[0].tokens for m in head) + measure_sizes(session).fixed == pytest.approx(
        150_000, abs=100
    )
    assert "The conversation before line 1 is not in this file" in " ".join(session.notes)


def test_the_recorded_compaction_takes_it():
    session = made().read()
    assert session.edits[0].targets[0] == session.messages[0].id
    assert session.messages[0].id not in [m.id for m in session.view()]
    assert measure_sizes(session).modelled_tokens(-1) == 45_000


def test_it_is_in_no_count_of_what_was_said():
    row = ck.frame(made().read(), per="session").iloc[0]
    assert row["messages_n"] == 9
    kinds = ck.frame(made().read(), per="message")["kind"].tolist()
    assert kinds[0] == MISSING_START_KIND


@pytest.mark.parametrize("preset", ck.presets.names())
def test_every_preset_that_cuts_removes_it(preset, real):
    session = ck.read(real / "claude-code/entire-198393f2.jsonl")
    rules = getattr(ck.presets, preset)()
    if "context_window" in rules.parameters:
        rules = getattr(ck.presets, preset)(context_window=100_000)
    again = ck.replay(session, rules)
    if any(e.kind in ("summarised", "dropped") for e in again.edits):
        last = [c.message.usage.prompt_tokens for c in again.calls][-1]
        assert (last < 110_000) is (preset not in KEEPS)


def test_the_real_log_replays_as_it_was_recorded(real):
    session = ck.read(real / "claude-code/entire-198393f2.jsonl")
    assert session.details["headless"]
    again = ck.replay(session, ck.presets.claude_code(context_window=200_000))
    after = [c.message.usage.prompt_tokens for c in again.calls][-1]
    assert len(again.edits) == 1
    assert after < 60_000  # recorded: from 155,250 to 49,761


def test_a_log_that_begins_at_its_beginning_has_lost_nothing(real):
    assert made(None).read().messages[0].kind != MISSING_START_KIND
    assert (
        ck.read(real / "claude-code/entire-7f78a542.jsonl").messages[0].kind != MISSING_START_KIND
    )


def test_without_a_smaller_prompt_a_cold_read_bounds_the_fixed_part():
    session = made(cut=False).read()
    assert session.messages[0].kind == MISSING_START_KIND
    assert measure_sizes(session).fixed == pytest.approx(11_000, abs=100)


def test_a_first_prompt_of_a_usual_size_is_left_alone():
    t = Transcript("elsewhere")
    t.ask("go on")
    t.reply("a", 40_000, 60, said("word " * 30), stop="end_turn", read=11_000)
    t.ask("more")
    t.reply("b", 40_300, 60, said("word " * 30), stop="end_turn", read=39_000)
    session = t.read()
    assert session.messages[0].kind != MISSING_START_KIND
    assert "cannot be told" in " ".join(session.notes)


def test_it_survives_our_own_format(tmp_path):
    session = made().read()
    ck.write(session, tmp_path / "s.jsonl")
    back = ck.read(tmp_path / "s.jsonl")
    assert (back.notes, back.messages[0]) == (session.notes, session.messages[0])


@pytest.mark.parametrize("format", ["pi", "openai", "atif"])
def test_other_formats_are_told_no_words_that_nobody_said(format, tmp_path):
    ck.write(made().read(), tmp_path / "s.jsonl", format=format)
    back = ck.read(tmp_path / "s.jsonl")
    assert all(m.parts for m in back.messages)
    assert MISSING_START_KIND not in {m.kind for m in back.messages}
