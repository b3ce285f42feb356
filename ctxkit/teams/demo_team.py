"""A scripted four-agent team that writes and tests a program without an API key."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from ctxkit.agent.models.scripted import SCRIPT_OVER, ScriptedModel, make_reply
from ctxkit.session.messages import Message, Text, ToolCall
from ctxkit.tokens import default_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ctxkit.agent.models.scripted import ScriptTurn
    from ctxkit.teams.turn_prompts_and_status import TeamStatus

SCRIPTED_CONFIG = "scripted"
DEMO_TASK = (
    "Write roman.py with a function roman(n) that gives Roman numerals from 1 to 3999, and tests"
    " for it."
)
"""Task of the scripted team."""
_ROMAN_PROGRAM = '''"""Roman numerals."""

VALUES = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
          (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (1, "I")]


def roman(n: int) -> str:
    """Return a number from 1 to 3999 as a Roman numeral."""
    if not 1 <= n <= 3999:
        raise ValueError("roman() takes 1 to 3999.")
    out = ""
    for value, letters in VALUES:
        out += letters * (n // value)
        n %= value
    return out
'''
_ROMAN_TESTS = """import unittest

from roman import roman


class Numerals(unittest.TestCase):
    def test_numerals(self):
        for n, letters in [(1, "I"), (4, "IV"), (9, "IX"), (14, "XIV"), (1994, "MCMXCIV"), (3999, "MMMCMXCIX")]:
            self.assertEqual(roman(n), letters)

    def test_bounds(self):
        for n in (0, 4000):
            with self.assertRaises(ValueError):
                roman(n)
"""
_WRONG, _RIGHT = '(5, "V"), (1, "I")', '(5, "V"), (4, "IV"), (1, "I")'


class ScriptedAgent(ScriptedModel):
    """A scripted agent of a team; it counts concluded turns, so an interrupted one begins again."""

    _over = 0

    def begin(self, over: int, status: TeamStatus | None = None) -> None:
        """Prepare for a turn after `over` concluded ones; `status` is the team's."""
        del status
        self._over = over

    def reply(self, turn: int, step: int) -> Message:
        """Return the reply of this turn, whatever its number in the session."""
        del turn
        return (
            super().reply(self._over, step)
            if self._over < len(self.turns)
            else make_reply(SCRIPT_OVER)
        )


def make_scripted_agent(
    agent: str,
    turns: Sequence[Sequence[Message | tuple[str, dict[str, Any]] | str]],
    clock: Callable[[], float],
) -> ScriptedAgent:
    """Return a scripted agent: each turn's tool calls (name, arguments), then its final text.

    Args:
        agent: its name in the team.
        turns: of each turn what it does, in order: calls, texts or whole replies.
        clock: gives the time of its replies, in seconds.

    Returns:
        The model of one agent, for `ck.team(config, models={agent: ...})`; a turn beyond the script
        answers that the script is over.

    Example:
        >>> tester = make_scripted_agent(
        ...     "Tester", [[("read", {"path": "roman.py"}), "It is right."]], lambda: 0.0
        ... )
        >>> tester.reply(0, 1).text
        'It is right.'
    """
    script: list[ScriptTurn] = []
    for n, turn in enumerate(turns):
        script.append(
            tuple(_make_reply(each, f"{agent}_{n}_{i}".lower()) for i, each in enumerate(turn))
        )
    return ScriptedAgent(script, name=agent.lower(), counter=default_counter(), clock=clock)


def _make_reply(step: Message | tuple[str, dict[str, Any]] | str, ident: str) -> Message:
    if isinstance(step, Message):
        return step
    if isinstance(step, str):
        return make_reply(step)
    name, arguments = step
    words = str(arguments.get("path") or arguments.get("command") or name)
    parts = (Text(f"Now {name}: {words}"), ToolCall(ident, name, arguments))
    return Message(role="assistant", parts=parts, stop="tool")


def make_scripted_team(
    clock: Callable[[], float],
) -> tuple[dict[str, Any], Mapping[str, ScriptedAgent]]:
    """Return the config of the scripted team and its models.

    Args:
        clock: gives the time of the replies, in seconds.

    Returns:
        A config as `ck.team` takes it, and the model of each agent; its tests run with this
        machine's `python`.
    """
    verify = f"{'python' if shutil.which('python') else 'python3'} -m unittest -q test_roman"
    return _team_config(), {
        name: make_scripted_agent(name, turns, clock)
        for name, turns in _agent_scripts(verify).items()
    }


