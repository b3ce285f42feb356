"""The tools that only a team has: handing on, the summary handed on, another agent's help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.teams.handoffs import SUMMARY_FILE
from ctxkit.tools.tool import Tool, tool

if TYPE_CHECKING:
    from ctxkit.tools.root import Root

HANDOFF_TOOL = "handoff"


def handoff(route_keyword: str) -> str:
    """Hand the work on with one of the signals that were named; end your turn after it."""
    return f"Noted: {route_keyword}. End your turn now."


def team_tools(root: Root, *, by_call: bool, summary: bool) -> list[Tool]:
    """Return the tools of one agent.

    Args:
        root: the team's folder.
        by_call: True where it may hand on by a call.
        summary: True where the team's sources read the summary.
    """

    def session_context_write(text: str) -> str:
        """Write the summary that the next agent is handed, in place of the last one."""
        root.write(SUMMARY_FILE, text.encode())
        return "Written."

    found = [tool(handoff)] if by_call else []
    return [*found, tool(session_context_write)] if summary else found
