"""What is wrong with a config file, said before anything runs by it."""

from __future__ import annotations

import json

import pytest

import ctxkit as ck

GOOD = """
Compaction: {TriggerTurnCount: 40, KeepRecentTurns: 8, Mode: intent}
ChangeTracking: {Path: changes.json}
ContextBudget: {WarnAt: 80000, CutoverAt: 120000}
Agents: [{Name: Dev, Instructions: Work.}]
"""
WRONG = [
    ("Compaction:", "Other:", "error", "CutoverAt cannot fire without a Compaction"),
    ("WarnAt: 80000", "WarnAt: 130000", "error", "must lie below"),
    ("KeepRecentTurns: 8", "KeepRecentTurns: 40", "error", "must lie below"),
    ("{Name: Dev,", "{Name: Dev, TrustScore: 3,", "error", "TrustScore lies between"),
    ("{Name: Dev,", "{Name: Dev, FunctionChoice: maybe,", "error", "FunctionChoice is one of"),
    ("{Name: Dev,", "{ContextWindow: {ContextCapFraction: 2},", "error", "Agents[0] has no Name"),
    (
        "{Name: Dev,",
        "{Name: Dev, ContextWindow: {ContextCapFraction: 2},",
        "error",
        "between 0 and",
    ),
    ("Agents: [", "Agents: [{Name: dev}, ", "error", "Two agents are called 'dev'"),
    (
        "Agents: [{Name: Dev,",
        "Selection: {Type: magentic}\nAgents: [{Name: Dev, Isolation: Fresh,",
        "error",
        "would not hear its manager",
    ),
    (
        "ChangeTracking:",
        "Validation: {ChangeLogPath: x.json}\nChangeTracking:",
        "error",
        "same file",
    ),
    (
        "ChangeTracking: {Path: changes.json}",
        "",
        "warning",
        "Mode intent requires ChangeTracking: ",
    ),
    ("Agents:", "WarnTurnTokens: 120000\nAgents:", "warning", "it warns too late"),
    ("Agents: [{Name: Dev, Instructions: Work.}]", "", "warning", "It has no agents"),
    ("[{Name: Dev, Instructions: Work.}]", "[]", "warning", "It has no agents"),
    ("[{Name: Dev, Instructions: Work.}]", "{Name: Dev}", "warning", "It has no agents"),
    ("TriggerTurnCount:", "TrigerTurnCount: 3, TriggerTurnCount:", "warning", "Unknown keys"),
    ("Compaction: {", "Compaction: [", "error", "cannot be read"),
]


def found(tmp_path, text):
    path = tmp_path / "orchestration.yaml"
    path.write_text(text)
    table = ck.validate(path, system="fuseraft")
    return list(table.itertuples(index=False, name=None))


def test_a_file_in_order_has_nothing(tmp_path):
    assert [row for row in found(tmp_path, GOOD) if row[0] == "error"] == []
    assert [why for _, why in found(tmp_path, GOOD) if "Not in these rules" not in why] == []


@pytest.mark.parametrize(("old", "new", "level", "why"), WRONG)
def test_each_fault_is_a_sentence(tmp_path, old, new, level, why):
    """F92: A cut-over without a compaction, and what else fuseraft refuses or warns of."""
    assert old in GOOD
    rows = found(tmp_path, GOOD.replace(old, new, 1))
    assert [row for row in rows if row[0] == level and why in row[1]], rows
    assert rows == sorted(rows, key=lambda row: row[0] != "error")


LOSSLESS = """
Compaction: {TriggerTurnCount: 40, KeepRecentTurns: 8, Mode: lossless}
EvidenceStore: {Path: evidence.json}
Selection: {Type: statemachine}
Agents: [{Name: Dev, Instructions: Work.}]
"""


@pytest.mark.parametrize("mode", ["lossless", "hybrid"])
@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("EvidenceStore: {Path: evidence.json}", "", "EvidenceStore"),
        ("Type: statemachine", "Type: roundrobin", "Selection.Type statemachine"),
        ("Selection: {Type: statemachine}", "", "Selection.Type statemachine"),
    ],
)
def test_a_reconstruction_requires_a_state_machine_and_an_evidence_store(
    tmp_path, mode, old, new, missing
):
    """F62, F63: Modes lossless and hybrid require both; a check of the file names what is missing."""
    text = LOSSLESS.replace("lossless", mode)
    assert not [why for _, why in found(tmp_path, text) if " requires " in why]
    rows = found(tmp_path, text.replace(old, new, 1))
    (why,) = [why for level, why in rows if level == "warning" and " requires " in why]
    assert why.startswith(f"Compaction.Mode {mode} requires {missing}: ")


def test_modes_that_require_nothing_are_not_warned_of(tmp_path):
    for mode in ("llm", "window"):
        rows = found(tmp_path, GOOD.replace("intent", mode).replace("ChangeTracking", "Telemetry"))
        assert not [why for _, why in rows if " requires " in why]


def test_of_a_list_the_first_500_entries_are_checked(tmp_path):
    agents = [{"Name": f"A{i}"} for i in range(499)] + [{}, {}]
    path = tmp_path / "orchestration.json"
    path.write_text(json.dumps({"Agents": agents}))
    why = ck.validate(path, system="fuseraft")["why"].tolist()
    assert [text for text in why if "has no Name" in text] == ["Agents[499] has no Name."]


def test_any_systems_file_can_be_asked_about(tmp_path):
    assert ck.validate({"COMPACT_TRIGGER": "10", "KEEP_LAST_TURNS": "2"})["level"].tolist() == [
        "error"
    ]
    (tmp_path / "settings.json").write_text('{"compaction": {"enabled": "perhaps"}}')
    assert "must be" in ck.validate(tmp_path / "settings.json", system="pi")["why"][0]
    assert ck.validate(tmp_path / "none.yaml")["why"][0].endswith("There is no such file.")
