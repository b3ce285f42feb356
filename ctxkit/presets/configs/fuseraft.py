"""fuseraft's orchestration file (YAML or JSON): one agent's settings and those of all agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.presets.configs.fuseraft_keys import AGENT, AGENT_KEYS, KEYS, PIN, TABLE, WINDOW
from ctxkit.presets.configs.key_tables import Config, FoundKeys, KeyTable, taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_AGENTS = 200
MAX_STATES = 1000
"""States of a machine, nodes of a graph, stages; the states that are made of these, too."""
MAX_WAYS = 5000
"""Transitions out of all states, routes, edges, contracts."""
_STATES = ("StateMachine.States", "Graph.Nodes", "Adversarial.Stages")
_WAYS = ("Routes", "StructuredRoutes", "Graph.Edges")
STATE = "Any"
"""The one state under which signals are written: rules hold no routes."""


def weigh(config: Mapping[str, Any]) -> int:
    """Count the signs of fuseraft."""
    body = _body(config)
    if body is not config:
        return 10
    fold = {str(k).casefold() for k in body}
    mine = {"contextbudget", "contextwindow", "maxinturntoolpairs", "maxinturncontexttokens"} & fold
    compaction = _get(body, "Compaction")
    known = {k.path.split(".")[1].casefold() for k in KEYS if k.path.startswith("Compaction.")}
    words = (
        {str(k).casefold() for k in compaction} & known if isinstance(compaction, dict) else set()
    )
    agents = _get(body, "Agents")
    own = {"contextwindow", "maxinturntoolpairs", "instructions", "agentfile"}
    members = [a for a in agents if isinstance(a, dict)] if isinstance(agents, list) else []
    return (
        4 * len(mine)
        + 3 * len(words)
        + 3 * any(own & {str(k).casefold() for k in a} for a in members)
    )


def read(config: Mapping[str, Any], agent: str | None) -> FoundKeys:
    """Gather what the file says about one agent; without a name, that in which all its agents
    agree.

    Raises:
        BadArguments: there is no such agent, or a value is of the wrong kind.
    """
    body, found = _body(config), FoundKeys()
    check_counts(body)
    TABLE.read(body, found)
    if body is not config:
        beside = [str(k) for k in config if str(k).casefold() != "orchestration"]
        found.unknown += [f"{plain(k, 60)} (beside Orchestration)" for k in beside]
    agents = _agents(body)
    if agent is not None:
        _one(agents, agent, found)
    elif agents:
        _shared(agents, found)
    found.settings |= _pinned(body)
    if _routes(_get(body, "Selection")):
        found.elsewhere.append("Selection (but for its signals)")
    if (body is not config or agents) and _get(body, "Compaction") is None:
        _uncompacted(found)
    return found


def settings_of_agents(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of each agent in the file's order, as `read` gathers them for one.

    Raises:
        BadArguments: a value is of the wrong kind.
    """
    body, shared = _body(config), FoundKeys()
    check_counts(body)
    TABLE.read(body, shared)
    agents, pinned = _agents(body), _pinned(body)
    return [{**shared.settings, **own.settings, **pinned} for _, own in agents]


