"""Claude Code's outputs that are the first piece of a stream are estimated, and marked so."""

from __future__ import annotations

import json

import pytest
from truth.claude_code_transcripts import Transcript, said, use

import ctxkit as ck

WORDS = (
    "the quick brown fox jumps over the lazy dog and so on " * 20
)  # 1,080 characters: 270 by their quarter


def made(output: int = 1, stop: str | None = None) -> Transcript:
    t = Transcript()
    t.ask("go")
    t.reply("a", 20_000, output, said(WORDS), use("c1"), stop=stop)
    t.answer("c1", WORDS)
    t.reply("b", 20_800, 40, said("Done, all of it, as you wanted it to be."), stop="end_turn")
    return t


def test_an_output_below_its_text_is_told_from_what_the_next_prompt_grew_by():
    call = ck.frame(made().read(), per="call").iloc[0]
    assert 270 < call["output_tokens"] < 540  # its share of 800, beside a result of the same size
    assert call["output_tokens"] == pytest.approx(400, abs=20)
    assert (call["output_source"], call["cost_source"]) == ("estimated", "estimated")
    assert call["cost_usd"] == pytest.approx(20_000 * 5e-6 + call["output_tokens"] * 25e-6)


def test_the_piece_stays_in_the_details_and_the_session_says_so():
    session = made().read()
    assert session.calls[0].message.details["recorded_output_tokens"] == 1
    assert "estimated from text" in session.notes[0]
    row = ck.frame(session, per="session").iloc[0]
    assert (row["output_source"], row["cost_source"]) == ("estimated", "estimated")


@pytest.mark.parametrize(("output", "stop"), [(300, None), (300, "tool_use"), (150, "tool_use")])
def test_a_whole_output_stays_recorded(output, stop):
    call = ck.frame(made(output, stop).read(), per="call").iloc[0]
    assert (call["output_tokens"], call["output_source"], call["cost_source"]) == (
        output,
        "recorded",
        "derived",
    )


def test_without_a_next_prompt_the_text_is_scaled_as_the_rest_grew():
    t = made()
    t.reply("c", 20_900, 2, said(WORDS))
    last = t.read().calls[-1].message
    assert 270 <= last.usage.output_tokens <= 540
    assert last.details["output_source"] == "estimated"


def test_growth_that_no_text_explains_is_not_taken_for_the_reply():
    t = Transcript()
    t.ask("go")
    t.reply("a", 20_000, 1, said(WORDS), use("c1"))
    t.answer("c1", WORDS)
    t.reply("b", 20_800, 1, said(WORDS), use("c2"))
    t.answer("c2", WORDS)
    t.reply("c", 90_800, 1, said("ok"))  # 70,000 tokens of a file that no line shows
    outputs = [c.message.usage.output_tokens for c in t.read().calls[:2]]
    assert outputs[0] == pytest.approx(400, abs=20)
    assert outputs[1] < 70_000 / 2


def test_real_logs_hold_at_least_what_is_visible(real):
    for file in (
        "entire-7f78a542",
        "entire-198393f2",
        "entire-d88bceb6-subagents",
        "episodic-memory-long-conversation",
    ):
        path = real / f"claude-code/{file}.jsonl"
        session = ck.read(path)
        row = ck.frame(session, per="session").iloc[0]
        visible = _characters(path) / 4
        assert row["output_source"] == "estimated", file
        assert visible < row["output_tokens"] < 2.2 * visible, file


def _characters(path) -> int:
    """Characters of text and arguments of all replies, each block once."""
    blocks = {}
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if record.get("type") != "assistant" or record["message"].get("model") == "<synthetic>":
            continue
        for b in record["message"]["content"]:
            blocks[json.dumps([record["message"]["id"], b])] = b
    texts = (b.get("text") or b.get("thinking") or "" for b in blocks.values())
    given = (
        json.dumps(b["input"], separators=(",", ":"))
        for b in blocks.values()
        if b["type"] == "tool_use"
    )
    return sum(map(len, texts)) + sum(map(len, given))
