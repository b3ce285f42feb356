"""An agent as another's tool: it works in its own session, and only its answer is heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ctxkit.policies.rules import Rules
from ctxkit.teams.filters import OwnTurns
from ctxkit.tools.tool import Tool, tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.agent.live import LiveSession

SUFFIX = "sub"
"""Behind the name of the agent that it works for."""
INSTRUCTIONS = (
    "You are asked by another agent. Look for what it asks, change nothing, and answer in a few "
    "lines with paths and facts: it reads your answer, and nothing else that you do."
)
RULES = Rules(name="each question anew", pruning=OwnTurns())
"""Each question begins without the ones before."""


class Tells(Protocol):
    """Is told what a sub-agent does."""

    def __call__(self, kind: str, payload: Mapping[str, object], agent: str, /) -> None:
        """Take an event of the agent that it works for."""


class SubAgent:
    """Works for one agent of a team; its session is opened once that of its agent is.

    Args:
        agent: for whom it works.
        tell: is told when it begins and ends.
    """

    def __init__(self, agent: str, tell: Tells) -> None:
        self.agent, self._tell = agent, tell
        self.live: LiveSession | None = None

    def tools(self) -> list[Tool]:
        """Return the tools by which it is asked, under fuseraft's names."""

        async def sub_agent_explore(query: str) -> str:
            """Let another agent look into a broad question, and get its answer."""
            return await self._ask(query, "explore")

        async def sub_agent_locate(query: str) -> str:
            """Let another agent find where something is, and get its answer."""
            return await self._ask(query, "locate")

        return [tool(sub_agent_explore), tool(sub_agent_locate)]

    async def _ask(self, query: str, mode: str) -> str:
        assert self.live is not None  # noqa: S101  it is opened with the session of its agent
        live, begun = self.live, len(self.live.session.calls)
        self._tell("sub_agent_start", {"query": query, "mode": mode}, self.agent)
        played = getattr(live.agent.model, "begin", None)
        if callable(played):
            asked = sum(m.role == "user" for m in live.session.messages)
            played(asked)
        outcome = await live.turn(query)
        used = [c.message.usage for c in live.session.calls[begun:] if c.message.usage]
        told = {"outcome": outcome.ended, "summary_chars": len(outcome.text), "mode": mode,
                "input_tokens": sum(u.prompt_tokens or 0 for u in used),
                "output_tokens": sum(u.output_tokens or 0 for u in used)}  # fmt: skip
        self._tell("sub_agent_end", told, self.agent)
        return outcome.text or f"No answer: {outcome.why or outcome.ended}"


ASKING = tuple(SubAgent("", lambda _, __, ___: None).tools())
"""The tools of an agent that may ask another, as a model is told of them."""
