"""Turns of a team: the prompt that opens one, the reply, and the decision that follows."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ctxkit._internal.redaction import redact
from ctxkit.teams.handoffs import get_last_reply
from ctxkit.teams.plan import find_json_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.teams.plan import Member, TeamPlan, TeamState, Transition


class TeamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a team is between two turns; kept in the ledger with every move."""

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
    """States whose agents have a turn each, one behind the other, before `state` continues."""
    stalls: int = 0
    """Rounds in a row without progress, as a manager sees it."""
    resets: int = 0
    """How often a manager was told to plan again."""
    visits: dict[str, int] = {}
    """How often each transition led back."""
    visited: tuple[str, ...] = msgspec.field(default=(), name="seen")
    """States that were entered."""
    own: dict[str, int] = {}
    """Of each agent: the last turn of its own session that belongs to a turn that is over."""
    ended: str = ""
    """`done`, `stopped`, or nothing while it continues."""
    why: str = ""


class TurnReply(NamedTuple):
    """What an agent said in a turn."""

    agent: str
    reply: str
    """Its last words."""
    called_signals: Sequence[str] = ()
    """Signals that it gave by a tool call."""
    used_tools: bool = True
    """Whether it called any other tool."""


class TurnDecision(NamedTuple):
    """What follows from a turn."""

    status: TeamStatus
    kind: str
    """The event, in fuseraft's words."""
    correction: str = ""
    """What is said to the agent that takes the next turn."""
    way: Transition | None = None
    payload: Mapping[str, Any] = MappingProxyType({})


def enter_state(plan: TeamPlan, now: TeamStatus, by: str) -> TeamStatus:
    """Return the standing in a state that was come to.

    Where nothing leads out of it the team is done, unless it names another agent than the one that
    led there: that one has the last turn.
    """
    now = replace(now, visited=tuple(dict.fromkeys((*now.visited, now.state))))
    state = plan.states[now.state]
    if not state.is_final or state.agent not in ("", by):
        return now
    return replace(now, ended="done", why=f"{now.state} is reached")


def mark_done(now: TeamStatus, why: str) -> TeamStatus:
    """Return the standing of a team whose work is done."""
    return replace(now, ended="done", why=why)


def mark_stopped(now: TeamStatus, why: str) -> TeamStatus:
    """Return the standing of a team that comes no further."""
    return replace(now, ended="stopped", why=why)


REMINDER_MIN_TASK_CHARS, REMINDER_MIN_CONTEXT_CHARS, REMINDER_MAX_CHARS = 50, 2_000, 200
"""A task longer than this is said again, cut to so many characters, behind a longer context."""


def turn_prompt(member: Member, state: TeamState | None, task: str, chars: int) -> str:
    """Return the prompt of a turn.

    Args:
        member: whose turn it is.
        state: where the team stands; None: agents speak in turn.
        task: of the team.
        chars: of what is between the task and this prompt.
    """
    at = f" The state is {state.name}." if state is not None else ""
    lines = [f"It is your turn, {member.name}.{at}"]
    signals = [t.signal for t in state.transitions if t.signal] if state is not None else []
    if signals:
        lines.append(
            "When your part is done, end your reply with one of these, alone on the last line: "
            f"{' | '.join(signals)}{_describe_default_transition(state)}"
        )
    if state is not None and state.splits:
        lines.append(list_request(state.splits))
    if (
        member.context
        and len(task) > REMINDER_MIN_TASK_CHARS
        and chars > REMINDER_MIN_CONTEXT_CHARS
    ):
        lines.append(f"[Task Reminder] {task[:REMINDER_MAX_CHARS]}")
    return "\n".join(lines)


def _describe_default_transition(state: TeamState | None) -> str:
    """Return what happens without a signal, where something does."""
    other = next((t.to for t in state.transitions if not t.signal), "") if state else ""
    return f". Without one, {other} is next." if other else ""


