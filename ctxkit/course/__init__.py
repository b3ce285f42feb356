"""The course: exercises that say what is wrong with an answer, and its contest."""

from __future__ import annotations

from ctxkit._internal.lazy import lazy_exports

_NAMES = {
    "check": "exercises",
    "tasks": "exercises",
    "contest": "contests",
    "Contest": "contests",
    "facts_kept": "sample_data",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = lazy_exports(__name__, _NAMES)
