"""Selections other than a state machine, said as one: by keywords, by JSON, by a graph, by a
manager.

Each agent is a state (of a graph: each node), each route a transition; what no route takes is a
transition without a signal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.teams.conditions import condition_of
from ctxkit.teams.config_fields import Fields, listed
from ctxkit.teams.managers import led, manager_of, patience_of, rounds_of
from ctxkit.teams.rosters import Manager, Member, TeamState, Transition
from ctxkit.teams.validators import validators

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.teams.rosters import Contract

END = "the end"
"""The state in which a selection without a terminal one of its own is over."""
_States = dict[str, TeamState]


@dataclass(frozen=True, kw_only=True)
class Routing:
    """A selection as states."""

    states: _States
    initial: str
    extra: tuple[Member, ...] = ()
    """Agents that the selection itself brings."""
    manager: Manager | None = None
    members: tuple[Member, ...] = ()
    """The agents, where the selection changes what some of them hear; empty: as they are."""
    branches: tuple[str, ...] = ()
    """States whose agents have a turn each before the first one."""
    retries: int | None = None
    """Failures in a row after which the team stops; None: as `FailureHandling` says."""
    max_turns: int | None = None
    turns_a_round: int = 1
    """Turns that count as one of `MaxIterations`."""


@dataclass(frozen=True, kw_only=True)
class SelectionParts:
    """What a selection is made of."""

    config: Mapping[str, Any]
    selection: Fields
    agents: Sequence[Fields]
    members: Sequence[Member]
    names: Sequence[str]
    contracts: Mapping[str, Contract]
    """By their names in small letters."""

    def agent(self, name: str, where: str) -> str:
        """Return an agent's name as the config writes it.

        Raises:
            BadArguments: there is no such agent.
        """
        return one_of(name, self.names, where)

    def demanded(self, f: Fields, where: str) -> tuple[Contract, ...]:
        """Return the contracts and validators that a route names."""
        wanted = [*f.texts("Contracts"), *([f.text("Contract")] if f.text("Contract") else [])]
        known = [c.name for c in self.contracts.values()]
        found = [one_of(name, known, f"the contract of {where}") for name in wanted]
        return (*(self.contracts[name.casefold()] for name in found), *validators(f))


def by_keyword(given: SelectionParts) -> Routing:
    """Return routes by keywords; none goes to `DefaultAgent`, one to itself ends the team."""
    routes = given.selection.rows("Routes")
    if not routes:
        raise BadArguments("A selection by keyword needs Routes: a Keyword and an Agent each.")
    first = _default(given)
    found = [_keyword(given, f, n) for n, f in enumerate(routes, 1)]
    states = {}
    for name in given.names:
        ways = [way for sources, way in found if not sources or name in sources]
        once(f"keywords that {name} may give", [w.signal for w in ways])
        rest = Transition(to=first)
        states[name] = TeamState(name=name, agent=name, transitions=(*ways, rest))
    return Routing(states={**states, END: TeamState(name=END, terminal=True)}, initial=first)


def _keyword(given: SelectionParts, f: Fields, n: int) -> tuple[list[str], Transition]:
    """Return which agents a route is for (none: for all), and the route."""
    where = f"route {n}"
    if not f.text("Keyword").strip():
        raise BadArguments(f"Route {n} names no Keyword.")
    to = given.agent(f.text("Agent"), f"the agent of {where}")
    sources = [given.agent(a, f"SourceAgents of {where}") for a in f.texts("SourceAgents")]
    return sources, Transition(
        to=END if to in sources else to, signal=f.text("Keyword").strip(),
        contracts=given.demanded(f, where), recovery=_recovery(given, f, where),
    )  # fmt: skip


def by_json(given: SelectionParts) -> Routing:
    """Return routes by fields of the JSON that a reply holds; the first that holds is taken.

    An agent that no route leads away from has the last word.
    """
    routes = given.selection.rows("StructuredRoutes")
    if not routes:
        raise BadArguments(
            "A structured selection needs StructuredRoutes: an Agent and a Condition each."
        )
    first, states = _default(given), {}
    found = [_structured(given, f, n) for n, f in enumerate(routes, 1)]
    for name in given.names:
        ways = [way for sources, way in found if not sources or name in sources]
        out = tuple(ways) or (Transition(to=END),)
        states[name] = TeamState(name=name, agent=name, transitions=out)
    return Routing(states={**states, END: TeamState(name=END, terminal=True)}, initial=first)


def _structured(given: SelectionParts, f: Fields, n: int) -> tuple[list[str], Transition]:
    """Return which agents a route is for (none: for all), and the route."""
    where = f"structured route {n}"
    to = given.agent(f.text("Agent"), f"the agent of {where}")
    sources = [given.agent(a, f"SourceAgents of {where}") for a in f.texts("SourceAgents")]
    when = condition_of(f.section("Condition"), where)
    return sources, Transition(to=to, when=when)


def by_graph(given: SelectionParts) -> Routing:
    """Return a graph's nodes and edges; a terminal node's agent has one turn more."""
    graph = given.selection.section("Graph") or Fields({})
    nodes, edges = graph.rows("Nodes"), graph.rows("Edges")
    ids = [f.text("Id") for f in nodes]
    once("nodes", ids)
    if not ids:
        raise BadArguments("A graph needs Nodes: an Id and an Agent each.")
    out_of: dict[str, list[Fields]] = {}
    for edge in edges:
        out_of.setdefault(edge.text("From").casefold(), []).append(edge)
    states: _States = {END: TeamState(name=END, terminal=True)}
    for f, name in zip(nodes, ids, strict=True):
        if f.text("SubGraphId") or f.flag("Parallel"):
            raise BadArguments(
                f"Node {plain(name, 60)} is a graph of its own or parallel: here each node is one "
                "agent, and agents take turns."
            )
        agent = given.agent(f.text("Agent"), f"the agent of node {name}")
        mine = out_of.get(name.casefold(), ())
        ways = [_edge(given, e, ids) for e in mine] if not f.flag("Terminal") else []
        once(f"keywords out of node {name}", [w.signal for w in ways])
        out = tuple(ways) or (Transition(to=END),)
        states[name] = TeamState(name=name, agent=agent, transitions=out)
    initial = one_of(graph.text("EntryNode") or ids[0], ids, "EntryNode")
    retries = graph.number("MaxRetries") or None
    return Routing(states=states, initial=initial, retries=retries)


def _edge(given: SelectionParts, f: Fields, ids: Sequence[str]) -> Transition:
    where = f"the edge from {plain(f.text('From'), 60)}"
    return Transition(
        to=one_of(f.text("To"), ids, f"To of {where}"), signal=f.text("Keyword").strip(),
        source_agents=tuple(
            given.agent(a, f"SourceAgents of {where}") for a in f.texts("SourceAgents")
        ),
        contracts=given.demanded(f, where), recovery=_recovery(given, f, where),
    )  # fmt: skip


def by_manager(given: SelectionParts) -> Routing:
    """Return a team that a manager leads (see `managers`)."""
    f = given.selection.section("Magentic") or Fields({})
    alone = [a.text("Name") for a in given.agents if a.text("Isolation").casefold() == "fresh"]
    if alone:
        raise BadArguments(
            f"A manager says aloud what {listed(alone)} shall do: an agent of a magentic team "
            "cannot have Isolation: Fresh."
        )
    manager = manager_of(f, given.agents, given.config)
    states = led(manager.name, given.names, END) | {END: TeamState(name=END, terminal=True)}
    return Routing(states=states, initial=manager.name, extra=(manager,),
                   manager=patience_of(f, manager.name), max_turns=rounds_of(f))  # fmt: skip


def _default(given: SelectionParts) -> str:
    name = given.selection.text("DefaultAgent")
    return given.agent(name, "DefaultAgent") if name else given.names[0]


def _recovery(given: SelectionParts, f: Fields, where: str) -> str:
    name = f.text("RecoveryAgent")
    return given.agent(name, f"RecoveryAgent of {where}") if name else ""


def once(what: str, names: Sequence[str]) -> None:
    """Refuse names of which two are alike."""
    often = Counter(n.casefold() for n in names)
    twice = next((n for n in names if often[n.casefold()] > 1), None)
    if twice is not None:
        said = plain(twice, 60) or "(no signal)"
        raise BadArguments(f"Two {what} are called {said!r}: give each a name of its own.")


def one_of(name: str, known: Sequence[str], what: str) -> str:
    """Return a name as it is known, upper and lower case alike; BadArguments: there is none."""
    if name in known:
        return name
    found = next((k for k in known if k.casefold() == name.casefold()), None)
    if found is None:
        raise BadArguments(
            f"{what[0].upper()}{what[1:]} is {plain(name, 60)!r}, and there are {listed(known)}."
            f"{did_you_mean(name, known)}"
        )
    return found
