"""Where the money of a session went: in sentences first, then in tables that each add up to the
bill.
"""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {"spend": "spends", "Spend": "spends"}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
