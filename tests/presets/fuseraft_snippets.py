"""The configuration snippets of fuseraft's document, built again: same keys, other names and values.

Each is a file of its own, with the settings that rules take from it.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Snippet(NamedTuple):
    """One file."""

    text: str
    settings: dict[str, Any] = {}
    of_team: tuple[str, ...] = ()
    """Keys that a team obeys, and rules do not hold."""


def agent(name: str, *lines: str) -> str:
    return "\n".join(["Agents:", f"  - Name: {name}", *(f"    {line}" for line in lines), ""])


def section(name: str, *lines: str) -> str:
    return "\n".join([f"{name}:", *(f"  {line}" for line in lines), ""])


SNIPPETS = {
    "memory of an agent": Snippet(
        agent("Coder", "EnableMemory: true", "Instructions: |", "  Write Rust.", "  Test it."),
        of_team=("Agents.Coder.EnableMemory",),
    ),
    "memory asked each turn": Snippet(
        section("Memory", "Provider: webhook   # or local"), of_team=("Memory",)
    ),
    "every filter of a window": Snippet(
        agent("Judge", "ContextWindow:", "  TextOnly: true", "  ExcludeAgents:", "    - Runner",
              "  MaxTurnAge: 4", "  MaxTailMessages: 30", "  ContextCapFraction: 0.7",
              "  MaxToolResultChars: 6000", "  ToolResultCharOverrides:", "    search_content: 15000",
              "    grep_file: 0", "  MaxReplayChars: 3000"),
        {"text_only": True, "exclude_agents": ("Runner",), "max_turn_age": 4, "max_tail_messages": 30,
         "context_cap_fraction": 0.7, "max_tool_result_chars": 6000, "max_replay_chars": 3000,
         "tool_result_char_overrides": {"search_content": 15000, "grep_file": 0}},
    ),
    "length of replies": Snippet(
        agent("Coder", "ContextWindow:", "  MaxReplayChars: 5000   # of each reply"),
        {"max_replay_chars": 5000},
    ),
    "length of results": Snippet(
        agent("Coder", "ContextWindow:", "  MaxToolResultChars: 9000", "  ToolResultCharOverrides:",
              "    search_content: 12000"),
        {"max_tool_result_chars": 9000, "tool_result_char_overrides": {"search_content": 12000}},
    ),
    "a hand-off with sources": Snippet(
        section("Transitions", "- To: Checking", "  Signal: OVER TO CHECKING", "  Contract: Built",
                "  HandoffContext:", "    - Source: session_context", "    - Source: changes_recent",
                "    - Source: brief_field:test_targets"),
        {"routing_signals": ("OVER TO CHECKING",)}, ("Transitions",),
    ),
    "a declared context": Snippet(
        agent("Checker", "Context:", "  - Source: session_context", "  - Source: changes_recent:3",
              "  - Source: brief_field:test_targets", "  - Source: brief_field:build_command",
              "  - Source: own_history:2"),
        of_team=("Agents.Checker.Context",),
    ),
    "the trigger": Snippet(
        section("Compaction", "TriggerTurnCount: 60", "KeepRecentTurns: 12"),
        {"trigger_turn_count": 60, "keep_recent_turns": 12},
    ),
    "a cheaper model for summaries": Snippet(
        section("Compaction", "TriggerTurnCount: 60", "KeepRecentTurns: 12", "Mode: hybrid", "Model:",
                "  ModelId: small-model"),
        {"mode": "hybrid"}, ("Compaction.Model",),
    ),
    "blocks before a summary": Snippet(
        section("Compaction", "TriggerTurnCount: 30", "KeepRecentTurns: 6", "Mode: hybrid",
                "IncludeReasoning: true", "IncludeSymbolGraph: false"),
        {"include_reasoning": True, "include_symbol_graph": False},
    ),
    "length of messages for the summariser": Snippet(
        section("Compaction", "TriggerTurnCount: 60", "KeepRecentTurns: 12",
                "MaxCharsPerHistoryMessage: 2500"),
        {"max_chars_per_history_message": 2500},
    ),
    "the guard against thrash": Snippet(
        section("Compaction", "TriggerTurnCount: 25", "KeepRecentTurns: 4",
                "AntiThrashMinSavingsRatio: 0.2", "AntiThrashWindow: 3"),
        {"anti_thrash_min_savings_ratio": 0.2, "anti_thrash_window": 3},
    ),
    "a budget of tokens": Snippet(
        section("ContextBudget", "WarnAt: 70000", "CutoverAt: 110000"),
        {"warn_at": 70000, "cutover_at": 110000},
    ),
    "pairs within a turn": Snippet(
        agent("Coder", "MaxInTurnToolPairs: 10"), {"max_in_turn_tool_pairs": 10}
    ),
    "by the record of what was done": Snippet(
        section("ChangeTracking", "Path: state/changes.json")
        + section("Compaction", "TriggerTurnCount: 30", "KeepRecentTurns: 6", "Mode: intent"),
        {"mode": "intent", "trigger_turn_count": 30},
    ),
    "by state and evidence": Snippet(
        section("Compaction", "TriggerTurnCount: 60", "KeepRecentTurns: 12", "Mode: lossless"),
        {"mode": "lossless"},
    ),
    "a window of tokens": Snippet(
        section("Compaction", "Mode: window", "TokenBudget: 45000"),
        {"mode": "window", "token_budget": 45000},
    ),
    "a reader of text": Snippet(
        agent("Judge", "ContextWindow:", "  TextOnly: true", "  MaxTurnAge: 2"),
        {"text_only": True, "max_turn_age": 2},
    ),
    "a reader without two others": Snippet(
        agent("Comptroller", "ContextWindow:", "  ExcludeAgents:", "    - Coder", "    - Checker",
              "  MaxTailMessages: 15"),
        {"exclude_agents": ("Coder", "Checker"), "max_tail_messages": 15},
    ),
    "budget and compaction": Snippet(
        section("ContextBudget", "WarnAt: 70000", "CutoverAt: 110000")
        + section("Compaction", "TriggerTurnCount: 30", "KeepRecentTurns: 6", "Mode: intent"),
        {"cutover_at": 110000, "mode": "intent"},
    ),
    "files and one's own work alone": Snippet(
        agent("Checker", "Context:", "  - Source: session_context", "  - Source: changes_recent:3",
              "  - Source: brief_field:test_targets", "  - Source: own_history:2",
              "    MaxChars: 6000"),
        of_team=("Agents.Checker.Context",),
    ),
    "pairs of an agent that acts": Snippet(
        agent("Operator", "MaxInTurnToolPairs: 16"), {"max_in_turn_tool_pairs": 16}
    ),
}  # fmt: skip
