"""A team's checkpoint as fuseraft keeps one: a message a turn, its usage and its tool calls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.heard.heard_words import HANDOFF, MOVE, TASK
from ctxkit.ledgers.kinds import MOST_ARGUMENT, ledger_bytes
from ctxkit.messages import CORRECTION
from ctxkit.redaction import redact
from ctxkit.subjects import results
from ctxkit.texts.contents import texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ctxkit.messages import Message, ToolCall
    from ctxkit.session import Session
    from ctxkit.teams.decisions import Standing

CHECKPOINT = "checkpoint.json"


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Tokens of all calls of a turn."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class TurnCall(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A tool call of a turn."""

    name: str
    args_summary: str
    succeeded: bool
    args_char_count: int


class TurnMessage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """What an agent said in a turn, or what was said to it."""

    agent_name: str
    content: str
    timestamp: str
    turn_index: int
    role: str
    usage: TurnUsage | None = None
    is_compaction_summary: bool = False
    tool_calls: tuple[TurnCall, ...] = ()


class MachineState(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Where the state machine stands."""

    transition_failure_key: str | None = None
    visited_states: tuple[str, ...] = ()
    back_edge_visits: dict[str, int] = {}
    recovery_activated: bool = False


class TeamCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The file."""

    session_id: str
    task: str
    config_path: str
    working_directory: str
    messages: tuple[TurnMessage, ...]
    started_at: str
    last_updated_at: str
    is_complete: bool
    current_state_name: str | None = None
    state_machine_state: MachineState | None = None


def checkpoint_bytes(
    ledger: Session, members: Mapping[str, Session], standing: Standing, config: str, folder: str
) -> bytes:
    """Return a team's checkpoint as the bytes of its file.

    Args:
        ledger: of the team.
        members: the sessions of its agents by name.
        standing: where it stands.
        config: the path of its config; empty: it has none.
        folder: in which its tools work.
    """
    said = ledger.messages
    tasks = [m for m in said if m.kind == TASK]
    machine = MachineState(
        transition_failure_key=next(reversed(standing.failures), None),
        visited_states=standing.seen,
        back_edge_visits=standing.visits,
        recovery_activated=bool(standing.recovered),
    )
    return ledger_bytes(TeamCheckpoint(
        session_id=ledger.id, task=texts(tasks[-1]) if tasks else "", config_path=config,
        working_directory=folder, messages=tuple(_messages(said, members)),
        started_at=_when(ledger.started), last_updated_at=_when(said[-1].time if said else None),
        is_complete=bool(standing.ended), current_state_name=standing.state or None,
        state_machine_state=machine if standing.state else None,
    ))  # fmt: skip


def _messages(said: Sequence[Message], members: Mapping[str, Session]) -> Iterator[TurnMessage]:
    for m in said:
        if m.kind in (CORRECTION, HANDOFF):
            yield TurnMessage(agent_name="Human", content=texts(m), timestamp=_when(m.time),
                              turn_index=m.turn or 0, role="user")  # fmt: skip
        elif m.kind == MOVE and m.agent is not None and m.agent in members:
            yield _turn(m, members[m.agent])


def _turn(move: Message, session: Session) -> TurnMessage:
    """Return one turn of an agent as one message."""
    told: dict[str, Any] = move.details["told"]
    own = range(told.get("from_own", 0), told.get("own", -1) + 1)
    mine = [m for m in session.messages if m.turn in own and m.visible]
    used = [m.usage for m in mine if m.usage is not None]
    sent = sum(u.prompt_tokens or 0 for u in used)
    given = sum(u.output_tokens or 0 for u in used)
    found = results(mine)
    calls = [c for m in mine if m.role == "assistant" for c in m.tool_calls]
    words = next((texts(m) for m in reversed(mine) if m.role == "assistant" and texts(m)), "")
    usage = TurnUsage(input_tokens=sent, output_tokens=given, total_tokens=sent + given)
    return TurnMessage(
        agent_name=move.agent or "", content=redact(words), timestamp=_when(move.time),
        turn_index=move.turn or 0, role="assistant", usage=usage if used else None,
        tool_calls=tuple(_call(c, found.get(id(c))) for c in calls),
    )  # fmt: skip


def _call(call: ToolCall, result: Message | None) -> TurnCall:
    written = call.raw or msgspec.json.encode(call.arguments).decode()
    short = redact(written)[:MOST_ARGUMENT]
    return TurnCall(name=call.name, args_summary=short, args_char_count=len(written),
                    succeeded=result is not None and not result.is_error)  # fmt: skip


def _when(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds or 0.0, UTC).isoformat()
