"""Prunings to hold to the contract of schedules, each a chain of parts."""

from __future__ import annotations

from ctxkit.policies.adaptive import AdaptiveTrim
from ctxkit.policies.budget import Budget
from ctxkit.policies.clear import Clear
from ctxkit.policies.digest import Digest, Excerpts
from ctxkit.policies.idle import CacheTtl
from ctxkit.policies.intermediate import Intermediate
from ctxkit.policies.offload import Offload
from ctxkit.policies.pairs import ToolPairs
from ctxkit.policies.shorten import ConsumedReads, Outputs, Replies, Results
from ctxkit.policies.tombstones import Tombstones

EAGER = {"soft_trim_ratio": 0.01, "hard_clear_ratio": 0.02, "min_prunable_tool_chars": 0}
SHORT = {"soft_trim_max_chars": 300, "soft_trim_head_chars": 50, "soft_trim_tail_chars": 50}

PARTS = {
    "clear": (Clear(keep_last=3),),
    "clear polling": (Clear(keep_last=3, polling=5),),
    "clear at_least": (Clear(keep_last=3, at_least=400),),
    "clear min_chars": (Clear(keep_last=2, min_chars=500, deny=("shell",)),),
    "clear in lines": (Clear(keep_last=2, placeholder="({lines} lines omitted)"),),
    "pairs": (ToolPairs(keep_pairs=2),),
    "pairs in steps": (ToolPairs(keep_pairs=3, step=4, from_chars=9000),),
    "results": (Results(max_chars=500, consumed_chars=100),),
    "results by tool": (
        Results(max_chars=300, overrides={"shell": 0, "read_file": 900}, consumed_chars=-1),
    ),
    "consumed reads": (ConsumedReads(max_chars=20),),
    "replies": (Replies(max_chars=100),),
    "replies but the last": (Replies(max_chars=100, keep_last=2),),
    "outputs": (Outputs(max_lines=20, max_chars=3000),),
    "excerpts": (Excerpts(keep_last=3),),
    "digest": (Digest(keep_last=3),),
    "digest in short": (Digest(keep_last=0, line_chars=4),),
    "intermediate": (Intermediate(max_chars=40),),
    "offload": (Offload(threshold=300),),
    "tombstones": (Tombstones(max_tokens=300, keep_last=4, manifest=False),),
    "tombstones with manifest": (Tombstones(max_tokens=300, keep_last=4),),
    "budget": (Budget(max_chars=9000),),
    "budget that never fits": (Budget(max_chars=900, step=2),),
    "adaptive trim": (AdaptiveTrim(stages=(900, 100), consumed_chars=50),),
    "cache ttl": (CacheTtl(ttl_seconds=20, keep_last_assistants=1, **EAGER),),
    "cache ttl at each call": (
        CacheTtl(ttl_seconds=0, keep_last_assistants=0, deny=("shell",), **EAGER | SHORT),
    ),
    "cache ttl, little": (CacheTtl(ttl_seconds=0, hard_clear_ratio=0.2, soft_trim_ratio=0.1, **SHORT),),
    "clear, cache ttl, budget": (
        Clear(keep_last=6, polling=3),
        CacheTtl(ttl_seconds=20, keep_last_assistants=2, **EAGER),
        Budget(max_chars=5000, step=3),
    ),
    "last resort, then others": (
        AdaptiveTrim(stages=(900, 100)),
        CacheTtl(ttl_seconds=0, keep_last_assistants=2, **EAGER | SHORT),
        Results(max_chars=300, consumed_chars=60),
        Tombstones(max_tokens=200, keep_last=3),
        Digest(keep_last=2),
        Budget(max_chars=4000),
    ),
    "a budget, then others": (
        Budget(max_chars=9000, step=2),
        Clear(keep_last=5, at_least=300),
        Excerpts(keep_last=4),
        ConsumedReads(max_chars=20),
        Replies(max_chars=50, keep_last=1),
        Intermediate(max_chars=20),
    ),
    "outputs and excerpts": (Outputs(max_lines=20, max_chars=900), Excerpts(keep_last=3)),
    "fuseraft": (
        Offload(threshold=3000),
        Results(max_chars=900, consumed_chars=100),
        Replies(max_chars=100),
        Tombstones(max_tokens=400, keep_last=5),
        Intermediate(max_chars=40),
        ToolPairs(keep_pairs=3, step=4, from_chars=3000),
        Budget(max_chars=6000),
        AdaptiveTrim(stages=(400, 60)),
    ),
    "clear and pairs": (Clear(keep_last=4, at_least=500), ToolPairs(keep_pairs=2, from_chars=4000)),
}
