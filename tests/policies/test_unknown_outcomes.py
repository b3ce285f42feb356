"""A result of a format without a mark of failure is neither done nor failed, wherever outcomes are told."""

from __future__ import annotations

import json

import pytest
from conftest import sample, sessions_folder

import ctxkit as ck
from ctxkit.agent import build_evidence_graph
from ctxkit.formats import format_names, get_reader
from ctxkit.policies.result_excerpts_and_offload import format_digest_line
from ctxkit.policies.texts.tool_outcomes_and_files import OUTCOME_MARKS, collect_actions
from ctxkit.policies.tool_evidence_summaries import (
    UNKNOWN_NOTE,
    write_evidence,
    write_tool_call_lines,
)

FOLDER = sessions_folder()


def asked(name, ident, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": ident, "type": "function", "function": function}


CHAT = [
    {"role": "user", "content": "Mend f1.py."},
    {"role": "assistant", "content": "", "tool_calls": [asked("patch_file", "c1", path="f1.py")]},
    {"role": "tool", "tool_call_id": "c1", "content": "Error: oldText not found"},
    {"role": "assistant", "content": "", "tool_calls": [asked("bash", "c2", command="pytest")]},
    {"role": "tool", "tool_call_id": "c2", "content": "1 failed\nexit code: 1"},
    {"role": "assistant", "content": "", "tool_calls": [asked("bash", "c3", command="ls")]},
    {"role": "tool", "tool_call_id": "c3", "content": "f1.py\nexit code: 0"},
    {"role": "assistant", "content": "Done."},
]


def test_a_failed_call_of_a_list_of_messages_is_not_reported_as_done():
    session = ck.read(CHAT)
    actions = collect_actions(session.messages)
    assert [a.outcome for a in actions] == ["unknown", "failed", "done"]
    intents, evidence = (
        write_tool_call_lines(session.messages, session.turns),
        write_evidence(actions),
    )
    for text in (intents, evidence):
        assert "✓ patch_file" not in text
        assert "✗ patch_file" not in text
        assert f"{OUTCOME_MARKS['unknown']} patch_file" in text
        assert UNKNOWN_NOTE in text
    assert "FILES PERHAPS WRITTEN\n  f1.py" in evidence
    assert "FILES WRITTEN" not in evidence
    assert "(unknown)" in format_digest_line(session.messages[2])


def test_rules_that_write_intents_say_so_in_a_replay():
    more = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Done. " * 50}]
    session = ck.read([*CHAT, *(more * 10)])
    rules = ck.presets.fuseraft(mode="intent", trigger_turn_count=4, keep_recent_turns=2)
    texts = [m.text for e in ck.replay(session, rules).edits for m in e.inserted]
    assert texts
    assert not any("✓ patch_file" in t for t in texts)
    assert any("? patch_file" in t for t in texts)


def test_what_a_format_cannot_prove_is_no_evidence():
    graph = build_evidence_graph(ck.read(CHAT))
    assert [n.node_type for n in graph.nodes if n.path == "f1.py"] == []


def test_frames_have_no_flag_where_the_format_has_none():
    session = ck.read(CHAT)
    flags = ck.frame(session, per="message").set_index("role")["is_error"]
    assert flags["tool"].isna().all()
    assert ck.frame(session, per="session")["tool_errors_n"].isna().all()


def test_the_mark_survives_saving(tmp_path):
    session = ck.read(CHAT)
    again = ck.read(ck.write(session, tmp_path / "s.jsonl", format="native").path)
    assert [m.is_error for m in again.messages] == [m.is_error for m in session.messages]


BLIND = {n for n in format_names() if "tool errors" in getattr(get_reader(n), "BLIND", ())}


@pytest.mark.parametrize(
    "file", sample(sorted(p for p in FOLDER.rglob("*") if p.is_file()), 12) if FOLDER else [None],
    ids=lambda p: p and p.name,
)  # fmt: skip
def test_only_formats_without_a_flag_have_unknown_outcomes(file, real):
    for session in ck.read_all(file, progress=False):
        unknown = any(m.is_error is None for m in session.messages)
        known = any(m.is_error is False for m in session.messages if m.role == "tool")
        assert not (unknown if session.format not in BLIND else known)
