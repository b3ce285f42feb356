"""fuseraft's orchestration file: a table of its keys, the settings of an agent's rules, ignored
keys.
"""

# The table serves the rules of one agent (`load_rules`), teams (`ck.team`) and `validate`.

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit._internal.setting_value_validation import (
    COUNTS,
    FLAG,
    NAMES,
    NUMBER,
    POSITIVE,
    TEXT,
    WHOLE,
    make_choice_kind,
)
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.message_hiding import Tail, TextOnly, TurnAge, WithoutAgents
from ctxkit.policies.message_shortening import ReplyShortening, ResultShortening
from ctxkit.presets.config_key_mapping import (
    ConfigKey,
    ConfigKeyTable,
    ConfigSection,
    ParsedConfig,
    get_section,
    parse_keys,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_OWN_FOLDER = "their files lie below .ctxkit"
_READ_FROM_FILE = "it is read where the config is a file, from that file's folder"
AGENT_CONFIG_KEYS = (
    ConfigKey("ContextWindow.TextOnly", "text_only", FLAG),
    ConfigKey("ContextWindow.ExcludeAgents", "exclude_agents", NAMES),
    ConfigKey("ContextWindow.MaxTurnAge", "max_turn_age", WHOLE),
    ConfigKey("ContextWindow.MaxTailMessages", "max_tail_messages", WHOLE),
    ConfigKey("ContextWindow.ContextCapFraction", "context_cap_fraction", NUMBER),
    ConfigKey("ContextWindow.MaxToolResultChars", "max_tool_result_chars", WHOLE),
    ConfigKey("ContextWindow.ToolResultCharOverrides", "tool_result_char_overrides", COUNTS),
    ConfigKey("ContextWindow.MaxReplayChars", "max_replay_chars", WHOLE),
    ConfigKey("MaxInTurnToolPairs", "max_in_turn_tool_pairs", WHOLE),
    ConfigKey("MaxInTurnContextTokens", "max_in_turn_context_tokens", WHOLE),
    ConfigKey("MaxPayloadBytes", "max_payload_bytes", WHOLE),
)
WINDOW_KEY = ConfigKey("Model.MaxContextTokens", "context_window", POSITIVE)
PROMPT_LIMITS = (
    ConfigKey("MaxContextTokens", WINDOW_KEY.parameter, POSITIVE),
    AGENT_CONFIG_KEYS[-1],
)
"""Limits of a prompt: of a model, of an agent and at the top level; the least of them counts."""
TEAM_AGENT_KEYS = parse_keys(
    "Context Isolation EnableMemory SubAgentModel SubAgentPlugins SubAgentMaxToolCalls Capabilities"
)
"""Keys of an agent that a team obeys, and rules do not have."""
UNREAD_AGENT_KEYS = {
    **dict.fromkeys(
        ("KnowledgeWeight", "SkipExecutionState", "Produces", "Requires", "RemoteAgent"), ""
    ),
    "AgentFile": _READ_FROM_FILE,
}
"""Keys of an agent that concern its context and are not read here, each with the reason for the
user, if there is one.
"""
IGNORED_AGENT_KEYS = {
    **dict.fromkeys(
        ("Name", "Description", "Instructions", "Plugins", "Model", "MaxToolCallsPerTurn"), ""
    ),
    "FunctionChoice": "a model is free to call a tool",
    "TrustScore": "approve= is asked before tool calls",
}
"""Keys of an agent that have nothing to do with its context."""
AGENT_TABLE = ConfigKeyTable(
    (*AGENT_CONFIG_KEYS, PROMPT_LIMITS[0]),
    TEAM_AGENT_KEYS | set(UNREAD_AGENT_KEYS),
    frozenset(IGNORED_AGENT_KEYS),
    any_case=True,
    open_sections=frozenset(),
)
CONFIG_KEYS = (
    ConfigKey("ContextBudget.WarnAt", "warn_at", WHOLE),
    ConfigKey("ContextBudget.CutoverAt", "cutover_at", WHOLE),
    ConfigKey("ContextBudget.MaxSingleTurnInputTokens", "max_single_turn_input_tokens", WHOLE),
    ConfigKey("ContextBudget.MaxToolResultTokens", "max_tool_result_tokens", WHOLE),
    ConfigKey("ContextBudget.InTurnToolWindow", "in_turn_tool_window", WHOLE),
    ConfigKey(
        "Compaction.Mode", "mode", make_choice_kind("llm", "intent", "lossless", "hybrid", "window")
    ),
    ConfigKey("Compaction.TriggerTurnCount", "trigger_turn_count", WHOLE),
    ConfigKey("Compaction.KeepRecentTurns", "keep_recent_turns", WHOLE),
    ConfigKey("Compaction.TokenBudget", "token_budget", WHOLE),
    ConfigKey("Compaction.IncludeReasoning", "include_reasoning", FLAG),
    ConfigKey("Compaction.IncludeSymbolGraph", "include_symbol_graph", FLAG),
    ConfigKey("Compaction.IncludeExploration", "include_exploration", FLAG),
    ConfigKey("Compaction.SummaryTemplate", "summary_template", TEXT),
    ConfigKey("Compaction.MaxCharsPerHistoryMessage", "max_chars_per_history_message", WHOLE),
    ConfigKey("Compaction.AntiThrashMinSavingsRatio", "anti_thrash_min_savings_ratio", NUMBER),
    ConfigKey("Compaction.AntiThrashWindow", "anti_thrash_window", WHOLE),
)
TEAM_KEYS = parse_keys(
    "Compaction.Model Memory MaxTotalTokens WarnTurnTokens Validation Contracts Verifier"
    " FailureHandling Termination TestSelector SystemPrompt Transitions"
)
"""Keys that a team obeys, and rules do not have."""
UNREAD_KEYS = {
    **dict.fromkeys(("Scratchpad", "Chatroom", "SkillCuration"), ""),
    "Brownfield": "of it, only the discovery brief seeds the ChangeEnvelope",
    **dict.fromkeys(("ChangeTracking", "EvidenceStore", "Checkpoint"), _OWN_FOLDER),
    "Saga": "nothing is taken back",
    "SystemPromptPath": _READ_FROM_FILE,
}
"""Keys that are not read here, with their reasons."""
IGNORED_KEYS = {
    **dict.fromkeys(("SchemaVersion", "Name", "Description", "Agents", "Selection"), ""),
    "Compaction.PinLastRoutingSignal": "",
    "Models": "model= and models= say which are meant",
    "Security": "tools work in the folder that root= names, and nowhere else",
    "McpServers": "a config asks no server; give its tools with tools=",
    "Telemetry": "nothing is sent",
    "ApiProfiles": "there is no tool for HTTP",
    "Events": _OWN_FOLDER,
    "Output": "a team returns where it stands",
}
"""Keys that have nothing to do with context."""
CONFIG_TABLE = ConfigKeyTable(
    (*CONFIG_KEYS, *AGENT_CONFIG_KEYS, PROMPT_LIMITS[0]),
    TEAM_KEYS | TEAM_AGENT_KEYS | {*UNREAD_KEYS, *UNREAD_AGENT_KEYS},
    frozenset((*IGNORED_KEYS, *IGNORED_AGENT_KEYS)),
    any_case=True,
    open_sections=frozenset(),
)
PIN_SIGNAL_KEY = ConfigKey("Compaction.PinLastRoutingSignal", "routing_signals", FLAG)

TEAM_SECTION_KEYS: dict[str, tuple[str, ...]] = {
    section: tuple(keys.split())
    for section, keys in {
        "Contract": "Name Description Requires",
        "Requirement": "Type Path Source Field PatternField PatternSource Pattern NoFailures"
        " HasAssertions",
        "Selection": "Type StateMachine Routes StructuredRoutes DefaultAgent Graph Magentic Model"
        " Prompt Adversarial ScatterGather MapReduce",
        "Route": "Keyword Agent Validator Validators Contract Contracts SourceAgents"
        " RequiredCommandPattern RecoveryAgent",
        "Structured route": "Agent Condition SourceAgents",
        "Node": "Id Agent Terminal SubGraphId Parallel",
        "Edge": "Keyword Validator Validators Contract Contracts SourceAgents"
        " RequiredCommandPattern RecoveryAgent From To",
        "Selection.Graph": "EntryNode Nodes Edges MaxRetries",
        "Selection.Adversarial": "Stages Rounds PassKeyword",
        "Stage": "Generator Critic Label",
        "Selection.ScatterGather": "Participants Synthesizer",
        "Selection.MapReduce": "Splitter Mapper Reducer ItemsJsonPath MaxSplitterRetries",
        "Selection.Magentic": "Model Instructions MaxRoundCount MaxStallCount MaxResetCount",
        "Validation": "BriefPath TestReportPath TestAssertionPatterns",
        "Verifier": "AgentName EveryNTurns TriggerOnSuspiciousTransition FindingsKeyword",
        "FailureHandling": "MissingEvidence InvalidTransition ConflictingEvidence NoProgress"
        " MaxConsecutiveContractFailures MaxConsecutiveTurnsWithoutSignal",
        "Selection.StateMachine": "Initial States",
        "State": "Agent Terminal Transitions Description",
        "Transition": "To Signal Contract Contracts SourceAgents RecoveryAgent HandoffContext"
        " MaxRevisits ReviewArtifactPath Parallel Targets",
        "Source": "Source MaxChars Label",
        "Strategy": "Type Pattern MaxIterations AgentNames Condition MaxTokens",
        "Termination": "Type Pattern MaxIterations AgentNames Condition MaxTokens Strategies",
        "TestSelector": "FullSuiteCommand",
        "Failure": "Action Threshold",
    }.items()
}
"""The keys of the sections that only a team reads, by what a sentence calls the section."""
UNREAD_SECTION_KEYS = {
    "MaxConcurrency": "agents take turns",
    "SubGraphs": "each node is one agent",
    "ChangeLogPath": _OWN_FOLDER,
    "FindRelatedCommand": "a config runs no command; a run of FullSuiteCommand counts",
    "ShellFallbackPattern": "only files that were written count",
    "Merge": "all that the branches said is heard, in the order of Targets",
    **dict.fromkeys(
        ("RetryCount", "OnAgentFailure"), "a turn that failed is taken again by the next run()"
    ),
    "RequireHumanApproval": "approve= is asked before tool calls, and nobody before a hand-off",
    "EnablePlanReview": "interrupt the team, and let it go on",
}
"""Keys of these sections that are not obeyed, with the reason."""
UNREAD_REASONS = {
    key.casefold(): reason
    for table in (
        UNREAD_KEYS,
        UNREAD_AGENT_KEYS,
        IGNORED_KEYS,
        IGNORED_AGENT_KEYS,
        UNREAD_SECTION_KEYS,
    )
    for key, reason in table.items()
    if reason
}
"""Why a key is not obeyed by a team, by the key in lower case."""
SELECTION_NOTE = "Selection (but for its signals)"
"""The part of a selection that rules cannot represent."""

_OBEYED_BY_TEAM = {
    key.rpartition(".")[2].casefold() for key in (*TEAM_KEYS, *TEAM_AGENT_KEYS, SELECTION_NOTE)
}


def find_budget_faults(body: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each budget of a config that cannot fire, which fuseraft refuses."""
    if _get(body, "Compaction") is not None:
        return []
    return [
        f"{key.path} cannot fire without a Compaction section: add one."
        for key in CONFIG_KEYS
        if key.parameter in ("cutover_at", "max_single_turn_input_tokens")
        and isinstance(_get(body, key.path), int)
        and _get(body, key.path)
    ]


VIEW_KEYS = {
    key.path.removeprefix("ContextWindow."): key.parameter
    for key in AGENT_CONFIG_KEYS
    if key.path.startswith("ContextWindow.") and key.parameter != "context_cap_fraction"
}
"""The keys of a ContextWindow that say what an agent is shown, and the settings that they are."""


MAX_AGENTS = 200
MAX_STATES = 1000
"""States of a machine, nodes of a graph, stages; the states that are made of these, too."""
MAX_TRANSITIONS = 5000
"""Transitions out of all states, routes, edges, contracts."""
_get = partial(get_section, any_case=True)
_STATES = ("StateMachine.States", "Graph.Nodes", "Adversarial.Stages")
_TRANSITIONS = ("Routes", "StructuredRoutes", "Graph.Edges")
ANY_STATE = "Any"
"""The one state under which signals are written: rules hold no routes."""


def count_identifying_keys(config: Mapping[str, Any]) -> int:
    """Count the keys that identify fuseraft."""
    body = _body(config)
    # only fuseraft puts everything under `Orchestration`
    if body is not config:
        return 10
    top_keys = {str(k).casefold() for k in body}
    budget_keys = {
        "contextbudget",
        "contextwindow",
        "maxinturntoolpairs",
        "maxinturncontexttokens",
    } & top_keys
    compaction = _get(body, "Compaction")
    compaction_names = {
        k.path.split(".")[1].casefold() for k in CONFIG_KEYS if k.path.startswith("Compaction.")
    }
    words = (
        {str(k).casefold() for k in compaction} & compaction_names
        if isinstance(compaction, dict)
        else set()
    )
    agents = _get(body, "Agents")
    memory = str(_get(body, "Memory.Provider")).casefold()
    ways = [w for w in _members(_get(body, "Transitions")) if _get(w, "To") and _get(w, "Signal")]
    agent_key_names = (*(k.path.partition(".")[0] for k in AGENT_CONFIG_KEYS), *TEAM_AGENT_KEYS)
    agent_keys = {"instructions", "agentfile", *(name.casefold() for name in agent_key_names)}
    members = [a for a in agents if isinstance(a, dict)] if isinstance(agents, list) else []
    return (
        4 * len(budget_keys)
        + 3 * len(words)
        + 3 * any(agent_keys & {str(k).casefold() for k in a} for a in members)
        + 3 * (memory in ("local", "webhook"))
        + 3 * bool(ways)
    )


def read_config(config: Mapping[str, Any], agent: str | None) -> ParsedConfig:
    """Parse the settings of one agent; without a name, those on which all agents agree.

    Args:
        config: keys and values of the file.
        agent: name of an agent; None: all.

    Returns:
        Settings under the names of the preset's parameters, with the keys that nothing reads.

    Raises:
        BadArguments: there is no such agent, or a value is of the wrong kind.
    """
    body, parsed = _body(config), ParsedConfig()
    check_team_counts(body)
    CONFIG_TABLE.read(body, parsed)
    if body is not config:
        beside = [str(k) for k in config if str(k).casefold() != "orchestration"]
        parsed.unknown += [f"{sanitize_text(k, 60)} (beside Orchestration)" for k in beside]
    agents = _agents(body)
    if agent is not None:
        _take_agent(agents, agent, parsed)
    elif agents:
        _take_shared(agents, parsed)
    parsed.settings |= _pinned(body)
    names = [*parsed.unrepresented, *([SELECTION_NOTE] if _routes(_get(body, "Selection")) else [])]
    parsed.team_keys = [n for n in names if n.rpartition(".")[2].casefold() in _OBEYED_BY_TEAM]
    parsed.unrepresented = sorted(
        (n for n in names if n not in parsed.team_keys), key=rank_ignored_key
    )
    if (body is not config or agents) and _get(body, "Compaction") is None:
        _note_no_compaction(parsed)
    return parsed


def parse_agent_settings(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of each agent in the file's order, as `read` gathers them for one.

    Raises:
        BadArguments: a value is of the wrong kind.
    """
    body, shared = _body(config), ParsedConfig()
    check_team_counts(body)
    CONFIG_TABLE.read(body, shared)
    agents, pinned = _agents(body), _pinned(body)
    return [{**shared.settings, **own.settings, **pinned} for _, own in agents]


def _pinned(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting that keeps the last handoff keyword, where the file has such keywords."""
    pin = _get(body, PIN_SIGNAL_KEY.path)
    if pin is not None and not PIN_SIGNAL_KEY.read(pin):
        return {}
    steps = [*_signals(_get(body, "Selection")), *_signals(body)]
    signals = tuple(dict.fromkeys(steps))
    return {"routing_signals": signals} if signals else {}


def check_team_counts(config: Mapping[str, Any]) -> None:
    """Refuse a team with too many agents, states or transitions.

    Args:
        config: the file, or what is under `Orchestration`.

    Raises:
        BadArguments: a list is too long; the sentence names it.
    """
    body = _body(config)
    selection = _get(body, "Selection")
    check_team_count("Agents", len(_members(_get(body, "Agents"))), MAX_AGENTS)
    check_team_count("Contracts", len(_members(_get(body, "Contracts"))), MAX_TRANSITIONS)
    for path in (*_STATES, *_TRANSITIONS):
        max_count = MAX_STATES if path in _STATES else MAX_TRANSITIONS
        check_team_count(f"Selection.{path}", len(_members(_get(selection, path))), max_count)
    states = _members(_get(selection, "StateMachine.States"))
    steps = sum(len(_members(_get(state, "Transitions"))) for state in states)
    check_team_count("Transitions", steps, MAX_TRANSITIONS)


def check_team_count(what: str, count: int, max_count: int) -> None:
    """Refuse a list of a team that is too long.

    Args:
        what: the plural for the items, such as "agents".
        count: number of items.
        max_count: maximum number of items.

    Raises:
        BadArguments: there are more than `max_count`.
    """
    if count > max_count:
        raise BadArguments(
            f"There are {count:,} {what}, and a team has at most {max_count:,}: make several teams"
            " of it."
        )


def to_config_tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys, the agent's under an agent."""
    agent: dict[str, Any] = {
        "Name": parameters.get("subject") or "Agent",
        **ConfigKeyTable(AGENT_CONFIG_KEYS).to_config_tree(parameters),
    }
    if parameters.get("context_window") is not None:
        agent["Model"] = {"MaxContextTokens": parameters["context_window"]}
    body = ConfigKeyTable(CONFIG_KEYS).to_config_tree(parameters)
    signals = parameters.get("routing_signals") or ()
    body["Agents"] = [agent]
    if signals:
        body["Compaction"]["PinLastRoutingSignal"] = True
        step = {"Transitions": [{"Signal": s} for s in signals]}
        body["Selection"] = {"Type": "statemachine", "StateMachine": {"States": {ANY_STATE: step}}}
    return {"Orchestration": body}


def _body(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is under `Orchestration`, or the file itself, as in the document's snippets."""
    body = _get(config, "Orchestration")
    return body if isinstance(body, dict) else config


def get_orchestration_or_whole_config(config: Mapping[str, Any]) -> ConfigSection:
    """Return the section `Orchestration`; the whole file where there is none.

    Raises:
        BadArguments: `Orchestration` is no section, or names a key twice.
    """
    whole = ConfigSection(config)
    return whole if whole.get("Orchestration") is None else whole.section("Orchestration")


def _agents(body: Mapping[str, Any]) -> list[tuple[str, ParsedConfig]]:
    """Return each agent's name and what the file says of it; aliases of models are looked up."""
    listed = _get(body, "Agents")
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(a, dict) for a in listed):
        raise BadArguments("Agents must be a list of agents with keys and values.")
    agents = []
    for position, entry in enumerate(listed):
        name, parsed = str(_get(entry, "Name") or position), ParsedConfig()
        at = f"Agents.{sanitize_text(name, 40)}."
        shared = (
            str(_get(entry, "Isolation")).casefold() == "shared"
        )  # what these rules take for granted
        AGENT_TABLE.read(
            {k: v for k, v in entry.items() if not (shared and str(k).casefold() == "isolation")},
            parsed,
            at,
        )
        for key in PROMPT_LIMITS:
            limits = [parsed.settings.get(key.parameter), *_outer_limits(entry, body, key, at)]
            least = min((n for n in limits if n), default=None)
            parsed.settings |= {} if least is None else {key.parameter: least}
        agents.append((name, parsed))
    return agents


def _outer_limits(
    entry: Mapping[str, Any], body: Mapping[str, Any], key: ConfigKey, at: str
) -> list[int]:
    """Return a limit of a prompt as the top level and an agent's model set it."""
    model, models = _get(entry, "Model"), _get(body, "Models")
    alias = model if isinstance(model, str) else _get(model, "ModelId")
    of_model = _get(model, key.path)
    if of_model is None and isinstance(alias, str):
        of_model = _get(models, (alias, key.path))
    values = ((_get(body, key.path), key.path), (of_model, f"{at}Model.{key.path}"))
    return [key.read(value, place) for value, place in values if value is not None]


def _take_agent(
    agents: list[tuple[str, ParsedConfig]], agent_name: str, parsed: ParsedConfig
) -> None:
    for name, agent_config in agents:
        if name.casefold() == agent_name.casefold():
            parsed.settings |= agent_config.settings
            parsed.subject = name
            parsed.unknown += agent_config.unknown
            parsed.unrepresented += agent_config.unrepresented
            return
    names = [name for name, _ in agents]
    raise BadArguments(
        f"There is no agent {agent_name!r}; there are"
        f" {', '.join(sanitize_text(n, 40) for n in names) or 'none'}."
        f"{did_you_mean(agent_name, names)}"
    )


# Without a name the agents must agree: a setting is taken where all have the same value, and named
# in a note where they differ.
def _take_shared(agents: list[tuple[str, ParsedConfig]], parsed: ParsedConfig) -> None:
    for _, own in agents:
        parsed.unknown += own.unknown
        parsed.unrepresented += own.unrepresented
    parsed.subject = agents[0][0] if len(agents) == 1 and not agents[0][0].isdigit() else ""
    differ = []
    for key in (*AGENT_CONFIG_KEYS, WINDOW_KEY):
        values = [own.settings.get(key.parameter) for _, own in agents]
        present = [v for v in values if v is not None]
        if all((v or None) == (values[0] or None) for v in values):  # left out, or 0: the same
            parsed.settings |= {key.parameter: present[0]} if present else {}
        else:
            differ.append(key.path)
    if differ:
        names = ", ".join(sanitize_text(name, 40) for name, _ in agents)
        parsed.choices.append(
            f"The agents differ in {', '.join(differ)}, which stay at their defaults: "
            f"name one with agent= (of {names})."
        )


def _signals(selection: Any) -> Iterator[str]:
    """Yield the handoff keywords of state machine and keyword routes, in the file's order."""
    states = (*_members(_get(selection, "StateMachine.States")), selection)
    steps = [step for state in states for step in _members(_get(state, "Transitions"))]
    for signal in (
        *(_get(s, "Signal") for s in steps),
        *(_get(r, "Keyword") for r in _members(_get(selection, "Routes"))),
    ):
        if isinstance(signal, str) and signal:
            yield signal


def _routes(selection: Any) -> bool:
    """Return whether a selection says more than the signals that `tree` writes."""
    states = _get(selection, "StateMachine.States")
    return selection is not None and not (isinstance(states, dict) and set(states) == {ANY_STATE})


def _members(section: Any) -> list[Any]:
    if isinstance(section, dict):
        return list(section.values())
    return section if isinstance(section, list) else []


def _note_no_compaction(parsed: ParsedConfig) -> None:
    """Note that a file without `Compaction` compacts nothing and has no cutover."""
    needs = [k.path for k in CONFIG_KEYS[1:3] if parsed.settings.get(k.parameter)]
    if needs:
        parsed.notes.append(
            f"fuseraft refuses {' and '.join(needs)} without a Compaction section; here they"
            " compact with its defaults."
        )
        return
    parsed.absent = ("Compaction",)
    parsed.notes.append(
        "Without a Compaction section nothing is compacted but by hand, as in fuseraft."
    )


KEY_PATHS = {
    **ConfigKeyTable(CONFIG_KEYS).paths,
    **{k.parameter: f"Agents[].{k.path}" for k in (*AGENT_CONFIG_KEYS, WINDOW_KEY)},
    "routing_signals": "Selection.StateMachine.States[].Transitions[].Signal",
}


def make_history_filters(
    *,
    text_only: bool = False,
    exclude_agents: Sequence[str] = (),
    max_turn_age: int = 0,
    max_tail_messages: int = 0,
    max_tool_result_chars: int = 0,
    tool_result_char_overrides: Mapping[str, int] | None = None,
    max_replay_chars: int = 0,
    from_reply: bool = False,
    besides_prompt: bool = False,
) -> list[Any]:
    """Return the parts of a ContextWindow in fuseraft's order: text, agents, age, tail, lengths.

    Args:
        text_only: tool calls and results go.
        exclude_agents: agents whose replies go; tool results go too.
        max_turn_age: replies that stay; 0: all.
        max_tail_messages: messages that stay; 0: all.
        max_tool_result_chars: characters of a tool result that stay; 0: all.
        tool_result_char_overrides: the same by tool name; 0: all of that tool's.
        max_replay_chars: characters of a reply that stay; 0: all.
        from_reply: `max_turn_age` begins with a reply, without the message that it answers.
        besides_prompt: `max_tail_messages` does not count the input of the turn.
    """
    results, overrides = max_tool_result_chars, dict(tool_result_char_overrides or {})
    parts = [
        TextOnly() if text_only else None,
        WithoutAgents(agents=tuple(exclude_agents)) if exclude_agents else None,
        TurnAge(turns=max_turn_age, from_reply=from_reply) if max_turn_age else None,
        Tail(messages=max_tail_messages, besides_prompt=besides_prompt)
        if max_tail_messages
        else None,
        ResultShortening(max_chars=results, overrides=overrides, past_only=True)
        if results
        else None,
        ReplyShortening(max_chars=max_replay_chars, past_only=True) if max_replay_chars else None,
    ]
    return [part for part in parts if part is not None]


PLUGINS_KEY, TERMINATION_KEY = "Plugins", "Termination"
_WEIGHTY_KEYS = (
    # other agents, tools and turns than the file asks for
    *("RemoteAgent", "McpServers", PLUGINS_KEY, "SubGraphs", "Merge", "MaxConcurrency"),
    *("FunctionChoice", TERMINATION_KEY, "Saga", "FindRelatedCommand", "ShellFallbackPattern"),
    # what a person is asked, and what an agent is kept from
    *("RequireHumanApproval", "EnablePlanReview", "Security", "TrustScore"),
    # what a prompt holds, and how a model answers
    *("Brownfield", "KnowledgeWeight", "SkipExecutionState", "Produces", "Requires", "Model"),
)
_LIGHT_KEYS = (
    *("Output", "Telemetry", "Models", "ApiProfiles"),
    # where fuseraft keeps its files
    *("ChangeTracking", "EvidenceStore", "ChangeLogPath", "Checkpoint", "Events"),
)
_OTHERS = len(_WEIGHTY_KEYS)
_KEY_WEIGHTS = {
    key.casefold(): place for place, key in enumerate((*_WEIGHTY_KEYS, "", *_LIGHT_KEYS))
}
"""Places of keys in the list, by the key in lower case; all others are at `_OTHERS`."""


def rank_ignored_key(path: str) -> int:
    """Return the rank of a key in the list of ignored keys, the most important first."""
    names = re.findall(r"\w+", path.casefold())
    return min((_KEY_WEIGHTS[name] for name in names if name in _KEY_WEIGHTS), default=_OTHERS)


MAX_REASONS = 8
"""Maximum number of reasons in a list; the others are counted."""


def format_ignored_keys(rows: Iterable[tuple[str, Sequence[str], str]]) -> str:
    """Return a sentence on the ignored keys, the most important first; empty: none is ignored.

    Args:
        rows: key, agents that have it, reason; keys of one reason are named together.
    """
    by_reason: dict[str, list[str]] = {}
    for key, agents, reason in sorted(rows, key=lambda row: rank_ignored_key(row[0])):
        more = f" and {len(agents) - 3} more" if len(agents) > 3 else ""
        of = f" of {', '.join(sanitize_text(a, 40) for a in agents[:3])}{more}" if agents else ""
        by_reason.setdefault(reason, []).append(f"{sanitize_text(key, 80)}{of}")
    parts = [", ".join(keys) + (f" ({why})" if why else "") for why, keys in by_reason.items()]
    listed, omitted = parts[:MAX_REASONS], parts[MAX_REASONS:]
    rest = f"; and {len(omitted)} more" if omitted else ""
    return f"Not obeyed here, the weightiest first: {'; '.join(listed)}{rest}." if listed else ""
