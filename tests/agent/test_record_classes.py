"""Records of the agent are made by the names of their fields, so that a field can be added in any place."""

from __future__ import annotations

import pytest

from ctxkit.agent import (
    ChangeLog,
    EvidenceGraph,
    IntentLog,
    Request,
    Tool,
    event_snapshot_and_report_files,
    session_settings_seal_and_changes,
)
from ctxkit.agent import change_log_intent_log_evidence_graph as records


@pytest.mark.parametrize(
    "record",
    [
        ChangeLog,
        EvidenceGraph,
        IntentLog,
        Request,
        session_settings_seal_and_changes.SignedSessionSettings,
        event_snapshot_and_report_files.StoredContextReport,
        Tool,
        records.CommandRun,
        records.EvidenceEdge,
        records.EvidenceNode,
        records.ToolCallOperation,
        records.ToolCallStatusEntry,
        records.TurnChangeEntry,
    ],
)
def test_fields_are_given_by_name(record):
    with pytest.raises(TypeError, match="positional"):
        record("value")
