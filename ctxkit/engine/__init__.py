"""The engine of live sessions, replays and sweeps: runs, prompts, shared prefixes, billed sizes."""

from ctxkit._internal.lazy import public_dir
from ctxkit.engine.rule_runs import Run, advance, run_rules
from ctxkit.engine.run_conversion import (
    billing_offset,
    call_start_time,
    count_sizes_by_last_usage,
    log_from_session,
    run_of_replay,
    weave_edits,
    with_message_ids,
)
from ctxkit.engine.run_segments import BlockedCompaction, Compaction, PolicyRunEvent

__all__ = [
    "BlockedCompaction",
    "Compaction",
    "PolicyRunEvent",
    "Run",
    "advance",
    "billing_offset",
    "call_start_time",
    "count_sizes_by_last_usage",
    "log_from_session",
    "run_of_replay",
    "run_rules",
    "weave_edits",
    "with_message_ids",
]
__dir__ = public_dir(__all__)
