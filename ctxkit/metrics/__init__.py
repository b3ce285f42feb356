"""Figures about sessions and replays: cost, compactions, loss, cache misses, prompt contents."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ctxkit._internal.lazy import lazy_exports
from ctxkit.errors import BadArguments

_ROOMS = {
    "retention_checks": "retention_checks",
    "breakeven": "breakeven",
    "loss": "loss",
    "elongation": "elongation",
    "semantic": "semantic",
    "cache_misses": "cache_misses",
    "money": "cost.ledger",
    "compactions": "compactions",
    "thrashing": "thrashing",
    "timing": "timing",
}

__all__ = [*_ROOMS]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = lazy_exports(__name__, {}, _ROOMS)


class _Metric(ModuleType):
    """A file of metrics, called as its function of the same name."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        if not hasattr(self, name):
            raise BadArguments(
                f"ctxkit.metrics.{name} holds several: call one of {', '.join(self.__dir__())}."
            )
        return getattr(self, name)(*args, **settings)

    def __dir__(self) -> list[str]:
        return sorted(self.__all__)


class _Package(ModuleType):
    """This package: makes a file of it callable when the import system binds it here."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ROOMS and type(value) is ModuleType:
            value.__class__ = _Metric
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
