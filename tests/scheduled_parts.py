"""Prunings to hold to the contract of schedules, each a chain of parts."""

from __future__ import annotations

from ctxkit.policies.clear import Clear
from ctxkit.policies.keep import Roles, Tail, TextOnly, TurnAge, WithoutAgents
from ctxkit.policies.pairs import ToolPairs

PARTS = {
    "clear": (Clear(keep_last=3),),
    "clear polling": (Clear(keep_last=3, polling=5),),
    "clear at_least": (Clear(keep_last=3, at_least=400),),
    "clear min_chars": (Clear(keep_last=2, min_chars=500, deny=("shell",)),),
    "clear in lines": (Clear(keep_last=2, placeholder="({lines} lines omitted)"),),
    "pairs": (ToolPairs(keep_pairs=2),),
    "pairs in steps": (ToolPairs(keep_pairs=3, step=4, from_chars=9000),),
    "text only": (TextOnly(),),
    "roles": (Roles(),),
    "roles with tools": (Roles(roles=("user", "tool")),),
    "replies alone": (Roles(roles=("assistant", "tool")),),
    "without agents": (WithoutAgents(agents=("ma*",)),),
    "turn age": (TurnAge(turns=4),),
    "turn age from reply": (TurnAge(turns=3, from_reply=True),),
    "tail": (Tail(messages=9, pin_corrections=False),),
    "tail with corrections": (Tail(messages=6),),
    "text and turn age": (TextOnly(), TurnAge(turns=3)),
    "tails": (Tail(messages=9), TurnAge(turns=3), Tail(messages=4)),
    "tail and pairs": (TurnAge(turns=7), Tail(messages=8), ToolPairs(keep_pairs=2)),
    "clear and pairs": (Clear(keep_last=4, at_least=500), ToolPairs(keep_pairs=2, from_chars=4000)),
}
