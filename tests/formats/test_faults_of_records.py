"""A record whose reading fails costs only itself: a fault says where it stands, and the rest is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from formats.test_golden import SAMPLES

import ctxkit as ck
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session import Fault

if TYPE_CHECKING:
    from pathlib import Path

PLACES = {
    "anthropic": (1, ""),
    "atif": (0, "step 2: "),
    "claude-code": (2, ""),
    "codex": (3, ""),
    "codex-exec": (5, ""),
    "copilot-cli": (4, ""),
    "crush": (0, "message m1: "),
    "fuseraft-checkpoint": (0, "message 1: "),
    "fuseraft-events": (6, ""),
    "fuseraft-turns": (2, ""),
    "gemini-cli": (0, "message 1: "),
    "goose": (0, "message 1: "),
    "hermes": (0, "message 1: "),
    "inspect-ai": (0, "event 0: "),
    "kimi-cli": (4, ""),
    "langchain": (0, "message 1: "),
    "langfuse": (0, "observation g0: "),
    "mini-swe-agent": (0, "message 1: "),
    "mlflow": (0, "span s1: "),
    "native": (5, ""),
    "notebook": (3, "cell 3: "),
    "openai": (1, ""),
    "openai-responses": (1, ""),
    "opencode": (0, "message 1: "),
    "openhands": (0, "event 1: "),
    "otel": (0, "span 0000000000000001: "),
    "pi": (3, ""),
    "qwen-code": (2, ""),
    "swe-agent": (0, "message 1: "),
    "tau-bench": (0, "run 0, message 1: "),
}
"""The record of the second entry of each sample: its line (0 in a document) and its name."""


@pytest.fixture
def fail_at_second_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reader of a session fail where it adds the second message or compaction."""
    n_added, add = 0, SessionBuilder.add

    def add_or_fail(builder: SessionBuilder, entry: ck.Message) -> int:
        nonlocal n_added
        n_added += 1
        if n_added == 2:
            raise ValueError("planted")
        return add(builder, entry)

    monkeypatch.setattr(SessionBuilder, "add", add_or_fail)


@pytest.mark.usefixtures("fail_at_second_entry")
@pytest.mark.parametrize("name", PLACES)
def test_a_record_that_fails_is_a_fault_with_its_place(name: str) -> None:
    line, record = PLACES[name]
    session = ck.read(SAMPLES[name])
    assert session.faults == (Fault(line, f"{record}damaged record: planted"),)
    assert session.messages


@pytest.mark.usefixtures("fail_at_second_entry")
def test_a_langchain_message_on_a_line_of_its_own_has_the_number_of_the_line(
    tmp_path: Path,
) -> None:
    messages = json.loads(SAMPLES["langchain"].read_bytes())["messages"]
    (tmp_path / "x.jsonl").write_text("\n\n".join(json.dumps(m) for m in messages))
    session = ck.read(tmp_path / "x.jsonl")
    assert session.faults == (Fault(3, "message 3: damaged record: planted"),)
    assert len(session.messages) == len(messages) - 1
