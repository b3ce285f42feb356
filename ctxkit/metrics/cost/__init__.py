"""Where the money of a session went: bills by call, by message and by cause."""

from __future__ import annotations

from ctxkit._internal.lazy import lazy_exports

_NAMES = {"spend": "spending", "Spend": "spending"}

__all__ = [*_NAMES]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = lazy_exports(__name__, _NAMES)
