"""Inspect's logs: what is written reads back, and by Inspect's own reader where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from formats.writers.test_otel import join_cache_writes
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.session import Attachment, Message, Text, ToolSchema, get_plain_text

GOLDEN = Path(__file__).parents[2] / "formats" / "golden"
NAMES = ["pi.jsonl", "claude-code.jsonl", "codex.jsonl", "qwen-code.jsonl", "goose.json"]


@pytest.mark.parametrize("name", NAMES)
def test_each_call_reads_back_with_its_prompt(name: str, tmp_path: Path):
    wanted = ck.read(GOLDEN / name)
    written = ck.write(wanted, tmp_path / "log.json", format="inspect")
    found = ck.read(tmp_path / "log.json")
    assert found.format == "inspect-ai"
    for c in wanted.calls:
        assert [m.text for m in found.view(c.index)] == [m.text for m in wanted.view(c.index)]
        used = join_cache_writes(c.message.usage)
        assert found.call(c.index).message.usage == (used and replace(used, cost_usd=None))
    assert [e.source for e in found.edits] == ["recorded"] * len(wanted.edits)
    priced = any(c.message.usage and c.message.usage.cost_usd for c in wanted.calls)
    assert ("money of calls" in written.lost) == priced
    assert "compactions" not in written.lost


@pytest.mark.parametrize("name", NAMES)
def test_inspects_own_reader_takes_it(name: str, tmp_path: Path):
    log = pytest.importorskip("inspect_ai.log")
    wanted = ck.read(GOLDEN / name)
    ck.write(wanted, tmp_path / "log.json", format="inspect")
    (sample,) = log.read_eval_log(str(tmp_path / "log.json")).samples
    events = [e.event for e in sample.events]
    assert events.count("model") == len(wanted.calls)
    assert events.count("compaction") == len(wanted.edits)
    assert sample.messages[-1].text == get_plain_text(wanted.messages[-1])


def test_what_tools_take_is_named_as_lost(tmp_path: Path):
    tool = ToolSchema(name="f", parameters={"type": "object", "properties": {"x": {}}})
    session = replace(ck.read(GOLDEN / "pi.jsonl"), tools=(tool, ToolSchema(name="g")))
    written = ck.write(session, tmp_path / "log.json", format="inspect")
    assert written.lost["parameters of tools"] == 1


def test_pictures_are_written_and_other_attachments_are_not(tmp_path: Path):
    """Inspect's content has a part for pictures only."""
    parts = (
        Text("Look at both."),
        Attachment("image/png", "aW1hZ2U="),
        Attachment("application/pdf", "cGRm", kind="document"),
    )
    session = ck.Session(
        id="s",
        log=(
            Message(role="user", id="u", parts=parts),
            Message(role="assistant", id="a", parts=(Text("Seen."),)),
        ),
    )
    ck.write(session, tmp_path / "log.json", format="inspect")
    written = (tmp_path / "log.json").read_text(encoding="utf-8")
    assert "data:image/png;base64,aW1hZ2U=" in written
    assert "cGRm" not in written
