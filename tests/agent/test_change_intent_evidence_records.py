"""The files of an agent's work: fuseraft's format both ways, what they prove, claims held against them, bad files."""

from __future__ import annotations

import json

import pytest
from builders import assistant, result, session, tool_call, user

import ctxkit as ck
from ctxkit.agent import (
    ChangeLog,
    EvidenceGraph,
    IntentLog,
    build_change_log,
    build_evidence_graph,
    build_tool_call_intent_log,
    check_claims_against_changes,
    encode_record,
    find_claims,
    read_record,
)
from ctxkit.policies import tool_evidence_summaries as evidence

KEY = "sk-ant-api03-" + "Ab1" * 30


def talk():
    write = tool_call("write_file", "c1", path="src/a.py", content="def total(x):\n    return x\n")
    other = tool_call(
        "write_file", "c2", path="src/b.py", content="from a import total\nprint(total(1))\n"
    )
    bad = tool_call("write_file", "c3", path="/etc/x", content="no")
    test = tool_call("shell", "c4", command="pytest -q tests")
    commit = tool_call("bash", "c5", command=f"git commit -m 'Add {KEY}'")
    gone = tool_call("delete_file", "c6", path="old.py")
    last = tool_call("bash", "c7", command=["pytest", "-q"])
    return session(
        user("Do it."),
        assistant("", write), result("Wrote.", write),
        assistant("", other), result("Wrote.", other),
        assistant("", bad), result("It leads out.", bad, is_error=True),
        assistant("", test), result("3 passed", test),
        assistant("I created `src/a.py` and wrote b.py. I ran `pytest -q tests`: all tests pass. I also updated c.py."),
        user("Now commit."),
        assistant("", commit), result("[main 1234] Add", commit),
        assistant("", gone), result("Deleted.", gone),
        assistant("", last), result("1 failed\nexit code 1", last, is_error=True),
        assistant("Deleted old.py. All tests pass. I will create d.py, and did not change e.py."),
    )  # fmt: skip


def test_a_change_log_has_fusterafts_keys_and_what_was_done():
    """F129: The change log holds files, commands and commits of each turn."""
    told = json.loads(encode_record(build_change_log(talk())))
    first, second = told["Entries"]
    assert (first["FilesWritten"], first["TurnIndex"]) == (["src/a.py", "src/b.py"], 0)
    assert first["CommandsRun"] == [
        {"Command": "pytest -q tests", "succeeded": True, "Output": "3 passed"}
    ]
    assert (second["FilesDeleted"], len(second["GitCommits"])) == (["old.py"], 1)
    assert [c["succeeded"] for c in second["CommandsRun"]] == [True, False]
    assert KEY not in json.dumps(told)


def test_a_reference_within_its_own_file_is_a_node():
    """F73: Each reference to a symbol of a written file, also from that file itself."""
    text = "def total(x):\n  return x\n\nprint(total(1))\n"
    call = tool_call("write_file", "c1", path="src/a.py", content=text)
    graph = build_evidence_graph(session(user("Go"), assistant("", call), result("ok", call)))
    (use,) = [n for n in graph.nodes if n.node_type == "SymbolReference"]
    assert (use.symbol_name, use.path, use.target_file) == ("total", "src/a.py", "src/a.py")


def test_intents_are_pending_until_their_result_came():
    """F65: Each tracked call has an intent with its status; texts and file are made from one record."""
    held = talk()
    log = build_tool_call_intent_log(held)
    assert [e.status for e in log.entries] == [
        "Applied",
        "Applied",
        "Failed",
        "Applied",
        "Applied",
        "Applied",
        "Failed",
    ]
    assert log.entries[2].error_message == "It leads out."
    assert log.entries[3].operation.target_path is None
    assert all(len(e.intent_id) == 16 for e in log.entries)
    text = evidence.write_tool_call_lines(held.messages, [m.turn or 0 for m in held.messages])
    marks = {"Applied": "✓", "Failed": "✗", "Pending": "⧖"}
    rows = [row for row in text.split("\n") if row.startswith(("  ✓", "  ✗", "  ⧖"))]
    assert [(r[2], r[4:].split(" ")[0]) for r in rows] == [
        (marks[e.status], e.operation.function_name) for e in log.entries
    ]
    open_call = tool_call("write_file", "c9", path="a", content="x" * 500)
    pending = build_tool_call_intent_log(session(user("Go"), assistant("", open_call))).entries[0]
    assert (
        pending.status,
        pending.completed_at,
        len(pending.operation.args_summary["content"]),
    ) == ("Pending", None, 201)


