"""What settings cost and what they lose: one row a run, over sessions and rules."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {
    "score": "scores",
    "compare": "comparisons",
    "Comparison": "comparisons",
    "grid": "grids",
    "sweep": "sweep_runs",
    "summary": "frontiers",
    "pairs": "frontiers",
    "front": "frontiers",
    "advise": "advice",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
