"""What settings cost and what they lose: one row a run, over sessions and rules."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "score": "scores",
    "compare": "comparisons",
    "Comparison": "comparisons",
    "grid": "grids",
    "sweep": "runs",
    "summary": "cells",
    "pairs": "cells",
    "front": "fronts",
    "advise": "fronts",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'ctxkit.sweeps' has no attribute {name!r}")
    value = getattr(import_module(f"ctxkit.sweeps.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
