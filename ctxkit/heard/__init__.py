"""What each agent of a recorded team heard of the others, and whose turn it was when.

A record of several agents is a team's ledger with their sessions as children, a session with
subagents, or one log in which several agents speak.
"""

from __future__ import annotations

from ctxkit.faces import listed
from ctxkit.heard.agent_logs import AgentLog, agent_logs, asked_logs, forks
from ctxkit.heard.team_turns import TeamTurn, cuts_of, recorded_turns, team_turns, turn_table

__all__ = [
    "AgentLog",
    "TeamTurn",
    "agent_logs",
    "asked_logs",
    "cuts_of",
    "forks",
    "recorded_turns",
    "team_turns",
    "turn_table",
]
__dir__ = listed(__all__)
