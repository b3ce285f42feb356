"""fuseraft snapshot logs (`ctx_snapshots*.jsonl`) as DataFrames: read, follow, analyse, write."""

from __future__ import annotations

from ctxkit._internal.lazy import public_dir
from ctxkit.formats.snapshots.frame_writer import SnapshotWriter, write_snapshots
from ctxkit.formats.snapshots.log_reader import Follower, follow, read_snapshots
from ctxkit.formats.snapshots.schema import SnapshotFault, SnapshotFaults
from ctxkit.formats.snapshots.turns_and_segments import compactions, segments, turns

__all__ = [
    "Follower",
    "SnapshotFault",
    "SnapshotFaults",
    "SnapshotWriter",
    "compactions",
    "follow",
    "read_snapshots",
    "segments",
    "turns",
    "write_snapshots",
]
__dir__ = public_dir(__all__)
