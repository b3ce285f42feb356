"""Selections of fuseraft as state graphs, which `turn_decisions` runs.

Each agent is a state (of a graph: each node) and each route a transition; a transition without a
signal is taken where no route is. Selections that need more bring it along:

- magentic: a manager picks the next agent. It is an agent like the others, with a session of its
  own, and the others hear it. After a number of rounds without progress it is asked for a new plan;
  after a number of new plans the team stops.
- llm: a model picks the next agent, and hears the others.
- adversarial: a maker and a critic for each stage. A critic sees its instructions and the work to
  judge: not the task, no words of others, none of its own earlier turns.
- scatter-gather: the branches have a turn each, and one agent makes the answer of all of them.
- map-reduce: one agent makes a list, one has a turn for each item, one makes the answer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.presets.config_key_mapping import ConfigSection, join_names
from ctxkit.presets.fuseraft_config import MAX_STATES, check_team_count
from ctxkit.teams.member_config_and_views import (
    get_model_name,
    parse_common_rules,
    with_view_filters,
    without_own_earlier_turns,
)
from ctxkit.teams.team_definition import (
    ContractRequirement,
    HandoffContract,
    JsonCondition,
    ManagerStallLimits,
    Member,
    StateDefinition,
    Transition,
    parse_condition,
)
from ctxkit.teams.turn_prompts_and_team_state import MAX_ITEMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


END_STATE = "the end"
"""Terminal state of a selection that has none of its own."""
_StateMap = dict[str, StateDefinition]


@dataclass(frozen=True, kw_only=True)
class SelectionPlan:
    """A selection as a state graph."""

    states: _StateMap
    initial: str
    extra: tuple[Member, ...] = ()
    """Agents that the selection adds."""
    manager: ManagerStallLimits | None = None
    members: tuple[Member, ...] = ()
    """The agents with their changed views; empty: the selection changes none."""
    branches: tuple[str, ...] = ()
    """States whose agents each have a turn before the first state."""
    retries: int | None = None
    """Consecutive failures after which the team stops; None: as `FailureHandling` says."""
    max_turns: int | None = None
    turns_a_round: int = 1
    """Turns that count as one of `MaxIterations`."""


@dataclass(frozen=True, kw_only=True)
class SelectionConfigParts:
    """The parts of a config that a selection is made from."""

    config: Mapping[str, Any]
    selection: ConfigSection
    agents: Sequence[ConfigSection]
    members: Sequence[Member]
    names: Sequence[str]
    contracts: Mapping[str, HandoffContract]
    """By their names in lower case."""

    def agent(self, name: str, where: str) -> str:
        """Return an agent's name as the config writes it.

        Args:
            name: the name, in any case of letters.
            where: place in the config, for the error.

        Raises:
            BadArguments: there is no such agent.
        """
        return match_name(name, self.names, where)

    def demanded(self, section: ConfigSection, where: str) -> tuple[HandoffContract, ...]:
        """Return the contracts and validators that a route names.

        Args:
            section: the route.
            where: place in the config, for the error.

        Raises:
            BadArguments: there is no such contract.
        """
        names = [
            *section.texts("Contracts"),
            *([section.text("Contract")] if section.text("Contract") else []),
        ]
        contract_names = [c.name for c in self.contracts.values()]
        matched = [match_name(name, contract_names, f"the contract of {where}") for name in names]
        return (
            *(self.contracts[name.casefold()] for name in matched),
            *make_validator_contracts(section),
        )


def route_by_keyword(parts: SelectionConfigParts) -> SelectionPlan:
    """Return keyword routes; `DefaultAgent` is the default, a route to itself ends the team.

    Args:
        parts: the config; `Routes` and `DefaultAgent` of its selection are read.

    Returns:
        A state for each agent; a keyword in a reply is the signal of its transition.

    Raises:
        BadArguments: there are no `Routes`, or one names no agent of the team.
    """
    routes = parts.selection.rows("Routes")
    if not routes:
        raise BadArguments("A selection by keyword needs Routes: a Keyword and an Agent each.")
    first = _default_agent(parts)
    routed = [_keyword_transition(parts, f, n) for n, f in enumerate(routes, 1)]
    states = {}
    for name in parts.names:
        ways = [way for sources, way in routed if not sources or name in sources]
        check_unique(f"keywords that {name} may give", [w.signal for w in ways])
        # the last transition has no signal: it is taken if no keyword was given
        rest = Transition(to=first)
        states[name] = StateDefinition(name=name, agent=name, transitions=(*ways, rest))
    return SelectionPlan(
        states={**states, END_STATE: StateDefinition(name=END_STATE)}, initial=first
    )


def _keyword_transition(
    parts: SelectionConfigParts, section: ConfigSection, n: int
) -> tuple[list[str], Transition]:
    """Return which agents a route is for (none: for all), and the route."""
    where = f"route {n}"
    if not section.text("Keyword").strip():
        raise BadArguments(f"Route {n} names no Keyword.")
    to = parts.agent(section.text("Agent"), f"the agent of {where}")
    sources = [parts.agent(a, f"SourceAgents of {where}") for a in section.texts("SourceAgents")]
    return sources, Transition(
        # a route to an agent that may give its keyword itself ends the team
        to=END_STATE if to in sources else to, signal=section.text("Keyword").strip(),
        contracts=parts.demanded(section, where), recovery=_recovery_agent(parts, section, where),
    )  # fmt: skip


def route_by_json(parts: SelectionConfigParts) -> SelectionPlan:
    """Return routes by fields of the JSON in a reply; the first that matches is taken.

    The team ends after an agent that has no route to another.

    Args:
        parts: the config; `StructuredRoutes` of its selection are read.

    Returns:
        A state for each agent; a transition holds where its condition matches the reply's JSON.

    Raises:
        BadArguments: there are no `StructuredRoutes`, or one names no agent of the team.
    """
    routes = parts.selection.rows("StructuredRoutes")
    if not routes:
        raise BadArguments(
            "A structured selection needs StructuredRoutes: an Agent and a Condition each."
        )
    first, states = _default_agent(parts), {}
    routed = [_json_transition(parts, f, n) for n, f in enumerate(routes, 1)]
    for name in parts.names:
        ways = [way for sources, way in routed if not sources or name in sources]
        out = tuple(ways) or (Transition(to=END_STATE),)
        states[name] = StateDefinition(name=name, agent=name, transitions=out)
    return SelectionPlan(
        states={**states, END_STATE: StateDefinition(name=END_STATE)}, initial=first
    )


def _json_transition(
    parts: SelectionConfigParts, section: ConfigSection, n: int
) -> tuple[list[str], Transition]:
    """Return which agents a route is for (none: for all), and the route."""
    where = f"structured route {n}"
    to = parts.agent(section.text("Agent"), f"the agent of {where}")
    sources = [parts.agent(a, f"SourceAgents of {where}") for a in section.texts("SourceAgents")]
    when = parse_condition(section.section("Condition"), where)
    return sources, Transition(to=to, when=when)


def route_by_graph(parts: SelectionConfigParts) -> SelectionPlan:
    """Return a graph's nodes and edges; a terminal node's agent has one more turn.

    Args:
        parts: the config; `Nodes` and `Edges` of its selection are read.

    Returns:
        A state for each node, with its edges as transitions.

    Raises:
        BadArguments: there are no nodes, or one is a graph of its own or parallel.
    """
    graph = parts.selection.section("Graph")
    nodes, edges = graph.rows("Nodes"), graph.rows("Edges")
    ids = [f.text("Id") for f in nodes]
    check_unique("nodes", ids)
    if not ids:
        raise BadArguments("A graph needs Nodes: an Id and an Agent each.")
    out_of: dict[str, list[ConfigSection]] = {}
    for edge in edges:
        out_of.setdefault(edge.text("From").casefold(), []).append(edge)
    states: _StateMap = {END_STATE: StateDefinition(name=END_STATE)}
    for f, name in zip(nodes, ids, strict=True):
        if f.text("SubGraphId") or f.flag("Parallel"):
            raise BadArguments(
                f"Node {sanitize_text(name, 60)} is a graph of its own or parallel: here each "
                "node is one "
                "agent, and agents take turns."
            )
        agent = parts.agent(f.text("Agent"), f"the agent of node {name}")
        mine = out_of.get(name.casefold(), ())
        ways = [_edge_transition(parts, e, ids) for e in mine] if not f.flag("Terminal") else []
        check_unique(f"keywords out of node {name}", [w.signal for w in ways])
        out = tuple(ways) or (Transition(to=END_STATE),)
        states[name] = StateDefinition(name=name, agent=agent, transitions=out)
    initial = match_name(graph.text("EntryNode") or ids[0], ids, "EntryNode")
    retries = graph.number("MaxRetries") or None
    return SelectionPlan(states=states, initial=initial, retries=retries)


def _edge_transition(
    parts: SelectionConfigParts, section: ConfigSection, ids: Sequence[str]
) -> Transition:
    where = f"the edge from {sanitize_text(section.text('From'), 60)}"
    return Transition(
        to=match_name(section.text("To"), ids, f"To of {where}"),
        signal=section.text("Keyword").strip(),
        source_agents=tuple(
            parts.agent(a, f"SourceAgents of {where}") for a in section.texts("SourceAgents")
        ),
        contracts=parts.demanded(section, where), recovery=_recovery_agent(parts, section, where),
    )  # fmt: skip


def route_by_manager(parts: SelectionConfigParts) -> SelectionPlan:
    """Return the routing of a team led by a manager (magentic).

    Args:
        parts: the config; `Magentic` of its selection is read.

    Returns:
        A state for each agent and for the manager, who names the next agent after each turn.

    Raises:
        BadArguments: an agent's isolation hides from it what the manager says.
    """
    f = parts.selection.section("Magentic")
    isolated = [a.text("Name") for a in parts.agents if a.text("Isolation").casefold() == "fresh"]
    if isolated:
        raise BadArguments(
            f"A manager says aloud what {join_names(isolated)} shall do: an agent of a magentic"
            " team cannot have Isolation: Fresh."
        )
    manager = make_manager(f, parts.agents, parts.config)
    states = make_manager_states(manager.name, parts.names, END_STATE) | {
        END_STATE: StateDefinition(name=END_STATE)
    }
    return SelectionPlan(
        states=states,
        initial=manager.name,
        extra=(manager,),
        manager=parse_manager_limits(f, manager.name),
        max_turns=parse_managed_team_max_turns(f),
    )


def _default_agent(parts: SelectionConfigParts) -> str:
    name = parts.selection.text("DefaultAgent")
    return parts.agent(name, "DefaultAgent") if name else parts.names[0]


def _recovery_agent(parts: SelectionConfigParts, section: ConfigSection, where: str) -> str:
    name = section.text("RecoveryAgent")
    return parts.agent(name, f"RecoveryAgent of {where}") if name else ""


def check_unique(what: str, names: Sequence[str]) -> None:
    """Refuse duplicate names.

    Args:
        what: plural of what is named, for the error's sentence, such as `agents`.
        names: the names, compared as they are.

    Raises:
        BadArguments: two names are equal.
    """
    counts = Counter(n.casefold() for n in names)
    duplicate = next((n for n in names if counts[n.casefold()] > 1), None)
    if duplicate is not None:
        shown_name = sanitize_text(duplicate, 60) or "(no signal)"
        raise BadArguments(f"Two {what} are called {shown_name!r}: give each a name of its own.")


def match_name(name: str, valid_names: Sequence[str], what: str) -> str:
    """Return the valid name that equals a name without regard to case.

    Args:
        name: as the config has it.
        valid_names: the names that may be meant.
        what: what is named, for the error's sentence, such as `the initial state`.

    Returns:
        The name in the spelling of `valid_names`.

    Raises:
        BadArguments: none is equal; the sentence names the nearest one.
    """
    if name in valid_names:
        return name
    match = next((k for k in valid_names if k.casefold() == name.casefold()), None)
    if match is None:
        raise BadArguments(
            f"{what[0].upper()}{what[1:]} is {sanitize_text(name, 60)!r}, and there are "
            f"{join_names(valid_names)}."
            f"{did_you_mean(name, valid_names)}"
        )
    return match


NEXT_AGENT_FIELD, TASK_COMPLETE_FIELD, PROGRESS_FIELD = "next_agent", "task_complete", "progress"
_MANAGER_PROMPT = """You lead a team and do none of its work. Say first what is asked, what is
known and a \
plan; then, in each of your turns, look at what was done and say who does what next.
End each reply with one JSON object:
{{"{progress}": true where the last round brought the task on, else false,
 "{complete}": true only when the task is done,
 "{next}": one of {names},
 "instruction": what this agent shall do now}}
