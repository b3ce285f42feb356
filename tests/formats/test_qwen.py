"""Qwen Code: compressions with and without their history, branches left, what is counted."""

from __future__ import annotations

import json
from pathlib import Path

from ctxkit.formats import Source, read_source

GOLDEN = Path(__file__).parent / "golden" / "qwen-code.jsonl"
LINES = [r for r in map(json.loads, GOLDEN.read_bytes().splitlines()) if r["uuid"] != "q5b"]
"""The sample without its abandoned branch."""


def read(*records: dict) -> object:
    return read_source(Source("x.jsonl", b"\n".join(json.dumps(r).encode() for r in records)))[0]


def test_what_a_history_repeats_is_kept():
    packed = json.loads(json.dumps(LINES[6]))
    packed["systemPayload"]["compressedHistory"].append(LINES[5]["message"])
    session = read(*LINES[:6], packed, *LINES[7:])
    (edit,) = session.edits
    assert len(edit.targets) == 5
    assert (edit.tokens_before, edit.tokens_after) == (1315, 40)
    assert [m.parts[-1].text[:5] for m in session.view()] == ["The u", "notes", "And i", "Three"]


def test_a_compression_without_its_history_takes_nothing_that_it_does_not_name():
    session = read(
        *LINES[:6], {**LINES[6], "systemPayload": {"info": {"newTokenCount": 40}}}, *LINES[7:]
    )
    (edit,) = session.edits
    assert (edit.targets, edit.tokens_after) == ((), 40)


def test_one_that_failed_is_counted():
    failed = {**LINES[6], "systemPayload": {"info": {"compressionStatus": 2}}}
    session = read(*LINES[:6], failed, {**LINES[7], "type": "from_the_future"})
    assert not session.edits
    assert session.skipped == {"compression that failed": 1, "from_the_future": 1}


def test_a_turn_taken_back_is_a_branch():
    again = {
        **LINES[7],
        "uuid": "other",
        "parentUuid": "q5",
        "message": {"role": "user", "parts": [{"text": "No."}]},
    }
    session = read(*LINES, again)
    assert session.view()[-1].text == "No."
    assert len(session.view()) == 7


def test_thoughts_are_counted_once_wherever_they_stand():
    reply = next(r for r in LINES if "usageMetadata" in r)
    counts = {"promptTokenCount": 100, "candidatesTokenCount": 30, "thoughtsTokenCount": 20}
    for total, output in ((130, 30), (150, 50)):
        told = {**reply, "usageMetadata": {**counts, "totalTokenCount": total}}
        (call,) = read(*LINES[: LINES.index(reply)], told).calls
        assert call.message.usage.output_tokens == output
        assert call.message.usage.reasoning_tokens == 20
