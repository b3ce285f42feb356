"""An archive of sessions, copied before their tools delete them; read like any folder."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {"keep": "keeping", "find": "searching", "COLUMNS": "keeping", "FOUND": "searching"}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES)
