"""Status of a team between two turns, and what is decided after one."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.teams.plan import TeamPlan, Transition


class TeamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a team stands between two turns; kept in the ledger with every move."""

    turns: int = 0
    """Turns that are over."""
    since: int = 0
    """How many were over when the task was given."""
    state: str = ""
    silent: int = 0
    failures: dict[str, int] = {}
    """Failed contracts in a row, by `state > target`."""
    recovered: tuple[str, ...] = ()
    """Transitions whose agent for recovery has had its turn."""
    helper: str = ""
    """The agent for recovery or the verifier, where the next turn is its own."""
    audits: int = 0
    """Turns of the verifier since the task was given."""
    auditing: bool = False
    """Whether the helper is the verifier."""
    branches: tuple[str, ...] = ()
    """States whose agents have a turn each, one behind the other, before `state` goes on."""
    stalls: int = 0
    """Rounds in a row without progress, as a manager sees it."""
    resets: int = 0
    """How often a manager was told to plan anew."""
    visits: dict[str, int] = {}
    """How often each transition led back."""
    seen: tuple[str, ...] = ()
    """States that were entered."""
    own: dict[str, int] = {}
    """Of each agent: the last turn of its own session that belongs to a turn that is over."""
    ended: str = ""
    """`done`, `stopped`, or nothing while it goes on."""
    why: str = ""


class TurnReply(NamedTuple):
    """What an agent said in a turn."""

    agent: str
    reply: str
    """Its last words."""
    called: Sequence[str] = ()
    """Signals that it gave by a tool call."""
    worked: bool = True
    """Whether it called any other tool."""


class TurnDecision(NamedTuple):
    """What follows from a turn."""

    standing: TeamStatus
    kind: str
    """The event, in fuseraft's words."""
    correction: str = ""
    """What is said to the agent that takes the next turn."""
    way: Transition | None = None
    told: Mapping[str, Any] = MappingProxyType({})


def enter_state(plan: TeamPlan, now: TeamStatus, by: str) -> TeamStatus:
    """Return the standing in a state that was come to.

    Where nothing leads out of it the team is done, unless it names another agent than the one that
    led there: that one has the last turn.
    """
    now = replace(now, seen=tuple(dict.fromkeys((*now.seen, now.state))))
    state = plan.states[now.state]
    if not state.ends or state.agent not in ("", by):
        return now
    return replace(now, ended="done", why=f"{now.state} is reached")


def mark_done(now: TeamStatus, why: str) -> TeamStatus:
    """Return the standing of a team whose work is done."""
    return replace(now, ended="done", why=why)


def mark_stopped(now: TeamStatus, why: str) -> TeamStatus:
    """Return the standing of a team that comes no further."""
    return replace(now, ended="stopped", why=why)
