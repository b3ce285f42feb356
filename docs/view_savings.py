"""Share of tool messages in sessions, which fuseraft's TextOnly hides from the next agent.

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
from ctxkit.tokens.message_sizes import measure_sizes
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    from ctxkit.session.session import Session

LEAST = 10
"""Tool calls below which a session says nothing of tool noise."""


class Spared(NamedTuple):
    """Shares of tool messages in the first prompt of an agent that continues a session."""

    product: str
    history: float
    """As a share of all that was said before."""
    prompt: float | None
    """As a share of that and of the fixed part that the record's own prompts had."""


def spared(session: Session) -> Spared | None:
    """Return the shares of one session; None if it has too few tool calls."""
    if not session.has_text or sum(len(m.tool_calls) for m in session.messages) < LEAST:
        return None
    count = default_counter()
    said = list(render_for_peers(session.agent, session.messages))
    users = sum(count.message(m) for m in session.messages if m.role == "user" and m.visible)
    frames = sum(count.message(m) for m in said if m.kind == OTHER_AGENT_CALL_KIND)
    whole = users + frames + sum(count.message(m) for m in said if m.kind != OTHER_AGENT_CALL_KIND)
    fixed = measure_sizes(session).fixed
    share = frames / (whole + fixed) if fixed else None
    return Spared(session.product or session.format, frames / whole, share)


def of_folder(folder: str) -> list[Spared]:
    """Return the shares of each session of a folder that has enough tool calls."""
    read = ck.read_all(folder, progress=False)
    return [found for each in read if (found := spared(each)) is not None]


def main(folder: str) -> None:
    """Print one line per program, and one for all sessions."""
    found = of_folder(folder)
    for product in sorted({s.product for s in found}):
        of = [s.history for s in found if s.product == product]
        _say(product, of)
    for name, of in (
        ("all: of the history", [s.history for s in found]),
        ("all: of the prompt", [s.prompt for s in found if s.prompt is not None]),
    ):
        low, _, high = quantiles(of, n=4)
        _say(name, of, f"; quartiles {low:.0%} and {high:.0%}, {sum(x >= 0.9 for x in of)} >= 90 %")


def _say(name: str, of: list[float], more: str = "") -> None:
    ends = f"{min(of):.0%} to {max(of):.0%}, median {median(of):.0%}"
    sys.stdout.write(f"{name:20} {len(of):3} sessions: {ends}{more}\n")


if __name__ == "__main__":
    main(sys.argv[1])
