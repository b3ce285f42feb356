"""Snapshot logs of fuseraft (`ctx_snapshots*.jsonl`): read fast and large, followed, understood, written."""

from __future__ import annotations

from ctxkit.snapshots.faults import Fault, Faults
from ctxkit.snapshots.read import read_snapshots

__all__ = ["Fault", "Faults", "read_snapshots"]
