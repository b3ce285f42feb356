"""fuseraft's snapshot logs (`ctx_snapshots*.jsonl`): read, followed, understood, written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.faces import listed, renamed
from ctxkit.snapshots.faults import Faults, SnapshotFault
from ctxkit.snapshots.follow import Follower, follow
from ctxkit.snapshots.markers import compactions, segments, turns
from ctxkit.snapshots.read import read_snapshots
from ctxkit.snapshots.write import SnapshotWriter, write_snapshots

__all__ = [
    "Faults",
    "Follower",
    "SnapshotFault",
    "SnapshotWriter",
    "compactions",
    "follow",
    "read_snapshots",
    "segments",
    "turns",
    "write_snapshots",
]
__dir__ = listed(__all__)
if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Fault": "SnapshotFault"})
