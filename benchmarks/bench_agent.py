"""CPU time that the kit itself takes in a live turn: each call of a session of 1,000 messages, in
memory and on disk.

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
from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
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


class InstantModel:
    """A model that answers at once with a tool call, and notes the CPU time at each request."""

    name, notice, context_window = "bench/instant", "scripted for the benchmark", None

    def __init__(self) -> None:
        self.request_times: list[float] = []
        self._ids = count()

    async def __call__(self, request: Request, emit: Emit) -> Message:  # noqa: ARG002  a model's signature
        self.request_times.append(time.process_time())
        call = ToolCall(f"c{next(self._ids)}", "give", {"n": len(self.request_times)})
        usage = Usage(input_tokens=10, output_tokens=5)
        return Message(
            role="assistant", parts=(Text("Reading on."), call), stop="tool", usage=usage
        )


def measure_steps(rules: Rules, *, on_disk: bool) -> list[float]:
    """Return the milliseconds from each request to the next.

    In between, the reply is stored, the tool runs and the next call is prepared.
    """
    model, limits = InstantModel(), Limits(calls=CALLS)
    rules = rules.but(counter=get_counter("chars/4"))
    settings: dict[str, Any] = {
        "model": model,
        "rules": rules,
        "clock": time.time,
        "limits": limits,
    }
    with tempfile.TemporaryDirectory() as folder:
        if on_disk:
            with LiveSession(
                "bench", tools=[tool(give)], workspace=Workspace(folder), **settings
            ) as live:
                asyncio.run(live.turn("Read everything."))
                messages_n = len(live.session.messages)
        else:
            agent = Agent(Session(id="bench"), tools=[tool(give)], **settings)
            asyncio.run(agent.turn("Read everything."))
            messages_n = len(agent.session.messages)
    assert messages_n >= 2 * CALLS  # every reply and every result is there
    return [
        (b - a) * 1000 for a, b in zip(model.request_times, model.request_times[1:], strict=False)
    ]


def run() -> list[dict[str, Any]]:
    """Return two rows for each rules and storage: against the limit, and late against early."""
    rows = []
    for name, rules in RULES.items():
        for storage in ("memory", "disk"):
            steps = [measure_steps(rules, on_disk=storage == "disk") for _ in range(3)]
            early = statistics.median(ms for run_steps in steps for ms in run_steps[50:100])
            late = statistics.median(ms for run_steps in steps for ms in run_steps[-50:])
            description = (
                f"a call of an agent, {name},"
                f" {'with its files on disk' if storage == 'disk' else 'in memory'}"
            )
            rows.append(
                {
                    "name": f"{description}, at 1,000 messages",
                    "ours": late,
                    "peer": LIMIT_MS,
                    "ratio": late / LIMIT_MS,
                    "goal": "<= 1",
                    "unit": "ms",
                }
            )
            rows.append(
                {
                    "name": f"{description}, at 1,000 against 150 messages",
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
