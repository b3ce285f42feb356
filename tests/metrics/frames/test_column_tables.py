"""Every table of frame columns in the kit: a name, a dtype, a unit and a meaning stand each in their place."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import pytest
from builders import assistant, result, session, tool_call, user

import ctxkit as ck
from ctxkit.metrics.frames.frame_column import BOOL, FLOAT, INT, TEXT, TIME, FrameColumn

DTYPES = {INT, FLOAT, BOOL, TEXT, TIME}
UNITS = {
    *("", "tokens", "US dollars", "UTC", "entries", "messages", "seconds", "share", "characters"),
    *("calls", "turns", "items", "compactions"),
}


def list_tables() -> dict[str, tuple[FrameColumn, ...]]:
    """Return the tuples of frame columns of all modules that measure, each once, by their name."""
    found = {}
    for package in map(import_module, ("ctxkit.metrics", "ctxkit.experiments")):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, tuple) and value and isinstance(value[0], FrameColumn):
                    found[id(value)] = (f"{module.name}.{name}", value)
    return dict(found.values())


TABLES = list_tables()


@pytest.mark.parametrize("table", TABLES)
def test_each_field_of_a_column_is_what_it_is_called(table):
    columns = TABLES[table]
    assert len({c.name for c in columns}) == len(columns)
    for column in columns:
        assert column.name.isidentifier(), column
        assert column.name not in DTYPES, column
        assert column.dtype in DTYPES, column
        assert column.unit in UNITS, column
        assert column.meaning not in UNITS, column


def test_there_are_tables_of_messages_and_of_who_sees_them():
    assert len(TABLES) >= 10
    assert any("AUDIENCE" in name for name in TABLES)


def test_a_reply_names_the_tools_that_it_calls_each_once():
    calls = [tool_call(name, path=str(i)) for i, name in enumerate(["read", "write", "read"])]
    reply = assistant("", *calls)
    log = session(user("go"), reply, *(result("ok", c) for c in calls), assistant("done"))
    tools = ck.frame(log, per="message")["tool"]
    assert tools[1] == "read, write"
    one = session(user("go"), assistant("", calls[1]), result("ok", calls[1]), assistant("done"))
    assert ck.frame(one, per="message")["tool"][1] == "write"
