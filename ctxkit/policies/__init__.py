"""Context policies: the protocols at the foot, members side by side, the catalogue on top."""

from __future__ import annotations

from ctxkit.faces import face

_NAMES = {
    **dict.fromkeys(("Chain", "Ladder", "Part"), "chain"),
    **dict.fromkeys(("Guard", "Outlook", "Past", "Policy", "Pruning", "Trigger"), "policy"),
    **dict.fromkeys(("Rules", "as_rules"), "rules"),
    **dict.fromkeys(("entries", "names", "parse"), "policy_names"),
}
_ROOMS = ("guards", "summarisers", "triggers")
__all__ = [*_NAMES, *_ROOMS]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, _NAMES, _ROOMS)
