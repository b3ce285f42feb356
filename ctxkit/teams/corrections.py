"""What is said to a team's agent in the user's place, begun as fuseraft's: views pin it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.teams.rosters import Member, TeamState, Transition

REMINDER_TASK, REMINDER_CHARS, REMINDED = 50, 2_000, 200
"""A task longer than this is said again, cut to so many characters, behind a longer context."""


def prompt(member: Member, state: TeamState | None, task: str, chars: int) -> str:
    """Return the prompt of a turn.

    Args:
        member: whose turn it is.
        state: where the team stands; None: agents speak in turn.
        task: of the team.
        chars: of what stands between the task and this prompt.
    """
    at = f" The state is {state.name}." if state is not None else ""
    lines = [f"It is your turn, {member.name}.{at}"]
    signals = [t.signal for t in state.transitions if t.signal] if state is not None else []
    if signals:
        lines.append(
            "When your part is done, end your reply with one of these, alone on the last line: "
            f"{' | '.join(signals)}{_else(state)}"
        )
    if state is not None and state.splits:
        lines.append(splitting(state.splits))
    if member.context and len(task) > REMINDER_TASK and chars > REMINDER_CHARS:
        lines.append(f"[Task Reminder] {task[:REMINDED]}")
    return "\n".join(lines)


def _else(state: TeamState | None) -> str:
    """Return what happens without a signal, where something does."""
    other = next((t.to for t in state.transitions if not t.signal), "") if state else ""
    return f". Without one, {other} is next." if other else ""


def helping(member: Member) -> str:
    """Return the prompt of a turn that mends what a contract lacks."""
    return (
        f"It is your turn, {member.name}: mend what is missing; then the agent that asked goes on."
    )


def cut_off(member: Member) -> str:
    """Return the prompt of a turn that goes on where one was cut off."""
    return f"Your turn was cut off, {member.name}: go on, and end it as you were asked to."


def nudge(signals: Sequence[str]) -> str:
    """Return what an agent is told that gave no signal."""
    return f"No handoff keyword in your reply. Give one, alone on a line: {' | '.join(signals)}"


def unstructured(fields: Sequence[str]) -> str:
    """Return what an agent is told whose JSON says nothing that a route asks for."""
    return f"JSON block correct? End your reply with one JSON object that says {', '.join(fields)}."


def splitting(path: str) -> str:
    """Return what an agent is asked whose list is worked off next."""
    return f"End your reply with one JSON object that has a list at {path}."


def unsplit(path: str, most: int) -> str:
    """Return what an agent is told whose reply holds no such list."""
    return f"JSON block correct? {splitting(path)} It has at most {most} items."


def replan(why: str) -> str:
    """Return what a manager is told that gets nowhere."""
    return f"STAGNATION ({why}): say what is known now, make a new plan, and give the next step."


def auditing(member: Member) -> str:
    """Return the prompt of a verifier's turn."""
    return (
        f"It is your turn, {member.name}: hold what was claimed against what was done. Write "
        "nothing but what you find."
    )


def finding(agent: str, words: str) -> str:
    """Return what the next agent is told of what a verifier found."""
    return f"VERIFICATION FINDING of {agent}, to be settled before you go on:\n{words[:4_000]}"


def ambiguous(given: Sequence[str]) -> str:
    """Return what an agent is told that gave several signals."""
    return f"WRONG KEYWORD: you gave {len(given)} ({', '.join(given)}). Give exactly one."


def blocked(signal: str, missing: Sequence[str]) -> str:
    """Return what an agent is told whose contract does not hold."""
    rows = "".join(f"\n- {m}" for m in missing)
    return (
        f"MISSING ARTIFACT: {signal or 'the hand-off'} was not taken. What is not there yet:{rows}"
    )


def escalated(way: Transition, objections: str) -> str:
    """Return what an agent is told that sends the work back too often."""
    said = f"\nWhat was objected:\n{objections[:4_000]}" if objections else ""
    return (
        f"STAGNATION (the work went back to {way.to} {way.max_revisits} times, as often as it may):"
        f" {way.signal} is not taken again. Settle what is open, or take another way.{said}"
    )
