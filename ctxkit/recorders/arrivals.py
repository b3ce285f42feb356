"""Being told of the import of a library, so that it need not be imported only to be listened to."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class _Finder(MetaPathFinder):
    """Finds one module as all others do, and has its loader tell when it is imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then, self._asks = name, then, False

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return how the module is imported; None for any other."""
        if name != self._name or self._asks:
            return None
        self._asks = True
        try:
            spec = find_spec(name)
        finally:
            self._asks = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._then(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # this one's alone
        return spec


@contextmanager
def arriving(name: str, then: Callable[[ModuleType], None]) -> Iterator[None]:
    """Call `then` with a module: now if it is imported, else when it is, in the block."""
    there = sys.modules.get(name)
    if there is not None:
        then(there)
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
