"""fuseraft's orchestration config as the plan of a team, with notes on the keys it ignores."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.presets.config_key_mapping import ConfigSection, join_names
from ctxkit.presets.fuseraft_config import (
    PLUGINS_KEY,
    PROMPT_LIMITS,
    TEAM_SECTION_KEYS,
    TERMINATION_KEY,
    UNREAD_REASONS,
    UNREAD_SECTION_KEYS,
    find_budget_faults,
    format_ignored_keys,
    get_orchestration_or_whole_config,
    read_config,
)
from ctxkit.teams.agent_selections_as_state_graphs import (
    VALIDATORS,
    SelectionConfigParts,
    SelectionPlan,
    check_unique,
    get_validator_names,
    match_name,
    route_adversarial,
    route_by_graph,
    route_by_json,
    route_by_keyword,
    route_by_manager,
    route_by_model,
    route_map_reduce,
    route_scatter_gather,
)
from ctxkit.teams.handoffs_and_contracts import parse_context_sources
from ctxkit.teams.member_config_and_views import get_model_name, is_plugin_supported, parse_members
from ctxkit.teams.sub_agents_and_permissions import parse_envelope
from ctxkit.teams.team_definition import (
    FAILURE_KINDS,
    ContractRequirement,
    HandoffContract,
    ReplyStopCondition,
    StateDefinition,
    TeamPlan,
    Transition,
    check_pattern,
    parse_condition,
    parse_failure_limits,
    parse_verifier,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ctxkit.teams.team_definition import Member, TurnOrder

    _IgnoredKey = tuple[str, Sequence[str], str]


ROUND_SELECTIONS = ("roundrobin", "sequential")
ROUTING_PARSERS: dict[str, Callable[[SelectionConfigParts], SelectionPlan]] = {
    "keyword": route_by_keyword,
    "structured": route_by_json,
    "graph": route_by_graph,
    "magentic": route_by_manager,
    "llm": route_by_model,
    "adversarial": route_adversarial,
    "scattergather": route_scatter_gather,
    "mapreduce": route_map_reduce,
}
SELECTION_TYPES = ("statemachine", *ROUND_SELECTIONS, *ROUTING_PARSERS)
REQUIREMENT_KINDS = (
    "FileExists",
    "FilesWritten",
    "CommandSucceeded",
    "TestReport",
    "ChecklistComplete",
    "RelatedTestsPass",
)


def parse_plan(config: Mapping[str, Any]) -> TeamPlan:
    """Return the plan of a team: its members, the order of turns, hand-offs and contracts.

    Args:
        config: fuseraft's config file, as it was parsed.

    Returns:
        The plan, which a state machine runs: keys without effect here are named in its `notes`.

    Raises:
        BadArguments: two agents have one name, a state is missing or named twice, a hand-off leads
            nowhere, a contract can never hold, ...: one sentence.

    Example:
        >>> plan = parse_plan({"Agents": [{"Name": "Planner"}, {"Name": "Tester"}]})
        >>> [member.name for member in plan.members]
        ['Planner', 'Tester']
    """
    body = get_orchestration_or_whole_config(config)
    members = parse_members(config)
    names = [m.name for m in members]
    if not names:
        raise BadArguments("A team needs Agents: a list in which each has a Name.")
    for fault in find_budget_faults(body.values):
        raise BadArguments(fault)
    check_unique("agents", names)
    selection = body.section("Selection")
    order = (selection.text("Type") or "roundrobin").casefold()
    if order not in SELECTION_TYPES:
        raise BadArguments(
            f"There is no Selection.Type {sanitize_text(order, 40)!r}; there are "
            f"{', '.join(SELECTION_TYPES)}."
            f"{did_you_mean(order, SELECTION_TYPES)}"
        )
    ending, budget = body.section("Termination"), body.section("ContextBudget")
    checks = body.section("Validation")
    tests = body.section("TestSelector").text("FullSuiteCommand").strip()
    stops = (
        () if order in SELF_ENDING_SELECTIONS else tuple(_parse_stops(ending, names))
    )  # ignored, as in fuseraft
    if order == "llm":  # the model that picks the next agent cannot end the team
        stops = tuple(replace(s, agents=s.agents or tuple(names)) for s in stops)
    summaries = body.section("Compaction")
    plan = TeamPlan(
        name=body.text("Name") or "team",
        members=members,
        order=cast("TurnOrder", order if order in ROUND_SELECTIONS else "statemachine"),
        max_turns=_max_turns(ending),
        max_tokens=_token_budget(body, ending),
        warn_at=budget.number("WarnAt"),
        cutover_at=budget.number("CutoverAt"),
        warn_turn=body.number("WarnTurnTokens", TeamPlan.warn_turn),
        summary_model=get_model_name(summaries),
        stops=stops,
        failure_limits=parse_failure_limits(body.section("FailureHandling")),
        verifier=parse_verifier(body, names),
        test_commands=(tests,) if tests else (),
        memory=dict(body.section("Memory").values),
        envelope=parse_envelope(body),
        brief_path=checks.text("BriefPath") or TeamPlan.brief_path,
        report_path=checks.text("TestReportPath") or TeamPlan.report_path,
        assertions=tuple(
            check_pattern(p, "Validation.TestAssertionPatterns")
            for p in checks.texts("TestAssertionPatterns")
        )
        or TeamPlan.assertions,
        notes=tuple(describe_ignored_keys(config, body)),
    )
    if order in ROUND_SELECTIONS:
        return plan
    rows = body.rows("Contracts")
    contracts = {f.text("Name").casefold(): _parse_contract(f, plan) for f in rows}
    check_unique("contracts", [f.text("Name") for f in rows])
    if order == "statemachine":
        return _with_state_machine(plan, selection, contracts)
    parts = SelectionConfigParts(config=config, selection=selection, agents=body.rows("Agents"),
                           members=members, names=names, contracts=contracts)  # fmt: skip
    return _with_routing(plan, ROUTING_PARSERS[order](parts))


def _with_routing(plan: TeamPlan, routing: SelectionPlan) -> TeamPlan:
    """Return a plan with the routing of its selection."""
    limits, n = plan.failure_limits, routing.retries
    if n is not None:
        limits = replace(limits, max_silent_turns=n, max_contract_failures=n)
    return replace(
        plan, initial=routing.initial, states=routing.states, manager=routing.manager,
        branches=routing.branches, members=(*(routing.members or plan.members), *routing.extra),
        failure_limits=limits,
        max_turns=routing.max_turns or plan.max_turns * routing.turns_a_round,
    )  # fmt: skip


def _with_state_machine(
    plan: TeamPlan, selection: ConfigSection, contracts: Mapping[str, HandoffContract]
) -> TeamPlan:
    machine = selection.section("StateMachine")
    section = machine.section("States")
    names = list(section)
    if not names:
        raise BadArguments(
            "A state machine needs States: Selection.StateMachine.States names none."
        )
    check_unique("states", names)
    names_by_fold = {name.casefold(): name for name in names}
    states = {}
    for name in names:
        fields = section.section(name)
        agent = fields.text("Agent")
        terminal = fields.flag("Terminal")
        if agent or not terminal:
            agent = match_name(agent, [m.name for m in plan.members], f"the agent of state {name}")
        ways = tuple(
            _parse_transition(f, name, names_by_fold, contracts, plan.members)
            for f in fields.rows("Transitions")
        )
        check_unique(f"signals out of state {name}", [w.signal for w in ways])
        states[name] = StateDefinition(name=name, agent=agent, terminal=terminal, transitions=ways)
    initial = machine.text("Initial")
    if not initial:
        raise BadArguments(
            f"Selection.StateMachine.Initial names no state; there are {join_names(names)}."
        )
    initial = match_name(initial, names, "Selection.StateMachine.Initial")
    if states[initial].is_final:
        raise BadArguments(
            f"The team begins in state {initial}, out of which nothing leads: give it Transitions."
        )
    _check_can_end(states, initial)
    return replace(plan, initial=initial, states=states)


def _parse_transition(
    section: ConfigSection,
    state: str,
    states: Mapping[str, str],
    contracts: Mapping[str, HandoffContract],
    members: Sequence[Member],
) -> Transition:
    at = f"a transition out of state {state}"
    targets = section.texts("Targets") if section.flag("Parallel") else []
    if section.flag("Parallel") and not targets:
        raise BadArguments(f"{at[0].upper()}{at[1:]} is Parallel: name its Targets.")
    targets = [match_name(t, list(states.values()), f"Targets of {at}") for t in targets]
    to = match_name(section.text("To"), list(states.values()), f"To of {at}")
    check_unique(f"Targets of {at}, or its To,", [*targets, to])
    contract_names = [
        *section.texts("Contracts"),
        *([section.text("Contract")] if section.text("Contract") else []),
    ]
    for name in contract_names:
        match_name(name, [c.name for c in contracts.values()], f"the contract of {at}")
    agents = [m.name for m in members]
    return Transition(
        to=to,
        signal=section.text("Signal").strip(),
        contracts=() if targets else tuple(contracts[n.casefold()] for n in contract_names),
        source_agents=tuple(
            match_name(a, agents, f"SourceAgents of {at}") for a in section.texts("SourceAgents")
        ),
        recovery=(
            match_name(section.text("RecoveryAgent"), agents, f"RecoveryAgent of {at}")
            if section.text("RecoveryAgent")
            else ""
        ),
        handoff=parse_context_sources(
            section.rows("HandoffContext"), f"HandoffContext of {at}", allow_own=False
        ),
        max_revisits=section.number("MaxRevisits"),
        objections_file=section.text("ReviewArtifactPath"),
        targets=tuple(targets),
    )


def _parse_contract(section: ConfigSection, plan: TeamPlan) -> HandoffContract:
    name = section.text("Name")
    if not name:
        raise BadArguments("A contract has no Name.")
    requirements = tuple(_parse_requirement(r, name) for r in section.rows("Requires"))
    if any(r.kind == "RelatedTestsPass" for r in requirements) and not plan.test_commands:
        raise BadArguments(
            f"Contract {sanitize_text(name, 60)} can never hold: its RelatedTestsPass goes by "
            "TestSelector.FullSuiteCommand, and there is none."
        )
    if not requirements:
        raise BadArguments(
            f"Contract {sanitize_text(name, 60)} requires nothing: give it Requires, or leave "
            "it out."
        )
    return HandoffContract(name=name, requires=requirements)


def _parse_requirement(section: ConfigSection, contract: str) -> ContractRequirement:
    """Parse a requirement: `Type: FileExists, Path: ...` or as `FileExists: {Path: ...}`."""
    kind = section.text("Type") or next(iter(section), "")
    inner = section if section.text("Type") else section.section(kind)
    kind = match_name(kind, list(REQUIREMENT_KINDS), f"a requirement of contract {contract}")
    requirement = ContractRequirement(
        kind=cast("Any", kind),
        path=inner.text("Path") or inner.text("Source") or inner.text("PatternSource"),
        field=inner.text("Field") or inner.text("PatternField"),
        pattern=inner.text("Pattern"),
        no_failures=inner.flag("NoFailures"),
        has_assertions=inner.flag("HasAssertions"),
    )
    if kind == "FileExists" and not requirement.path:
        raise BadArguments(
            f"Contract {sanitize_text(contract, 60)} can never hold: its FileExists names no Path."
        )
    if requirement.path and (
        requirement.path.startswith(("/", "\\", "~"))
        or ".." in re.split(r"[/\\]", requirement.path)
    ):
        raise BadArguments(
            f"Contract {sanitize_text(contract, 60)} can never hold: "
            f"{sanitize_text(requirement.path, 80)} lies outside of"
            " the team's folder."
        )
    return requirement


def _parse_stops(section: ConfigSection, names: Sequence[str]) -> list[ReplyStopCondition]:
    out = []
    for row in section.rows("Strategies") or [section]:
        who = tuple(
            match_name(a, names, "AgentNames of Termination") for a in row.texts("AgentNames")
        )
        if row.text("Pattern"):
            out.append(
                ReplyStopCondition(
                    pattern=check_pattern(row.text("Pattern"), "Termination"), agents=who
                )
            )
        if row.get("Condition") is not None:
            when = parse_condition(row.section("Condition"), "A structured Termination")
            out.append(ReplyStopCondition(when=when, agents=who))
    return out


def _token_budget(body: ConfigSection, ending: ConfigSection) -> int | None:
    """Return the smallest limit on tokens of all agents; None: no limit."""
    rows = (ending, *ending.rows("Strategies"))
    limits = (body.number("MaxTotalTokens"), *(r.number("MaxTokens") for r in rows))
    return min((n for n in limits if n), default=None)


def _max_turns(section: ConfigSection) -> int:
    limits = [
        n
        for n in (
            section.number("MaxIterations"),
            *(r.number("MaxIterations") for r in section.rows("Strategies")),
        )
        if n
    ]
    return min(limits, default=TeamPlan.max_turns)


def _check_can_end(states: Mapping[str, StateDefinition], initial: str) -> None:
    """Refuse a machine that can never end, as no state without transitions can be reached."""
    reached, todo = {initial}, [initial]
    while todo:
        state = states[todo.pop()]
        for way in () if state.is_final else state.transitions:
            if way.to not in reached:
                reached.add(way.to)
                todo.append(way.to)
    if not any(states[name].is_final for name in reached):
        raise BadArguments(
            f"The team could never end: its states ({join_names(sorted(reached))}) only lead to"
            " each other. Let a transition lead to one that is Terminal."
        )


SELF_ENDING_SELECTIONS = ("magentic", "adversarial", "scattergather", "mapreduce")
"""Selections that end by themselves, whatever `Termination` says (as in fuseraft)."""


def describe_ignored_keys(config: Mapping[str, Any], body: ConfigSection) -> list[str]:
    """Return notes on unknown keys of a config, and one on the keys that have no effect here.

    Args:
        config: the whole file.
        body: its section with the team.
    """
    unknown, ignored = [], list(_iter_ignored_keys(config, body))
    for where, fields, known_keys in _iter_sections(body):
        for key in (k for k in fields if fields.get(k) is not False):
            if reason := _SECTION_REASONS.get(key.casefold()):
                ignored.append((f"{where}: {key}", (), reason))
            elif key.casefold() not in map(str.casefold, known_keys):
                unknown.append(_describe_unknown_key(where, key, known_keys))
    unknown += _describe_unknown_validators(body)
    unknown += [
        f"{note} is not known, and not obeyed." for note in read_config(config, None).unknown
    ]
    sentence = format_ignored_keys(ignored)
    return [*unknown, *([sentence] if sentence else [])]


_SECTION_REASONS = {key.casefold(): reason for key, reason in UNREAD_SECTION_KEYS.items()}
_MODEL_KEYS = {k.casefold() for k in ("ModelId", *(key.path for key in PROMPT_LIMITS))}
_MODEL_REASON = "model= and models= name models, with the settings that are theirs"
_SECURITY_KEYS = ("changeenvelope", "filesystemsandboxpath")


def _iter_ignored_keys(config: Mapping[str, Any], body: ConfigSection) -> Iterator[_IgnoredKey]:
    """Yield the known keys that have no effect: key, agents that have it, reason."""
    order = body.section("Selection").text("Type").casefold()
    if order in SELF_ENDING_SELECTIONS and body.get(TERMINATION_KEY) is not None:
        yield TERMINATION_KEY, (), f"a team of type {order} ends by itself"
    if any(key.casefold() not in _SECURITY_KEYS for key in body.section("Security")):
        yield "Security", (), UNREAD_REASONS["security"]
    parsed = read_config(config, None)
    for key in dict.fromkeys((*body, *parsed.unrepresented)):
        reason = UNREAD_REASONS.get(key.rpartition(".")[2].casefold(), "")
        if key.casefold() != "security" and (reason or key in parsed.unrepresented):
            yield key, (), reason
    yield from _iter_ignored_agent_keys(body)


def _iter_ignored_agent_keys(body: ConfigSection) -> Iterator[_IgnoredKey]:
    agents_by_row: dict[tuple[str, str], list[str]] = {}
    plugins: dict[str, None] = {}
    for agent in body.rows("Agents"):
        name = agent.text("Name")
        for row in _ignored_keys_of(agent):
            agents_by_row.setdefault(row, []).append(name)
        plugins |= dict.fromkeys(p for p in agent.texts("Plugins") if not is_plugin_supported(p))
    for (key, reason), names in agents_by_row.items():
        yield key, () if reason == _MODEL_REASON else names, reason
    if plugins:
        yield f"{PLUGINS_KEY} {join_names(plugins)}", (), "there is no tool for them"


def _ignored_keys_of(agent: ConfigSection) -> Iterator[tuple[str, str]]:
    """Yield keys of one agent, and the reasons."""
    if agent.text("FunctionChoice").casefold() == "required":
        yield "FunctionChoice required", UNREAD_REASONS["functionchoice"]
    if agent.get("TrustScore") is not None:
        yield "TrustScore", UNREAD_REASONS["trustscore"]
    model = agent.section("Model") if isinstance(agent.get("Model"), dict) else ()
    for key in (k for k in model if k.casefold() not in _MODEL_KEYS):
        yield f"Model.{key}", _MODEL_REASON


def _describe_unknown_key(where: str, key: str, valid_keys: tuple[str, ...]) -> str:
    """Return a sentence on an unknown key of a section."""
    return (
        f"{where} has a key {sanitize_text(key, 60)!r} that is not known, and not obeyed."
        f"{did_you_mean(key, valid_keys)}"
    )


def _describe_unknown_validators(body: ConfigSection) -> list[str]:
    """Return sentences on unknown validators of routes."""
    selection = body.section("Selection")
    routes = (
        *selection.rows("Routes"),
        *selection.section("Graph").rows("Edges"),
    )
    names = dict.fromkeys(name for f in routes for name in get_validator_names(f))
    known_names = {k.casefold() for k in VALIDATORS}
    return [
        f"Validator {sanitize_text(name, 60)} is not checked here; there are "
        f"{', '.join(VALIDATORS)}."
        for name in names
        if name.casefold() not in known_names
    ]


def _iter_sections(body: ConfigSection) -> Iterator[tuple[str, ConfigSection, tuple[str, ...]]]:
    """Yield the sections that only a team reads: place, section, valid keys."""
    keys = TEAM_SECTION_KEYS
    for contract in body.rows("Contracts"):
        name = f"ontract {sanitize_text(contract.text('Name'), 40)}"
        yield f"C{name}", contract, keys["Contract"]
        for n, row in enumerate(contract.rows("Requires"), 1):
            kind = row.text("Type") or next(iter(row), "")
            inner = row if row.text("Type") else row.section(kind)
            yield f"Requirement {n} of c{name}", inner, keys["Requirement"]
    for agent in body.rows("Agents"):
        name = sanitize_text(agent.text("Name"), 40)
        for source in agent.rows("Context"):
            yield f"A source in the Context of {name}", source, keys["Source"]
    ending, selection = body.section("Termination"), body.section("Selection")
    for n, strategy in enumerate(ending.rows("Strategies"), 1):
        yield f"Strategy {n} of Termination", strategy, keys["Strategy"]
    for name in (
        "Termination", "Selection", "Verifier", "Validation", "TestSelector", "FailureHandling",
    ):  # fmt: skip
        yield name, body.section(name), keys[name]
    for name in (k.partition(".")[2] for k in keys if k.startswith("Selection.")):
        yield f"Selection.{name}", selection.section(name), keys[f"Selection.{name}"]
    yield from _iter_states(selection.section("StateMachine").section("States"))
    graph = selection.section("Graph")
    for what, rows in (
        ("Route", selection.rows("Routes")),
        ("Structured route", selection.rows("StructuredRoutes")),
        ("Node", graph.rows("Nodes")),
        ("Edge", graph.rows("Edges")),
        ("Stage", selection.section("Adversarial").rows("Stages")),
    ):
        for n, row in enumerate(rows, 1):
            yield f"{what} {n}", row, keys[what]
    failing = body.section("FailureHandling")
    for kind in FAILURE_KINDS:
        yield f"FailureHandling.{kind}", failing.section(kind), keys["Failure"]


def _iter_states(
    states: ConfigSection,
) -> Iterator[tuple[str, ConfigSection, tuple[str, ...]]]:
    keys = TEAM_SECTION_KEYS
    for name in states:
        state, place = states.section(name), f"state {sanitize_text(name, 40)}"
        yield f"S{place[1:]}", state, keys["State"]
        for n, way in enumerate(state.rows("Transitions"), 1):
            at = f"ransition {n} of {place}"
            yield f"T{at}", way, keys["Transition"]
            for source in way.rows("HandoffContext"):
                yield f"A source in the HandoffContext of t{at}", source, keys["Source"]
