"""Sessions under many rules: scores, comparisons, sweeps, advice."""

from __future__ import annotations

from ctxkit._internal.lazy import lazy_exports

_NAMES = {
    "score": "scores",
    "compare": "comparison",
    "Comparison": "comparison",
    "grid": "grids",
    "sweep": "sweep_runs",
    "summarise_runs": "sweep_runs",
    "compare_settings": "sweep_runs",
    "get_pareto_front": "sweep_runs",
    "advise": "advice",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = lazy_exports(__name__, _NAMES)
