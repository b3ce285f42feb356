"""What belongs to one system is not left on in the preset of another."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields, is_dataclass
from functools import cache
from textwrap import dedent

import pytest

from ctxkit import presets
from ctxkit.presets import preset


@cache
def get_field_texts(kind: type) -> dict[str, str]:
    """Return what the classes of a part say of each of its settings."""
    out = {}
    for base in reversed(kind.__mro__):
        if not is_dataclass(base):
            continue
        body = ast.parse(dedent(inspect.getsource(base))).body[0].body
        for i, node in enumerate(body[:-1]):
            following = body[i + 1]
            if isinstance(node, ast.AnnAssign) and isinstance(following, ast.Expr):
                out[node.target.id] = ast.unparse(following)
    return out


def list_settings_of_others(name: str, value) -> list[str]:
    """Return the settings in force, of a value and its parts, that are of another system."""
    if isinstance(value, list | tuple):
        return [found for each in value for found in list_settings_of_others(name, each)]
    if not is_dataclass(value):
        return []
    texts, out = get_field_texts(type(value)), []
    for f in fields(value):
        own = getattr(value, f.name)
        systems = {n for n in presets.names() if re.search(rf"(?i)\b{n}\b", texts.get(f.name, ""))}
        if own is True and systems - {"none", "ai", "pi"} and name not in systems:
            out.append(f"{type(value).__name__}.{f.name}, which is of {', '.join(sorted(systems))}")
        out += list_settings_of_others(name, own)
    return out


@pytest.mark.parametrize("name", presets.names())
def test_no_setting_of_another_system_is_left_on(name):
    assert list_settings_of_others(name, preset(name)) == []


def test_a_setting_of_another_system_is_found():
    from ctxkit.policies import Rules, Tail

    left_on = "Tail.pin_corrections, which is of fuseraft"
    assert list_settings_of_others("autogen", Rules(pruning=Tail(messages=9))) == [left_on]
    assert list_settings_of_others("fuseraft", Rules(pruning=Tail(messages=9))) == []
