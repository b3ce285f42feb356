"""A scripted team that writes a small Python library in three rounds: real files, tests and hand-
offs.
"""

# Notebook 11 uses `open_library_team(folder)`. Replies and tool calls are the same in each run, so
# that views of the history can be compared.

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctxkit
from ctxkit.teams.scripted_teams import make_scripted_agent
from ctxkit.tokens.prices import price, register

if TYPE_CHECKING:
    from ctxkit.teams.runner import Team

PRICED_MODEL = "claude-sonnet-4-5"
"""Scripted replies cost nothing; they get this model's prices."""
TASK = "Write a library for Roman numerals: to_roman, from_roman and add, each with tests."
TEST_COMMAND = "python -m unittest -v"
ERROR_CODE = "ERR-ROMAN-41"
"""First word of every refusal; the Planner says it once, and no file holds it."""
_AGENTS = ("Planner", "Developer", "Tester", "Reviewer")
_VALUES = '''"""The letters of Roman numerals and what they stand for."""

VALUES = {values}
'''
_LETTERS = [("M", 1000), ("CM", 900), ("D", 500), ("CD", 400), ("C", 100), ("XC", 90), ("L", 50),
            ("XL", 40), ("X", 10), ("IX", 9), ("V", 5), ("IV", 4), ("I", 1)]  # fmt: skip
_MODULES = {
    "to_roman": '''"""Numbers to Roman numerals."""

from values import VALUES


def to_roman(number: int) -> str:
    """Return a number from 1 to 3999 in letters."""
    if not 1 <= number <= 3999:
        raise ValueError("{code}a number from 1 to 3999 is needed, not %r" % number)
    out = ""
    for letters, value in VALUES:
        out += letters * (number // value)
        number %= value
    return out
''',
    "from_roman": '''"""Roman numerals to numbers."""

from to_roman import to_roman
from values import VALUES


def from_roman(text: str) -> int:
    """Return the number that letters stand for."""
    number, rest = 0, text.upper()
    for letters, value in VALUES:
        while rest.startswith(letters):
            number, rest = number + value, rest[len(letters):]
    if rest or not number or to_roman(number) != text.upper():
        raise ValueError("{code}%r is no Roman numeral" % text)
    return number
''',
    "add": '''"""Sums of Roman numerals."""

from from_roman import from_roman
from to_roman import to_roman


def add(*numerals: str) -> str:
    """Return the sum of numerals, as a numeral."""
    if not numerals:
        raise ValueError("{code}nothing to add")
    return to_roman(sum(map(from_roman, numerals)))
''',
}
_CHECKS = {
    "to_roman": [
        ("to_roman(4)", "'IV'"),
        ("to_roman(1994)", "'MCMXCIV'"),
        ("to_roman(3999)", "'MMMCMXCIX'"),
    ],
    "from_roman": [
        ("from_roman('IV')", "4"),
        ("from_roman('mcmxciv')", "1994"),
        ("from_roman('MMM')", "3000"),
    ],
    "add": [("add('IV', 'V')", "'IX'"), ("add('M', 'CM', 'IV')", "'MCMIV'"), ("add('X')", "'X'")],
}
_TESTS = """import unittest

from {name} import {name}


class Checks(unittest.TestCase):
    def test_values(self):
        for found, wanted in [{pairs}]:
            self.assertEqual(found, wanted)

    def test_refusals(self):
        with self.assertRaises(ValueError) as caught:
            {name}({bad})
        self.assertTrue(str(caught.exception))
"""
_BAD_ARGUMENTS = {"to_roman": "0", "from_roman": "'IIII'", "add": ""}


def open_library_team(folder: Path, name: str = "library", **agent_keys: dict[str, Any]) -> Team:
    """Open the team, ready to run `TASK`; its bill has the prices of `PRICED_MODEL`.

    The `python` that it calls is the running one: prompts do not depend on the length of its path.

    Args:
        folder: folder in which the team works.
        name: name of the team.
        agent_keys: keys of the configuration by agent, such as `Tester={"Isolation": "Fresh"}`.

    Returns:
        The open team.
    """
    python_folder, search_path = str(Path(sys.executable).parent), os.environ.get("PATH", "")
    if not search_path.startswith(python_folder):
        os.environ["PATH"] = os.pathsep.join([python_folder, search_path])
    model_price = price(PRICED_MODEL)
    models = {}
    for agent, turns in _script_turns().items():
        models[agent] = make_scripted_agent(agent, turns, time.time)
        if model_price is not None:
            register(models[agent].name, model_price)
    return ctxkit.team(
        _make_team_config(agent_keys), name=name, models=models, folder=folder,
        tools=("files", "shell"), seed="11",
    )  # fmt: skip


