"""An archive of sessions: copied before their tools delete them, read and searched like any folder
of logs.
"""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {"keep": "keeping", "find": "searching", "COLUMNS": "keeping", "FOUND": "searching"}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
