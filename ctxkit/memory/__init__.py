"""Memory that outlives a session: typed entries in files that a person and fuseraft can read."""

from __future__ import annotations

from ctxkit.faces import listed
from ctxkit.memory.digests import Budgets, digest
from ctxkit.memory.entry import TYPES, MemoryEntry
from ctxkit.memory.memory_folders import Memories
from ctxkit.memory.ranking import memory_block, newest, oldest
from ctxkit.memory.webhook import Webhook

__all__ = [
    "TYPES",
    "Budgets",
    "Memories",
    "MemoryEntry",
    "Webhook",
    "digest",
    "memory_block",
    "newest",
    "oldest",
]
__dir__ = listed(__all__)
