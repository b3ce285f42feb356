"""Many sessions at a glance: what each cost, how full it got, what went wrong."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {"board": "overviews", "Board": "overviews"}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
