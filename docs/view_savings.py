"""How much of what was said is tool frames: what an agent that comes last is spared by TextOnly.

Run: ``python docs/view_savings.py FOLDER`` on a folder of sessions; it prints a line a program and
what holds of all, as docs/guide-live.md and notebook 11 say it. Counts are o200k tokens.
"""

from __future__ import annotations

import sys
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

import ctxkit as ck
from ctxkit.metrics.team_log import render_for_peers
from ctxkit.session.messages import OTHER_AGENT_CALL_KIND
from ctxkit.tokens.message_sizes import measure_sizes
from ctxkit.tokens.token_counters import default_counter

if TYPE_CHECKING:
    from ctxkit.session.session import Session

LEAST = 10
"""Tool calls below which a session says nothing of tool noise."""


class Spared(NamedTuple):
    """What TextOnly leaves out of the first prompt of an agent that comes after a session."""

    product: str
    history: float
    """As a share of all that was said before."""
    prompt: float | None
    """As a share of that and of the fixed part that the record's own prompts had."""


def spared(session: Session) -> Spared | None:
    """Return it for one session; None where it has too few tool calls."""
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
    """Return it for each session of a folder that says something of tool noise."""
    read = ck.read_all(folder, progress=False)
    return [found for each in read if (found := spared(each)) is not None]


def main(folder: str) -> None:
    """Print a line a product, and what holds of all."""
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
