"""Formats of agent logs: readers, writers, discovery, archive."""

from __future__ import annotations

from ctxkit._internal.lazy import lazy_exports

_NAMES = {
    "Reader": "registry",
    "format_names": "registry",
    "register": "registry",
    "detect_reader": "registry",
    "as_session": "inputs",
    "as_sessions": "inputs",
    "read": "reading",
    "read_all": "reading",
    "Sessions": "reading",
    "Source": "source",
}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = lazy_exports(__name__, _NAMES)
