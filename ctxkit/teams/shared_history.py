"""The team's shared history on disk: what agents hear of each other, and every move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.redaction import redact
from ctxkit.agent.resume import make_session_settings, with_session_settings
from ctxkit.agent.turn import Limits
from ctxkit.metrics.team_log import (
    ADDRESSEE_KEY,
    FORK_MOVE,
    HANDOFF,
    HANDOFF_KEY,
    LEDGER_MOVE,
    SOURCE_KEY,
    TASK,
    count_entries_before_fork,
    render_for_peers,
)
from ctxkit.policies.rules import Rules
from ctxkit.session.messages import CORRECTION_KIND, Message, Text, get_plain_text
from ctxkit.teams.plan import make_plan_details
from ctxkit.teams.turn_decisions import TeamStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.agent.store.session_log import SessionLog
    from ctxkit.session.session import Session
    from ctxkit.teams.plan import Member, TeamPlan
    from ctxkit.teams.turn_decisions import TurnDecision


class SharedHistory:
    """The file of a team.

    Args:
        log: its session log.
        clock: seconds since 1970.
    """

    def __init__(self, log: SessionLog, clock: Callable[[], float]) -> None:
        self.log, self._clock = log, clock

    @property
    def session(self) -> Session:
        """The shared history, and the moves."""
        return self.log.session

    @property
    def task(self) -> str:
        """What the team was asked last; empty: nothing yet."""
        tasks = [m for m in self.session.messages if m.kind == TASK]
        return get_plain_text(tasks[-1]) if tasks else ""

    def note(self, plan: TeamPlan, words: dict[str, Any]) -> None:
        """Keep by which plan the team works, and how it was opened, where that is new."""
        how = make_session_settings(words, Rules(), Limits())
        made = with_session_settings(
            msgspec.structs.replace(self.session, details=make_plan_details(plan)), how
        )
        if made.details != self.session.details:
            self.log.revise(made)

    def standing(self, first: TeamStatus) -> TeamStatus:
        """Return where the team stands by its last move; `first` before there is one."""
        moves = [m for m in self.session.messages if m.kind == LEDGER_MOVE]
        return msgspec.convert(moves[-1].details["standing"], TeamStatus) if moves else first

    def moves(self, *, of_task: bool = False) -> list[dict[str, Any]]:
        """Return what is known of each move, in order; `of_task`: since the last task was given."""
        said = self.session.messages
        start = max((i for i, m in enumerate(said) if m.kind == TASK), default=0) if of_task else 0
        found = [m for m in said[start:] if m.kind == LEDGER_MOVE]
        return [{"turn": m.turn, "agent": m.agent, **m.details["told"]} for m in found]

    def worked(self) -> list[str]:
        """Return the agents that took a turn since the last task was given, each once."""
        agents = (m["agent"] for m in self.moves(of_task=True) if m["agent"])
        return list(dict.fromkeys(agents))

    def ask(self, task: str, standing: TeamStatus) -> None:
        """Write the task, and where the team stands with it."""
        words = self._message(TASK, task, None, standing.turns)
        kind = FORK_MOVE if standing.branches else "task"
        self._write(words, self._move(standing, None, {"kind": kind}))

    def conclude(
        self,
        agent: str,
        spoken: Sequence[Message],
        decided: TurnDecision,
        *,
        handed: str,
        to: str,
        extra: dict[str, Any],
    ) -> None:
        """Write a turn as others hear it, and what follows from it.

        Args:
            agent: who took it.
            spoken: the messages of the turn in its own session.
            decided: what follows.
            handed: block of the hand-off; empty: none.
            to: the agent whose turn is next.
            extra: what is to be known of the move beside.
        """
        turn = decided.standing.turns - 1
        out = list(self._spoken(agent, spoken, turn))
        if handed:
            out.append(self._message(HANDOFF, handed, None, turn, {HANDOFF_KEY: to}))
        if decided.correction:
            out.append(
                self._message(CORRECTION_KIND, decided.correction, None, turn, {ADDRESSEE_KEY: to})
            )
        told = {"kind": decided.kind, **decided.told, **extra}
        self._write(*out, self._move(decided.standing, agent, told))

    def heard(
        self, member: Member, known: set[str], *, first: bool, forked: bool = False
    ) -> list[Message]:
        """Return what an agent has not heard yet, as it is written into its session.

        Args:
            member: the agent.
            known: ids of the ledger's messages that it heard.
            first: True before its first turn.
            forked: True in a branch: what was said since it began is not heard.
        """
        out = []
        said = self.session.messages
        for m in said[: count_entries_before_fork(said)] if forked else said:
            if (
                m.kind == LEDGER_MOVE
                or m.id in known
                or m.agent == member.name
                or not self._reaches(m, member, first=first)
            ):
                continue
            out.append(msgspec.structs.replace(m, id="", turn=None, details={SOURCE_KEY: m.id}))
        return out

    def _reaches(self, m: Message, member: Member, *, first: bool) -> bool:
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

    def _spoken(self, agent: str, messages: Sequence[Message], turn: int) -> Iterator[Message]:
        """Yield a turn's messages as others hear them, without keys."""
        for m in render_for_peers(agent, messages):
            said = self._message(m.kind, m.text, agent, turn, m.details)
            yield msgspec.structs.replace(said, tool=m.tool)

    def _message(
        self,
        kind: str,
        text: str,
        agent: str | None,
        turn: int,
        details: dict[str, Any] | None = None,
    ) -> Message:
        return Message(role="user", kind=kind, parts=(Text(redact(text)),), agent=agent, turn=turn,
                       time=self._clock(), details=details or {})  # fmt: skip

    def _move(self, standing: TeamStatus, agent: str | None, told: dict[str, Any]) -> Message:
        kept = {"standing": msgspec.to_builtins(standing), "told": told}
        return Message(
            role="system",
            kind=LEDGER_MOVE,
            visible=False,
            agent=agent,
            turn=max(standing.turns - 1, 0),
            time=self._clock(),
            details=kept,
        )

    def _write(self, *messages: Message) -> None:
        first = len(self.session.log)
        self.log.append(
            *(msgspec.structs.replace(m, id=f"l{first + i}") for i, m in enumerate(messages))
        )
