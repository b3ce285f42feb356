"""The files of an agent's work in fuseraft's formats: changes, intents, evidence."""

from __future__ import annotations

from ctxkit.faces import listed
from ctxkit.ledgers.evidence_graph import evidence_of
from ctxkit.ledgers.grounding import grounding
from ctxkit.ledgers.kinds import ChangeLog, EvidenceGraph, IntentLog, ledger, ledger_bytes
from ctxkit.ledgers.work import changes_of, intents_of

__all__ = [
    "ChangeLog",
    "EvidenceGraph",
    "IntentLog",
    "changes_of",
    "evidence_of",
    "grounding",
    "intents_of",
    "ledger",
    "ledger_bytes",
]
__dir__ = listed(__all__)
