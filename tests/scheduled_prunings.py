"""Prunings to hold to the contract of schedules, each a chain of parts."""

from __future__ import annotations

from ctxkit.policies import (
    UNDO_CHANGE,
    AdaptiveTrim,
    CacheTtl,
    CharacterBudget,
    Clear,
    IntermediateReplyShortening,
    KeepNewestToolPairs,
    MessageCountCap,
    OldResultsDigest,
    OutputShortening,
    PruneToolCalls,
    RepeatedCommands,
    ReplyShortening,
    ResultEvictionOverBudget,
    ResultExcerpts,
    ResultOffload,
    ResultShortening,
    RoleFilter,
    ScheduledPruning,
    StaleReadShortening,
    Superseded,
    Tail,
    TextOnly,
    TrimStage,
    TurnAge,
    WithoutAgents,
    WithoutTools,
    get_role_code,
)
from ctxkit.presets import ClearToolUses, make_history_filters

WRITES = {"writers": ("write_*",), "whole_writers": ("write_*",), "looks": ("read_*", "shell")}
EAGER = {"soft_trim_ratio": 0.01, "hard_clear_ratio": 0.02, "min_prunable_tool_chars": 0}
SHORT = {"soft_trim_max_chars": 300, "soft_trim_head_chars": 50, "soft_trim_tail_chars": 50}

