"""Memory that outlives a session: typed entries in files, providers and webhooks."""

from __future__ import annotations

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.agent.memory.entry_store import MemoryStore
from ctxkit.agent.memory.providers import WebhookMemoryProvider
from ctxkit.policies.memory_entries import MEMORY_TYPES, MemoryEntry
from ctxkit.policies.memory_ranking_and_digests import (
    MemoryDigestLimits,
    format_digest,
    format_memory_block,
    rank_by_score,
    sort_by_type,
)

__all__ = [
    "MEMORY_TYPES",
    "MemoryDigestLimits",
    "MemoryEntry",
    "MemoryStore",
    "WebhookMemoryProvider",
    "format_digest",
    "format_memory_block",
    "rank_by_score",
    "sort_by_type",
]
__dir__ = make_dunder_dir(__all__)