def _agent_scripts(verify: str) -> dict[str, list[list[tuple[str, dict[str, Any]] | str]]]:
    brief = {"goal": "Roman numerals from 1 to 3999", "files_to_change": ["roman.py", "test_roman.py"],
             "verify_command": verify, "acceptance_criteria": ["roman(1994) is MCMXCIV", "0 and 4000 are refused"],
             "test_targets": "numbers with 4 and 9; both bounds"}  # fmt: skip
    report = {
        "results": [
            {"criterion": c, "status": "PASS", "command": verify}
            for c in brief["acceptance_criteria"]
        ]
    }

    def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
        return "write_file", {"path": path, "content": content}

    return {
        "Planner": [[write("brief.json", json.dumps(brief, indent=2)),
                     "The brief is written: two files and what to test.\n\nHANDOFF TO DEVELOPER"]],
        "Developer": [
            [write("roman.py", _ROMAN_PROGRAM), write("test_roman.py", _ROMAN_TESTS),
             "Both files are written, so the tests will pass.\n\nHANDOFF TO TESTER"],
            [("shell", {"command": verify}), ("patch_file", {"path": "roman.py", "old": _WRONG, "new": _RIGHT}),
             ("shell", {"command": verify}),
             ("session_context_write", {"text": "roman.py and test_roman.py are done; 4 was missing and is mended."}),
             "The tests found 4 as IIII; the table has IV now, and they pass.\n\nHANDOFF TO TESTER"],
        ],
        "Tester": [[("read_file", {"path": "roman.py"}), ("shell", {"command": verify}),
                    write("test-report.json", json.dumps(report, indent=2)),
                    "All criteria pass.\n\nHANDOFF TO REVIEWER"]],
        "Reviewer": [[("read_file", {"path": "roman.py"}), ("read_file", {"path": "test-report.json"}),
                      "The code does what the brief asks, and its tests can fail.\n\nAPPROVED"]],
    }  # fmt: skip


def _team_config() -> dict[str, Any]:
    def way(to: str, signal: str, **more: Any) -> dict[str, Any]:
        return {"To": to, "Signal": signal, **more}

    def state(agent: str, *ways: dict[str, Any]) -> dict[str, Any]:
        return {"Agent": agent, "Transitions": list(ways)}

    back = way("Implementation", "BUGS FOUND", MaxRevisits=3)
    states = {
        "Planning": state("Planner", way("Implementation", "HANDOFF TO DEVELOPER", Contract="BriefExists")),
        "Implementation": state("Developer", way(
            "Testing", "HANDOFF TO TESTER", Contract="ImplementationComplete",
            HandoffContext=[
                {"Source": s}
                for s in ("session_context", "changes_recent:2", "brief_field:test_targets")
            ])),
        "Testing": state("Tester", way(
            "Review", "HANDOFF TO REVIEWER", Contract="TestsValid", RecoveryAgent="Developer"), back),
        "Review": state("Reviewer", way("Done", "APPROVED"), way("Implementation", "REVISION REQUIRED", MaxRevisits=2)),
        "Done": {"Agent": "Reviewer", "Terminal": True},
    }  # fmt: skip
    needs = {
        "BriefExists": [{"Type": "FileExists", "Path": "brief.json"}],
        "ImplementationComplete": [{"Type": "FilesWritten", "Field": "files_to_change"},
                                   {"Type": "CommandSucceeded", "PatternField": "verify_command"}],
        "TestsValid": [{"Type": "TestReport", "NoFailures": True, "HasAssertions": True}],
    }  # fmt: skip
    tester = [{"Source": "session_context"}, {"Source": "changes_recent:5"}, {"Source": "brief_field:test_targets"},
              {"Source": "own_history:4"}]  # fmt: skip
    work = ["FileSystem", "Shell"]
    return {"Orchestration": {
        "Name": "RomanNumerals",
        "Agents": [
            {"Name": "Planner", "Instructions": "You plan: write brief.json, and no code.", "Plugins": ["FileSystem"]},
            {"Name": "Developer", "Instructions": "You write the program and run its tests.", "Plugins": work,
             "MaxInTurnToolPairs": 12},
            {"Name": "Tester", "Instructions": "You test what the brief asks, by yourself.", "Plugins": work,
             "Context": tester},
            {"Name": "Reviewer", "Instructions": "You read the code and decide.", "Plugins": ["FileSystem"],
             "ContextWindow": {"TextOnly": True}},
        ],
        "Contracts": [{"Name": name, "Requires": rows} for name, rows in needs.items()],
        "Selection": {"Type": "statemachine", "StateMachine": {"Initial": "Planning", "States": states}},
        "Termination": {"MaxIterations": 20},
        "ContextBudget": {"WarnAt": 20_000, "CutoverAt": 0},
    }}  # fmt: skip