PARTS = {
    "clear": (Clear(keep_last=3),),
    "clear polling": (Clear(keep_last=3, polling=5),),
    "clear at_least": (Clear(keep_last=3, at_least=400),),
    "clear min_chars": (Clear(keep_last=2, min_chars=500, deny=("shell",)),),
    "clear in lines": (Clear(keep_last=2, placeholder="({lines} lines omitted)"),),
    "pairs": (KeepNewestToolPairs(keep_pairs=2),),
    "pairs in steps": (KeepNewestToolPairs(keep_pairs=3, step=4, from_chars=9000),),
    "text only": (TextOnly(),),
    "roles": (RoleFilter(),),
    "roles with tools": (RoleFilter(roles=("user", "tool")),),
    "replies alone": (RoleFilter(roles=("assistant", "tool")),),
    "without agents": (WithoutAgents(agents=("ma*",)),),
    "turn age": (TurnAge(turns=4),),
    "turn age from reply": (TurnAge(turns=3, from_reply=True),),
    "tail": (Tail(messages=9, pin_corrections=False),),
    "tail with corrections": (Tail(messages=6),),
    "text and turn age": (TextOnly(), TurnAge(turns=3)),
    "tail besides the prompt": (Tail(messages=1, besides_prompt=True),),
    "results of the past": (ResultShortening(max_chars=300, consumed_chars=60, past_only=True),),
    "replies of the past": (ReplyShortening(max_chars=50, keep_last=1, past_only=True),),
    "a window of history": (
        ResultOffload(threshold=3000),
        *make_history_filters(
            text_only=True,
            exclude_agents=("dev",),
            max_turn_age=6,
            max_tail_messages=5,
            max_replay_chars=80,
        ),
    ),
    "a window of short results": (
        Clear(keep_last=4),
        *make_history_filters(max_turn_age=9, max_tail_messages=20, max_tool_result_chars=200),
        KeepNewestToolPairs(keep_pairs=3),
    ),
    "tail behind what comes back": (
        PruneToolCalls(tool_calls="before-last-3-messages"),
        Tail(messages=3),
        TurnAge(turns=2),
    ),
    "tails": (Tail(messages=9), TurnAge(turns=3), Tail(messages=4)),
    "tail and pairs": (TurnAge(turns=7), Tail(messages=8), KeepNewestToolPairs(keep_pairs=2)),
    "prune": (PruneToolCalls(tool_calls="before-last-4-messages"),),
    "prune all": (PruneToolCalls(tool_calls="all", reasoning="all"),),
    "prune before the last": (
        PruneToolCalls(
            tool_calls="before-last-message",
            reasoning="before-last-message",
            empty_messages="keep",
        ),
    ),
    "prune by tool": (
        PruneToolCalls(
            tool_calls="before-last-2-messages",
            tools=("read_*", "bash"),
            reasoning="before-last-message",
        ),
    ),
    "cap": (MessageCountCap(max_messages=9),),
    "cap of three": (MessageCountCap(max_messages=3),),
    "cap of one": (MessageCountCap(max_messages=1),),
    "tyrum": (
        PruneToolCalls(tool_calls="before-last-4-messages"),
        MessageCountCap(max_messages=12),
    ),
    "prune behind others": (
        Tail(messages=12),
        KeepNewestToolPairs(keep_pairs=2),
        PruneToolCalls(tool_calls="before-last-2-messages"),
        MessageCountCap(max_messages=6),
    ),
    "prune the rest": (RoleFilter(roles=("user", "tool")), PruneToolCalls(tool_calls="all")),
    "prune twice": (
        PruneToolCalls(tool_calls="before-last-6-messages", tools=("shell",)),
        PruneToolCalls(tool_calls="before-last-3-messages", reasoning="before-last-message"),
    ),
    "superseded": (Superseded(min_chars=0, **WRITES),),
    "superseded by many": (Superseded(min_chars=3000, writers=("*",), whole_writers=("*",)),),
    "superseded, both kinds": (
        Superseded(min_chars=0, writers=("*",), whole_writers=("*",), looks=("read_*", "write_*")),
    ),
    "commands": (RepeatedCommands(tools=("shell", "bash")),),
    "superseded behind others": (
        Clear(keep_last=6, at_least=900),
        Tail(messages=14),
        Superseded(min_chars=2000, **WRITES),
        RepeatedCommands(tools=("shell",)),
        PruneToolCalls(tool_calls="before-last-3-messages"),
    ),
    "uses": (ClearToolUses(trigger=1500, keep=2),),
    "uses with inputs": (
        ClearToolUses(trigger=500, keep=2, exclude=("shell",), clear_inputs=True),
    ),
    "uses if much": (ClearToolUses(trigger=500, keep=1, clear_at_least=800, clear_inputs=True),),
    "uses until enough": (ClearToolUses(trigger=500, keep=1, clear_at_least=800, enough=True),),
    "uses until enough, with inputs": (
        ClearToolUses(
            trigger=500,
            keep=1,
            exclude=("shell",),
            clear_inputs=True,
            clear_at_least=900,
            enough=True,
        ),
    ),
    "uses behind others": (
        Clear(keep_last=5, at_least=900),
        Tail(messages=14),
        ClearToolUses(trigger=300, keep=0, clear_inputs=True, clear_at_least=600, enough=True),
        KeepNewestToolPairs(keep_pairs=3),
    ),
    "results": (ResultShortening(max_chars=500, consumed_chars=100),),
    "results by tool": (
        ResultShortening(
            max_chars=300, overrides={"shell": 0, "read_file": 900}, consumed_chars=-1
        ),
    ),
    "consumed reads": (StaleReadShortening(max_chars=20),),
    "replies": (ReplyShortening(max_chars=100),),
    "replies but the last": (ReplyShortening(max_chars=100, keep_last=2),),
    "outputs": (OutputShortening(max_lines=20, max_chars=3000),),
    "excerpts": (ResultExcerpts(keep_last=3),),
    "digest": (OldResultsDigest(keep_last=3),),
    "digest in short": (OldResultsDigest(keep_last=0, line_chars=4),),
    "intermediate": (IntermediateReplyShortening(max_chars=40),),
    "offload": (ResultOffload(threshold=300),),
    "tombstones": (ResultEvictionOverBudget(max_tokens=300, keep_last=4, manifest=False),),
    "tombstones with manifest": (ResultEvictionOverBudget(max_tokens=300, keep_last=4),),
    "budget": (CharacterBudget(max_chars=9000),),
    "budget that never fits": (CharacterBudget(max_chars=900, step=2),),
    "a stage": (TrimStage(max_chars=400, consumed_chars=60),),
    "untooled": (WithoutTools(),),
    "adaptive trim": (AdaptiveTrim(stages=(900, 100), consumed_chars=50),),
    "cache ttl": (CacheTtl(ttl_seconds=20, keep_last_assistants=1, **EAGER),),
    "cache ttl at each call": (
        CacheTtl(ttl_seconds=0, keep_last_assistants=0, deny=("shell",), **EAGER | SHORT),
    ),
    "cache ttl, little": (
        CacheTtl(ttl_seconds=0, hard_clear_ratio=0.2, soft_trim_ratio=0.1, **SHORT),
    ),
    "clear, cache ttl, budget": (
        Clear(keep_last=6, polling=3),
        CacheTtl(ttl_seconds=20, keep_last_assistants=2, **EAGER),
        CharacterBudget(max_chars=5000, step=3),
    ),
    "last resort, then others": (
        AdaptiveTrim(stages=(900, 100)),
        CacheTtl(ttl_seconds=0, keep_last_assistants=2, **EAGER | SHORT),
        ResultShortening(max_chars=300, consumed_chars=60),
        ResultEvictionOverBudget(max_tokens=200, keep_last=3, manifest=False),
        OldResultsDigest(keep_last=2),
        CharacterBudget(max_chars=4000),
    ),
    "a budget, then others": (
        CharacterBudget(max_chars=9000, step=2),
        Clear(keep_last=5, at_least=300),
        ResultExcerpts(keep_last=4),
        StaleReadShortening(max_chars=20),
        ReplyShortening(max_chars=50, keep_last=1),
        IntermediateReplyShortening(max_chars=20),
    ),
    "outputs and excerpts": (
        OutputShortening(max_lines=20, max_chars=900),
        ResultExcerpts(keep_last=3),
    ),
    "fuseraft": (
        ResultOffload(threshold=3000),
        ResultShortening(max_chars=900, consumed_chars=100),
        ReplyShortening(max_chars=100),
        ResultEvictionOverBudget(max_tokens=400, keep_last=5),
        IntermediateReplyShortening(max_chars=40),
        KeepNewestToolPairs(keep_pairs=3, step=4, from_chars=3000),
        CharacterBudget(max_chars=6000),
        AdaptiveTrim(stages=(400, 60)),
    ),
    "clear and pairs": (
        Clear(keep_last=4, at_least=500),
        KeepNewestToolPairs(keep_pairs=2, from_chars=4000),
    ),
}