def recovery_prompt(member: Member) -> str:
    """Return the prompt of a turn that mends what a contract lacks."""
    return (
        f"It is your turn, {member.name}: mend what is missing; then the agent that asked goes on."
    )


def resume_prompt(member: Member) -> str:
    """Return the prompt of a turn that continues where one was cut off."""
    return f"Your turn was cut off, {member.name}: go on, and end it as you were asked to."


def missing_signal_message(signals: Sequence[str]) -> str:
    """Return what an agent is told that gave no signal."""
    return f"No handoff keyword in your reply. Give one, alone on a line: {' | '.join(signals)}"


def missing_fields_message(fields: Sequence[str]) -> str:
    """Return what an agent is told whose JSON says nothing that a route asks for."""
    return f"JSON block correct? End your reply with one JSON object that says {', '.join(fields)}."


def list_request(path: str) -> str:
    """Return what an agent is asked whose list is worked off next."""
    return f"End your reply with one JSON object that has a list at {path}."


def missing_list_message(path: str, most: int) -> str:
    """Return what an agent is told whose reply holds no such list."""
    return f"JSON block correct? {list_request(path)} It has at most {most} items."


def replan_message(why: str) -> str:
    """Return what a manager is told that gets nowhere."""
    return f"STAGNATION ({why}): say what is known now, make a new plan, and give the next step."


def verifier_prompt(member: Member) -> str:
    """Return the prompt of a verifier's turn."""
    return (
        f"It is your turn, {member.name}: hold what was claimed against what was done. Write "
        "nothing but what you find."
    )


def finding_message(agent: str, words: str) -> str:
    """Return what the next agent is told of what a verifier found."""
    return f"VERIFICATION FINDING of {agent}, to be settled before you go on:\n{words[:4_000]}"


def ambiguous_signal_message(signals: Sequence[str]) -> str:
    """Return what an agent is told that gave several signals."""
    return f"WRONG KEYWORD: you gave {len(signals)} ({', '.join(signals)}). Give exactly one."


def blocked_handoff_message(signal: str, missing: Sequence[str]) -> str:
    """Return what an agent is told whose contract does not hold."""
    rows = "".join(f"\n- {m}" for m in missing)
    return (
        f"MISSING ARTIFACT: {signal or 'the hand-off'} was not taken. What is not there yet:{rows}"
    )


def escalation_message(way: Transition, objections: str) -> str:
    """Return what an agent is told that sends the work back too often."""
    objections_text = f"\nWhat was objected:\n{objections[:4_000]}" if objections else ""
    return (
        f"STAGNATION (the work went back to {way.to} {way.max_revisits} times, as often as it may):"
        f" {way.signal} is not taken again. Settle what is open, or take another way."
        f"{objections_text}"
    )


MAX_ITEMS = 200
"""Items of a list that is worked off, at most."""


def parse_items(reply: str, path: str) -> list[str] | None:
    """Return the items of the list in a reply's JSON object, each as text.

    Args:
        reply: of an agent.
        path: names between dots, from the outermost on.

    Returns:
        None: there is no such list, or it is longer than `MAX_ITEMS`.
    """
    value: Any = find_json_object(reply)
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        return None
    return [x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in value]


def quote_previous_reply(
    state: TeamState | None, status: TeamStatus, sessions: Mapping[str, LiveSession]
) -> str:
    """Return what a turn's prompt brings beside its own words; empty: nothing.

    Args:
        state: in which the turn is taken.
        status: before it.
        sessions: of the agents, by name.
    """
    if state is None or not state.reads:
        return ""
    session = sessions[state.reads].session
    last = status.own.get(state.reads, -1)
    words = get_last_reply([m for m in session.messages if m.turn == last])
    if not state.item:
        return redact(f"\n\nThis is what {state.reads} says:\n\n{words}")
    items = parse_items(words, state.item) or []
    # the branches that are left count the items down: no position is kept
    position = len(items) - len(status.branches)
    return redact(f"\n\nYour part, {position + 1} of {len(items)}:\n\n{items[position]}")
