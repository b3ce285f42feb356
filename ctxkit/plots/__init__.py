"""Charts of sessions, comparisons and sweeps: plain data first, the figure second."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {
    "budget": "_budget",
    "cache": "_cache",
    "calibration": "_calibration",
    "composition": "_composition",
    "diff": "_diff",
    "frontier": "_frontier",
    "growth": "_growth",
    "heatmap": "_heatmap",
    "loss": "_loss",
    "savings": "_savings",
    "strip": "_strip",
    "thrash": "_thrash",
    "views": "_views",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
