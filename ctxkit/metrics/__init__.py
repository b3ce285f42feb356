"""Size, money, thrash and loss: pure functions over sessions, one idea a file.

`metrics.thrash(session)` calls the function that a file is named after; `metrics.thrash.cuts` is
another of the same file.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ctxkit.errors import BadArguments
from ctxkit.faces import face

_ROOMS = (
    "audits",
    "breakeven",
    "drift",
    "elongation",
    "loss",
    "meaning",
    "misses",
    "money",
    "planted",
    "savings",
    "thrash",
    "when",
)

__all__ = [*_ROOMS]  # noqa: PLE0604  names are strings, made above
__getattr__, __dir__ = face(__name__, {}, _ROOMS)


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
