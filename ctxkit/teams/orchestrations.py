"""A team's config, shaped as fuseraft's, to a plan; what cannot work is said at once."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.teams.adversaries import by_stages
from ctxkit.teams.conditions import condition_of
from ctxkit.teams.config_fields import Fields, listed
from ctxkit.teams.config_keys import OWN_END, remarks
from ctxkit.teams.failures import policy_of, verifier_of
from ctxkit.teams.fan_outs import by_items, by_scatter
from ctxkit.teams.handoffs import sources
from ctxkit.teams.patterns import pattern_of
from ctxkit.teams.roles import members_of, model_of
from ctxkit.teams.rosters import Contract, Requirement, Roster, Stop, TeamState, Transition
from ctxkit.teams.routings import (
    Routing,
    SelectionParts,
    by_graph,
    by_json,
    by_keyword,
    by_manager,
    once,
    one_of,
)
from ctxkit.teams.selectors import by_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ctxkit.teams.rosters import Member, Order

IN_TURN = ("roundrobin", "sequential")
ROUTINGS: dict[str, Callable[[SelectionParts], Routing]] = {
    "keyword": by_keyword, "structured": by_json, "graph": by_graph, "magentic": by_manager,
    "llm": by_model, "adversarial": by_stages, "scattergather": by_scatter, "mapreduce": by_items,
}  # fmt: skip
ORDERS = ("statemachine", *IN_TURN, *ROUTINGS)
KINDS = ("FileExists", "FilesWritten", "CommandSucceeded", "TestReport", "ChecklistComplete",
         "RelatedTestsPass")  # fmt: skip


def plan_of(config: Mapping[str, Any]) -> Roster:
    """Return the plan of a config.

    Raises:
        BadArguments: two agents have one name, a state is missing or named twice, a hand-off leads
            nowhere, a contract can never hold, ...: one sentence.
    """
    body = Fields(config).section("Orchestration") or Fields(config)
    members = members_of(config)
    names = [m.name for m in members]
    if not names:
        raise BadArguments("A team needs Agents: a list in which each has a Name.")
    once("agents", names)
    selection = body.section("Selection") or Fields({})
    order = (selection.text("Type") or "roundrobin").casefold()
    if order not in ORDERS:
        raise BadArguments(
            f"There is no Selection.Type {plain(order, 40)!r}; there are {', '.join(ORDERS)}."
            f"{did_you_mean(order, ORDERS)}"
        )
    ending, budget = body.section("Termination") or Fields({}), body.section("ContextBudget")
    checks = body.section("Validation") or Fields({})
    tests = (body.section("TestSelector") or Fields({})).text("FullSuiteCommand").strip()
    stops = () if order in OWN_END else tuple(_stops(ending, names))  # ignored, as in fuseraft
    if order == "llm":  # what the model says that picks ends nothing
        stops = tuple(replace(s, agents=s.agents or tuple(names)) for s in stops)
    summaries = body.section("Compaction") or Fields({})
    made = Roster(
        name=body.text("Name") or "team",
        members=members,
        order=cast("Order", order if order in IN_TURN else "statemachine"),
        max_turns=_most(ending),
        max_tokens=_budget(body, ending),
        warn_at=budget.number("WarnAt") if budget else 0,
        cutover_at=budget.number("CutoverAt") if budget else 0,
        warn_turn=(
            Roster.warn_turn
            if body.get("WarnTurnTokens") is None
            else body.number("WarnTurnTokens")
        ),
        summary_model=model_of(summaries),
        stops=stops,
        failing=policy_of(body.section("FailureHandling")),
        verifier=verifier_of(body.section("Verifier"), names),
        suite=(tests,) if tests else (),
        memory=dict((body.section("Memory") or Fields({})).values),
        brief=checks.text("BriefPath") or Roster.brief,
        report=checks.text("TestReportPath") or Roster.report,
        assertions=tuple(
            pattern_of(p, "Validation.TestAssertionPatterns")
            for p in checks.texts("TestAssertionPatterns")
        )
        or Roster.assertions,
        notes=tuple(remarks(config, body)),
    )
    if order in IN_TURN:
        return made
    rows = body.rows("Contracts")
    contracts = {f.text("Name").casefold(): _contract(f, made) for f in rows}
    once("contracts", [f.text("Name") for f in rows])
    if order == "statemachine":
        return _machine(made, selection, contracts)
    given = SelectionParts(config=config, selection=selection, agents=body.rows("Agents"),
                           members=members, names=names, contracts=contracts)  # fmt: skip
    return _routed(made, ROUTINGS[order](given))


def _routed(made: Roster, found: Routing) -> Roster:
    """Return a plan with what its selection says."""
    failing, n = made.failing, found.retries
    return replace(
        made, initial=found.initial, states=found.states, manager=found.manager,
        branches=found.branches, members=(*(found.members or made.members), *found.extra),
        failing=failing if n is None else replace(failing, silent=n, failed=n),
        max_turns=found.max_turns or made.max_turns * found.turns_a_round,
    )  # fmt: skip


def _machine(made: Roster, selection: Fields, contracts: Mapping[str, Contract]) -> Roster:
    machine = selection.section("StateMachine") or Fields({})
    found = machine.section("States")
    named = list(found) if found else []
    if not named:
        raise BadArguments(
            "A state machine needs States: Selection.StateMachine.States names none."
        )
    once("states", named)
    known = {name.casefold(): name for name in named}
    states = {}
    for name in named:
        fields = cast("Fields", found).section(name) or Fields({})
        agent = fields.text("Agent")
        terminal = fields.flag("Terminal")
        if agent or not terminal:
            agent = one_of(agent, [m.name for m in made.members], f"the agent of state {name}")
        ways = tuple(
            _transition(f, name, known, contracts, made.members) for f in fields.rows("Transitions")
        )
        once(f"signals out of state {name}", [w.signal for w in ways])
        states[name] = TeamState(name=name, agent=agent, terminal=terminal, transitions=ways)
    initial = machine.text("Initial")
    if not initial:
        raise BadArguments(
            f"Selection.StateMachine.Initial names no state; there are {listed(named)}."
        )
    initial = one_of(initial, named, "Selection.StateMachine.Initial")
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
    targets = f.texts("Targets") if f.flag("Parallel") else []
    if f.flag("Parallel") and not targets:
        raise BadArguments(f"{at[0].upper()}{at[1:]} is Parallel: name its Targets.")
    targets = [one_of(t, list(states.values()), f"Targets of {at}") for t in targets]
    to = one_of(f.text("To"), list(states.values()), f"To of {at}")
    once(f"Targets of {at}, or its To,", [*targets, to])
    wanted = [*f.texts("Contracts"), *([f.text("Contract")] if f.text("Contract") else [])]
    for name in wanted:
        one_of(name, [c.name for c in contracts.values()], f"the contract of {at}")
    agents = [m.name for m in members]
    return Transition(
        to=to,
        signal=f.text("Signal").strip(),
        contracts=() if targets else tuple(contracts[n.casefold()] for n in wanted),
        source_agents=tuple(
            one_of(a, agents, f"SourceAgents of {at}") for a in f.texts("SourceAgents")
        ),
        recovery=(
            one_of(f.text("RecoveryAgent"), agents, f"RecoveryAgent of {at}")
            if f.text("RecoveryAgent")
            else ""
        ),
        handoff=sources(f.rows("HandoffContext"), f"HandoffContext of {at}", own=False),
        max_revisits=f.number("MaxRevisits"),
        review=f.text("ReviewArtifactPath"),
        targets=tuple(targets),
    )


def _contract(f: Fields, made: Roster) -> Contract:
    name = f.text("Name")
    if not name:
        raise BadArguments("A contract has no Name.")
    needs = tuple(_requirement(r, name) for r in f.rows("Requires"))
    if any(r.kind == "RelatedTestsPass" for r in needs) and not made.suite:
        raise BadArguments(
            f"Contract {plain(name, 60)} can never hold: its RelatedTestsPass goes by "
            "TestSelector.FullSuiteCommand, and there is none."
        )
    if not needs:
        raise BadArguments(
            f"Contract {plain(name, 60)} requires nothing: give it Requires, or leave it out."
        )
    return Contract(name=name, requires=needs)


def _requirement(f: Fields, contract: str) -> Requirement:
    """Read one, written as `Type: FileExists, Path: ...` or as `FileExists: {Path: ...}`."""
    kind = f.text("Type") or next(iter(f), "")
    inner = f if f.text("Type") else f.section(kind) or Fields({})
    kind = one_of(kind, list(KINDS), f"a requirement of contract {contract}")
    made = Requirement(
        kind=cast("Any", kind),
        path=inner.text("Path") or inner.text("Source") or inner.text("PatternSource"),
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
    out = []
    for row in f.rows("Strategies") or [f]:
        who = tuple(one_of(a, names, "AgentNames of Termination") for a in row.texts("AgentNames"))
        if row.text("Pattern"):
            out.append(Stop(pattern=pattern_of(row.text("Pattern"), "Termination"), agents=who))
        if row.get("Condition") is not None:
            when = condition_of(row.section("Condition"), "A structured Termination")
            out.append(Stop(when=when, agents=who))
    return out


def _budget(body: Fields, ending: Fields) -> int | None:
    """Return the least of what all tokens together may be; None: no matter how many."""
    rows = (ending, *ending.rows("Strategies"))
    told = (body.number("MaxTotalTokens"), *(r.number("MaxTokens") for r in rows))
    return min((n for n in told if n), default=None)


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
