"""Measure the share of tool messages, which fuseraft's TextOnly hides from the next agent.

``python docs/view_savings.py FOLDER`` reads a folder of sessions and prints one line per program,
and one for all, with the figures of docs/teams.md and notebook 11. Counts are o200k tokens.
"""

from __future__ import annotations

import sys
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

import ctxkit as ck
from ctxkit.metrics.team_agent_logs_and_turns import render_for_peers
from ctxkit.session.messages import OTHER_AGENT_CALL_KIND
from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    from ctxkit.session.session import Session

MIN_TOOL_CALLS = 10
"""Sessions with fewer tool calls are left out."""


class ToolMessageShares(NamedTuple):
    """Shares of tool messages in the first prompt of an agent that continues a session."""

    product: str
    history: float
    """As a share of the history that the agent receives."""
    prompt: float | None
    """As a share of the history with the fixed part of the recorded prompts; None: unknown."""


def measure_shares(session: Session) -> ToolMessageShares | None:
    """Return the shares of one session; None if it has too few tool calls."""
    if (
        not session.has_text
        or sum(len(message.tool_calls) for message in session.messages) < MIN_TOOL_CALLS
    ):
        return None
    count = default_counter()
    messages = list(render_for_peers(session.agent, session.messages))
    user_tokens = sum(
        count.message(message)
        for message in session.messages
        if message.role == "user" and message.visible
    )
    tool_tokens = sum(
        count.message(message) for message in messages if message.kind == OTHER_AGENT_CALL_KIND
    )
    history_tokens = (
        user_tokens
        + tool_tokens
        + sum(
            count.message(message) for message in messages if message.kind != OTHER_AGENT_CALL_KIND
        )
    )
    fixed_tokens = measure_sizes(session).fixed
    prompt_share = tool_tokens / (history_tokens + fixed_tokens) if fixed_tokens else None
    return ToolMessageShares(
        session.product or session.format, tool_tokens / history_tokens, prompt_share
    )


def measure_folder(folder: str) -> list[ToolMessageShares]:
    """Return the shares of each session of a folder that has enough tool calls."""
    sessions = ck.read_all(folder, progress=False)
    return [shares for session in sessions if (shares := measure_shares(session)) is not None]


def main(folder: str) -> None:
    """Print one line per program, and one for all sessions."""
    shares = measure_folder(folder)
    for product in sorted({share.product for share in shares}):
        values = [share.history for share in shares if share.product == product]
        _print_line(product, values)
    for name, values in (
        ("all: of the history", [share.history for share in shares]),
        ("all: of the prompt", [share.prompt for share in shares if share.prompt is not None]),
    ):
        low, _, high = quantiles(values, n=4)
        _print_line(
            name,
            values,
            f"; quartiles {low:.0%} and {high:.0%}, {sum(x >= 0.9 for x in values)} >= 90 %",
        )


def _print_line(name: str, values: list[float], suffix: str = "") -> None:
    summary = f"{min(values):.0%} to {max(values):.0%}, median {median(values):.0%}"
    sys.stdout.write(f"{name:20} {len(values):3} sessions: {summary}{suffix}\n")


if __name__ == "__main__":
    main(sys.argv[1])
