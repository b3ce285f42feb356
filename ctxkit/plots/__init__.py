"""Charts of sessions, comparisons and sweeps: plain data first, the figure second."""

from __future__ import annotations

from ctxkit._internal.lazy import lazy_exports

_NAMES = {
    "budget": "budget_charts",
    "cache": "cache_charts",
    "calibration": "calibration_chart",
    "composition": "composition_chart",
    "diff": "diff_chart",
    "frontier": "sweep_charts",
    "growth": "growth_chart",
    "heatmap": "sweep_charts",
    "loss": "compaction_charts",
    "savings": "compaction_charts",
    "strip": "cache_charts",
    "thrash": "compaction_charts",
    "views": "budget_charts",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = lazy_exports(__name__, _NAMES)
