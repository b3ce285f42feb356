"""A team's config, in the shape of fuseraft's orchestration file, to a plan: what cannot work is
said at once.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.markup import plain
from ctxkit.teams.config_fields import Fields, listed
from ctxkit.teams.config_keys import UNCHECKED, remarks
from ctxkit.teams.handoffs import sources
from ctxkit.teams.patterns import pattern_of
from ctxkit.teams.roles import member
from ctxkit.teams.rosters import Contract, Order, Requirement, Roster, Stop, TeamState, Transition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.teams.rosters import Member

ORDERS = ("statemachine", "roundrobin", "sequential")
KINDS = ("FileExists", "FilesWritten", "CommandSucceeded", "TestReport")


def plan_of(config: Mapping[str, Any]) -> Roster:
    """Return the plan of a config.

    Raises:
        BadArguments: two agents have one name, a state is missing or named twice, a hand-off leads
            nowhere, a contract can never hold, ...: one sentence.
    """
    body = Fields(config).section("Orchestration") or Fields(config)
    members = tuple(member(f, config) for f in body.rows("Agents"))
    names = [m.name for m in members]
    if not names:
        raise BadArguments("A team needs Agents: a list in which each has a Name.")
    _once("agents", names)
    selection = body.section("Selection") or Fields({})
    order = (selection.text("Type") or "roundrobin").casefold()
    if order not in ORDERS:
        raise BadArguments(
            f"Selection.Type {plain(order, 40)!r} is not run here, where agents take turns: there "
            f"are {', '.join(ORDERS)}."
        )
    ending, budget = body.section("Termination") or Fields({}), body.section("ContextBudget")
    checks = body.section("Validation") or Fields({})
    made = Roster(
        name=body.text("Name") or "team",
        members=members,
        order=cast("Order", order),
        max_turns=_most(ending),
        max_tokens=body.number("MaxTotalTokens") or None,
        warn_at=budget.number("WarnAt") if budget else 0,
        cutover_at=budget.number("CutoverAt") if budget else 0,
        stops=tuple(_stops(ending, names)),
        brief=checks.text("BriefPath") or Roster.brief,
        report=checks.text("TestReportPath") or Roster.report,
        assertions=tuple(
            pattern_of(p, "Validation.TestAssertionPatterns")
            for p in checks.texts("TestAssertionPatterns")
        )
        or Roster.assertions,
        notes=tuple(remarks(config, body)),
    )
    return _machine(made, body, selection) if order == "statemachine" else made


def _machine(made: Roster, body: Fields, selection: Fields) -> Roster:
    contracts = {c.name.casefold(): c for c in map(_contract, body.rows("Contracts"))}
    _once("contracts", [f.text("Name") for f in body.rows("Contracts")])
    machine = selection.section("StateMachine") or Fields({})
    found = machine.section("States")
    named = list(found) if found else []
    if not named:
        raise BadArguments(
            "A state machine needs States: Selection.StateMachine.States names none."
        )
    _once("states", named)
    known = {name.casefold(): name for name in named}
    states = {}
    for name in named:
        fields = cast("Fields", found).section(name) or Fields({})
        agent = fields.text("Agent")
        terminal = fields.flag("Terminal")
        if agent or not terminal:
            agent = _one_of(agent, [m.name for m in made.members], f"the agent of state {name}")
        ways = tuple(
            _transition(f, name, known, contracts, made.members) for f in fields.rows("Transitions")
        )
        _once(f"signals out of state {name}", [w.signal for w in ways])
        states[name] = TeamState(name=name, agent=agent, terminal=terminal, transitions=ways)
    initial = machine.text("Initial")
    if not initial:
        raise BadArguments(
            f"Selection.StateMachine.Initial names no state; there are {listed(named)}."
        )
    initial = _one_of(initial, named, "Selection.StateMachine.Initial")
    if states[initial].ends:
        raise BadArguments(
            f"The team begins in state {initial}, out of which nothing leads: give it Transitions."
        )
    _ends(states, initial)
    return replace(made, initial=initial, states=states)


def _transition(
    f: Fields,
    state: str,
    states: Mapping[str, str],
    contracts: Mapping[str, Contract],
    members: Sequence[Member],
) -> Transition:
    at = f"a transition out of state {state}"
    if f.flag("Parallel"):
        raise BadArguments(
            f"{at[0].upper()}{at[1:]} is Parallel: here agents take turns; lead through its Targets"
            " one by one."
        )
    wanted = [*f.texts("Contracts"), *([f.text("Contract")] if f.text("Contract") else [])]
    for name in wanted:
        _one_of(name, [c.name for c in contracts.values()], f"the contract of {at}")
    agents = [m.name for m in members]
    return Transition(
        to=_one_of(f.text("To"), list(states.values()), f"To of {at}"),
        signal=f.text("Signal").strip(),
        contracts=tuple(contracts[n.casefold()] for n in wanted),
        source_agents=tuple(
            _one_of(a, agents, f"SourceAgents of {at}") for a in f.texts("SourceAgents")
        ),
        recovery=(
            _one_of(f.text("RecoveryAgent"), agents, f"RecoveryAgent of {at}")
            if f.text("RecoveryAgent")
            else ""
        ),
        handoff=sources(f.rows("HandoffContext"), f"HandoffContext of {at}", own=False),
        max_revisits=f.number("MaxRevisits"),
        review=f.text("ReviewArtifactPath"),
    )


def _contract(f: Fields) -> Contract:
    name = f.text("Name")
    if not name:
        raise BadArguments("A contract has no Name.")
    rows = [r for r in f.rows("Requires") if r.text("Type") not in UNCHECKED]
    needs = tuple(_requirement(r, name) for r in rows)
    if not needs:
        raise BadArguments(
            f"Contract {plain(name, 60)} requires nothing: give it Requires, or leave it out."
        )
    return Contract(name=name, requires=needs)


def _requirement(f: Fields, contract: str) -> Requirement:
    """Read one, written as `Type: FileExists, Path: ...` or as `FileExists: {Path: ...}`."""
    kind = f.text("Type") or next(iter(f), "")
    inner = f if f.text("Type") else f.section(kind) or Fields({})
    kind = _one_of(kind, list(KINDS), f"a requirement of contract {contract}")
    made = Requirement(
        kind=cast("Any", kind),
        path=inner.text("Path") or inner.text("Source"),
        field=inner.text("Field") or inner.text("PatternField"),
        pattern=inner.text("Pattern"),
        no_failures=inner.flag("NoFailures"),
        has_assertions=inner.flag("HasAssertions"),
    )
    if kind == "FileExists" and not made.path:
        raise BadArguments(
            f"Contract {plain(contract, 60)} can never hold: its FileExists names no Path."
        )
    if made.path and (
        made.path.startswith(("/", "\\", "~")) or ".." in re.split(r"[/\\]", made.path)
    ):
        raise BadArguments(
            f"Contract {plain(contract, 60)} can never hold: {plain(made.path, 80)} lies outside of"
            " the team's folder."
        )
    return made


def _stops(f: Fields, names: Sequence[str]) -> list[Stop]:
    rows = f.rows("Strategies") or ([f] if f.text("Pattern") else [])
    out = []
    for row in rows:
        if row.text("Pattern"):
            who = tuple(
                _one_of(a, names, "AgentNames of Termination") for a in row.texts("AgentNames")
            )
            out.append(Stop(pattern=pattern_of(row.text("Pattern"), "Termination"), agents=who))
    return out


def _most(f: Fields) -> int:
    told = [
        n
        for n in (
            f.number("MaxIterations"),
            *(r.number("MaxIterations") for r in f.rows("Strategies")),
        )
        if n
    ]
    return min(told, default=Roster.max_turns)


def _ends(states: Mapping[str, TeamState], initial: str) -> None:
    """Refuse a machine that can never end: no state is reached out of which nothing leads."""
    seen, todo = {initial}, [initial]
    while todo:
        state = states[todo.pop()]
        for way in () if state.ends else state.transitions:
            if way.to not in seen:
                seen.add(way.to)
                todo.append(way.to)
    if not any(states[name].ends for name in seen):
        raise BadArguments(
            f"The team could never end: its states ({listed(sorted(seen))}) only lead to each"
            " other. Let a transition lead to one that is Terminal."
        )


def _once(what: str, names: Sequence[str]) -> None:
    low = [n.casefold() for n in names]
    twice = next((n for n in names if low.count(n.casefold()) > 1), None)
    if twice is not None:
        said = plain(twice, 60) or "(no signal)"
        raise BadArguments(f"Two {what} are called {said!r}: give each a name of its own.")


def _one_of(name: str, known: Sequence[str], what: str) -> str:
    found = next((k for k in known if k.casefold() == name.casefold()), None)
    if found is None:
        raise BadArguments(
            f"{what[0].upper()}{what[1:]} is {plain(name, 60)!r}, and there are {listed(known)}."
            f"{did_you_mean(name, known)}"
        )
    return found