def _make_team_config(agent_keys: dict[str, dict[str, Any]]) -> dict[str, Any]:
    states = {
        "Planning": _make_state("Planner", Implementation="HANDOFF TO DEVELOPER"),
        "Implementation": _make_state("Developer", Testing="HANDOFF TO TESTER"),
        "Testing": _make_state("Tester", Review="HANDOFF TO REVIEWER"),
        "Review": _make_state(
            "Reviewer", Implementation="ONCE MORE", Planning="NEXT PART", Done="APPROVED"
        ),
        "Done": {"Terminal": True},
    }
    agents = [
        {"Name": agent, "Plugins": ["FileSystem", "Shell"], **agent_keys.get(agent, {})}
        for agent in _AGENTS
    ]
    machine = {"Initial": "Planning", "States": states}
    return {
        "Agents": agents,
        "Selection": {"Type": "statemachine", "StateMachine": machine},
        "ContextBudget": {"WarnAt": 40_000},
    }


def _make_state(agent: str, **signals: str) -> dict[str, Any]:
    """Return a state that leads to others by their signals."""
    transitions = [
        {"To": state, "Signal": signal, "HandoffContext": [{"Source": "changes_recent:1"}]}
        for state, signal in signals.items()
    ]
    return {"Agent": agent, "Transitions": transitions}


def _script_turns() -> dict[str, list[list[Any]]]:
    """Return the scripted turns of each agent."""
    scripts: dict[str, list[list[Any]]] = {agent: [] for agent in _AGENTS}
    paths = ["values.py"]
    for n, module in enumerate(_MODULES):
        for agent, turns in _script_round(n, module, list(paths)).items():
            scripts[agent] += turns
        paths += [f"{module}.py", f"test_{module}.py"]
    return scripts


def _script_round(n: int, module: str, paths: list[str]) -> dict[str, list[list[Any]]]:
    """Return each agent's turns for one module: write, test, review, repair, approve."""
    reads = [("read_file", {"path": path}) for path in paths]
    file, test_file = f"{module}.py", f"test_{module}.py"
    run_tests = ("shell", {"command": TEST_COMMAND})
    first_write = (
        "write_file", {"path": "values.py", "content": _VALUES.format(values=_LETTERS)}
    )  # fmt: skip
    source, repaired = (_MODULES[module].format(code=code) for code in ("", f"{ERROR_CODE}: "))
    tests = _write_tests(module)
    verdict = "APPROVED" if n == len(_MODULES) - 1 else "NEXT PART"
    return {
        "Planner": [_script_plan(n, module, [file, test_file])],
        "Developer": [
            [
                *([first_write] if n == 0 else []), *reads,
                ("write_file", {"path": file, "content": source}),
                ("write_file", {"path": test_file, "content": tests}), run_tests,
                f"{file} is written and its tests pass.\n\nHANDOFF TO TESTER",
            ],
            [
                ("read_file", {"path": file}), ("write_file", {"path": file, "content": repaired}),
                run_tests, f"Refusals begin with {ERROR_CODE} now.\n\nHANDOFF TO TESTER",
            ],
        ],
        "Tester": [
            [
                ("read_file", {"path": test_file}), run_tests,
                f"All tests of part {n + 1} pass.\n\nHANDOFF TO REVIEWER",
            ]
            for _ in range(2)
        ],
        "Reviewer": [
            [
                *reads, ("read_file", {"path": file}),
                (f"The refusal of {module} does not begin with {ERROR_CODE}, as was asked."
                "\n\nONCE MORE"),
            ],
            [
                ("read_file", {"path": file}), run_tests,
                f"{module} is as it was asked for.\n\n{verdict}",
            ],
        ],
    }  # fmt: skip


def _script_plan(n: int, module: str, files: list[str]) -> list[Any]:
    brief = {
        "goal": TASK,
        "part": module,
        "files_to_change": files,
        "verify_command": TEST_COMMAND,
    }
    rule = f" Every refusal must begin with {ERROR_CODE}, as the support desk searches for it."
    return [
        ("write_file", {"path": "brief.json", "content": json.dumps(brief, indent=1)}),
        f"Part {n + 1} is {module}.{'' if n else rule}\n\nHANDOFF TO DEVELOPER",
    ]


def _write_tests(module: str) -> str:
    pairs = ", ".join(f"({call}, {expected})" for call, expected in _CHECKS[module])
    return _TESTS.format(name=module, pairs=pairs, bad=_BAD_ARGUMENTS[module])
