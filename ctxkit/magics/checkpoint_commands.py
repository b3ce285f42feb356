"""`%context` subcommands for checkpoints: budget, diff, branch, restore, reset."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ctxkit._internal.formatting_and_sanitizing import pluralize, sanitize_line
from ctxkit.errors import BadArguments
from ctxkit.magics.line_parser import positional_field
from ctxkit.magics.session_report_commands import (
    SESSIONS_TASK,
    TIME_TASK,
    LiveSessionArguments,
    SessionArguments,
)
from ctxkit.magics.subcommand_dispatch import PreformattedText, Subcommand

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.magics.kernel_sessions import KitState
    from ctxkit.plots.chart import Chart


@dataclass(frozen=True)
class CompactionDiffArguments(SessionArguments):
    """The line of `%context diff`."""

    compaction: int = positional_field(
        "number of the compaction, from 0; negatives from the end", default=-1
    )


@dataclass(frozen=True)
class CheckpointRestoreArguments(LiveSessionArguments):
    """The line of `%context restore`."""

    checkpoint: int = positional_field("number of the checkpoint, from 0; negatives from the end")


@dataclass(frozen=True)
class CheckpointBranchArguments(SessionArguments):
    """The line of `%context branch`."""

    checkpoint: int = positional_field("number of the checkpoint, from 0; negatives from the end")
    name: str | None = positional_field("name of the new session", default=None)


def show_cumulative_input_chart(kit: KitState, arguments: SessionArguments) -> Chart:
    """Return the chart of cumulative input."""
    from ctxkit.plots.cumulative_agent_input_and_threshold_charts import budget as chart

    return chart(kit.session(arguments.session))


def show_compaction_diff_chart(kit: KitState, arguments: CompactionDiffArguments) -> Chart:
    """Return what a compaction did, message by message."""
    from ctxkit.plots.compaction_diff_chart import diff as chart

    return chart(kit.session(arguments.session), arguments.compaction)


def list_session_checkpoints(kit: KitState, arguments: SessionArguments) -> pd.DataFrame:
    """Return one row a checkpoint."""
    import pandas as pd

    from ctxkit._internal.data_frame_display import (
        DisplayColumn,
        FramePreviewRenderer,
        with_display,
    )
    from ctxkit.agent.session_log import list_checkpoints

    checkpoints = list_checkpoints(kit.session(arguments.session))
    times = (c.time for c in checkpoints)
    columns = {
        "tokens": [c.tokens for c in checkpoints],
        "trigger": [sanitize_line(c.trigger or "", 40) for c in checkpoints],
        "time": [None if at is None else datetime.fromtimestamp(at, UTC) for at in times],
        "stands": [c.stands for c in checkpoints],
        "entry": [c.entry for c in checkpoints],
        "branch": [f"%context branch {c.number}" for c in checkpoints],
        "restore": [f"%context restore {c.number}" for c in checkpoints],
    }
    table = pd.DataFrame(
        columns, index=pd.Index([c.number for c in checkpoints], name="checkpoint")
    )
    text = (
        *(
            DisplayColumn("checkpoint", "checkpoint", "count"),
            DisplayColumn("time", "time", "when"),
        ),
        DisplayColumn("tokens", "tokens", "count", "of the prompt before the compaction"),
        *(DisplayColumn("trigger", "trigger"), DisplayColumn("stands", "stands", "yes")),
        DisplayColumn("branch", "Branch", hover="opens a session of its own from here"),
        DisplayColumn("restore", "Restore", hover="goes back; what came after stays in the log"),
    )
    return with_display(table, FramePreviewRenderer(text, _describe_checkpoints))


def _describe_checkpoints(table: pd.DataFrame) -> str:
    if table.empty:
        return "No compaction yet, so there is nothing to go back to."
    last = table.index[-1]
    return (
        f"{pluralize(len(table), 'checkpoint')}, each before a compaction: %context restore {last}"
        " goes back to the last."
    )


def restore_checkpoint(kit: KitState, arguments: CheckpointRestoreArguments) -> PreformattedText:
    """Go back to a checkpoint; what came after stays in the log."""
    from ctxkit.agent.session_log import get_checkpoint

    live = kit.lives.get(arguments.session)
    kit.lives.check_idle(live.name)
    place = get_checkpoint(live.session, arguments.checkpoint)
    session = live.restore(place.number)
    kit.sessions.add(session, live.name)
    used = live.agent.gauge()[0]
    return PreformattedText(
        f"Session {live.name} stands before compaction {place.number}: {used:,} tokens. Nothing was"
        " lost."
    )


def branch_session_at_checkpoint(
    kit: KitState, arguments: CheckpointBranchArguments
) -> PreformattedText:
    """Make a session of its own that is at a checkpoint; the old one stays as it is.

    Args:
        arguments: the checkpoint, and the new session's name.

    Returns:
        A sentence that names the new session and says whether it can be continued at once.

    Raises:
        BadArguments: the checkpoint lies before the first message.
    """
    from ctxkit.agent.session_log import get_checkpoint

    session = kit.session(arguments.session)
    place = get_checkpoint(session, arguments.checkpoint)
    if place.entry < 0:
        raise BadArguments(
            "That checkpoint lies before the first message; there is nothing to branch from."
        )
    name = (
        arguments.name or f"{arguments.session or kit.sessions.active_name}-branch-{place.number}"
    )
    moved = session.branch(place.entry)
    live = kit.add_branch(name, moved, arguments.session or kit.sessions.active_name)
    readiness = "live" if live else "active; name a model (`--model`) to go on"
    return PreformattedText(
        f"Session {name} stands before compaction {place.number} and is {readiness}: `%%agent"
        f" --session {name}`."
    )


def reset_live_session(kit: KitState, arguments: LiveSessionArguments) -> PreformattedText:
    """Begin a fresh session under the old one's name; the old one is kept under another."""
    live = kit.lives.get(arguments.session)
    kit.lives.check_idle(live.name)
    name, settings = live.name, live.settings
    stored_name = kit.set_aside(live)
    kit.lives.open(name, **settings)
    return PreformattedText(f"Session {name} is fresh. The old one is kept as {stored_name}.")


CHECKPOINT_SUBCOMMANDS = (
    Subcommand(
        "diff",
        "What one compaction did, message by message.",
        CompactionDiffArguments,
        show_compaction_diff_chart,
        TIME_TASK,
    ),
    Subcommand(
        "budget",
        "The chart of cumulative input: `%context turns --chart`.",
        SessionArguments,
        show_cumulative_input_chart,
        TIME_TASK,
        hidden=True,
    ),
    Subcommand(
        "checkpoints",
        "The places before each compaction, to which one can go back.",
        SessionArguments,
        list_session_checkpoints,
        TIME_TASK,
        hidden=True,
    ),
    Subcommand(
        "branch",
        "Make a new session that stands at a checkpoint.",
        CheckpointBranchArguments,
        branch_session_at_checkpoint,
        TIME_TASK,
        hidden=True,
    ),
    Subcommand(
        "restore",
        "Go back to a checkpoint; what came after stays in the log.",
        CheckpointRestoreArguments,
        restore_checkpoint,
        TIME_TASK,
        hidden=True,
    ),
    Subcommand(
        "reset",
        "Begin a fresh session; the old one is kept.",
        LiveSessionArguments,
        reset_live_session,
        SESSIONS_TASK,
        hidden=True,
    ),
)
