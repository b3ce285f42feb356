"""Turns of an ACP agent whose event loop ends before the agent has said all."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from waiting import PATIENCE

from ctxkit.agent.acp_client import _QUEUE_SIZE, AcpClient

PROGRAM = Path(__file__).parents[1] / "outside" / "acp_agent.py"


def test_messages_for_a_turn_whose_loop_has_ended_are_dropped_and_the_next_turn_is_answered():
    agent = AcpClient([sys.executable, str(PROGRAM), "chatty"])  # says more than a queue holds
    prompt = [{"type": "text", "text": "Do it"}]

    async def leave_a_turn_with_a_full_queue():
        await agent.open("/")
        queue = agent.begin_turn()
        await agent.prompt(prompt)
        while len(queue) < _QUEUE_SIZE:  # noqa: ASYNC110  a queue has no event for it
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert len(queue) == _QUEUE_SIZE
        return queue

    async def take_a_turn():
        queue = agent.begin_turn()
        await agent.prompt(prompt)
        messages = [await queue.get()]
        while "method" in messages[-1]:
            messages.append(await queue.get())
        return messages

    try:
        left = asyncio.run(asyncio.wait_for(leave_a_turn_with_a_full_queue(), PATIENCE))
        *updates, answer = asyncio.run(asyncio.wait_for(take_a_turn(), PATIENCE))
        assert answer["result"] == {"stopReason": "end_turn"}
        assert {u["method"] for u in updates} <= {"session/update"}
        assert not len(left)
    finally:
        agent.close()