def _pinned(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting that keeps the last handoff keyword, where the file has such keywords."""
    pin = _get(_get(body, "Compaction"), "PinLastRoutingSignal")
    if pin is not None and not taken(PIN, pin, PIN.path):
        return {}
    signals = tuple(dict.fromkeys(_signals(_get(body, "Selection"))))
    return {"routing_signals": signals} if signals else {}


def check_counts(config: Mapping[str, Any]) -> None:
    """Refuse a team with more agents, states or ways between them than anybody oversees.

    Args:
        config: the file, or what is under `Orchestration`.

    Raises:
        BadArguments: a list is too long; the sentence names it.
    """
    body = _body(config)
    selection = _get(body, "Selection")
    check_count("Agents", len(_all(_get(body, "Agents"))), MAX_AGENTS)
    check_count("Contracts", len(_all(_get(body, "Contracts"))), MAX_WAYS)
    for path in (*_STATES, *_WAYS):
        found = selection
        for name in path.split("."):
            found = _get(found, name)
        most = MAX_STATES if path in _STATES else MAX_WAYS
        check_count(f"Selection.{path}", len(_all(found)), most)
    states = _all(_get(_get(selection, "StateMachine"), "States"))
    steps = sum(len(_all(_get(state, "Transitions"))) for state in states)
    check_count("Transitions", steps, MAX_WAYS)


def check_count(what: str, count: int, most: int) -> None:
    """Refuse what a team has too many of.

    Raises:
        BadArguments: there are more than `most`.
    """
    if count > most:
        raise BadArguments(
            f"There are {count:,} {what}, and a team has at most {most:,}: make several teams of"
            " it."
        )


def tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys, the agent's under an agent."""
    own: dict[str, Any] = {"Name": parameters.get("subject") or "Agent", **AGENT.tree(parameters)}
    if parameters.get("context_window") is not None:
        own["Model"] = {"MaxContextTokens": parameters["context_window"]}
    body = KeyTable(KEYS).tree(parameters)
    signals = parameters.get("routing_signals") or ()
    body["Agents"] = [own]
    if signals:
        body["Compaction"]["PinLastRoutingSignal"] = True
        step = {"Transitions": [{"Signal": s} for s in signals]}
        body["Selection"] = {"Type": "statemachine", "StateMachine": {"States": {STATE: step}}}
    return {"Orchestration": body}


def _body(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is under `Orchestration`, or the file itself, as in the document's snippets."""
    body = _get(config, "Orchestration")
    return body if isinstance(body, dict) else config


def _get(section: Any, name: str) -> Any:
    if not isinstance(section, dict):
        return None
    return next((v for k, v in section.items() if str(k).casefold() == name.casefold()), None)


def _agents(body: Mapping[str, Any]) -> list[tuple[str, FoundKeys]]:
    """Return each agent's name and what the file says of it; aliases of models are looked up."""
    listed = _get(body, "Agents")
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(a, dict) for a in listed):
        raise BadArguments("Agents must be a list of agents with keys and values.")
    agents = []
    for position, entry in enumerate(listed):
        name, found = str(_get(entry, "Name") or position), FoundKeys()
        at = f"Agents.{plain(name, 40)}."
        shared = (
            str(_get(entry, "Isolation")).casefold() == "shared"
        )  # what these rules take for granted
        AGENT.read(
            {k: v for k, v in entry.items() if not (shared and str(k).casefold() == "isolation")},
            found,
            at,
        )
        window = _window(_get(entry, "Model"), _get(body, "Models"))
        if window is not None:
            found.settings["context_window"] = taken(WINDOW, window, at + WINDOW.path)
        agents.append((name, found))
    return agents


def _window(model: Any, models: Any) -> Any:
    own = _get(model, "MaxContextTokens")
    alias = model if isinstance(model, str) else _get(model, "ModelId")
    if own is not None or not isinstance(alias, str):
        return own
    return _get(_get(models, alias), "MaxContextTokens")


def _one(agents: list[tuple[str, FoundKeys]], wanted: str, found: FoundKeys) -> None:
    for name, own in agents:
        if name.casefold() == wanted.casefold():
            found.settings |= own.settings
            found.subject = name
            found.unknown += own.unknown
            found.elsewhere += own.elsewhere
            return
    names = [name for name, _ in agents]
    raise BadArguments(
        f"There is no agent {wanted!r}; there are"
        f" {', '.join(plain(n, 40) for n in names) or 'none'}.{did_you_mean(wanted, names)}"
    )


def _shared(agents: list[tuple[str, FoundKeys]], found: FoundKeys) -> None:
    for _, own in agents:
        found.unknown += own.unknown
        found.elsewhere += own.elsewhere
    found.subject = agents[0][0] if len(agents) == 1 and not agents[0][0].isdigit() else ""
    differ = []
    for key in (*AGENT_KEYS, WINDOW):
        values = [own.settings.get(key.parameter) for _, own in agents]
        given = [v for v in values if v is not None]
        if all((v or None) == (values[0] or None) for v in values):  # left out, or 0: the same
            found.settings |= {key.parameter: given[0]} if given else {}
        else:
            differ.append(key.path)
    if differ:
        names = ", ".join(plain(name, 40) for name, _ in agents)
        found.notes.append(
            f"The agents differ in {', '.join(differ)}, which stay at their defaults: "
            f"name one with agent= (of {names})."
        )


def _signals(selection: Any) -> Iterator[str]:
    """Yield the handoff keywords of state machine and keyword routes, in the file's order."""
    states = _get(_get(selection, "StateMachine"), "States")
    steps = [step for state in _all(states) for step in _all(_get(state, "Transitions"))]
    for signal in (
        *(_get(s, "Signal") for s in steps),
        *(_get(r, "Keyword") for r in _all(_get(selection, "Routes"))),
    ):
        if isinstance(signal, str) and signal:
            yield signal


def _routes(selection: Any) -> bool:
    """Say whether a selection says more than the signals that `tree` writes."""
    states = _get(_get(selection, "StateMachine"), "States")
    return selection is not None and not (isinstance(states, dict) and set(states) == {STATE})


def _all(section: Any) -> list[Any]:
    if isinstance(section, dict):
        return list(section.values())
    return section if isinstance(section, list) else []


def _uncompacted(found: FoundKeys) -> None:
    """Say what a file without `Compaction` means: nothing is compacted, and no cutover taken."""
    needs = [k.path for k in KEYS[1:3] if found.settings.get(k.parameter)]
    if needs:
        found.notes.append(
            f"fuseraft refuses {' and '.join(needs)} without a Compaction section; here they"
            " compact with its defaults."
        )
        return
    found.absent = ("Compaction",)
    found.notes.append(
        "Without a Compaction section nothing is compacted but by hand, as in fuseraft."
    )


PATHS = {
    **KeyTable(KEYS).paths,
    **{k.parameter: f"Agents[].{k.path}" for k in (*AGENT_KEYS, WINDOW)},
    "routing_signals": "Selection.StateMachine.States[].Transitions[].Signal",
}
CONFIG = Config("fuseraft", "orchestration.yaml", weigh, read, tree, PATHS, one_agent=False)
