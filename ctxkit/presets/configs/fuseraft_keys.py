"""The documented keys of fuseraft's orchestration file, and which of them are settings.

Read in its docs/configuration.md at 0466927, and in the code where that is silent.
"""

from __future__ import annotations

from ctxkit.presets.configs.key_tables import Key, KeyTable, listed
from ctxkit.presets.configs.values import COUNTS, FLAG, NAMES, NUMBER, POSITIVE, TEXT, WHOLE, choice

AGENT_KEYS = (
    Key("ContextWindow.TextOnly", "text_only", FLAG),
    Key("ContextWindow.ExcludeAgents", "exclude_agents", NAMES),
    Key("ContextWindow.MaxTurnAge", "max_turn_age", WHOLE),
    Key("ContextWindow.MaxTailMessages", "max_tail_messages", WHOLE),
    Key("ContextWindow.ContextCapFraction", "context_cap_fraction", NUMBER),
    Key("ContextWindow.MaxToolResultChars", "max_tool_result_chars", WHOLE),
    Key("ContextWindow.ToolResultCharOverrides", "tool_result_char_overrides", COUNTS),
    Key("ContextWindow.MaxReplayChars", "max_replay_chars", WHOLE),
    Key("MaxInTurnToolPairs", "max_in_turn_tool_pairs", WHOLE),
    Key("MaxInTurnContextTokens", "max_in_turn_context_tokens", WHOLE),
)
AGENT_ELSEWHERE = listed(
    "Context Isolation KnowledgeWeight SkipExecutionState EnableMemory Produces Requires"
    " RemoteAgent AgentFile SubAgentModel SubAgentPlugins SubAgentMaxToolCalls"
)
AGENT_SILENT = listed(
    "Name Description Instructions Plugins Capabilities Model FunctionChoice TrustScore"
    " MaxToolCallsPerTurn"
)
AGENT = KeyTable(AGENT_KEYS, AGENT_ELSEWHERE, AGENT_SILENT, any_case=True, open=frozenset())
KEYS = (
    Key("ContextBudget.WarnAt", "warn_at", WHOLE),
    Key("ContextBudget.CutoverAt", "cutover_at", WHOLE),
    Key("ContextBudget.MaxSingleTurnInputTokens", "max_single_turn_input_tokens", WHOLE),
    Key("ContextBudget.MaxToolResultTokens", "max_tool_result_tokens", WHOLE),
    Key("ContextBudget.InTurnToolWindow", "in_turn_tool_window", WHOLE),
    Key("Compaction.Mode", "mode", choice("llm", "intent", "lossless", "hybrid", "window")),
    Key("Compaction.TriggerTurnCount", "trigger_turn_count", WHOLE),
    Key("Compaction.KeepRecentTurns", "keep_recent_turns", WHOLE),
    Key("Compaction.TokenBudget", "token_budget", WHOLE),
    Key("Compaction.IncludeReasoning", "include_reasoning", FLAG),
    Key("Compaction.IncludeSymbolGraph", "include_symbol_graph", FLAG),
    Key("Compaction.IncludeExploration", "include_exploration", FLAG),
    Key("Compaction.SummaryTemplate", "summary_template", TEXT),
    Key("Compaction.MaxCharsPerHistoryMessage", "max_chars_per_history_message", WHOLE),
    Key("Compaction.AntiThrashMinSavingsRatio", "anti_thrash_min_savings_ratio", NUMBER),
    Key("Compaction.AntiThrashWindow", "anti_thrash_window", WHOLE),
)
ELSEWHERE = listed(
    "Compaction.Model Memory MaxTotalTokens WarnTurnTokens Validation ChangeTracking EvidenceStore"
    " Checkpoint Contracts Verifier FailureHandling Termination Scratchpad Chatroom Saga"
    " Brownfield TestSelector SkillCuration SystemPrompt SystemPromptPath"
)
SILENT = listed(
    "SchemaVersion Name Description Models Agents Selection Compaction.PinLastRoutingSignal"
    " Security McpServers Telemetry ApiProfiles Events Output"
)
TABLE = KeyTable(
    KEYS + AGENT_KEYS,
    ELSEWHERE | AGENT_ELSEWHERE,
    SILENT | AGENT_SILENT,
    any_case=True,
    open=frozenset(),
)
WINDOW = Key("Model.MaxContextTokens", "context_window", POSITIVE)
PIN = Key("Compaction.PinLastRoutingSignal", "routing_signals", FLAG)
