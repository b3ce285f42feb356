"""Turns of a team: the prompt that opens one, the reply, and the decision that follows."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ctxkit._internal.redaction import redact
from ctxkit.teams.handoffs_and_contracts import get_last_reply
from ctxkit.teams.team_definition import find_json_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.teams.team_definition import Member, StateDefinition, TeamPlan, Transition


class TeamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a team between two turns; the ledger stores it with each move."""

    turns: int = 0
    """Concluded turns."""
    turns_before_task: int = msgspec.field(default=0, name="since")
    """Concluded turns when the task was given."""
    state: str = ""
    turns_without_signal: int = msgspec.field(default=0, name="silent")
    failures: dict[str, int] = {}
    """Consecutive failures of contracts, by `state > target`."""
    recovered: tuple[str, ...] = ()
    """Transitions whose recovery agent has had its turn."""
    recovery_or_verifier: str = msgspec.field(default="", name="helper")
    """The recovery agent or the verifier if it has the next turn; else empty."""
    verifier_turns: int = msgspec.field(default=0, name="audits")
    """Turns of the verifier since the task was given."""
    is_verifier_due: bool = msgspec.field(default=False, name="auditing")
    """True if `recovery_or_verifier` is the verifier."""
    branches: tuple[str, ...] = ()
    """States whose agents each have a turn before `state` continues."""
    stalls: int = 0
    """Consecutive rounds without progress, by the manager's judgement."""
    resets: int = 0
    """New plans requested from the manager."""
    visits: dict[str, int] = {}
    """How often each transition led to a state visited before."""
    visited: tuple[str, ...] = msgspec.field(default=(), name="seen")
    """States that were entered."""
    last_own_turns: dict[str, int] = msgspec.field(default_factory=dict, name="own")
    """For each agent the last concluded turn of its own session."""
    ended: str = ""
    """`done`, `stopped`, or empty while the team continues."""
    why: str = ""


class TurnReply(NamedTuple):
    """The reply of an agent's turn."""

    agent: str
    reply: str
    """Text of its last reply."""
    called_signals: Sequence[str] = ()
    """Signals that it gave by a tool call."""
    used_tools: bool = True
    """True if it called any other tool."""


class TurnDecision(NamedTuple):
    """The decision after a turn."""

    status: TeamStatus
    kind: str
    """The event, in fuseraft's words."""
    correction: str = ""
    """Message to the next agent."""
    transition: Transition | None = None
    payload: Mapping[str, Any] = MappingProxyType({})


def enter_state(plan: TeamPlan, status: TeamStatus, previous_agent: str) -> TeamStatus:
    """Return the status after entering the current state.

    In a final state the team is done, unless the state has another agent than
    `previous_agent`, which then has the last turn.

    Args:
        plan: the plan of the team, which has states.
        status: the status, with the state that is entered.
        previous_agent: the agent whose turn led there.

    Returns:
        The status with the state among those visited; `ended` is set if the team is done.
    """
    status = replace(status, visited=tuple(dict.fromkeys((*status.visited, status.state))))
    state = plan.states[status.state]
    if not state.is_final or state.agent not in ("", previous_agent):
        return status
    return replace(status, ended="done", why=f"{status.state} is reached")


def mark_done(status: TeamStatus, why: str) -> TeamStatus:
    """Return the status of a team that has finished its task.

    Args:
        status: the status before.
        why: reason, one sentence.
    """
    return replace(status, ended="done", why=why)


def mark_stopped(status: TeamStatus, why: str) -> TeamStatus:
    """Return the status of a team that stopped without finishing.

    Args:
        status: the status before.
        why: reason, one sentence.
    """
    return replace(status, ended="stopped", why=why)


REMINDER_MIN_TASK_CHARS, REMINDER_MIN_CONTEXT_CHARS, REMINDER_MAX_CHARS = 50, 2_000, 200
"""A task and a context longer than the first two: the task is repeated at the end, cut to the third
(characters).
"""


def turn_prompt(
    member: Member, state: StateDefinition | None, task: str, chars_since_task: int
) -> str:
    """Return the prompt of a turn.

    Args:
        member: the agent of the turn.
        state: state of the team; None: agents take turns.
        task: the team's task.
        chars_since_task: characters between the task and this prompt.

    Returns:
        Text for the agent: whose turn it is, the signals that it may give, the list that it must
        write, and the task again where that lies far back.
    """
    at = f" The state is {state.name}." if state is not None else ""
    lines = [f"It is your turn, {member.name}.{at}"]
    signals = [t.signal for t in state.transitions if t.signal] if state is not None else []
    if signals:
        lines.append(
            "When your part is done, end your reply with one of these, alone on the last line: "
            f"{' | '.join(signals)}{_describe_default_transition(state)}"
        )
    if state is not None and state.split_list_path:
        lines.append(make_list_request(state.split_list_path))
    if (
        member.context
        and len(task) > REMINDER_MIN_TASK_CHARS
        and chars_since_task > REMINDER_MIN_CONTEXT_CHARS
    ):
        lines.append(f"[Task Reminder] {task[:REMINDER_MAX_CHARS]}")
    return "\n".join(lines)


