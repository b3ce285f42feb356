"""Lazy public names of a package, and deprecated aliases."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would double what a bare interpreter takes to import ctxkit
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any


def lazy_exports(
    package: str, names: Mapping[str, str], rooms: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: its name.
        names: each public name, and the module of the package that has it.
        rooms: modules of the package that are public themselves.
    """
    public = {*names, *rooms}

    def find(name: str) -> Any:
        from importlib import import_module

        if name not in public:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name not in names:
            return import_module(
                f"{package}.{rooms[name] if isinstance(rooms, dict) else name}"
            )  # the import binds it
        value = getattr(import_module(f"{package}.{names[name]}"), name)
        setattr(import_module(package), name, value)
        return value

    return find, public_dir(public)


def deprecated_aliases(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names were others a version ago: old to new."""

    def find(name: str) -> Any:
        from importlib import import_module
        from warnings import warn

        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name} is called {names[name]} now.", DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), names[name])

    return find


def public_dir(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return the `__dir__` of a module that shows its public names only."""
    return lambda: sorted(names)
