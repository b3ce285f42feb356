"""Memory that outlives a session: typed entries in files, providers and webhooks."""

from __future__ import annotations

from ctxkit._internal.lazy import public_dir
from ctxkit.agent.memory.folders import MemoryStore
from ctxkit.agent.memory.webhook import Webhook
from ctxkit.policies.memory_entries import (
    MEMORY_TYPES,
    MemoryDigestBudgets,
    MemoryEntry,
    format_digest,
    format_memory_block,
    rank_by_score,
    sort_by_type,
)

__all__ = [
    "MEMORY_TYPES",
    "MemoryDigestBudgets",
    "MemoryEntry",
    "MemoryStore",
    "Webhook",
    "format_digest",
    "format_memory_block",
    "rank_by_score",
    "sort_by_type",
]
__dir__ = public_dir(__all__)
