"""The default of every setting of every policy, trigger, guard and preset, as one table.

`python tests/setting_defaults.py` writes it to `tests/setting_defaults.json`, one line a setting; a test compares
it with the code, so a default changes only together with its line.
"""

from __future__ import annotations

import json
import sys
from dataclasses import MISSING, Field, fields, is_dataclass
from hashlib import sha256
from importlib import import_module
from inspect import Parameter, isclass, isfunction, signature
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

import ctxkit.policies
import ctxkit.presets
from ctxkit.policies.context_rules import ConvertingField, unwrap_function
from ctxkit.presets import names, preset

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = Path(__file__).with_suffix(".json")
LONGEST_TEXT = 80
"""Characters of a value; a longer one stands by its beginning, its length and its hash."""


def list_setting_classes() -> list[type]:
    """Return every dataclass of the packages of policies and presets: policies, triggers, guards, rules, parts."""
    found = set[type]()
    for package in (ctxkit.policies, ctxkit.presets):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            found |= {
                value
                for value in vars(import_module(module.name)).values()
                if isclass(value) and is_dataclass(value) and value.__module__ == module.name
            }
    return sorted(found, key=lambda c: (c.__module__, c.__qualname__))


def collect_defaults() -> dict[str, dict[str, str]]:
    """Return the defaults by class or preset, and of each preset the settings of all its parts."""
    out = {
        f"{c.__module__}.{c.__qualname__}": {
            f.name: format_value(read_default(f)) for f in fields(c) if f.init
        }
        for c in list_setting_classes()
    }
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
