"""The default of every setting of every policy, trigger, guard and preset, and every named value, as one table.

A named value is a constant of a module, or the default of an argument or of a class, in the packages whose figures,
records and bounds depend on it: `metrics`, `engine`, `policies`, `presets`, `formats`, `agent`, `experiments`, `plots`.
`python tests/setting_defaults.py` writes the table to `tests/setting_defaults.json`, one line a value; a test compares
it with the code, so a value changes only together with its line.
"""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from inspect import Parameter, getsource, isclass, isfunction, signature, unwrap
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import numpy as np

import ctxkit.agent
import ctxkit.engine
import ctxkit.experiments
import ctxkit.formats
import ctxkit.metrics
import ctxkit.plots
import ctxkit.policies
import ctxkit.presets
from ctxkit.policies import ConvertingField, unwrap_function
from ctxkit.presets import names, preset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FunctionType, ModuleType

TABLE = Path(__file__).with_suffix(".json")
LONGEST_TEXT = 80
"""Characters of a value; a longer one stands by its beginning, its length and its hash."""


SETTING_PACKAGES = (ctxkit.policies, ctxkit.presets)
VALUE_PACKAGES = (
    *(*SETTING_PACKAGES, ctxkit.engine, ctxkit.metrics, ctxkit.formats, ctxkit.agent),
    *(ctxkit.experiments, ctxkit.plots),
)


def list_modules(*packages: ModuleType) -> list[ModuleType]:
    """Return the modules of packages, by name."""
    found = [m for p in packages for m in walk_packages(p.__path__, f"{p.__name__}.")]
    return [import_module(name) for name in sorted(m.name for m in found)]


def list_classes(module: ModuleType) -> list[type]:
    """Return the classes that a module defines."""
    return [c for c in vars(module).values() if isclass(c) and c.__module__ == module.__name__]


def list_setting_classes() -> list[type]:
    """Return every dataclass of the packages of policies and presets: policies, triggers, guards, rules, parts."""
    found = {c for m in list_modules(*SETTING_PACKAGES) for c in list_classes(m) if is_dataclass(c)}
    return sorted(found, key=lambda c: (c.__module__, c.__qualname__))


def collect_named_values() -> dict[str, dict[str, str]]:
    """Return the constants of each module, and the defaults of the classes and functions that it defines.

    Texts are left out unless they are in a collection: what they say is held by the tests of their subject.
    """
    out = dict[str, dict[str, str]]()
    for module in list_modules(*VALUE_PACKAGES):
        values = vars(module)
        found = {f"constants of {module.__name__}": {n: values[n] for n in list_constants(module)}}
        for c in list_classes(module):
            found[f"{c.__module__}.{c.__qualname__}"] = get_class_values(c)
        for function in list_functions(module):
            parameters = signature(function).parameters.values()
            found[f"{module.__name__}.{function.__qualname__}"] = {
                p.name: p.default for p in parameters
            }
        for owner, named in found.items():
            out[owner] = {n: format_value(v) for n, v in named.items() if is_plain(v)}
    return out


def list_constants(module: ModuleType) -> list[str]:
    """Return the names in capitals that a module binds itself."""
    statements = [
        s for s in ast.parse(getsource(module)).body if isinstance(s, ast.Assign | ast.AnnAssign)
    ]
    stored = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)]
    return [n.id for n in stored if isinstance(n.ctx, ast.Store) and n.id.isupper()]


def list_functions(module: ModuleType) -> list[FunctionType]:
    """Return the functions and methods that a module defines, also decorated ones."""
    bound = [vars(module), *map(vars, list_classes(module))]
    values = [
        unwrap(getattr(v, "__func__", v)) for names in bound for v in names.values() if callable(v)
    ]
    return [
        f
        for f in values
        if isfunction(f)
        and f.__module__ == module.__name__
        and f.__code__.co_filename == module.__file__  # not the `__init__` of a dataclass
    ]


def get_class_values(of: type) -> dict[str, Any]:
    """Return the defaults of the fields of a record, and the attributes of a class."""
    fields_with_default = getattr(of, "__struct_defaults__", ())
    names = getattr(of, "__struct_fields__", ())[-len(fields_with_default) :]
    own = {n: v for n, v in vars(of).items() if not n.startswith("_") or n.isupper()}
    return (
        own
        | dict(zip(names, fields_with_default, strict=False))
        | getattr(of, "_field_defaults", {})
    )


def is_plain(value: Any) -> bool:
    """Say whether a value is a number, or a collection of numbers and texts."""
    if type(value) in (dict, tuple, list, set, frozenset):
        every = (*value, *value.values()) if isinstance(value, dict) else value
        return bool(value) and all(isinstance(v, str) or is_plain(v) for v in every)
    return isinstance(value, bool | int | float | range | np.ndarray)


@cache
def collect_defaults() -> dict[str, dict[str, str]]:
    """Return the defaults by class or preset, of each preset the settings of all its parts, and the named values."""
    out = collect_named_values()
    for c in list_setting_classes():
        settings = {f.name: format_value(read_default(f)) for f in fields(c) if f.init}
        name = f"{c.__module__}.{c.__qualname__}"
        out[name] = settings | out[name]
    for name in names():
        function = getattr(ctxkit.presets, name)
        arguments = signature(function).parameters.values()
        out[f"preset {name}"] = {
            p.name: format_value(p.default if p.default is not Parameter.empty else MISSING)
            for p in arguments
        } | {f"in force: {path}": value for path, value in list_parts(preset(name))}
    return {owner: settings for owner, settings in out.items() if settings}


def read_default(of: Field[Any]) -> Any:
    """Return the default of a field, made where a function makes it."""
    if of.default_factory is not MISSING:
        return of.default_factory()
    return of.default


def list_parts(value: Any, path: str = "rules") -> Iterator[tuple[str, str]]:
    """Yield each part that a value is made of by its path, and each of its settings that is not its default."""
    if isinstance(value, list | tuple) and any(map(is_dataclass, value)):
        for i, each in enumerate(value):
            yield from list_parts(each, f"{path}[{i}]")
    elif is_dataclass(value) and not isclass(value):
        yield path, type(value).__qualname__
        for f in fields(value):
            own = getattr(value, f.name)
            if f.init and format_value(own) != format_value(read_default(f)):
                yield from list_parts(own, f"{path}.{f.name}")
    else:
        yield path, format_value(value)


def format_value(value: Any) -> str:
    """Return a value as the table has it: the same in each process."""
    if value is MISSING:
        return "(must be given)"
    if isinstance(value, ConvertingField):
        value = value._default
    value = unwrap_function(value)
    if isfunction(value) or isclass(value):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(format_value, value)))}}}"
    if type(value).__repr__ is object.__repr__:
        return f"{type(value).__module__}.{type(value).__qualname__}()"
    text = repr(value)
    if len(text) <= LONGEST_TEXT:
        return text
    digest = sha256(text.encode()).hexdigest()[:12]
    return f"{text[:LONGEST_TEXT]}… ({len(text)} characters, {digest})"


def main() -> None:
    """Write the table."""
    text = json.dumps(collect_defaults(), indent=1, ensure_ascii=False)
    TABLE.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(f"{TABLE}\n")


if __name__ == "__main__":
    main()
