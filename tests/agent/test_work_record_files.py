"""The files of the work, live: written while the agent works, in fuseraft's formats, and read back."""

from __future__ import annotations

import json
from itertools import count

import pytest
from agent.test_live_session import live
from builders import assistant, tool_call
from stand_in_models import COUNT, run, said

from ctxkit import presets
from ctxkit.agent import (
    ChangeLog,
    IntentLog,
    LiveSession,
    ScriptedModel,
    Workspace,
    build_change_log,
    read_record,
    tool,
)
from ctxkit.policies import Rules
from ctxkit.session import ToolCall


def opened(tmp_path, turns, rules=None, **more):
    ticks = count(1_800_000_000)
    model = ScriptedModel(turns, name="made", counter=COUNT, clock=lambda: float(next(ticks)))
    return LiveSession("main", model=model, rules=rules or Rules(), clock=lambda: float(next(ticks)),
                       workspace=Workspace(tmp_path), **more)  # fmt: skip


def test_changes_intents_and_evidence_are_written_live(tmp_path):
    """F129, F65: Change log, intents and evidence are beside the session while it continues."""
    seen = []
    state = tmp_path / ".ctxkit/state"

    def peek() -> str:
        """Look at the intents while a tool runs."""
        (path,) = state.glob("*/intents.json")
        seen.extend(e.status for e in read_record(path, IntentLog).entries)
        return "looked"

    script = ((said("", ToolCall("c1", "write_file", {"path": "a.py", "content": "x = 1"}), stop="tool", usage=None),
               said("", ToolCall("c2", "peek_and_write", {}), stop="tool", usage=None), said("Done.", usage=None)),)  # fmt: skip
    with opened(tmp_path, script, tools=["files", tool(peek)]) as live:
        run(live.turn("Go"))
        folder = state / live.id
        assert read_record(folder / "changes.json", ChangeLog) == build_change_log(live.session)
        assert read_record(folder / "changes.json", ChangeLog).entries[0].files_written == ("a.py",)
        assert [e.status for e in read_record(folder / "intents.json", IntentLog).entries] == [
            "Applied",
            "Failed",
        ]
        assert json.loads((folder / "evidence.json").read_text())["Nodes"][0]["Path"] == "a.py"
        assert (folder / "changes.json").stat().st_mode & 0o077 == 0


def test_a_turn_without_tools_writes_nothing(tmp_path):
    with opened(tmp_path, ((said("Hello.", usage=None),),)) as live:
        run(live.turn("Hi"))
    assert not (tmp_path / ".ctxkit/state").exists()


def test_a_state_folder_that_is_a_link_costs_nothing_and_gets_nothing(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".ctxkit").mkdir()
    (tmp_path / ".ctxkit/state").symlink_to(tmp_path / "elsewhere")
    script = ((said("", ToolCall("c1", "list_files", {}), ToolCall("c2", "write_file", {"path": "a", "content": "b"}),
                    stop="tool", usage=None), said("Done.", usage=None)),)  # fmt: skip
    with opened(tmp_path, script) as live:
        assert run(live.turn("Go")).ended == "answered"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("size", [45_000])
def test_an_offloaded_result_lies_where_fuseraft_keeps_it(tmp_path, size):
    """F98, F100: Above 40,000 characters the whole result is on disk, with tool, hint and size."""

    def big(path: str) -> str:
        """Give much."""
        return f"{'x' * 99}\n" * (size // 100)

    script = (
        (
            said("", ToolCall("c1", "big", {"path": "src/Large.cs"}), stop="tool", usage=None),
            said("Done.", usage=None),
        ),
    )
    rules = presets.fuseraft(trigger_turn_count=500, keep_recent_turns=3).but(counter=COUNT)
    with opened(tmp_path, script, rules, tools=["files", tool(big)]) as live:
        run(live.turn("Go"))
        (path,) = (tmp_path / f".ctxkit/artifacts/sessions/{live.id}/tool-results").glob("*.json")
        told = json.loads(path.read_text())
        assert list(told) == ["id", "tool", "hint", "chars", "content"]
        assert (told["id"], told["tool"], told["hint"]) == (path.stem, "big", "path=src/Large.cs")
        assert told["chars"] == len(told["content"]) > 40_000
        stub = next(
            i.message.text
            for i in live.sent(-1)
            if i.message is not None and "offloaded" in i.message.text
        )
        assert f"Artifact: {path.stem}" in stub
        assert path.with_suffix(".txt").read_text() == told["content"]


def test_brief_and_session_context_are_kept_and_read_back(tmp_path):
    """F45, F47, F129: Brief and session context are files that an agent writes, and a later one reads."""
    key = "sk-ant-api03-" + "Ab1" * 30
    brief = json.dumps(
        {"goal": f"Ship it with {key}.", "verify_command": "pytest", "steps": [1, 2]}
    )
    calls = [("session_context_write", {"text": "old"}), ("session_context_write", {"text": "y" * 9_000}),
             ("session_context_read", {}), ("brief_write", {"brief": "{"}), ("brief_write", {"brief": brief}),
             ("brief_read", {"field": "STEPS"}), ("brief_read", {"field": "none"})]  # fmt: skip
    script = ((*(said("", ToolCall(f"c{n}", name, args), stop="tool", usage=None) for n, (name, args) in enumerate(calls)),
               said("Done.", usage=None)),)  # fmt: skip
    with opened(tmp_path, script, tools=["work"]) as live:
        run(live.turn("Go"))
        folder = tmp_path / ".ctxkit/state" / live.id
        texts = [m.text for m in live.session.messages if m.role == "tool"]
    assert (folder / "context_summary.md").read_text() == "y" * 9_000
    assert texts[2].endswith("[1,000 characters more]")
    assert "no JSON" in texts[3]
    assert (texts[5], "verify_command" in texts[6]) == ("[1, 2]", True)
    assert key not in (folder / "brief.json").read_text()


def test_a_turn_without_tools_writes_no_records(tmp_path):
    turns = (
        (assistant("", tool_call("write_file", path="a.txt", content="x")), assistant("ok")),
        (assistant("ok"),),
    )
    with live(tmp_path, *turns) as session:
        run(session.turn("go"))
        names = ("changes.json", "intents.json", "evidence.json")
        records = [path for name in names for path in tmp_path.rglob(name)]
        assert len(records) == 3
        for path in records:
            path.unlink()
        run(session.turn("and now?"))
        assert not any(path.exists() for path in records)
