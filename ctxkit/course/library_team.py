"""A team that writes a small library in three rounds: scripted replies, real files, tests, hand-offs.

`team(folder)` is used by notebook 11. Its views can be compared: what it says and does is always the
same.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ctxkit as ck
from ctxkit.teams.demo import make_scripted_agent
from ctxkit.tokens.prices import price, register

PRICED = "claude-sonnet-4-5"
"""Scripted replies cost nothing; they are billed as this model's."""
TASK = "Write a library for Roman numerals: to_roman, from_roman and add, each with tests."
VERIFY = "python -m unittest -v"
CODE = "ERR-ROMAN-41"
"""What every refusal must begin with; the Planner says it once, and writes it down nowhere."""
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
_BAD = {"to_roman": "0", "from_roman": "'IIII'", "add": ""}


def config(**shown: dict[str, Any]) -> dict[str, Any]:
    """Return the team's config; `shown` gives an agent keys, such as Tester={"Isolation": "Fresh"}."""

    def state(agent: str, **ways: str) -> dict[str, Any]:
        told = [{"To": to, "Signal": signal, "HandoffContext": [{"Source": "changes_recent:1"}]}
                for to, signal in ways.items()]  # fmt: skip
        return {"Agent": agent, "Transitions": told}

    states = {
        "Planning": state("Planner", Implementation="HANDOFF TO DEVELOPER"),
        "Implementation": state("Developer", Testing="HANDOFF TO TESTER"),
        "Testing": state("Tester", Review="HANDOFF TO REVIEWER"),
        "Review": state(
            "Reviewer", Implementation="ONCE MORE", Planning="NEXT PART", Done="APPROVED"
        ),
        "Done": {"Terminal": True},
    }
    agents = [{"Name": n, "Plugins": ["FileSystem", "Shell"], **shown.get(n, {})}
              for n in ("Planner", "Developer", "Tester", "Reviewer")]  # fmt: skip
    machine = {"Initial": "Planning", "States": states}
    return {"Agents": agents, "Selection": {"Type": "statemachine", "StateMachine": machine},
            "ContextBudget": {"WarnAt": 40_000}}  # fmt: skip


def team(folder: Path, name: str = "library", **shown: dict[str, Any]) -> Any:
    """Return the team, ready for `TASK`; what it is billed has the prices of `PRICED`.

    Its `python` is the one that runs this: by its path, prompts would be as long as that is.
    """
    own, others = str(Path(sys.executable).parent), os.environ.get("PATH", "")
    if not others.startswith(own):
        os.environ["PATH"] = os.pathsep.join([own, others])
    known = price(PRICED)
    models = {}
    for agent, turns in _parts().items():
        models[agent] = make_scripted_agent(agent, turns, time.time)
        if known is not None:
            register(models[agent].name, known)
    return ck.team(config(**shown), name=name, models=models, folder=folder,
                   tools=("files", "shell"), seed="11")  # fmt: skip


def _parts() -> dict[str, list[list[Any]]]:
    parts: dict[str, list[list[Any]]] = {
        "Planner": [],
        "Developer": [],
        "Tester": [],
        "Reviewer": [],
    }
    known = ["values.py"]
    for n, name in enumerate(_MODULES):
        for agent, turns in _round(n, name, list(known)).items():
            parts[agent] += turns
        known += [f"{name}.py", f"test_{name}.py"]
    return parts


def _round(n: int, name: str, paths: list[str]) -> dict[str, list[list[Any]]]:
    last = n == len(_MODULES) - 1
    read = [("read_file", {"path": path}) for path in paths]
    file, tests = f"{name}.py", f"test_{name}.py"
    rule = (
        f" Every refusal must begin with {CODE}, as the support desk searches for it."
        if not n
        else ""
    )
    brief = {"goal": TASK, "part": name, "files_to_change": [file, tests], "verify_command": VERIFY}
    first = (
        [("write_file", {"path": "values.py", "content": _VALUES.format(values=_LETTERS)})]
        if not n
        else []
    )
    return {
        "Planner": [[("write_file", {"path": "brief.json", "content": json.dumps(brief, indent=1)}),
                     f"Part {n + 1} is {name}.{rule}\n\nHANDOFF TO DEVELOPER"]],
        "Developer": [
            [*first, *read, ("write_file", {"path": file, "content": _MODULES[name].format(code="")}),
             ("write_file", {"path": tests, "content": _tests(name)}), ("shell", {"command": VERIFY}),
             f"{file} is written and its tests pass.\n\nHANDOFF TO TESTER"],
            [("read_file", {"path": file}),
             ("write_file", {"path": file, "content": _MODULES[name].format(code=f"{CODE}: ")}),
             ("shell", {"command": VERIFY}), f"Refusals begin with {CODE} now.\n\nHANDOFF TO TESTER"],
        ],
        "Tester": [[("read_file", {"path": tests}), ("shell", {"command": VERIFY}),
                    f"All tests of part {n + 1} pass.\n\nHANDOFF TO REVIEWER"] for _ in range(2)],
        "Reviewer": [
            [*read, ("read_file", {"path": file}),
             f"The refusal of {name} does not begin with {CODE}, as was asked.\n\nONCE MORE"],
            [("read_file", {"path": file}), ("shell", {"command": VERIFY}),
             f"{name} is as it was asked for.\n\n{'APPROVED' if last else 'NEXT PART'}"],
        ],
    }  # fmt: skip


def _tests(name: str) -> str:
    pairs = ", ".join(f"({call}, {wanted})" for call, wanted in _CHECKS[name])
    return _TESTS.format(name=name, pairs=pairs, bad=_BAD[name])