def _describe_default_transition(state: StateDefinition | None) -> str:
    """Return a sentence on the default transition, if there is one."""
    other = next((t.to for t in state.transitions if not t.signal), "") if state else ""
    return f". Without one, {other} is next." if other else ""


def recovery_prompt(member: Member) -> str:
    """Return the prompt of a recovery turn."""
    return (
        f"It is your turn, {member.name}: mend what is missing; then the agent that asked goes on."
    )


def resume_prompt(member: Member) -> str:
    """Return the prompt of a turn that continues an interrupted one."""
    return f"Your turn was cut off, {member.name}: go on, and end it as you were asked to."


def missing_signal_message(signals: Sequence[str]) -> str:
    """Return the message to an agent that gave no signal."""
    return f"No handoff keyword in your reply. Give one, alone on a line: {' | '.join(signals)}"


def missing_fields_message(fields: Sequence[str]) -> str:
    """Return the message to an agent whose JSON matches no route."""
    return f"JSON block correct? End your reply with one JSON object that says {', '.join(fields)}."


def make_list_request(path: str) -> str:
    """Return the request for a list whose items are processed next."""
    return f"End your reply with one JSON object that has a list at {path}."


def missing_list_message(path: str, max_items: int) -> str:
    """Return the message to an agent whose reply has no such list.

    Args:
        path: path of the list in the JSON block.
        max_items: number of items that are read.
    """
    return f"JSON block correct? {make_list_request(path)} It has at most {max_items} items."


def replan_message(why: str) -> str:
    """Return the request for a new plan."""
    return f"STAGNATION ({why}): say what is known now, make a new plan, and give the next step."


def verifier_prompt(member: Member) -> str:
    """Return the prompt of a verifier's turn."""
    return (
        f"It is your turn, {member.name}: hold what was claimed against what was done. Write "
        "nothing but what you find."
    )


def verifier_finding_message(agent: str, reply: str) -> str:
    """Return the message to the next agent about a verifier's finding.

    Args:
        agent: name of the verifier.
        reply: its reply, of which 4,000 characters are quoted.
    """
    return f"VERIFICATION FINDING of {agent}, to be settled before you go on:\n{reply[:4_000]}"


def ambiguous_signal_message(signals: Sequence[str]) -> str:
    """Return the message to an agent that gave several signals."""
    return f"WRONG KEYWORD: you gave {len(signals)} ({', '.join(signals)}). Give exactly one."


def blocked_handoff_message(signal: str, missing: Sequence[str]) -> str:
    """Return the message to an agent whose contract does not hold.

    Args:
        signal: signal of the transition; empty: it has none.
        missing: what the contract asks for and is not there, one line each.
    """
    rows = "".join(f"\n- {m}" for m in missing)
    return (
        f"MISSING ARTIFACT: {signal or 'the hand-off'} was not taken. What is not there yet:{rows}"
    )


def too_many_revisits_message(transition: Transition, objections: str) -> str:
    """Return the message to an agent that sent the work back too often.

    Args:
        transition: the transition that may not be taken again.
        objections: the objections as text, of which 4,000 characters are quoted; empty: none.
    """
    objections_text = f"\nWhat was objected:\n{objections[:4_000]}" if objections else ""
    return (
        f"STAGNATION (the work went back to {transition.to} {transition.max_revisits} times,"
        f" as often as it may): {transition.signal} is not taken again."
        f" Settle what is open, or take another way."
        f"{objections_text}"
    )


MAX_ITEMS = 200
"""Most items of a list."""


def parse_items(reply: str, path: str) -> list[str] | None:
    """Return the items of the list in a reply's JSON object, each as text.

    Args:
        reply: text of an agent's reply.
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
    state: StateDefinition | None, status: TeamStatus, sessions: Mapping[str, LiveSession]
) -> str:
    """Return the reply, or its list item, that a turn's prompt quotes; empty: none.

    Args:
        state: state of the turn.
        status: status before the turn.
        sessions: sessions of the agents, by name.

    Returns:
        Redacted text that follows the prompt.
    """
    if state is None or not state.quoted_agent:
        return ""
    session = sessions[state.quoted_agent].session
    last = status.last_own_turns.get(state.quoted_agent, -1)
    words = get_last_reply([m for m in session.messages if m.turn == last])
    if not state.item_list_path:
        return redact(f"\n\nThis is what {state.quoted_agent} says:\n\n{words}")
    items = parse_items(words, state.item_list_path) or []
    # the branches that are left count the items down: no position is kept
    position = len(items) - len(status.branches)
    return redact(f"\n\nYour part, {position + 1} of {len(items)}:\n\n{items[position]}")