def test_evidence_has_exit_codes_hashes_symbols_and_edges():
    """F62, F129: Files, commands with exit codes, tests, symbols and references, and how they hang together."""
    graph = build_evidence_graph(talk())
    kinds = [n.node_type for n in graph.nodes]
    assert kinds[:7] == [
        "FileWrite",
        "FileWrite",
        "FileWrite",
        "TestResult",
        "GitCommit",
        "FileDelete",
        "TestResult",
    ]
    assert (graph.nodes[6].exit_code, graph.nodes[6].status) == (1, "failed")
    assert len(graph.nodes[0].content_hash) == 64
    (symbol,) = [n for n in graph.nodes if n.node_type == "SymbolDefinition"]
    (reference,) = [n for n in graph.nodes if n.node_type == "SymbolReference"]
    assert (symbol.symbol_name, reference.path, reference.target_file) == (
        "total",
        "src/b.py",
        "src/a.py",
    )
    edges = {(e.from_, e.to, e.relation) for e in graph.edges}
    assert {
        ("n0", "n3", "verified_by"),
        ("n1", "n3", "verified_by"),
        (reference.id, symbol.id, "depends_on"),
    } <= edges
    assert not any(e.from_ == "n2" for e in graph.edges)  # what failed proves nothing


def test_claims_are_held_against_the_log():
    """F82: What an agent says that it did is checked by the change log."""
    table = check_claims_against_changes(talk())
    told = {(r.turn, r.kind, r.target): r.grounded for r in table.itertuples()}
    assert told == {
        (0, "wrote", "src/a.py"): True, (0, "wrote", "b.py"): True, (0, "wrote", "c.py"): False,
        (0, "ran", "pytest -q tests"): True, (0, "passed", ""): True,
        (1, "deleted", "old.py"): True, (1, "passed", ""): False,
    }  # fmt: skip
    assert table[table.turn == 1].why.iloc[-1] == "the last test command failed"


def test_each_file_of_a_list_is_a_claim():
    said = (
        "Updated `a.py`, `b/c.ts` and **d.md**; I created e.py, but not f.py, version 1.2 and more."
    )
    assert [c.target for c in find_claims(said)] == ["a.py", "b/c.ts", "d.md", "e.py"]


@pytest.mark.parametrize("text", ["I will create a.py", "I have not changed a.py", "To be added: nothing", "Should tests pass, go on",
                                  "We never ran `pytest`", "the probe.active_low was added"])  # fmt: skip
def test_what_is_no_claim_is_none(text):
    assert list(find_claims(text)) == []


@pytest.mark.parametrize(
    ("name", "kind"), [("changes", ChangeLog), ("intents", IntentLog), ("evidence", EvidenceGraph)]
)
def test_each_file_is_read_as_it_was_written_and_bad_ones_are_sentences(tmp_path, name, kind):
    """F129: The files are written and read back."""
    make = {
        "changes": build_change_log,
        "intents": build_tool_call_intent_log,
        "evidence": build_evidence_graph,
    }[name]
    made, path = make(talk()), tmp_path / f"{name}.json"
    path.write_bytes(b"\xef\xbb\xbf" + encode_record(made))
    assert read_record(path, kind) == made
    for text in (
        "",
        "[]",
        '{"Entries": 7, "Nodes": 7}',
        "[" * 100_000,
        '{"Entries": [{}], "Nodes": [{}]}',
    ):
        path.write_text(text)
        with pytest.raises(ck.ReadError):
            read_record(path, kind)
    with pytest.raises(ck.ReadError, match="no such file"):
        read_record(tmp_path / "none", kind)
    with pytest.raises(ck.ReadError):
        read_record(tmp_path, kind)


def test_fusterafts_own_file_grounds_a_session(tmp_path):
    path = tmp_path / "changes.json"
    path.write_text(json.dumps({"ActiveSessionId": "x", "Entries": [
        {"Agent": "Developer", "TurnIndex": 0, "Timestamp": "2026-05-27T10:30:00Z", "SessionId": None,
         "FilesWritten": ["src/c.py"], "FilesDeleted": [], "GitCommits": [], "New": 1,
         "CommandsRun": [{"Command": "dotnet test", "succeeded": False}]}]}))  # fmt: skip
    table = check_claims_against_changes(talk(), read_record(path, ChangeLog))
    assert dict(zip(table.target, table.grounded, strict=True))["c.py"]
    assert table[table.kind == "passed"].why.iloc[0] == "the last test command failed"


def test_a_commit_by_a_tool_of_its_own_is_a_commit():
    made = tool_call("git_commit", "c1", message=f"Add totals {KEY}")
    bad = tool_call("git_commit", "c2", message="Empty")
    held = session(
        user("Commit."),
        assistant("", made), result("[main 1234]", made),
        assistant("", bad), result("nothing to commit", bad, is_error=True),
        assistant("Done."),
    )  # fmt: skip
    (entry,) = build_change_log(held).entries
    assert [c.startswith("Add totals ") for c in entry.git_commits] == [True]
    nodes = build_evidence_graph(held).nodes
    assert [(n.node_type, n.status) for n in nodes] == [
        ("GitCommit", "passed"),
        ("GitCommit", "failed"),
    ]
    assert nodes[0].commit_message == entry.git_commits[0]
    assert KEY not in f"{entry}{nodes}"


def test_a_command_without_words_proves_nothing():
    empty = tool_call("bash", "c1")
    held = session(
        user("Go."), assistant("", empty), result("?", empty), assistant("I ran `make lint`.")
    )
    assert check_claims_against_changes(held).grounded.tolist() == [False]