The agents:
{agents}"""


def make_manager(
    section: ConfigSection, agents: Sequence[ConfigSection], config: Mapping[str, Any]
) -> Member:
    """Return the manager.

    Args:
        section: the section `Magentic`.
        agents: the sections of the others.
        config: the whole config.
    """
    names = [a.text("Name").strip() for a in agents]
    instructions = _MANAGER_PROMPT.format(
        progress=PROGRESS_FIELD,
        complete=TASK_COMPLETE_FIELD,
        next=NEXT_AGENT_FIELD,
        names=", ".join(names),
        agents=describe_agents(agents),
    )
    config_instructions = section.text("Instructions").strip()
    return make_selector_agent(
        "Manager",
        f"{config_instructions}\n\n{instructions}" if config_instructions else instructions,
        section,
        agents,
        config,
    )


def make_selector_agent(
    name: str,
    instructions: str,
    section: ConfigSection,
    agents: Sequence[ConfigSection],
    config: Mapping[str, Any],
) -> Member:
    """Return the agent that a selection adds to choose the next agent.

    Args:
        name: its name; changed if another agent has it.
        instructions: its instructions.
        section: the section that names its model.
        agents: the sections of the others.
        config: the whole config.
    """
    used_names = {a.text("Name").strip().casefold() for a in agents}
    # more names than there are agents, so that one of them is free
    candidates = (name, *(f"{name}-{i}" for i in range(2, len(used_names) + 3)))
    member = Member(
        name=next(n for n in candidates if n.casefold() not in used_names),
        instructions=instructions,
        tools=(),
        model=get_model_name(section),
        rules=parse_common_rules(config),
    )
    return replace(member, rules=with_view_filters(member))


def describe_agents(agents: Sequence[ConfigSection]) -> str:
    """Return a line for each agent: its name and its description."""
    return "\n".join(f"- {a.text('Name')}: {_describe_agent(a)}" for a in agents)


def _describe_agent(agent: ConfigSection) -> str:
    return sanitize_text(
        agent.text("Description") or agent.text("Instructions") or "no description", 200
    )


def parse_manager_limits(section: ConfigSection, name: str) -> ManagerStallLimits:
    """Return the limits of a manager without progress (fuseraft's defaults).

    Args:
        section: the config's section `Selection`.
        name: name of the manager.
    """
    stalls = max(section.number("MaxStallCount", 3), 1)
    return ManagerStallLimits(name=name, stalls=stalls, resets=section.number("MaxResetCount", 2))


def parse_managed_team_max_turns(section: ConfigSection) -> int:
    """Return the turns of a manager's rounds: each is its own turn and one of an agent."""
    # one turn more, in which the manager says that the task is done
    return 2 * (section.number("MaxRoundCount") or 20) + 1


def make_manager_states(manager: str, names: Sequence[str], end: str) -> dict[str, StateDefinition]:
    """Return the states of a team led by a manager, which has every second turn.

    Args:
        manager: name of the manager, which is also that of its state.
        names: names of the agents that it may choose.
        end: name of the state that ends the team.

    Returns:
        The states by name.
    """
    done = Transition(
        to=end, when=JsonCondition(field=TASK_COMPLETE_FIELD, operator="Is", value="true")
    )
    ways = [
        Transition(to=n, when=JsonCondition(field=NEXT_AGENT_FIELD, operator="Is", value=n))
        for n in names
    ]
    states = {manager: StateDefinition(name=manager, agent=manager, transitions=(done, *ways))}
    back = (Transition(to=manager),)
    states |= {n: StateDefinition(name=n, agent=n, transitions=back) for n in names}
    return states


AGENTS_PLACEHOLDER, HISTORY_PLACEHOLDER = "{{$agents}}", "{{$history}}"
"""Placeholders for the agents and their messages in a prompt of the config."""
_SELECTOR_PROMPT = f"""You do none of the work: you pick the agent that speaks next. The agents:
{AGENTS_PLACEHOLDER}
Look at what was done, and reply with the name of one of them, and nothing else."""


def route_by_model(parts: SelectionConfigParts) -> SelectionPlan:
    """Return the routing of a team whose next agent a model chooses, until `Termination`.

    Args:
        parts: the config; `Prompt` and `Model` of its selection are read.

    Returns:
        A state for each agent, and one for the selector, which has a turn before each of them.
    """
    prompt = parts.selection.text("Prompt").strip() or _SELECTOR_PROMPT
    instructions = prompt.replace(AGENTS_PLACEHOLDER, describe_agents(parts.agents)).replace(
        HISTORY_PLACEHOLDER, "(it follows)"
    )
    selector = make_selector_agent(
        "Selector", instructions, parts.selection, parts.agents, parts.config
    )
    ways = tuple(Transition(to=n, signal=n) for n in parts.names)
    states = {
        selector.name: StateDefinition(name=selector.name, agent=selector.name, transitions=ways)
    }
    back = (Transition(to=selector.name),)
    states |= {n: StateDefinition(name=n, agent=n, transitions=back) for n in parts.names}
    return SelectionPlan(states=states, initial=selector.name, extra=(selector,), turns_a_round=2)


DEFAULT_ROUNDS, MAX_ROUNDS = 3, 50
"""Rounds of a stage: fuseraft's default, and the maximum."""
PASS_KEYWORD = "APPROVED"  # noqa: S105  a word of the config, no secret
"""A critic's default keyword for work that passes."""


class _AdversarialStage(NamedTuple):
    """One stage of a config."""

    maker: str
    critic: str
    label: str
    hears: bool
    """True if the maker sees the critic's replies; else they are in its prompt."""


def route_adversarial(parts: SelectionConfigParts) -> SelectionPlan:
    """Return the routing of stages in which one agent makes and another judges.

    The next stage continues from the work that passed, or else from the last.

    Args:
        parts: the config; `Stages` and `Rounds` of its selection are read.

    Returns:
        Two states for each stage and round; the critic's `PassKeyword` leads to the next stage,
        any other reply to the next round.

    Raises:
        BadArguments: there are no stages, `Rounds` is out of range, or an agent is both a
            generator and a critic.
    """
    f = parts.selection.section("Adversarial")
    rounds = f.number("Rounds", DEFAULT_ROUNDS)
    if not 1 <= rounds <= MAX_ROUNDS:
        raise BadArguments(f"Adversarial.Rounds is a number from 1 to {MAX_ROUNDS}.")
    stages = [_parse_stage(parts, s, n) for n, s in enumerate(f.rows("Stages"), 1)]
    if not stages:
        raise BadArguments("An adversarial selection needs Stages: a Generator and a Critic each.")
    check_team_count("states made of Adversarial.Stages", 2 * rounds * len(stages), MAX_STATES)
    check_unique("stages", [s.label for s in stages])
    both = {s.maker for s in stages} & {s.critic for s in stages}
    if both:
        raise BadArguments(
            f"{sanitize_text(min(both), 60)} is a Generator and a Critic: a critic that hears "
            "what it makes"
            " elsewhere cannot judge by itself. Give the stages agents of their own."
        )
    word, firsts = f.text("PassKeyword").strip() or PASS_KEYWORD, [f"{s.label} 1" for s in stages]
    states = {END_STATE: StateDefinition(name=END_STATE)}
    for stage, after in zip(stages, [*firsts[1:], END_STATE], strict=True):
        states |= {s.name: s for s in _stage_states(stage, rounds, word, after)}
    makers, critics = {s.maker for s in stages}, {s.critic for s in stages}
    members = [replace(m, isolation="shared") if m.name in makers else m for m in parts.members]
    sealed = tuple(
        without_own_earlier_turns(m, isolation="sealed", context=()) if m.name in critics else m
        for m in members
    )
    return SelectionPlan(states=states, initial=firsts[0], members=sealed,
                   max_turns=2 * rounds * len(stages) + 1)  # fmt: skip


def _parse_stage(parts: SelectionConfigParts, section: ConfigSection, n: int) -> _AdversarialStage:
    maker = parts.agent(section.text("Generator"), f"the Generator of stage {n}")
    critic = parts.agent(section.text("Critic"), f"the Critic of stage {n}")
    if maker == critic:
        raise BadArguments(
            f"Stage {n}: its Generator and its Critic are both {sanitize_text(maker, 60)}."
        )
    hears = next(not m.context for m in parts.members if m.name == maker)
    return _AdversarialStage(
        maker, critic, section.text("Label").strip() or f"{maker} → {critic}", hears
    )


# The loop of a stage is unrolled: each round has a state in which the work is made and one in which
# it is judged, so that the state machine needs no counter. The critic's keyword leads to the next
# stage; any other reply leads to the next round, and in the last round to the next stage, too.
def _stage_states(
    stage: _AdversarialStage, rounds: int, word: str, after: str
) -> Iterator[StateDefinition]:
    """Yield two states per round: the maker's and the critic's."""
    for n in range(1, rounds + 1):
        maker_state, critic_state = f"{stage.label} {n}", f"{stage.label} {n}, judged"
        reads = "" if stage.hears or n == 1 else stage.critic
        yield StateDefinition(name=maker_state, agent=stage.maker, quoted_agent=reads,
                        transitions=(Transition(to=critic_state),))  # fmt: skip
        again = f"{stage.label} {n + 1}" if n < rounds else after
        ways = (Transition(to=after, signal=word), Transition(to=again))
        yield StateDefinition(
            name=critic_state, agent=stage.critic, quoted_agent=stage.maker, transitions=ways
        )


SPLIT_STATE, MAP_STATE, REDUCE_STATE, GATHER_STATE = "Split", "Map", "Reduce", "Gather"
MAX_SPLITTER_RETRIES = 3
"""Consecutive replies without a list after which the team stops (fuseraft's number)."""


def route_scatter_gather(parts: SelectionConfigParts) -> SelectionPlan:
    """Return the routing in which participants have a turn each and one agent joins the answers.

    Args:
        parts: the config; `Participants` and the agent that joins are read.

    Returns:
        A state for each participant, which they enter in order, then that of the agent that joins
        the answers.

    Raises:
        BadArguments: there are no participants, or one is no agent of the team.
    """
    f = parts.selection.section("ScatterGather")
    names = [parts.agent(n, "an agent of ScatterGather.Participants")
             for n in f.texts("Participants")]  # fmt: skip
    if not names:
        raise BadArguments("A scattergather selection needs Participants: names of Agents.")
    last = parts.agent(f.text("Synthesizer"), "ScatterGather.Synthesizer")
    # the number gives an agent that takes part several times a state for each time
    branches = {f"{n}. {name}": name for n, name in enumerate(names, 1)}
    states = {s: StateDefinition(name=s, agent=name) for s, name in branches.items()}
    twice = {n for n in names if names.count(n) > 1}
    members = tuple(without_own_earlier_turns(m) if m.name in twice else m for m in parts.members)
    return SelectionPlan(
        states=states | _final_states(GATHER_STATE, last),
        initial=GATHER_STATE,
        branches=tuple(branches),
        members=tuple(replace(m, isolation="shared") if m.name == last else m for m in members),
        max_turns=len(names) + 2,
    )


def route_map_reduce(parts: SelectionConfigParts) -> SelectionPlan:
    """Return the routing of a splitter, a mapper with a turn per item, and a reducer.

    Args:
        parts: the config; `MapReduce` of its selection is read.

    Returns:
        A state of the splitter, whose reply lists the items; one of the mapper, entered once an
        item; one of the reducer.

    Raises:
        BadArguments: an agent is missing, or the number of retries is below 1.
    """
    f = parts.selection.section("MapReduce")
    splits, maps, reduces = (
        parts.agent(f.text(key), f"MapReduce.{key}") for key in ("Splitter", "Mapper", "Reducer")
    )
    path = f.text("ItemsJsonPath").strip() or "items"
    retries = f.number("MaxSplitterRetries", MAX_SPLITTER_RETRIES)
    if retries < 1:
        raise BadArguments("MapReduce.MaxSplitterRetries is a number of 1 or more.")
    # one state for all items: the splitter's turn repeats it once for each of them
    way = Transition(to=REDUCE_STATE, targets=(MAP_STATE,))
    states = {
        SPLIT_STATE: StateDefinition(
            name=SPLIT_STATE, agent=splits, split_list_path=path, transitions=(way,)
        ),
        MAP_STATE: StateDefinition(
            name=MAP_STATE, agent=maps, quoted_agent=splits, item_list_path=path
        ),
    }
    hearing = {maps, reduces}
    members = [replace(m, isolation="shared") if m.name in hearing else m for m in parts.members]
    return SelectionPlan(
        states=states | _final_states(REDUCE_STATE, reduces), initial=SPLIT_STATE, retries=retries,
        members=tuple(without_own_earlier_turns(m) if m.name == maps else m for m in members),
        max_turns=retries + MAX_ITEMS + 2,
    )  # fmt: skip


def _final_states(name: str, agent: str) -> dict[str, StateDefinition]:
    """Return the state in which the answer is made, and the terminal state after it."""
    last = StateDefinition(name=name, agent=agent, transitions=(Transition(to=END_STATE),))
    return {name: last, END_STATE: StateDefinition(name=END_STATE)}


VALIDATORS = {
    "RequireBrief": ContractRequirement(kind="Brief"),
    "RequireWriteFile": ContractRequirement(kind="FilesWritten", this_turn=True),
    "RequireAllFilesWritten": ContractRequirement(kind="FilesWritten"),
    "RequireShellPass": ContractRequirement(kind="CommandSucceeded", this_turn=True),
    "TestReportValid": ContractRequirement(
        kind="TestReport", no_failures=True, has_assertions=True
    ),
}


def get_validator_names(section: ConfigSection) -> list[str]:
    """Return the validators that a route names.

    Args:
        section: section of a route.

    Returns:
        Names in `Validators`, then the one in `Validator`.
    """
    one = section.text("Validator")
    return [*section.texts("Validators"), *([one] if one else [])]


def make_validator_contracts(section: ConfigSection) -> tuple[HandoffContract, ...]:
    """Return the validators of a route that are known, as contracts."""
    return tuple(_validator_contracts(section))


def _validator_contracts(section: ConfigSection) -> Iterable[HandoffContract]:
    known_names = {name.casefold(): name for name in VALIDATORS}
    for given_name in get_validator_names(section):
        name = known_names.get(given_name.casefold())
        if name is not None:
            pattern = section.text("RequiredCommandPattern")
            needs = VALIDATORS[name]
            shell = name == "RequireShellPass"
            yield HandoffContract(
                name=name, requires=(replace(needs, pattern=pattern) if shell else needs,)
            )
