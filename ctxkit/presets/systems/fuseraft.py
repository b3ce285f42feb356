"""fuseraft: a filter of each agent's history, compaction in five modes, budgets of tokens, windows
inside a turn.

Read in its docs/configuration.md at 0466927, and in the code where that is silent.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  read by grids
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

from ctxkit._internal.formatting import sanitize_text
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.base import Chain
from ctxkit.policies.clearing import Budget, Tombstones, ToolPairs
from ctxkit.policies.evidence import Narrative
from ctxkit.policies.guards import AntiThrash, BaseGuard, Grace, blocking_reason, guard_label
from ctxkit.policies.offload import Offload
from ctxkit.policies.rules import Rules
from ctxkit.policies.shorten import Intermediate
from ctxkit.policies.superseded import RepeatedCommands, Superseded
from ctxkit.policies.triggers import Above, Count, NearCap, Overflow, Spent, TurnSpent
from ctxkit.policies.window import AdaptiveTrim, Window
from ctxkit.presets.config_keys import (
    COUNTS,
    FLAG,
    NAMES,
    NUMBER,
    POSITIVE,
    TEXT,
    WHOLE,
    ConfigFormat,
    ConfigKey,
    ConfigWriter,
    KeyTable,
    ParsedConfig,
    choice,
    keys_from_words,
    read_value,
)
from ctxkit.presets.history_filters import history_filters
from ctxkit.presets.setting_checks import Difference, typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.policies.base import Natural, Positive, Proportion
    from ctxkit.policies.protocols import Forecast, Guard, RunState
    from ctxkit.policies.triggers import BaseTrigger


REPLAY_CHARS = 2000
"""Characters of a reply that is sent again, where no number is set (the document's)."""
_HANDED = (
    "text_only",
    "exclude_agents",
    "max_turn_age",
    "max_tail_messages",
    "max_tool_result_chars",
    "tool_result_char_overrides",
)
"""Settings of what an agent is handed of its history when its turn begins."""
DIFFERENCES = (
    Difference(
        "KeepRecentTurns",
        "turns",
        "messages of any role",
        "replies, with the message that each answers",
        "as the program",
    ),
    Difference("IncludeReasoning", "true", "false", "true", "as the program"),
    Difference(
        "anti-thrash",
        "text savings; resets by itself",
        "messages saved; nothing resets it; only the turn count is guarded",
        "tokens saved; TriggerTurnCount calls without a compaction reset it; the turn count alone"
        " is guarded",
        "as the program",
    ),
    Difference(
        "intent lines",
        "the error before the parenthesis, commands shown",
        "after it, paths only",
        "as said",
        "as the program",
    ),
    Difference(
        "MaxInTurnToolPairs",
        "opt-in",
        "0 means 12; only from 90 % of the budget on, in steps of 8",
        "0 is off",
        "as the program",
    ),
    Difference(
        "MaxInTurnContextTokens",
        "opt-in",
        "always on, 200,000 characters",
        "0 is off",
        "as the program",
    ),
    Difference(
        "MaxTurnAge",
        "the last N turns",
        "begins with the reply, without the message it answers (mended later)",
        "begins with the message",
        "as the program",
    ),
    Difference(
        "pairs of calls and results",
        "orphans are stripped",
        "of two results in two messages the second is dropped",
        "pairs are never parted",
    ),
    Difference("system messages", "not said", "TextOnly drops them", "they stay"),
    Difference(
        "MaxReplayChars",
        "0 means 2,000",
        "2,000 only where a history is rebuilt from a checkpoint",
        "0 means 2,000, None is off",
        "0 is off: a replay rebuilds nothing from a checkpoint",
    ),
    Difference(
        "grace turn",
        "a single-turn limit is suppressed for one turn",
        "never suppressed",
        "as the program",
    ),
    Difference(
        "window mode",
        "pinned summaries are never dropped",
        "only leading ones are safe",
        "as the program; there is never more than one",
    ),
)


@dataclass(frozen=True)
class GuardUnlessDue(BaseGuard):
    """A guard that steps aside at calls where another trigger is due: fuseraft guards its turn
    count alone.
    """

    guard: Guard
    trigger: BaseTrigger

    @property
    def word(self) -> str:  # type: ignore[override]
        """What the guard is called."""
        return guard_label(self.guard)

    def why(self, past: RunState) -> str:
        """Return why the guard holds it back."""
        return blocking_reason(self.guard, past)

    def first(self, past: RunState, forecast: Forecast, start: int, stop: int) -> int:
        """Return the first call that the guard lets pass, or at which the trigger is due."""
        allowed_call = self.guard.first(past, forecast, start, stop)
        return (
            allowed_call
            if allowed_call <= start
            else self.trigger.first(forecast, start, allowed_call)
        )


@typed
def fuseraft(
    *,
    context_window: int | None = None,
    mode: Literal["llm", "intent", "lossless", "hybrid", "window"] = "llm",
    trigger_turn_count: Positive = 50,
    keep_recent_turns: Positive = 10,
    token_budget: int = 80_000,
    include_reasoning: bool | None = None,
    include_symbol_graph: bool = True,
    include_exploration: bool = True,
    routing_signals: tuple[str, ...] = (),
    summary_template: str | None = None,
    max_chars_per_history_message: int = 8000,
    anti_thrash_min_savings_ratio: float = 0.10,
    anti_thrash_window: int = 10,
    warn_at: Natural = 0,
    cutover_at: Natural = 0,
    max_single_turn_input_tokens: Natural = 0,
    max_tool_result_tokens: Natural = 0,
    in_turn_tool_window: int = 20,
    text_only: bool = False,
    exclude_agents: tuple[str, ...] = (),
    max_turn_age: int = 0,
    max_tail_messages: int = 0,
    context_cap_fraction: Proportion = 0.0,
    max_tool_result_chars: int = 0,
    tool_result_char_overrides: Mapping[str, int] | None = None,
    max_replay_chars: int | None = 0,
    max_in_turn_tool_pairs: int = 0,
    max_in_turn_context_tokens: int = 0,
    offload_chars: Natural = 40_000,
    adaptive_trim: bool = True,
    summariser: Any = None,
    quirks: bool = False,
) -> Rules:
    """Return fuseraft's rules for one agent; what needs several agents or its own files on disk is
    not in them.

    `text_only`, `exclude_agents`, `max_turn_age`, `max_tail_messages`, `max_tool_result_chars` and
    `max_replay_chars` filter what was said before a turn, as it is handed to that turn. What an
    agent's own calls return within its turn, it sees whole.

    Args:
        context_window: tokens that the model takes; None: as the price table has it, else 200,000.
        mode: `llm`, `intent`, `lossless`, `hybrid` put a message in the place of old turns;
            `window` drops pairs.
        trigger_turn_count: replies at which a compaction is due (not with `window`).
        keep_recent_turns: replies that are kept.
        token_budget: tokens, by its own estimate, up to which `window` keeps; above them it is due.
        include_reasoning: put the thinking of old turns before a summary; None: yes (with quirks:
            no).
        include_symbol_graph: put names defined in written files before it.
        include_exploration: put what was read and searched before it.
        routing_signals: handoff keywords, of which the last one is said again after a compaction.
        summary_template: what the summariser is told, in place of fuseraft's four sections.
        max_chars_per_history_message: characters of one message that the summariser sees; 0: all.
        anti_thrash_min_savings_ratio: share that a compaction must save; 0: no guard.
        anti_thrash_window: compactions in a row that fall short before there are no more; 0: no
            guard.
        warn_at: tokens sent since the last compaction at which a warning is left; 0: none.
        cutover_at: tokens sent since the last compaction at which one is due; 0: never.
        max_single_turn_input_tokens: tokens sent in one turn above which one is due; 0: never.
        max_tool_result_tokens: tokens of all tool results above which old ones are evicted for a
            call; 0: never.
        in_turn_tool_window: results that such an eviction leaves whole.
        text_only: show of earlier turns neither tool calls nor results.
        exclude_agents: agents whose replies are not shown; tool results of earlier turns go too.
        max_turn_age: replies that are shown, from the message before the oldest of them on; 0: all.
        max_tail_messages: messages that are shown when a turn begins, corrections besides; 0: all.
        context_cap_fraction: share of `max_tail_messages` above which a warning is left; 0: none.
        max_tool_result_chars: characters of a tool result that later turns are shown; 0: all.
        tool_result_char_overrides: the same by tool name; 0: all of that tool's.
        max_replay_chars: characters of a reply that later turns are shown; 0: 2,000 (with quirks:
            all); None: all.
        max_in_turn_tool_pairs: pairs of call and result that are shown whole; 0: all (with quirks:
            12).
        max_in_turn_context_tokens: tokens of all messages above which old results are elided; 0:
            never (with quirks: 50,000).
        offload_chars: characters above which a tool result becomes a stub that names an artifact;
            0: never.
        adaptive_trim: trim for one call where the prompt is over the window, instead of failing.
        summariser: a name or ``(passage) -> text``; None: the extractive one, without a model.
        quirks: do what the program does where it differs from its document.

    Example:
        >>> from ctxkit import presets
        >>> rules = presets.fuseraft(token_budget=60_000)
        >>> rules.parameters["token_budget"]
        60000
    """
    parameters = dict(locals())
    _check_settings(parameters)
    turns = Count(trigger_turn_count, ("assistant",))
    others: list[Any] = [Overflow(recorded=True)]
    if cutover_at:
        others.insert(0, Spent(cutover_at))
    if max_single_turn_input_tokens:
        others.insert(0, TurnSpent(max_single_turn_input_tokens))
    trigger: Any = Above(token_budget, estimated=True) if mode == "window" else turns
    unguarded = others[0] if max_single_turn_input_tokens else others[-1]
    guards: list[Any] = [GuardUnlessDue(Grace(calls=1), unguarded)]
    if mode != "window" and anti_thrash_window and anti_thrash_min_savings_ratio:
        thrash = AntiThrash(
            anti_thrash_min_savings_ratio,
            anti_thrash_window,
            "messages" if quirks else "tokens",
            reset=0 if quirks else trigger_turn_count,
        )
        guards.append(GuardUnlessDue(thrash, reduce(or_, others)))
    return Rules(
        policy=_make_policy(parameters),
        trigger=reduce(or_, others, trigger),
        pruning=_make_pruning(parameters),
        guards=tuple(guards),
        warnings=_make_warnings(parameters),
        window=context_window,
        estimator="fuseraft",
        summariser=summariser,
        config=ConfigWriter("fuseraft"),
    )


def _make_warnings(p: dict[str, Any]) -> tuple[Any, ...]:
    """Return what is warned of: tokens sent, and a prompt that nears its cap on messages."""
    spent = (Spent(p["warn_at"]),) if p["warn_at"] else ()
    cap = int(p["max_tail_messages"] * p["context_cap_fraction"])
    return (*spent, NearCap(cap + 1)) if cap else spent


def _check_settings(p: dict[str, Any]) -> None:
    """Refuse what fuseraft refuses at its start, and what could not work here."""
    if p["keep_recent_turns"] >= p["trigger_turn_count"]:
        raise BadArguments(
            f"keep_recent_turns ({p['keep_recent_turns']}) must lie below trigger_turn_count "
            f"({p['trigger_turn_count']}): otherwise a compaction frees nothing."
        )
    if 0 < p["cutover_at"] <= p["warn_at"]:
        raise BadArguments(
            f"warn_at ({p['warn_at']:,}) must lie below cutover_at ({p['cutover_at']:,})."
        )


def _make_policy(p: dict[str, Any]) -> Any:
    if p["mode"] == "window":
        return Window(keep_tokens=p["token_budget"], estimated=True)
    reasoning = p["include_reasoning"]
    template_settings: dict[str, Any] = {}
    if p["summary_template"]:
        template_settings = {"instructions": p["summary_template"], "sections": ()}
    return Narrative(
        mode=p["mode"],
        keep_replies=p["keep_recent_turns"],
        include_reasoning=not p["quirks"] if reasoning is None else reasoning,
        include_symbols=p["include_symbol_graph"],
        include_exploration=p["include_exploration"],
        max_chars_per_message=p["max_chars_per_history_message"],
        signals=p["routing_signals"],
        without_model=Overflow(
            recorded=True
        ),  # a model that just refused a prompt is not sent a larger one
        must_shrink=not p["quirks"],
        quirks=p["quirks"],
        **template_settings,
    )


def _make_pruning(p: dict[str, Any]) -> Any:
    """Return what is done for each call, in order: offload, filter, windows, last resort."""
    quirks = p["quirks"]
    pairs = p["max_in_turn_tool_pairs"] or (12 if quirks else 0)
    tokens = p["max_in_turn_context_tokens"] or (50_000 if quirks else 0)
    replies = p["max_replay_chars"]
    if replies == 0 and not quirks:
        replies = REPLAY_CHARS
    filters = history_filters(
        **{name: p[name] for name in _HANDED}, max_replay_chars=replies or 0, from_reply=quirks
    )
    parts = [
        Offload(threshold=p["offload_chars"]) if p["offload_chars"] else None,
        *filters,
        Tombstones(max_tokens=p["max_tool_result_tokens"], keep_last=p["in_turn_tool_window"])
        if p["max_tool_result_tokens"]
        else None,
        *((Superseded(), RepeatedCommands(), Intermediate()) if quirks else ()),
        ToolPairs(keep_pairs=pairs, step=8 if quirks else 1, from_chars=180_000 if quirks else 0)
        if pairs
        else None,
        Budget(max_chars=4 * tokens) if tokens else None,
        AdaptiveTrim() if p["adaptive_trim"] else None,
    ]
    prunings = [part for part in parts if part is not None]
    return Chain.of(*prunings) if prunings else None


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
)
OTHER_AGENT_KEYS = keys_from_words(
    "Context Isolation KnowledgeWeight SkipExecutionState EnableMemory Produces Requires"
    " RemoteAgent AgentFile SubAgentModel SubAgentPlugins SubAgentMaxToolCalls"
)
IGNORED_AGENT_KEYS = keys_from_words(
    "Name Description Instructions Plugins Capabilities Model FunctionChoice TrustScore"
    " MaxToolCallsPerTurn"
)
AGENT_TABLE = KeyTable(
    AGENT_CONFIG_KEYS, OTHER_AGENT_KEYS, IGNORED_AGENT_KEYS, any_case=True, open=frozenset()
)
CONFIG_KEYS = (
    ConfigKey("ContextBudget.WarnAt", "warn_at", WHOLE),
    ConfigKey("ContextBudget.CutoverAt", "cutover_at", WHOLE),
    ConfigKey("ContextBudget.MaxSingleTurnInputTokens", "max_single_turn_input_tokens", WHOLE),
    ConfigKey("ContextBudget.MaxToolResultTokens", "max_tool_result_tokens", WHOLE),
    ConfigKey("ContextBudget.InTurnToolWindow", "in_turn_tool_window", WHOLE),
    ConfigKey("Compaction.Mode", "mode", choice("llm", "intent", "lossless", "hybrid", "window")),
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
OTHER_KEYS = keys_from_words(
    "Compaction.Model Memory MaxTotalTokens WarnTurnTokens Validation ChangeTracking EvidenceStore"
    " Checkpoint Contracts Verifier FailureHandling Termination Scratchpad Chatroom Saga"
    " Brownfield TestSelector SkillCuration SystemPrompt SystemPromptPath"
)
IGNORED_KEYS = keys_from_words(
    "SchemaVersion Name Description Models Agents Selection Compaction.PinLastRoutingSignal"
    " Security McpServers Telemetry ApiProfiles Events Output"
)
CONFIG_TABLE = KeyTable(
    CONFIG_KEYS + AGENT_CONFIG_KEYS,
    OTHER_KEYS | OTHER_AGENT_KEYS,
    IGNORED_KEYS | IGNORED_AGENT_KEYS,
    any_case=True,
    open=frozenset(),
)
WINDOW_KEY = ConfigKey("Model.MaxContextTokens", "context_window", POSITIVE)
PIN_SIGNAL_KEY = ConfigKey("Compaction.PinLastRoutingSignal", "routing_signals", FLAG)

MAX_AGENTS = 200
MAX_STATES = 1000
"""States of a machine, nodes of a graph, stages; the states that are made of these, too."""
MAX_WAYS = 5000
"""Transitions out of all states, routes, edges, contracts."""
_STATES = ("StateMachine.States", "Graph.Nodes", "Adversarial.Stages")
_WAYS = ("Routes", "StructuredRoutes", "Graph.Edges")
ANY_STATE = "Any"
"""The one state under which signals are written: rules hold no routes."""


def weigh_config(config: Mapping[str, Any]) -> int:
    """Count the signs of fuseraft."""
    body = _get_body(config)
    if body is not config:
        return 10
    fold = {str(k).casefold() for k in body}
    body_keys = {
        "contextbudget",
        "contextwindow",
        "maxinturntoolpairs",
        "maxinturncontexttokens",
    } & fold
    compaction = _get_any_case(body, "Compaction")
    compaction_keys = {
        k.path.split(".")[1].casefold() for k in CONFIG_KEYS if k.path.startswith("Compaction.")
    }
    words = (
        {str(k).casefold() for k in compaction} & compaction_keys
        if isinstance(compaction, dict)
        else set()
    )
    agents = _get_any_case(body, "Agents")
    agent_keys = {"contextwindow", "maxinturntoolpairs", "instructions", "agentfile"}
    members = [a for a in agents if isinstance(a, dict)] if isinstance(agents, list) else []
    return (
        4 * len(body_keys)
        + 3 * len(words)
        + 3 * any(agent_keys & {str(k).casefold() for k in a} for a in members)
    )


# The file has settings of the orchestration and of each agent. With a named agent, its settings
# override the shared ones. Without a name, a setting counts where all agents agree (missing and 0
# are equal), and the others are named in a note. Routing signals come from the selection section,
# and a missing Compaction section means that nothing is compacted automatically.
def read_config(config: Mapping[str, Any], agent: str | None) -> ParsedConfig:
    """Gather what the file says about one agent; without a name, that in which all its agents
    agree.

    Raises:
        BadArguments: there is no such agent, or a value is of the wrong kind.
    """
    body, parsed = _get_body(config), ParsedConfig()
    check_counts(body)
    CONFIG_TABLE.read(body, parsed)
    if body is not config:
        beside = [str(k) for k in config if str(k).casefold() != "orchestration"]
        parsed.unknown += [f"{sanitize_text(k, 60)} (beside Orchestration)" for k in beside]
    agents = _read_agents(body)
    if agent is not None:
        _apply_agent(agents, agent, parsed)
    elif agents:
        _apply_shared_settings(agents, parsed)
    parsed.settings |= _read_pinned_signals(body)
    if _has_other_routes(_get_any_case(body, "Selection")):
        parsed.elsewhere.append("Selection (but for its signals)")
    if (body is not config or agents) and _get_any_case(body, "Compaction") is None:
        _note_no_compaction(parsed)
    return parsed


def settings_of_agents(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of each agent in the file's order, as `read` gathers them for one.

    Raises:
        BadArguments: a value is of the wrong kind.
    """
    body, shared = _get_body(config), ParsedConfig()
    check_counts(body)
    CONFIG_TABLE.read(body, shared)
    agents, pinned = _read_agents(body), _read_pinned_signals(body)
    # settings of an agent override shared ones
    return [{**shared.settings, **agent.settings, **pinned} for _, agent in agents]


def _read_pinned_signals(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting that keeps the last handoff keyword, where the file has such keywords."""
    pin = _get_any_case(_get_any_case(body, "Compaction"), "PinLastRoutingSignal")
    if pin is not None and not read_value(PIN_SIGNAL_KEY, pin, PIN_SIGNAL_KEY.path):
        return {}
    signals = tuple(dict.fromkeys(_iter_signals(_get_any_case(body, "Selection"))))
    return {"routing_signals": signals} if signals else {}


def check_counts(config: Mapping[str, Any]) -> None:
    """Refuse a team with more agents, states or ways between them than anybody oversees.

    Args:
        config: the file, or what is under `Orchestration`.

    Raises:
        BadArguments: a list is too long; the sentence names it.
    """
    body = _get_body(config)
    selection = _get_any_case(body, "Selection")
    check_count("Agents", len(_list_members(_get_any_case(body, "Agents"))), MAX_AGENTS)
    check_count("Contracts", len(_list_members(_get_any_case(body, "Contracts"))), MAX_WAYS)
    for path in (*_STATES, *_WAYS):
        section = selection
        for name in path.split("."):
            section = _get_any_case(section, name)
        maximum = MAX_STATES if path in _STATES else MAX_WAYS
        check_count(f"Selection.{path}", len(_list_members(section)), maximum)
    states = _list_members(_get_any_case(_get_any_case(selection, "StateMachine"), "States"))
    steps = sum(len(_list_members(_get_any_case(state, "Transitions"))) for state in states)
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


def to_config_tree(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters under the file's own keys, the agent's under an agent."""
    agent: dict[str, Any] = {
        "Name": parameters.get("subject") or "Agent",
        **AGENT_TABLE.tree(parameters),
    }
    if parameters.get("context_window") is not None:
        agent["Model"] = {"MaxContextTokens": parameters["context_window"]}
    body = KeyTable(CONFIG_KEYS).tree(parameters)
    signals = parameters.get("routing_signals") or ()
    body["Agents"] = [agent]
    if signals:
        body["Compaction"]["PinLastRoutingSignal"] = True
        step = {"Transitions": [{"Signal": s} for s in signals]}
        body["Selection"] = {"Type": "statemachine", "StateMachine": {"States": {ANY_STATE: step}}}
    return {"Orchestration": body}


def _get_body(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is under `Orchestration`, or the file itself, as in the document's snippets."""
    body = _get_any_case(config, "Orchestration")
    return body if isinstance(body, dict) else config


def _get_any_case(section: Any, name: str) -> Any:
    if not isinstance(section, dict):
        return None
    return next((v for k, v in section.items() if str(k).casefold() == name.casefold()), None)


def _read_agents(body: Mapping[str, Any]) -> list[tuple[str, ParsedConfig]]:
    """Return each agent's name and what the file says of it; aliases of models are looked up."""
    listed = _get_any_case(body, "Agents")
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(a, dict) for a in listed):
        raise BadArguments("Agents must be a list of agents with keys and values.")
    agents = []
    for position, entry in enumerate(listed):
        name, parsed = str(_get_any_case(entry, "Name") or position), ParsedConfig()
        at = f"Agents.{sanitize_text(name, 40)}."
        shared = (
            str(_get_any_case(entry, "Isolation")).casefold() == "shared"
        )  # what these rules take for granted
        AGENT_TABLE.read(
            {k: v for k, v in entry.items() if not (shared and str(k).casefold() == "isolation")},
            parsed,
            at,
        )
        window = _find_window(_get_any_case(entry, "Model"), _get_any_case(body, "Models"))
        if window is not None:
            parsed.settings["context_window"] = read_value(WINDOW_KEY, window, at + WINDOW_KEY.path)
        agents.append((name, parsed))
    return agents


def _find_window(model: Any, models: Any) -> Any:
    max_tokens = _get_any_case(model, "MaxContextTokens")
    alias = model if isinstance(model, str) else _get_any_case(model, "ModelId")
    if max_tokens is not None or not isinstance(alias, str):
        return max_tokens
    return _get_any_case(_get_any_case(models, alias), "MaxContextTokens")


def _apply_agent(
    agents: list[tuple[str, ParsedConfig]], agent_name: str, parsed: ParsedConfig
) -> None:
    for name, agent in agents:
        if name.casefold() == agent_name.casefold():
            parsed.settings |= agent.settings
            parsed.subject = name
            parsed.unknown += agent.unknown
            parsed.elsewhere += agent.elsewhere
            return
    names = [name for name, _ in agents]
    raise BadArguments(
        f"There is no agent {agent_name!r}; there are"
        f" {', '.join(sanitize_text(n, 40) for n in names) or 'none'}."
        f"{did_you_mean(agent_name, names)}"
    )


def _apply_shared_settings(agents: list[tuple[str, ParsedConfig]], parsed: ParsedConfig) -> None:
    for _, agent in agents:
        parsed.unknown += agent.unknown
        parsed.elsewhere += agent.elsewhere
    parsed.subject = agents[0][0] if len(agents) == 1 and not agents[0][0].isdigit() else ""
    differ = []
    for key in (*AGENT_CONFIG_KEYS, WINDOW_KEY):
        values = [agent.settings.get(key.parameter) for _, agent in agents]
        set_values = [v for v in values if v is not None]
        if all((v or None) == (values[0] or None) for v in values):  # left out, or 0: the same
            parsed.settings |= {key.parameter: set_values[0]} if set_values else {}
        else:
            differ.append(key.path)
    if differ:
        names = ", ".join(sanitize_text(name, 40) for name, _ in agents)
        parsed.notes.append(
            f"The agents differ in {', '.join(differ)}, which stay at their defaults: "
            f"name one with agent= (of {names})."
        )


def _iter_signals(selection: Any) -> Iterator[str]:
    """Yield the handoff keywords of state machine and keyword routes, in the file's order."""
    states = _get_any_case(_get_any_case(selection, "StateMachine"), "States")
    steps = [
        step
        for state in _list_members(states)
        for step in _list_members(_get_any_case(state, "Transitions"))
    ]
    for signal in (
        *(_get_any_case(s, "Signal") for s in steps),
        *(_get_any_case(r, "Keyword") for r in _list_members(_get_any_case(selection, "Routes"))),
    ):
        if isinstance(signal, str) and signal:
            yield signal


def _has_other_routes(selection: Any) -> bool:
    """Say whether a selection says more than the signals that `tree` writes."""
    states = _get_any_case(_get_any_case(selection, "StateMachine"), "States")
    return selection is not None and not (isinstance(states, dict) and set(states) == {ANY_STATE})


def _list_members(section: Any) -> list[Any]:
    if isinstance(section, dict):
        return list(section.values())
    return section if isinstance(section, list) else []


def _note_no_compaction(parsed: ParsedConfig) -> None:
    """Say what a file without `Compaction` means: nothing is compacted, and no cutover taken."""
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
    **KeyTable(CONFIG_KEYS).paths,
    **{k.parameter: f"Agents[].{k.path}" for k in (*AGENT_CONFIG_KEYS, WINDOW_KEY)},
    "routing_signals": "Selection.StateMachine.States[].Transitions[].Signal",
}
CONFIG = ConfigFormat(
    "fuseraft",
    "orchestration.yaml",
    weigh_config,
    read_config,
    to_config_tree,
    KEY_PATHS,
    one_agent=False,
)
