"""What of a team's config is not known, or known and not obeyed here: sentences for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.display.markup import plain
from ctxkit.errors import did_you_mean
from ctxkit.presets.configs.fuseraft import read
from ctxkit.teams.config_fields import Fields, listed
from ctxkit.teams.roles import has_no_tools, has_tool
from ctxkit.teams.validators import KNOWN, named_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

CONTRACT = ("Name", "Description", "Requires")
REQUIREMENT = ("Type", "Path", "Source", "Field", "PatternField", "PatternSource", "Pattern",
               "NoFailures", "HasAssertions")  # fmt: skip
SELECTION = ("Type", "StateMachine", "Routes", "StructuredRoutes", "DefaultAgent", "Graph",
             "Magentic", "Model", "Prompt", "Adversarial", "ScatterGather",
             "MapReduce")  # fmt: skip
ROUTE = ("Keyword", "Agent", "Validator", "Validators", "Contract", "Contracts", "SourceAgents",
         "RequiredCommandPattern", "RecoveryAgent")  # fmt: skip
STRUCTURED = ("Agent", "Condition", "SourceAgents")
NODE = ("Id", "Agent", "Terminal", "SubGraphId", "Parallel")
EDGE = (*(k for k in ROUTE if k != "Agent"), "From", "To")
GRAPH = ("EntryNode", "Nodes", "Edges", "MaxRetries")
ADVERSARIAL = ("Stages", "Rounds", "PassKeyword")
STAGE = ("Generator", "Critic", "Label")
SCATTER = ("Participants", "Synthesizer")
MAP = ("Splitter", "Mapper", "Reducer", "ItemsJsonPath", "MaxSplitterRetries")
OWN_END = ("magentic", "adversarial", "scattergather", "mapreduce")
"""Selections that end by themselves, whatever `Termination` says (fuseraft's)."""
MAGENTIC = ("Model", "Instructions", "MaxRoundCount", "MaxStallCount", "MaxResetCount")
VALIDATION = ("BriefPath", "TestReportPath", "TestAssertionPatterns")
VERIFIER = ("AgentName", "EveryNTurns", "TriggerOnSuspiciousTransition", "FindingsKeyword")
FAILING = ("MissingEvidence", "InvalidTransition", "ConflictingEvidence", "NoProgress",
           "MaxConsecutiveContractFailures", "MaxConsecutiveTurnsWithoutSignal")  # fmt: skip
MACHINE = ("Initial", "States")
STATE = ("Agent", "Terminal", "Transitions", "Description")
TRANSITION = ("To", "Signal", "Contract", "Contracts", "SourceAgents", "RecoveryAgent",
              "HandoffContext", "MaxRevisits", "ReviewArtifactPath", "Parallel",
              "Targets")  # fmt: skip
SOURCE = ("Source", "MaxChars", "Label")
STRATEGY = ("Type", "Pattern", "MaxIterations", "AgentNames", "Condition", "MaxTokens")
TERMINATION = (*STRATEGY, "Strategies")
OBEYED = ("Context", "Isolation", "Contracts", "Termination", "MaxTotalTokens", "Validation",
          "Selection (but for its signals)", "ContextWindow.ContextCapFraction",
          "SubAgentModel", "SubAgentPlugins", "SubAgentMaxToolCalls", "FailureHandling",
          "Verifier", "SystemPrompt", "Memory", "EnableMemory",
          "TestSelector", "Compaction.Model", "WarnTurnTokens")  # fmt: skip
"""What rules alone do not obey, and a team does."""
WHY = {
    "Saga": "nothing is taken back",
    "McpServers": "a config asks no server; give its tools with tools=",
    "MaxConcurrency": "agents take turns",
    "SubGraphs": "each node is one agent",
    "ChangeLogPath": "the changes lie in .ctxkit/state",
    "FindRelatedCommand": "a config runs no command; a run of FullSuiteCommand counts",
    "ShellFallbackPattern": "only files that were written count",
    "Telemetry": "nothing is sent",
    "ApiProfiles": "there is no tool for HTTP",
    "Output": "a team returns where it stands",
    "Models": "model= and models= say which are meant",
    "Capabilities": "tools= says what agents may have",
    "FunctionChoice": "a model is free to call a tool",
    "TrustScore": "approve= is asked before tool calls",
    "EvidenceStore": "the evidence lies in .ctxkit/state",
    "ChangeTracking": "the changes lie in .ctxkit/state",
    "Checkpoint": "the checkpoint lies in .ctxkit/state",
    "Events": "the events lie in .ctxkit/logs",
    "Security": "tools work in the folder that root= names, and nowhere else",
    "AgentFile": "it is read where the config is a file, from that file's folder",
    "SystemPromptPath": "it is read where the config is a file, from that file's folder",
    "Merge": "all that the branches said is heard, in the order of Targets",
    "RequireHumanApproval": "approve= is asked before tool calls, and nobody before a hand-off",
    "EnablePlanReview": "interrupt the team, and let it go on",
}


def remarks(config: Mapping[str, Any], body: Fields) -> list[str]:
    """Return what of a config is not obeyed, and which of its keys nobody knows."""
    unknown = [
        _strange(where, key, known)
        for where, fields, known in _sections(body)
        for key in fields
        if key.casefold() not in {k.casefold() for k in known} and fields.get(key) is not False
    ]
    unknown += _unchecked(body)
    found = read(config, None)
    unknown += [f"{told} is not known, and not obeyed." for told in found.unknown]
    out, others = _of_agents(body), []
    order = (body.section("Selection") or Fields({})).text("Type").casefold()
    if order in OWN_END and body.get("Termination") is not None:
        out.append(f"Termination is not obeyed here: a team of type {order} ends by itself.")
    for key in dict.fromkeys((*body, *found.elsewhere)):
        last = key.rsplit(".", 1)[-1]
        if last.casefold() in _WHY:
            out.append(f"{plain(key, 80)} is not obeyed here: {_WHY[last.casefold()]}.")
        elif key in found.elsewhere and last not in {o.rsplit(".", 1)[-1] for o in OBEYED}:
            others.append(plain(key, 80))
    if others:
        out.append(f"Not obeyed here: {listed(others)}.")
    return [*unknown, *out]


_WHY = {k.casefold(): why for k, why in WHY.items()}
QUIET = ("capabilities", "trustscore")
"""Keys of an agent that say nothing of its context."""
MODEL = ("modelid", "maxcontexttokens")
_MODEL = "model= and models= name models, with the settings that are theirs"


def _of_agents(body: Fields) -> list[str]:
    """Say, key by key, what no agent's section is obeyed in, and what tools are not there."""
    keys: dict[str, list[str]] = {}
    plugins: dict[str, list[str]] = {}
    for agent in body.rows("Agents"):
        name = plain(agent.text("Name"), 40)
        model = agent.section("Model") if isinstance(agent.get("Model"), dict) else None
        free = () if has_no_tools(agent) else ("functionchoice",)
        for key in (k for k in agent if k.casefold() in (*QUIET, *free)):
            keys.setdefault(plain(key, 40), []).append(name)
        for key in (k for k in model or () if k.casefold() not in MODEL):
            keys.setdefault(f"Model.{plain(key, 40)}", []).append(name)
        for plugin in agent.texts("Plugins"):
            if not has_tool(plugin):
                plugins.setdefault(plain(plugin, 40), []).append(name)
    said = [f"{key} ({listed(of)}) is not obeyed here: {_WHY.get(key.casefold(), _MODEL)}."
            for key, of in keys.items()]  # fmt: skip
    if plugins:
        each = [f"{plugin} ({listed(of)})" for plugin, of in plugins.items()]
        said.append(f"There is no tool here for the plugins {listed(each)}.")
    return said


def _strange(where: str, key: str, known: tuple[str, ...]) -> str:
    """Say of a key of a section that it is not known, or why it is not obeyed."""
    if key.casefold() in _WHY:
        return f"{where}: {plain(key, 60)} is not obeyed here: {_WHY[key.casefold()]}."
    return (
        f"{where} has a key {plain(key, 60)!r} that is not known, and not obeyed."
        f"{did_you_mean(key, known)}"
    )


def _unchecked(body: Fields) -> list[str]:
    """Say which validators of routes are not known."""
    selection = body.section("Selection") or Fields({})
    routes = (*selection.rows("Routes"), *(selection.section("Graph") or Fields({})).rows("Edges"))
    names = dict.fromkeys(name for f in routes for name in named_in(f))
    fold = {k.casefold() for k in KNOWN}
    return [
        f"Validator {plain(name, 60)} is not checked here; there are {', '.join(KNOWN)}."
        for name in names if name.casefold() not in fold
    ]  # fmt: skip


def _sections(body: Fields) -> Iterator[tuple[str, Fields, tuple[str, ...]]]:
    """Yield each section that only a team reads: where it is, what it says, what is known."""
    for contract in body.rows("Contracts"):
        name = f"Contract {plain(contract.text('Name'), 40)}"
        yield name, contract, CONTRACT
        for n, row in enumerate(contract.rows("Requires"), 1):
            kind = row.text("Type") or next(iter(row), "")
            inner = row if row.text("Type") else row.section(kind) or Fields({})
            yield f"Requirement {n} of {name[0].lower()}{name[1:]}", inner, REQUIREMENT
    for agent in body.rows("Agents"):
        for source in agent.rows("Context"):
            yield f"A source in the Context of {plain(agent.text('Name'), 40)}", source, SOURCE
    ending = body.section("Termination") or Fields({})
    yield "Termination", ending, TERMINATION
    for n, strategy in enumerate(ending.rows("Strategies"), 1):
        yield f"Strategy {n} of Termination", strategy, STRATEGY
    selection = body.section("Selection") or Fields({})
    yield "Selection", selection, SELECTION
    yield from _machine(selection.section("StateMachine") or Fields({}))
    yield from _routes(selection)
    yield "Verifier", body.section("Verifier") or Fields({}), VERIFIER
    yield "Validation", body.section("Validation") or Fields({}), VALIDATION
    yield "TestSelector", body.section("TestSelector") or Fields({}), ("FullSuiteCommand",)
    failing = body.section("FailureHandling") or Fields({})
    yield "FailureHandling", failing, FAILING
    for kind in FAILING[:4]:
        row = failing.section(kind) or Fields({})
        yield f"FailureHandling.{kind}", row, ("Action", "Threshold")


def _routes(selection: Fields) -> Iterator[tuple[str, Fields, tuple[str, ...]]]:
    graph = selection.section("Graph") or Fields({})
    rounds = selection.section("Adversarial") or Fields({})
    yield "Selection.Adversarial", rounds, ADVERSARIAL
    yield "Selection.ScatterGather", selection.section("ScatterGather") or Fields({}), SCATTER
    yield "Selection.MapReduce", selection.section("MapReduce") or Fields({}), MAP
    yield "Selection.Magentic", selection.section("Magentic") or Fields({}), MAGENTIC
    yield "Selection.Graph", graph, GRAPH
    for what, rows, known in (
        ("Route", selection.rows("Routes"), ROUTE),
        ("Structured route", selection.rows("StructuredRoutes"), STRUCTURED),
        ("Node", graph.rows("Nodes"), NODE),
        ("Edge", graph.rows("Edges"), EDGE),
        ("Stage", rounds.rows("Stages"), STAGE),
    ):
        for n, row in enumerate(rows, 1):
            yield f"{what} {n}", row, known


def _machine(machine: Fields) -> Iterator[tuple[str, Fields, tuple[str, ...]]]:
    yield "Selection.StateMachine", machine, MACHINE
    states = machine.section("States") or Fields({})
    for name in states:
        state = states.section(name) or Fields({})
        yield f"State {plain(name, 40)}", state, STATE
        for n, way in enumerate(state.rows("Transitions"), 1):
            at = f"transition {n} of state {plain(name, 40)}"
            yield at[0].upper() + at[1:], way, TRANSITION
            for source in way.rows("HandoffContext"):
                yield f"A source in the HandoffContext of {at}", source, SOURCE
