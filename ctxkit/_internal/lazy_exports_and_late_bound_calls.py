"""Names whose modules are imported at first use: the exports of a package, and hooks."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any


DEVELOPERS_PART = "# For other packages and for tests, not in `__all__`:"
"""The comment of a stub above the names that users do not see."""


# A package's stub is the only list of its exports: a type checker and an editor read
# `__init__.pyi`, and at run time `lazy_exports` reads the same file.
def lazy_exports(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package from its stub.

    Args:
        package: the package's `__name__`.
        file: its `__file__`; the stub is in the same folder.
            Every `from .module import name as name` of the stub is a name of the package;
            `from . import module as module` a module. Names below `DEVELOPERS_PART` can be
            imported, but are not in `__dir__` and `__all__`.
    """
    with open(f"{file.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:  # noqa: PTH123  `pathlib` would cost as much again
        for_users, _, for_developers = stub.read().partition(DEVELOPERS_PART)
    public = _read_stub(for_users)
    exports = public | _read_stub(for_developers)

    def load_name(name: str) -> Any:
        from importlib import import_module

        if name not in exports:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = exports[name]
        if module == ".":
            return import_module(f".{original}", package)  # the import binds it
        owner = import_module(module, package)
        try:
            value = getattr(owner, original)
        except AttributeError:
            value = import_module(f"{owner.__name__}.{original}")
        setattr(import_module(package), name, value)
        return value

    return load_name, make_dunder_dir(public), list(public)


def make_dunder_dir(names: Iterable[str]) -> Callable[[], list[str]]:
    """Return the `__dir__` of a module that shows its public names only."""
    return lambda: sorted(names)


def _read_stub(text: str) -> dict[str, tuple[str, str]]:
    """Return each name of a stub with its module, as the stub names it, and its name there.

    The imports are as the formatter writes them. They are read as text, as importing `ast` or `re`
    would take longer than the whole import of ctxkit.
    """
    exports = {}
    for statement in text.split("\nfrom ")[1:]:
        module, _, rest = statement.partition(" import ")
        names = rest[1 : rest.index(")")] if rest.startswith("(") else rest.partition("\n")[0]
        for item in filter(None, (part.strip() for part in names.split(","))):
            original, _, name = item.partition(" as ")
            if name:  # without `as` a stub imports for itself
                exports[name] = (module, original)
    return exports


_targets: dict[str, str] = {}


# Hooks are functions of upper layers that lower layers call by name. A session has methods for the
# prompt that was sent and for its display, but its layer must not import the engine or the widgets.
# So these methods call a hook; `ctxkit/__init__.py`, above all layers, registers the functions. The
# module of a function is imported at the first call.
def register_hooks(targets: Mapping[str, str]) -> None:
    """Register the function of each hook.

    Args:
        targets: hook names, each with `module:function`. The module is imported at the first call.
    """
    _targets.update(targets)


def call_hook(hook: str, *args: Any) -> Any:
    """Call the function registered for a hook and return its result.

    Args:
        hook: name of the hook; a package above registers a function for it.
        args: arguments of the function.

    Raises:
        LookupError: no function is registered for it.
    """
    from importlib import import_module

    if hook not in _targets:
        raise LookupError(f"No function is registered for the hook {hook!r}.")
    module, function = _targets[hook].split(":")
    return getattr(import_module(module), function)(*args)
