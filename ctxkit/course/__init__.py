"""The course: exercises that say what is wrong with an answer, and its contest."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {
    "check": "exercises",
    "tasks": "exercises",
    "contest": "contests",
    "Contest": "contests",
    "facts_kept": "matter",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
