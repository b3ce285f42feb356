"""fuseraft snapshot logs (`ctx_snapshots*.jsonl`) as DataFrames: read, follow, analyse, write."""

from __future__ import annotations

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.formats.snapshots.column_blocks_and_faults import SnapshotFault, SnapshotFaults
from ctxkit.formats.snapshots.incremental_reading_and_following import Follower, follow
from ctxkit.formats.snapshots.log_reader_with_cache import read_snapshots
from ctxkit.formats.snapshots.token_log_writer import SnapshotWriter, write_snapshots
from ctxkit.formats.snapshots.turn_segment_compaction_frames import compactions, segments, turns

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
__dir__ = make_dunder_dir(__all__)
