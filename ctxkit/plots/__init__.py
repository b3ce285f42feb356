"""Charts of sessions, comparisons and sweeps: plain data first, the figure second."""

from __future__ import annotations

from importlib import import_module
from typing import Any

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
    "thrash": "_thrash",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'ctxkit.plots' has no attribute {name!r}")
    value = getattr(import_module(f"ctxkit.plots.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
