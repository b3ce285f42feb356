"""What the kit itself costs in a live turn: each call of a session of 1,000 messages, in memory and
on disk.

The peer of half of the rows is the project's own limit of 2 ms for a decision; that of the others
is the same session when it was short. With everything on disk the limit is the same: a reply, a
result and seven events are written.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from ctxkit.agent import Agent, Limits
from ctxkit.agent.ctxkit_folder_and_trust import Workspace
from ctxkit.agent.live_session import LiveSession
from ctxkit.agent.tools.tool import tool
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.policies.summary_compaction import Summary
from ctxkit.policies.triggers import Above, Share
from ctxkit.session.messages import Message, Text, ToolCall, Usage
from ctxkit.session.session import Session
from ctxkit.tokens import get_counter

if TYPE_CHECKING:
    from ctxkit.agent.models.model import Emit, Request

LIMIT_MS = 2.0
CALLS = 500  # each with its reply and one result: 1,000 messages
RULES = {
    "never compacted": Rules(
        policy=Summary(keep_share=0.3), trigger=Share(0.75), window=10_000_000
    ),
    "compacted often": Rules(
        policy=Summary(keep_tokens=4_000), trigger=Above(12_000), window=200_000
    ),
}


async def give(n: int = 0) -> str:
    """Give some words."""
    return f"line {n} of a file that was read\n" * 6


class Instant:
    """Answers at once with a tool call, and notes the CPU time at each request."""

    name, notice, context_window = "bench/instant", "scripted for the benchmark", None

    def __init__(self) -> None:
        self.at: list[float] = []
        self._ids = count()

    async def __call__(self, request: Request, emit: Emit) -> Message:  # noqa: ARG002  a model's signature
        self.at.append(time.process_time())
        call = ToolCall(f"c{next(self._ids)}", "give", {"n": len(self.at)})
        usage = Usage(input_tokens=10, output_tokens=5)
        return Message(
            role="assistant", parts=(Text("Reading on."), call), stop="tool", usage=usage
        )


def steps(rules: Rules, *, disk: bool) -> list[float]:
    """Return the milliseconds from each request to the next: reply kept, tool run, next call
    prepared.
    """
    model, limits = Instant(), Limits(calls=CALLS)
    rules = rules.but(counter=get_counter("chars/4"))
    common: dict[str, Any] = {"model": model, "rules": rules, "clock": time.time, "limits": limits}
    with tempfile.TemporaryDirectory() as folder:
        if disk:
            with LiveSession(
                "bench", tools=[tool(give)], workspace=Workspace(folder), **common
            ) as live:
                asyncio.run(live.turn("Read everything."))
                said = len(live.session.messages)
        else:
            agent = Agent(Session(id="bench"), tools=[tool(give)], **common)
            asyncio.run(agent.turn("Read everything."))
            said = len(agent.session.messages)
    assert said >= 2 * CALLS  # every reply and every result is there
    return [(b - a) * 1000 for a, b in zip(model.at, model.at[1:], strict=False)]


def run() -> list[dict[str, Any]]:
    """Return the rows."""
    rows = []
    for name, rules in RULES.items():
        for where in ("memory", "disk"):
            taken = [steps(rules, disk=where == "disk") for _ in range(3)]
            early = statistics.median(t for ts in taken for t in ts[50:100])
            late = statistics.median(t for ts in taken for t in ts[-50:])
            what = (
                f"a call of an agent, {name},"
                f" {'with its files on disk' if where == 'disk' else 'in memory'}"
            )
            rows.append(
                {
                    "name": f"{what}, at 1,000 messages",
                    "ours": late,
                    "peer": LIMIT_MS,
                    "ratio": late / LIMIT_MS,
                    "goal": "<= 1",
                    "unit": "ms",
                }
            )
            rows.append(
                {
                    "name": f"{what}, at 1,000 against 150 messages",
                    "ours": late,
                    "peer": early,
                    "ratio": late / early,
                    "goal": "<= 2",
                    "unit": "ms",
                }
            )
    return rows


if __name__ == "__main__":
    for row in run():
        print(row)
