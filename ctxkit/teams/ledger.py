"""The ledger of a team: its shared history, as others hear it, and each move; it only grows.

Nothing in it is a call: what the agents said to their models is in their own sessions, which alone
are billed. A turn's entries are written in one piece with the move that follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.agent.limits import Limits
from ctxkit.agent.resumes import led, noted
from ctxkit.heard import forks
from ctxkit.heard.heard_words import FOR, FORK, FROM, HANDOFF, MOVE, TASK, TO, spoken
from ctxkit.messages import CORRECTION, Message, Text
from ctxkit.policies.rules import Rules
from ctxkit.redaction import redact
from ctxkit.teams.decisions import Standing
from ctxkit.teams.rosters import told_of
from ctxkit.texts.contents import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.session import Session
    from ctxkit.store.session_log import SessionLog
    from ctxkit.teams.decisions import Decided
    from ctxkit.teams.rosters import Member, Roster


class TeamLedger:
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
        return texts(tasks[-1]) if tasks else ""

    def note(self, plan: Roster, words: dict[str, Any]) -> None:
        """Keep by which plan the team works, and how it was opened, where that is new."""
        how = led(words, Rules(), Limits())
        made = noted(msgspec.structs.replace(self.session, details=told_of(plan)), how)
        if made.details != self.session.details:
            self.log.revise(made)

    def standing(self, first: Standing) -> Standing:
        """Return where the team stands by its last move; `first` before there is one."""
        moves = [m for m in self.session.messages if m.kind == MOVE]
        return msgspec.convert(moves[-1].details["standing"], Standing) if moves else first

    def moves(self, *, of_task: bool = False) -> list[dict[str, Any]]:
        """Return what is known of each move, in order; `of_task`: since the last task was given."""
        said = self.session.messages
        start = max((i for i, m in enumerate(said) if m.kind == TASK), default=0) if of_task else 0
        found = [m for m in said[start:] if m.kind == MOVE]
        return [{"turn": m.turn, "agent": m.agent, **m.details["told"]} for m in found]

    def worked(self) -> list[str]:
        """Return the agents that took a turn since the last task was given, each once."""
        agents = (m["agent"] for m in self.moves(of_task=True) if m["agent"])
        return list(dict.fromkeys(agents))

    def ask(self, task: str, standing: Standing) -> None:
        """Write the task, and where the team stands with it."""
        words = self._message(TASK, task, None, standing.turns)
        kind = FORK if standing.branches else "task"
        self._write(words, self._move(standing, None, {"kind": kind}))

    def conclude(
        self,
        agent: str,
        spoken: Sequence[Message],
        decided: Decided,
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
            out.append(self._message(HANDOFF, handed, None, turn, {FOR: to}))
        if decided.correction:
            out.append(self._message(CORRECTION, decided.correction, None, turn, {TO: to}))
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
        for m in said[: forks(said)] if forked else said:
            if (
                m.kind == MOVE
                or m.id in known
                or m.agent == member.name
                or not self._reaches(m, member, first=first)
            ):
                continue
            out.append(msgspec.structs.replace(m, id="", turn=None, details={FROM: m.id}))
        return out

    def _reaches(self, m: Message, member: Member, *, first: bool) -> bool:
        if TO in m.details:
            return bool(m.details[TO] == member.name)
        if m.kind == TASK:
            return member.isolation != "sealed"
        if m.kind == HANDOFF and m.details.get(FOR) == member.name:
            return not member.context
        return not member.context and (
            member.isolation == "shared" or (member.isolation == "fork" and first)
        )

    # -- inside ----------------------------------------------------------------------------------

    def _spoken(self, agent: str, messages: Sequence[Message], turn: int) -> Iterator[Message]:
        """Yield a turn's messages as others hear them, without keys."""
        for m in spoken(agent, messages):
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

    def _move(self, standing: Standing, agent: str | None, told: dict[str, Any]) -> Message:
        kept = {"standing": msgspec.to_builtins(standing), "told": told}
        return Message(
            role="system",
            kind=MOVE,
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
