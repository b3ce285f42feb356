"""Scripted models for the agents of any team file, so that it runs without a key.

`scripted` works a script out of the plan: each agent writes what the contracts of its way ask for,
runs the commands that they name, and gives the signal. `scripted:FILE` reads a script:

    Planner:                      # an agent
      - - write_file: {path: brief.json, content: "{}"}   # its first turn: tool calls, then words
        - HANDOFF TO DEVELOPER

Tools, contracts, hand-offs and rules are real in both; only what a model would say is not.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting import sanitize_text
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.presets import config_syntax
from ctxkit.teams.demo_team import ScriptedAgent, make_scripted_agent
from ctxkit.teams.plan import matches_any
from ctxkit.teams.state_machine import current_state
from ctxkit.teams.team_members import sub_agent_name
from ctxkit.tokens import default_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ctxkit.agent.models.scripted import ScriptedModel
    from ctxkit.teams.plan import (
        ContractRequirement,
        JsonCondition,
        Member,
        StateDefinition,
        TeamPlan,
        Transition,
    )
    from ctxkit.teams.turn_prompts_and_status import TeamStatus

    Step = tuple[str, dict[str, Any]] | str

SCRIPT_MODEL = "scripted"
PART_FILE, TEST_FILE = "part.py", "test_part.py"
_PART, _TEST = (
    '"""A part of the work."""\n\nPART = 1\n',
    "from part import PART\n\nassert PART == 1\n",
)
_ASSERTIONS = ("assert True\n", "expect(1).toBe(1)\n")


def is_scripted(model: object) -> bool:
    """Say whether a model's name stands for a script of a whole team.

    Args:
        model: a model, or the name of one.

    Returns:
        True for `scripted` and `scripted:FILE`, False for `scripted/NAME`, a script of one agent.

    Example:
        >>> from ctxkit.teams.scripted_agents import is_scripted
        >>> is_scripted("scripted"), is_scripted("scripted/tour")
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
    work = ScriptedTeamWork(plan)
    models: dict[str, ScriptedModel] = {
        m.name: ContractFollowingAgent(m, work, clock) for m in plan.members
    }
    models |= {
        sub_agent_name(m.name): make_scripted_agent(sub_agent_name(m.name), [], clock)
        for m in plan.members
        if m.sub is not None
    }
    if path:
        content, _ = config_syntax.load_config(path)
        for name, turns in _parse_script(content, [*models]).items():
            models[name] = make_scripted_agent(name, turns, clock)
    return models


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


@dataclass
class ScriptedTeamWork:
    """The work of a team's scripted agents: the files and commands that its contracts require."""

    plan: TeamPlan
    _written_briefs: set[str] = field(default_factory=set)
    """Briefs that were written already."""

    def steps(self, member: Member, status: TeamStatus) -> Iterator[Step]:
        """Yield the tool calls of a turn, then its words."""
        if status.auditing:
            yield "What was claimed agrees with what was done."
            return
        state = self.plan.states.get(current_state(status))
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

    def _leads_to_new(self, way: Transition, status: TeamStatus) -> bool:
        """Say whether a way leads to a new state, or to one that picks such a state."""
        after = self.plan.states[way.to]
        if way.to not in status.visited:
            return not after.is_final
        picks = not way.signal and way.when is None
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
        state = self.plan.states.get(current_state(status))
        if state is not None and state.splits:
            return [json.dumps(_nested(state.splits, ["the first item", "the second item"]))]
        if way is not None:
            words = json.dumps(_answer(way.when)) if way.when is not None else way.signal
            return [words] if words else []
        others = len(self.plan.members) - 1
        if state is None and status.turns - status.since < others:
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
        brief = r.path or self.plan.brief
        if r.kind == "FileExists":
            is_brief = r.path == self.plan.brief
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
            yield "shell", {"command": self.plan.suite[0]}
        elif r.kind == "TestReport":
            if r.has_assertions:
                test = self._files()[1]
                yield _write(test, self._content(test))
            yield _write(r.path or self.plan.report, json.dumps(self._report(), indent=2))

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
            if r.field and (r.path or self.plan.brief) == path:
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
    """A scripted agent whose turns follow from the team's plan and from where it stands.

    Args:
        member: the agent.
        work: of its team.
        clock: seconds since 1970.
    """

    def __init__(self, member: Member, work: ScriptedTeamWork, clock: Callable[[], float]) -> None:
        super().__init__((), name=member.name.lower(), counter=default_counter(), clock=clock)
        self._member, self._work, self._clock = member, work, clock

    def begin(self, over: int, status: TeamStatus | None = None) -> None:
        """Work out the turn that begins."""
        super().begin(over)
        steps = list(self._work.steps(self._member, status)) if status is not None else []
        turn = make_scripted_agent(f"{self._member.name}_{over}", [steps], self._clock).turns
        self.turns = (*((),) * over, *turn)


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
