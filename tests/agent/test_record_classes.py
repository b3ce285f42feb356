"""Records of the agent are made by the names of their fields, so that a field can be added in any place."""

from __future__ import annotations

import pytest

from ctxkit.agent import ChangeLog, EvidenceGraph, IntentLog, Request
from ctxkit.agent import change_log_intent_log_evidence_graph as records
from ctxkit.agent.event_snapshot_and_report_files import StoredContextReport
from ctxkit.agent.session_settings_seal_and_changes import SignedSessionSettings
from ctxkit.agent.tools.tool import Tool


@pytest.mark.parametrize(
    "record",
    [
        ChangeLog,
        EvidenceGraph,
        IntentLog,
        Request,
        SignedSessionSettings,
        StoredContextReport,
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
