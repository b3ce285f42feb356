"""Context policies: the protocols at the foot, members side by side, the catalogue on top."""

from __future__ import annotations

from ctxkit.faces import face, renamed

_NAMES = {
    **dict.fromkeys(("Chain", "Ladder", "Part"), "chain"),
    **dict.fromkeys(("Guard", "Forecast", "Past", "Policy", "Pruning", "Trigger"), "policy"),
    **dict.fromkeys(("Rules", "as_rules"), "rules"),
    **dict.fromkeys(("entries", "names", "parse"), "policy_names"),
}
_ROOMS = ("guards", "summarisers", "switches", "triggers")
__all__ = [*_NAMES, *_ROOMS]  # noqa: PLE0604  names are strings, made above
_OLD = {"Outlook": "Forecast"}
_find, __dir__ = face(__name__, _NAMES, _ROOMS)
_was = renamed(__name__, _OLD)


def __getattr__(name: str) -> object:
    return _was(name) if name in _OLD else _find(name)
