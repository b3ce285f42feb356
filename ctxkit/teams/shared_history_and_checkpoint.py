"""The shared history of a team, and the files of its events, snapshots and checkpoint."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.redaction import redact
from ctxkit.agent.change_log_intent_log_evidence_graph import MAX_ARGUMENT_CHARS, encode_record
from ctxkit.agent.event_snapshot_and_report_files import EventLog
from ctxkit.agent.session_settings_seal_and_changes import (
    make_unsealed_session_settings,
    with_session_settings,
)
from ctxkit.agent.turn_limits_and_token_budgets import Limits
from ctxkit.agent.turn_state_and_events import is_successful_compaction
from ctxkit.errors import StoreError
from ctxkit.formats.snapshots.token_log_writer import SnapshotWriter
from ctxkit.metrics.team_agent_logs_and_turns import (
    ADDRESSEE_KEY,
    FORK_MOVE,
    HANDOFF,
    HANDOFF_KEY,
    LEDGER_MOVE,
    SOURCE_KEY,
    TASK,
    count_entries_before_parallel_branches,
    render_for_peers,
)
from ctxkit.policies.compaction_and_pruning_rules import Rules
from ctxkit.session.messages import CORRECTION_KIND, Message, Text, get_plain_text
from ctxkit.session.tool_call_paths_and_descriptions import map_results_by_call
from ctxkit.teams.team_definition import make_stored_plan_details
from ctxkit.teams.turn_prompts_and_team_state import TeamStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
    from ctxkit.agent.session_log import SessionLog
    from ctxkit.agent.turn_state_and_events import LiveEvent
    from ctxkit.session.messages import ToolCall
    from ctxkit.session.session import Session
    from ctxkit.teams.team_definition import Member, TeamPlan
    from ctxkit.teams.turn_prompts_and_team_state import TurnDecision


_APPEND_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


# The files have fuseraft's formats.
class EventAndCheckpointWriter:
    """Writes `.ctxkit/logs/` and `.ctxkit/state/` of one team.

    Args:
        workspace: folder of the team's files.
        team: its id.
        plan: whose thresholds are in each snapshot, and which says when a turn is too large.
        clock: seconds since 1970.
        turns: turns of the team that are over.

    Raises:
        StoreError: a log cannot be written.
    """

    def __init__(
        self,
        workspace: Workspace,
        team: str,
        plan: TeamPlan,
        clock: Callable[[], float],
        turns: int = 0,
    ) -> None:
        self._workspace, self._team, self._clock = workspace, team, clock
        self._turns, self._unmarked = turns, 0
        self._most = plan.warn_turn
        self._closing = ExitStack()
        with ExitStack() as undo:
            self._events = EventLog(
                workspace.open(workspace.events(team), _APPEND_FLAGS), team, "team"
            )
            undo.callback(self._events.close)
            self._snapshots = SnapshotWriter(
                workspace.snapshots(team), team, warn_at=plan.warn_at, cutover_at=plan.cutover_at,
                opener=workspace.open, now=lambda: datetime.fromtimestamp(clock(), UTC),
            )  # fmt: skip
            undo.callback(self._snapshots.close)
            self._closing = undo.pop_all()

    def write_event(self, kind: str, turn: int, payload: Mapping[str, Any], agent: str) -> None:
        """Write an event.

        Args:
            kind: kind of the event.
            turn: number of the turn, from 0.
            payload: JSON values.
            agent: name of the agent.
        """
        self._events.write(kind, self._clock(), turn, dict(payload), agent)

    def on_event(self, event: LiveEvent) -> None:
        """Note a compaction of an agent; its marker precedes the row of a turn that continues."""
        if event.kind == "compaction_end" and is_successful_compaction(event.payload):
            self._unmarked += 1
        elif event.kind == "model_call":
            self._write_markers()

    def _write_markers(self) -> None:
        """Write a marker for each compaction that has none, which resets the sums of all agents."""
        for _ in range(self._unmarked):
            self._snapshots.marker(self._turns)
        self._unmarked = 0

    def record(
        self, agent: str, turn: int, decision: TurnDecision, own_turn: Sequence[Message]
    ) -> None:
        """Write the row and the events of a turn.

        Args:
            agent: name of the agent that took it.
            turn: its number.
            decision: what follows from it.
            own_turn: what was said in it.
        """
        used = [m.usage for m in own_turn if m.usage is not None]
        sent = sum(u.prompt_tokens or 0 for u in used)
        output = sum(u.output_tokens or 0 for u in used)
        self._snapshots.turn(agent, turn, sent, output)
        self._turns = turn + 1
        self._write_markers()
        self.write_event("turn_end", turn, {"input_tokens": sent, "output_tokens": output}, agent)
        if 0 < self._most < sent:
            payload = {"estimated_tokens": sent, "is_actual": True, "budget": self._most}
            self.write_event("context_warning", turn, payload, agent)
        self.write_event(decision.kind, turn, decision.payload, agent)
        if decision.correction:
            self.write_event("correction_injected", turn, {"reason": decision.kind}, agent)
        if decision.status.recovery_or_verifier:
            self.write_event(
                "recovery_activated", turn, {"agent": decision.status.recovery_or_verifier}, agent
            )

    def checkpoint(
        self, ledger: Session, members: Mapping[str, Session], status: TeamStatus, folder: str
    ) -> None:
        """Write the checkpoint; where it cannot be written, the team continues without it.

        Args:
            ledger: the team's own session.
            members: session of each member, by name.
            status: status of the team.
            folder: working folder of the team.
        """
        record = encode_checkpoint(ledger, members, status, "", folder)
        with suppress(StoreError):
            self._workspace.write_file(
                self._workspace.state(self._team), CHECKPOINT_FILE, record.decode()
            )

    def close(self) -> None:
        """Close both logs."""
        self._closing.close()


CHECKPOINT_FILE = "checkpoint.json"


class TurnUsage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Tokens of all calls of a turn."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class TurnToolCall(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A tool call of a turn."""

    name: str
    args_summary: str
    succeeded: bool
    args_char_count: int