BY_ID = [name for name in PARTS if name.startswith(("prune", "cap", "superseded", "comm", "uses"))]
"""Those that look at the ids of tool calls."""


class HideAndGiveBack(ScheduledPruning):
    """Hide some replies with their results while 3 to 7 messages follow, then show them again.

    A part behind it sees messages go away and come back, also results that come late.
    """

    def schedule(self, view, _budget):
        """Hide every other reply once three messages follow, and show it again from eight on."""
        replies = view.memory.setdefault("replies", {})
        groups = view.memory.setdefault("groups", {})
        hidden = view.memory.setdefault("hidden", set())
        news = {new.call: new.arrived for new in view.iter_visibility_changes("assistant", "tool")}
        for call in view.calls():
            for p in news.get(call, ()):
                if view.role(p) == get_role_code("assistant"):
                    groups[p] = [p]
                    replies.update(dict.fromkeys((c.id for c in view.recorded_calls(p)), p))
                elif (asked := view.answered_call(p)) is not None and asked.id in replies:
                    groups[replies[asked.id]].append(p)
            for reply, rows in groups.items():
                hides = reply % 2 == 0 and 3 <= view.count_arrived(call) - reply < 8
                for p in rows:
                    if hides != (p in hidden):
                        view.change(p, None if hides else UNDO_CHANGE, since=call)
                        hidden ^= {p}
