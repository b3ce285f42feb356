"""What the parts of a prompt are worth: the bill with them, less the bill without."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {
    "sections": "section_costs",
    "without": "leaving",
    "index_or_paste": "pasted",
    "with_memory": "recalls",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
