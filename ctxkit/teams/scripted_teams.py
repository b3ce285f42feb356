"""Scripted models for the agents of a team, so that it runs without a key; and a demo team."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit.agent.models.scripted_and_lookup_models import SCRIPT_OVER, ScriptedModel, make_reply
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.presets import config_text_reading_and_writing
from ctxkit.session.messages import Message, Text, ToolCall
from ctxkit.teams.sub_agents_and_permissions import sub_agent_name
from ctxkit.teams.team_definition import matches_any
from ctxkit.teams.turn_decisions import get_next_state_name
from ctxkit.tokens import default_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ctxkit.agent.models.scripted_and_lookup_models import ScriptTurn
    from ctxkit.teams.team_definition import (
        ContractRequirement,
        JsonCondition,
        Member,
        StateDefinition,
        TeamPlan,
        Transition,
    )
    from ctxkit.teams.turn_prompts_and_team_state import TeamStatus

    Step = tuple[str, dict[str, Any]] | str


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

    def begin(self, finished_turns: int, status: TeamStatus | None = None) -> None:
        """Prepare for a turn after `finished_turns` concluded ones; `status` is the team's.

        Args:
            finished_turns: number of the agent's turns that were concluded.
            status: status of the team; None: none is known.
        """
        del status
        self._over = finished_turns

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
        turns: for each turn its steps, in order: calls, texts or whole replies.
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


# The demo team has four agents that write and test a program. Tools, contracts, hand-offs and rules
# are real; only the replies of the models are scripted.
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


SCRIPT_MODEL = "scripted"
PART_FILE, TEST_FILE = "part.py", "test_part.py"
_PART, _TEST = (
    '"""A part of the work."""\n\nPART = 1\n',
    "from part import PART\n\nassert PART == 1\n",
)
_ASSERTIONS = ("assert True\n", "expect(1).toBe(1)\n")


def is_team_script_name(model: object) -> bool:
    """Return whether a model's name stands for a script of a whole team.

    Args:
        model: a model, or the name of one.

    Returns:
        True for `scripted` and `scripted:FILE`, False for `scripted/NAME`, a script of one agent.

    Example:
        >>> from ctxkit.teams.scripted_teams import is_team_script_name
        >>> is_team_script_name("scripted"), is_team_script_name("scripted/tour")
        (True, False)
    """
    return isinstance(model, str) and model.partition(":")[0] == SCRIPT_MODEL


def make_script_models(
    model: str, plan: TeamPlan, clock: Callable[[], float]
) -> dict[str, ScriptedModel]:
    """Return a scripted model for each agent of a team, by its name.

    Args:
        model: `scripted`, or `scripted:` and the path of a script.
        plan: the team.
        clock: seconds since 1970.

    Returns:
        A model by agent; of a script from a file, an agent that it leaves out follows the plan.

    Raises:
        ReadError: the script cannot be read.
        BadArguments: it is no script of this team; the sentence says where.
    """
    path = model.partition(":")[2].strip()
    work = ContractScriptGenerator(plan)
    models: dict[str, ScriptedModel] = {
        m.name: ContractFollowingAgent(m, work, clock) for m in plan.members
    }
    models |= {
        sub_agent_name(m.name): make_scripted_agent(sub_agent_name(m.name), [], clock)
        for m in plan.members
        if m.sub_agent is not None
    }
    if path:
        content, _ = config_text_reading_and_writing.load_config(path)
        for name, turns in _parse_script(content, [*models]).items():
            models[name] = make_scripted_agent(name, turns, clock)
    return models


# `scripted:FILE` reads a script:
#     Planner:                      # an agent
#       - - write_file: {path: brief.json, content: "{}"}   # its first turn: tool calls, then words
#         - HANDOFF TO DEVELOPER
def _parse_script(content: Mapping[Any, Any], names: Sequence[str]) -> dict[str, list[list[Step]]]:
    by_fold = {name.casefold(): name for name in names}
    parsed = {}
    for key, turns in content.items():
        name = by_fold.get(str(key).casefold())
        if name is None:
            raise BadArguments(
                f"The script names {sanitize_text(str(key), 60)!r}, and the team has "
                f"{', '.join(names)}.{did_you_mean(str(key), names)}"
            )
        rows = turns if isinstance(turns, list) else [turns]
        parsed[name] = [
            [_parse_step(step, name) for step in (row if isinstance(row, list) else [row])]
            for row in rows
        ]
    return parsed


def _parse_step(step: Any, agent: str) -> Step:
    """Return the words of a step, or its tool call."""
    if isinstance(step, str):
        return step
    if isinstance(step, dict) and len(step) == 1:
        ((name, arguments),) = step.items()
        if isinstance(arguments, dict):
            return str(name), arguments
    raise BadArguments(
        f"A step of {sanitize_text(agent, 40)} in the script is words, or one tool with its"
        f" arguments, such as {{read_file: {{path: a.txt}}}}; not {sanitize_text(str(step), 80)!r}."
    )


# For any other team file, `scripted` derives a script from the plan: each agent writes what the
# contracts on its path require, runs the commands that they name, and gives the signal.
@dataclass
class ContractScriptGenerator:
    """The work of a team's scripted agents: the files and commands that its contracts require."""

    plan: TeamPlan
    _written_briefs: set[str] = field(default_factory=set)
    """Briefs that were written already."""

    def steps(self, member: Member, status: TeamStatus) -> Iterator[Step]:
        """Yield the tool calls of a turn, then its words.

        Args:
            member: the agent whose turn it is.
            status: status of the team.

        Returns:
            Name and arguments of each tool call; last, the text.
        """
        if status.is_verifier_due:
            yield "What was claimed agrees with what was done."
            return
        state = self.plan.states.get(get_next_state_name(status))
        way = self._way(state, status) if state is not None else None
        if "files" in member.tools:
            yield "list_files", {}
        needs = [r for c in (way.contracts if way is not None else ()) for r in c.requires]
        calls = [call for r in needs for call in self._fulfil(r)]
        unique = {json.dumps(call): call for call in calls}
        yield from sorted(unique.values(), key=lambda call: call[0] == "shell")
        if self._reads_summary():
            yield "session_context_write", {"text": f"{member.name} did its part."}
        where = f" of {state.name}" if state is not None else ""
        yield "\n".join(
            [f"{member.name} did its part{where}.", *self._last_words(member, way, status)]
        )

    # -- where it goes ---------------------------------------------------------------------------

    def _way(self, state: StateDefinition, status: TeamStatus) -> Transition | None:
        """Return the way that a turn takes: to what is new, else towards the end."""
        new = [way for way in state.transitions if self._leads_to_new(way, status)]
        if not new and self._stop_words(state.agent):
            return None
        return (
            new[0]
            if new
            else min(state.transitions, key=lambda way: self._distance(way.to), default=None)
        )

    def _leads_to_new(self, transition: Transition, status: TeamStatus) -> bool:
        """Return whether a way leads to a new state, or to one that picks such a state."""
        after = self.plan.states[transition.to]
        if transition.to not in status.visited:
            return not after.is_final
        picks = not transition.signal and transition.when is None
        return picks and any(
            t.to not in status.visited and not self.plan.states[t.to].is_final
            for t in after.transitions
        )

    def _distance(self, name: str) -> int:
        """Return how many ways are between a state and one in which the work can end."""
        reached, todo = {name}, deque([(name, 0)])
        while todo:
            at, steps = todo.popleft()
            state = self.plan.states[at]
            if state.is_final or self._stop_words(state.agent):
                return steps
            for way in state.transitions:
                if way.to not in reached:
                    reached.add(way.to)
                    todo.append((way.to, steps + 1))
        return len(self.plan.states)

    def _last_words(self, member: Member, way: Transition | None, status: TeamStatus) -> list[str]:
        state = self.plan.states.get(get_next_state_name(status))
        if state is not None and state.split_list_path:
            return [
                json.dumps(_nested(state.split_list_path, ["the first item", "the second item"]))
            ]
        if way is not None:
            words = json.dumps(_answer(way.when)) if way.when is not None else way.signal
            return [words] if words else []
        others = len(self.plan.members) - 1
        if state is None and status.turns - status.turns_before_task < others:
            return []  # in a round each agent has a turn before one of them ends it
        return list(filter(None, [self._stop_words(member.name)]))

    def _stop_words(self, agent: str) -> str:
        """Return words of an agent that end the team; empty: it knows none."""
        for stop in self.plan.stops:
            if stop.agents and agent not in stop.agents:
                continue
            if stop.when is not None:
                return json.dumps(_answer(stop.when))
            words = _words_of_pattern(stop.pattern)
            if words:
                return words
        return ""

    # -- what it does ----------------------------------------------------------------------------

    def _reads_summary(self) -> bool:
        ways = [t for s in self.plan.states.values() for t in s.transitions]
        sources = [
            *(s for t in ways for s in t.handoff),
            *(s for m in self.plan.members for s in m.context),
        ]
        return any(s.kind == "session_context" for s in sources)

    def _fulfil(self, r: ContractRequirement) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the tool calls that meet a requirement."""
        brief = r.path or self.plan.brief_path
        if r.kind == "FileExists":
            is_brief = r.path == self.plan.brief_path
            yield from self._brief(r.path) if is_brief else [_write(r.path, self._content(r.path))]
        elif r.kind == "Brief":
            yield from self._brief(brief)
        elif r.kind in ("FilesWritten", "ChecklistComplete"):
            yield from [] if r.this_turn else self._brief(brief)
            yield from (_write(path, self._content(path)) for path in self._files())
        elif r.kind == "CommandSucceeded":
            if r.field or not r.pattern:  # it runs what tests that the files are there
                yield from self._brief(brief) if r.field else ()
                yield from (_write(path, self._content(path)) for path in self._files())
            yield "shell", {"command": self._command(r)}
        elif r.kind == "RelatedTestsPass":
            yield "shell", {"command": self.plan.test_commands[0]}
        elif r.kind == "TestReport":
            if r.has_assertions:
                test = self._files()[1]
                yield _write(test, self._content(test))
            yield _write(r.path or self.plan.report_path, json.dumps(self._report(), indent=2))

    def _brief(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the call that writes a brief, once."""
        if path not in self._written_briefs:
            self._written_briefs.add(path)
            yield _write(path, json.dumps(self._brief_fields(path), indent=2))

    def _brief_fields(self, path: str) -> dict[str, Any]:
        files, verify = list(self._files()), self._verify_command()
        fields: dict[str, Any] = {
            "goal": "The task, done in one part.",
            "files_to_change": files,
            "acceptance_criteria": [f"{files[0]} is there"],
            "verify_command": verify,
            "execution_checklist": [f"write {name}" for name in files],
        }
        for r in self._requirements():
            if r.field and (r.path or self.plan.brief_path) == path:
                value = {"FilesWritten": files, "CommandSucceeded": verify}.get(r.kind)
                fields.setdefault(r.field, value or fields["execution_checklist"])
        return fields

    def _requirements(self) -> Iterator[ContractRequirement]:
        for state in self.plan.states.values():
            for way in state.transitions:
                yield from (r for c in way.contracts for r in c.requires)

    def _files(self) -> tuple[str, str]:
        """Return a file of the work and one of its tests, where the envelope lets them lie."""
        return self._inside(PART_FILE), self._inside(TEST_FILE)

    def _inside(self, name: str) -> str:
        envelope = self.plan.envelope
        folders = ("", *(re.split(r"[^/]*[*?\[]", glob)[0] for glob in envelope.globs))
        return next((f + name for f in folders if envelope.covers(f + name)), name)

    def _verify_command(self) -> str:
        return " && ".join(f"test -f {shlex.quote(path)}" for path in self._files())

    def _command(self, r: ContractRequirement) -> str:
        if r.field or not r.pattern:
            return self._verify_command()
        # no program of the pattern is run: it may not be installed, and there is nothing to build
        return f"echo {shlex.quote('stands for ' + r.pattern.split('|')[0].strip())}"

    def _content(self, path: str) -> str:
        if path == self._files()[1] and matches_any(self.plan.assertions, _TEST):
            return _TEST
        if "test" in path.casefold() and not path.endswith(".json"):
            matching = (a for a in _ASSERTIONS if matches_any(self.plan.assertions, a))
            return next(matching, _words_of_pattern(self.plan.assertions[0]) + "\n")
        if path.endswith(".json"):
            return json.dumps(self._report(), indent=2)
        return _PART if path.endswith(".py") else "A part of the work.\n"

    def _report(self) -> dict[str, Any]:
        row = {
            "criterion": "the part is there",
            "status": "PASS",
            "command": self._verify_command(),
        }
        return {"results": [row]}


