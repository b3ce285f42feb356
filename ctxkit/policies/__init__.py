"""Context policies: the protocols at the foot, members side by side, the catalogue on top."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    **dict.fromkeys(("Chain", "Ladder"), "chain"),
    **dict.fromkeys(("Guard", "Outlook", "Part", "Past", "Policy", "Pruning", "Trigger"), "policy"),
    **dict.fromkeys(("Rules", "as_rules"), "rules"),
    **dict.fromkeys(("entries", "names", "parse"), "catalogue"),
}
_ROOMS = ("guards", "summarisers", "triggers")
__all__ = [*_NAMES, *_ROOMS]  # noqa: PLE0604  names are strings, made above


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(import_module(f"ctxkit.policies.{_NAMES[name]}"), name)
    elif name in _ROOMS:
        value = import_module(f"ctxkit.policies.{name}")
    else:
        raise AttributeError(f"module 'ctxkit.policies' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
