"""One turn of a team: what the agent hears and is asked, and what follows from what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ModelError
from ctxkit.heard.heard_words import ARTIFACTS, FROM
from ctxkit.messages import Message, Text
from ctxkit.redaction import redact
from ctxkit.teams.brought import brought
from ctxkit.teams.contracts import Proof
from ctxkit.teams.corrections import auditing, cut_off, helping, prompt
from ctxkit.teams.decisions import Decided, TeamReply
from ctxkit.teams.deeds import changes_of
from ctxkit.teams.handing import HANDOFF_TOOL
from ctxkit.teams.handoffs import Shelf, artifacts, empty, handed
from ctxkit.teams.machine import decided, place, speaker
from ctxkit.teams.turn_ends import finished, last_words, signals_called
from ctxkit.texts.contents import texts
from ctxkit.texts.standings import STANDING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.agent.outcome import Outcome
    from ctxkit.teams.decisions import Standing
    from ctxkit.teams.deeds import Deed
    from ctxkit.teams.ledger import TeamLedger
    from ctxkit.teams.rosters import Member, Roster
    from ctxkit.teams.team_files import TeamFiles
    from ctxkit.teams.team_sessions import TeamSessions
    from ctxkit.tools.root import Root


class TurnTaker:
    """Takes the turns of a team, one after the other.

    Args:
        plan: of the team.
        ledger: of the team.
        sessions: of its agents, by name.
        root: the folder of their tools.
        files: told what happens.
    """

    def __init__(
        self,
        plan: Roster,
        ledger: TeamLedger,
        sessions: TeamSessions,
        root: Root,
        files: TeamFiles,
    ) -> None:
        self._plan, self._ledger, self._sessions = plan, ledger, sessions
        self._root, self._files = root, files

    async def take(self, standing: Standing) -> Decided:
        """Take the turn that is next.

        Raises:
            ModelError: the model failed.
        """
        member = self._plan.member(speaker(self._plan, standing))
        live = self._sessions[member.name]
        begun_at = standing.own.get(member.name, -1)
        late = live.session.turns[-1] if live.session.calls else -1
        if late <= begun_at or not finished(live.session, late):
            outcome = await self._turn(member, standing, cut=late > begun_at)
            if outcome.ended == "error":
                raise ModelError(
                    f"{outcome.why} The turn of {member.name} is taken again when the team goes on."
                )
            if outcome.ended == "limit":
                told = {"message": outcome.why}
                self._files.tell("agent_timeout", standing.turns, told, member.name)
        return self._conclude(member, standing, begun_at)

    def over(self, standing: Standing, why: str) -> Decided:
        """End the team without a turn."""
        ended = msgspec.structs.replace(standing, ended="stopped", why=why)
        found = Decided(ended, "termination_forced")
        self._ledger.conclude("team", (), found, handed="", to="", extra={"state": standing.state})
        self._files.tell(found.kind, standing.turns, {"message": why}, "team")
        return found

    # -- before ----------------------------------------------------------------------------------

    async def _turn(self, member: Member, standing: Standing, *, cut: bool) -> Outcome:
        live = self._sessions[member.name]
        heard = self._heard(member, standing)
        self._warn(member, standing, len(live.session.messages) + len(heard))
        state = None if standing.branches else self._plan.states.get(standing.state)
        if standing.helper:
            words = auditing(member) if standing.auditing else helping(member)
        elif cut:
            words = cut_off(member)
        else:
            words = prompt(member, state, self._ledger.task, sum(len(texts(m)) for m in heard))
        played = getattr(live.agent.model, "begin", None)
        if callable(played):
            played(sum(m["agent"] == member.name for m in self._ledger.moves()))
        self._files.tell("agent_start", standing.turns, {"state": standing.state}, member.name)
        if not standing.helper:
            words += brought(self._plan.states.get(place(standing)), standing, self._sessions)
        return await live.turn(words, heard, details=self._standing(member, standing))

    def _standing(self, member: Member, standing: Standing) -> dict[str, Any]:
        """Return what a prompt keeps of where the team stands, for a summary that is made of it."""
        state = self._plan.states.get(standing.state)
        if state is None:
            return {}
        proof = Proof(root=self._root, plan=self._plan, changes=self._changes())
        failures = [f"{way}: {n} in a row" for way, n in standing.failures.items()]
        ways = state.transitions
        return {STANDING: {
            "state": state.name, "agent": member.name, "entered": list(standing.seen),
            "signals": [f"{t.signal} → {t.to}" for t in ways if t.signal], "failures": failures,
            "contracts": proof.status(c for t in ways for c in t.contracts),
        }}  # fmt: skip

    def _heard(self, member: Member, standing: Standing) -> list[Message]:
        """Return what is written into an agent's session before its prompt."""
        session = self._sessions[member.name].session
        known = {str(m.details[FROM]) for m in session.messages if FROM in m.details}
        first = not session.calls
        heard = self._ledger.heard(member, known, first=first, forked=bool(standing.branches))
        block = self._artifacts(member, standing) if member.context else None
        if block is None:
            return heard
        return [*heard, block] if first else [block, *heard]

    def _warn(self, member: Member, standing: Standing, messages: int) -> None:
        """Say where an agent's history comes near to what its window keeps."""
        threshold = int(member.cap * member.cap_fraction)
        if threshold and messages > threshold:
            told = {"messages": messages, "cap": member.cap, "fraction": member.cap_fraction,
                    "threshold": threshold}  # fmt: skip
            self._files.tell("context_window_warn", standing.turns, told, member.name)

    def _artifacts(self, member: Member, standing: Standing) -> Message | None:
        shelf = self._shelf(self._changes())
        block = artifacts(shelf, member.context)
        told = {"context_strategy": "artifact_spec", "context_chars": len(block),
                "declared_sources": [s.name for s in member.context],
                "empty_sources": list(empty(shelf, member.context))}  # fmt: skip
        self._files.tell("context_assembly", standing.turns, told, member.name)
        return Message(role="user", kind=ARTIFACTS, parts=(Text(redact(block)),)) if block else None

    # -- after -----------------------------------------------------------------------------------

    def _conclude(self, member: Member, standing: Standing, begun_at: int) -> Decided:
        """Write a turn that is over into the ledger, with what follows from it."""
        session = self._sessions[member.name].session
        own = [m for m in session.messages if (m.turn or 0) > begun_at and FROM not in m.details]
        changes = self._changes(member, begun_at, standing.turns)
        proof = Proof(root=self._root, plan=self._plan, changes=changes, turn=standing.turns)
        worked = any(c.name != HANDOFF_TOOL for m in own for c in m.tool_calls)
        turn = TeamReply(member.name, last_words(own), signals_called(own), worked)
        found = decided(self._plan, standing, turn, proof)
        last = session.turns[-1] if session.path else -1
        at = {**standing.own, member.name: last}
        found = found._replace(standing=msgspec.structs.replace(found.standing, own=at))
        to = speaker(self._plan, found.standing) if not found.standing.ended else ""
        self._ledger.conclude(
            member.name,
            own,
            found,
            handed=self._handed(found, to, changes),
            to=to,
            extra={"state": standing.state, "own": last, "from_own": begun_at + 1},
        )
        self._files.record(member.name, standing.turns, found, own)
        members = {name: live.session for name, live in self._sessions.opened.items()}
        folder = str(self._root.folder)
        self._files.checkpoint(self._ledger.session, members, found.standing, folder)
        return found

    def _handed(self, found: Decided, to: str, changes: Sequence[Deed]) -> str:
        """Return the block of a hand-off; empty where there is none."""
        if found.kind != "state_advanced" or found.way is None or not found.way.handoff:
            return ""
        receiver = to or self._plan.states[found.standing.state].agent
        return handed(self._shelf(changes), found.way.handoff, receiver)

    def _changes(self, member: Member | None = None, since: int = 0, number: int = 0) -> list[Deed]:
        """Return all changes; `member`: with those since `since`, which no ledger has yet."""
        turns = [
            (int(m["turn"] or 0), m["agent"], self._sessions[m["agent"]].session, own)
            for m in self._ledger.moves(of_task=True)
            if m["agent"] in self._sessions
            for own in range(m.get("from_own", 0), m.get("own", -1) + 1)
        ]
        if member is not None:
            session = self._sessions[member.name].session
            last = session.turns[-1] if session.path else -1
            turns += [(number, member.name, session, t) for t in range(since + 1, last + 1)]
        return changes_of(turns)

    def _shelf(self, changes: Sequence[Deed]) -> Shelf:
        return Shelf(root=self._root, brief=self._plan.brief, changes=changes)