class ContractFollowingAgent(ScriptedAgent):
    """A scripted agent whose turns follow from the team's plan and its status.

    Args:
        member: the agent.
        work: steps of its team.
        clock: seconds since 1970.
    """

    def __init__(
        self, member: Member, work: ContractScriptGenerator, clock: Callable[[], float]
    ) -> None:
        super().__init__((), name=member.name.lower(), counter=default_counter(), clock=clock)
        self._member, self._work, self._clock = member, work, clock

    def begin(self, finished_turns: int, status: TeamStatus | None = None) -> None:
        """Work out the turn that begins."""
        super().begin(finished_turns)
        steps = list(self._work.steps(self._member, status)) if status is not None else []
        turn = make_scripted_agent(
            f"{self._member.name}_{finished_turns}", [steps], self._clock
        ).turns
        self.turns = (*((),) * finished_turns, *turn)


def _write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


def _nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return dict(value)


def _answer(when: JsonCondition) -> dict[str, Any]:
    """Return an object for which a condition holds."""
    if when.operator == "Exists":
        return _nested(when.field, "yes") if when.value else {}
    return _nested(when.field, f"not {when.value}" if when.operator == "IsNot" else when.value)


def _words_of_pattern(pattern: str) -> str:
    """Return words that a simple regular expression finds; empty where it is no simple one."""
    plain = re.sub(r"\(\?[a-zA-Z]+\)|\\b|\\s[*?]|\^|\$", "", pattern)
    plain = re.sub(r"\\s\+?", " ", plain).strip("()").split("|")[0]
    words = re.sub(r"\\(\W)", r"\1", plain).strip()
    return words if words and matches_any([pattern], words) else ""
