"""Policies, prunings, triggers, guards and rules: what a context manager does, and when."""

from __future__ import annotations

from ctxkit._internal.lazy import deprecated_aliases, lazy_exports

_NAMES = {
    "Chain": "base",
    "Fallback": "base",
    "BasePolicy": "base",
    "Guard": "protocols",
    "Forecast": "protocols",
    "RunState": "protocols",
    "Policy": "protocols",
    "Pruning": "protocols",
    "Trigger": "protocols",
    "Rules": "rules",
    "as_rules": "rules",
    "entries": "registry",
    "names": "registry",
    "parse": "registry",
}
_ROOMS = (
    "guards",
    "offline_summarisers",
    "modifiers",
    "triggers",
)
__all__ = [*_NAMES, *_ROOMS]  # noqa: PLE0604  names are strings, made above
_OLD = {"Outlook": "Forecast"}
_find, __dir__ = lazy_exports(__name__, _NAMES, _ROOMS)
_was = deprecated_aliases(__name__, _OLD)


def __getattr__(name: str) -> object:
    return _was(name) if name in _OLD else _find(name)