class TurnMessage(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """A message of a turn: the prompt of an agent, or its reply."""

    agent_name: str
    content: str
    timestamp: str
    turn_index: int
    role: str
    usage: TurnUsage | None = None
    is_compaction_summary: bool = False
    tool_calls: tuple[TurnToolCall, ...] = ()


class StateMachineCounters(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """State of the state machine."""

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
    state_machine_state: StateMachineCounters | None = None


def encode_checkpoint(
    ledger: Session, members: Mapping[str, Session], status: TeamStatus, config: str, folder: str
) -> bytes:
    """Return a team's checkpoint as the bytes of its file.

    Args:
        ledger: the team's ledger.
        members: the sessions of its agents by name.
        status: its status.
        config: the path of its config; empty: it has none.
        folder: folder in which its tools work.
    """
    messages = ledger.messages
    tasks = [m for m in messages if m.kind == TASK]
    machine = StateMachineCounters(
        transition_failure_key=next(reversed(status.failures), None),
        visited_states=status.visited,
        back_edge_visits=status.visits,
        recovery_activated=bool(status.recovered),
    )
    return encode_record(
        TeamCheckpoint(
            session_id=ledger.id,
            task=get_plain_text(tasks[-1]) if tasks else "",
            config_path=config,
            working_directory=folder,
            messages=tuple(_turn_messages(messages, members)),
            started_at=_to_iso_time(ledger.started),
            last_updated_at=_to_iso_time(messages[-1].time if messages else None),
            is_complete=bool(status.ended),
            current_state_name=status.state or None,
            state_machine_state=machine if status.state else None,
        )
    )


def _turn_messages(
    messages: Sequence[Message], members: Mapping[str, Session]
) -> Iterator[TurnMessage]:
    for m in messages:
        if m.kind in (CORRECTION_KIND, HANDOFF):
            yield TurnMessage(
                agent_name="Human",
                content=get_plain_text(m),
                timestamp=_to_iso_time(m.time),
                turn_index=m.turn or 0,
                role="user",
            )
        elif m.kind == LEDGER_MOVE and m.agent is not None and m.agent in members:
            yield _turn_message(m, members[m.agent])


def _turn_message(move: Message, session: Session) -> TurnMessage:
    """Return one turn of an agent as one message."""
    move_record: dict[str, Any] = move.details["told"]
    turns = range(move_record.get("from_own", 0), move_record.get("own", -1) + 1)
    messages = [m for m in session.messages if m.turn in turns and m.visible]
    used = [m.usage for m in messages if m.usage is not None]
    input_tokens = sum(u.prompt_tokens or 0 for u in used)
    output_tokens = sum(u.output_tokens or 0 for u in used)
    results = map_results_by_call(messages)
    calls = [c for m in messages if m.role == "assistant" for c in m.tool_calls]
    words = next(
        (
            get_plain_text(m)
            for m in reversed(messages)
            if m.role == "assistant" and get_plain_text(m)
        ),
        "",
    )
    usage = TurnUsage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=input_tokens + output_tokens,
    )
    return TurnMessage(
        agent_name=move.agent or "", content=redact(words), timestamp=_to_iso_time(move.time),
        turn_index=move.turn or 0, role="assistant", usage=usage if used else None,
        tool_calls=tuple(_turn_call(c, results.get(id(c))) for c in calls),
    )  # fmt: skip


def _turn_call(call: ToolCall, result: Message | None) -> TurnToolCall:
    written = call.raw or msgspec.json.encode(call.arguments).decode()
    short = redact(written)[:MAX_ARGUMENT_CHARS]
    return TurnToolCall(name=call.name, args_summary=short, args_char_count=len(written),
                    succeeded=result is not None and not result.is_error)  # fmt: skip


def _to_iso_time(seconds: float | None) -> str:
    return datetime.fromtimestamp(seconds or 0.0, UTC).isoformat()


# The history is one append-only session file (the ledger). It holds the task, each turn as the
# other agents see it, hand-offs, corrections, and a move after each turn. The move's `standing` is
# the status of the team, from which a reopened team continues.
class SharedHistoryAndStatus:
    """The file of a team.

    Args:
        log: its session log.
        clock: returns seconds since 1970.
    """

    def __init__(self, log: SessionLog, clock: Callable[[], float]) -> None:
        self.log, self._clock = log, clock

    @property
    def session(self) -> Session:
        """The shared history, and the moves."""
        return self.log.session

    @property
    def task(self) -> str:
        """The current task; empty if there is none yet."""
        tasks = [m for m in self.session.messages if m.kind == TASK]
        return get_plain_text(tasks[-1]) if tasks else ""

    def store_plan(self, plan: TeamPlan, words: dict[str, Any]) -> None:
        """Store the plan and how the team was opened, if they changed.

        Args:
            plan: the team's plan.
            words: the settings with which it was opened, as text.
        """
        how = make_unsealed_session_settings(words, Rules(), Limits())
        updated = with_session_settings(
            msgspec.structs.replace(self.session, details=make_stored_plan_details(plan)), how
        )
        if updated.details != self.session.details:
            self.log.revise(updated)

    def status(self, first: TeamStatus) -> TeamStatus:
        """Return the team's status after its last move; `first` if there is none."""
        moves = [m for m in self.session.messages if m.kind == LEDGER_MOVE]
        return msgspec.convert(moves[-1].details["standing"], TeamStatus) if moves else first

    def moves(self, *, of_task: bool = False) -> list[dict[str, Any]]:
        """Return the record of each move, in order; `of_task`: only of the current task."""
        messages = self.session.messages
        start = (
            max((i for i, m in enumerate(messages) if m.kind == TASK), default=0) if of_task else 0
        )
        moves = [m for m in messages[start:] if m.kind == LEDGER_MOVE]
        return [{"turn": m.turn, "agent": m.agent, **m.details["told"]} for m in moves]

    def list_active_agents(self) -> list[str]:
        """Return the agents that had a turn in the current task, each once."""
        agents = (m["agent"] for m in self.moves(of_task=True) if m["agent"])
        return list(dict.fromkeys(agents))

    def set_task(self, task: str, status: TeamStatus) -> None:
        """Write the task and the team's status.

        Args:
            task: the task, in the user's words.
            status: its status.
        """
        words = self._make_message(TASK, task, None, status.turns)
        kind = FORK_MOVE if status.branches else "task"
        self._append(words, self._make_move(status, None, {"kind": kind}))

    def conclude(
        self,
        agent: str,
        spoken: Sequence[Message],
        decision: TurnDecision,
        *,
        handoff: str,
        to: str,
        extra: dict[str, Any],
    ) -> None:
        """Write a turn as other agents see it, and the decision after it.

        Args:
            agent: the agent of the turn.
            spoken: the messages of the turn in the agent's own session.
            decision: the decision after it.
            handoff: block of the hand-off; empty: none.
            to: the next agent.
            extra: further fields of the move's record.
        """
        turn = decision.status.turns - 1
        out = list(self._render_spoken(agent, spoken, turn))
        if handoff:
            out.append(self._make_message(HANDOFF, handoff, None, turn, {HANDOFF_KEY: to}))
        if decision.correction:
            out.append(
                self._make_message(
                    CORRECTION_KIND, decision.correction, None, turn, {ADDRESSEE_KEY: to}
                )
            )
        record = {"kind": decision.kind, **decision.payload, **extra}
        self._append(*out, self._make_move(decision.status, agent, record))

    def collect_unheard(
        self, member: Member, seen_ids: set[str], *, first: bool, forked: bool = False
    ) -> list[Message]:
        """Return the messages that are new to an agent, as they go into its session.

        Args:
            member: the agent.
            seen_ids: ids of the ledger's messages that its session has.
            first: the agent has had no turn.
            forked: the agent is in a branch, which does not see messages since the fork.
        """
        out = []
        messages = self.session.messages
        for m in (
            messages[: count_entries_before_parallel_branches(messages)] if forked else messages
        ):
            if (
                m.kind == LEDGER_MOVE
                or m.id in seen_ids
                or m.agent == member.name
                or not self._is_heard_by(m, member, first=first)
            ):
                continue
            out.append(msgspec.structs.replace(m, id="", turn=None, details={SOURCE_KEY: m.id}))
        return out

    def _is_heard_by(self, m: Message, member: Member, *, first: bool) -> bool:
        if ADDRESSEE_KEY in m.details:
            return bool(m.details[ADDRESSEE_KEY] == member.name)
        if m.kind == TASK:
            return member.isolation != "sealed"
        if m.kind == HANDOFF and m.details.get(HANDOFF_KEY) == member.name:
            return not member.context
        return not member.context and (
            member.isolation == "shared" or (member.isolation == "fork" and first)
        )

    # -- inside ----------------------------------------------------------------------------------

    def _render_spoken(
        self, agent: str, messages: Sequence[Message], turn: int
    ) -> Iterator[Message]:
        """Yield a turn's messages as other agents see them, redacted."""
        for m in render_for_peers(agent, messages):
            message = self._make_message(m.kind, m.text, agent, turn, m.details)
            yield msgspec.structs.replace(message, tool=m.tool)

    def _make_message(
        self,
        kind: str,
        text: str,
        agent: str | None,
        turn: int,
        details: dict[str, Any] | None = None,
    ) -> Message:
        return Message(role="user", kind=kind, parts=(Text(redact(text)),), agent=agent, turn=turn,
                       time=self._clock(), details=details or {})  # fmt: skip

    def _make_move(self, status: TeamStatus, agent: str | None, record: dict[str, Any]) -> Message:
        details = {"standing": msgspec.to_builtins(status), "told": record}
        return Message(
            role="system",
            kind=LEDGER_MOVE,
            visible=False,
            agent=agent,
            turn=max(status.turns - 1, 0),
            time=self._clock(),
            details=details,
        )

    def _append(self, *messages: Message) -> None:
        first = len(self.session.log)
        self.log.append(
            *(msgspec.structs.replace(m, id=f"l{first + i}") for i, m in enumerate(messages))
        )
