"""A team at work: agents take turns on one task, each in a session of its own, with one ledger
between them.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ctxkit.agent.outcome import Outcome  # noqa: TC001  a result
from ctxkit.agent.threads import Background, run
from ctxkit.errors import BadArguments, ModelError, StoreError
from ctxkit.messages import Message, Text
from ctxkit.redaction import redact
from ctxkit.session import Session
from ctxkit.snapshots.write import SnapshotWriter
from ctxkit.store.events_log import EventsLog
from ctxkit.store.session_log import SessionLog
from ctxkit.store.workspace import Workspace, checked
from ctxkit.teams.contracts import Proof, changes_of
from ctxkit.teams.corrections import cut_off, helping, prompt
from ctxkit.teams.filters import ARTIFACTS
from ctxkit.teams.handing import HANDOFF_TOOL
from ctxkit.teams.handoffs import Shelf, artifacts, empty, handed
from ctxkit.teams.ledger import FROM, TeamLedger
from ctxkit.teams.machine import Decided, TeamReply, begun, check, decided, speaker
from ctxkit.texts.contents import texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from ctxkit.agent.events import Listener
    from ctxkit.agent.live import LiveSession
    from ctxkit.teams.contracts import Deed
    from ctxkit.teams.crew import Crew
    from ctxkit.teams.machine import Standing
    from ctxkit.teams.rosters import Member, Roster

_ADDED = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Team:
    """A team that is kept: what its agents say is in their sessions, what they hear in its ledger.

    Args:
        plan: who is in it, and how they hand on.
        crew: opens the session of each agent.
        name: of the team; one that exists goes on.
        workspace: where it is kept.
        clock: seconds since 1970.
        seed: what its id follows from; empty: by chance.

    Raises:
        StoreError: another process runs it.
        BadArguments: it was begun elsewhere, and nobody vouched for it; or with another config.
    """

    def __init__(
        self,
        plan: Roster,
        crew: Crew,
        *,
        name: str,
        workspace: Workspace,
        clock: Callable[[], float],
        seed: str = "",
    ) -> None:
        self.plan, self.name, self._clock = plan, checked(name), clock
        self.workspace = workspace
        workspace.make()
        workspace.check(name)
        fresh = Session(
            id=workspace.new_id(name, seed),
            format="live",
            title=name,
            agent="team",
            product="ctxkit",
            started=clock(),
            cwd=str(Path.cwd()),
            details={"team": [m.name for m in plan.members]},
        )
        self._closing = ExitStack()
        with ExitStack() as undo:
            log = SessionLog(workspace.sessions, name, fresh, self._begun)
            undo.callback(log.close)
            self.ledger = TeamLedger(log, clock)
            check(plan, self.standing, self.ledger.worked(), name)
            self.sessions: dict[str, LiveSession] = {}
            for member in plan.members:
                live = crew.open(member, name, self.id, workspace)
                undo.callback(live.close)
                self.sessions[member.name] = live
            self.root = crew.root
            self._events = EventsLog(
                workspace.open(workspace.events(self.id), _ADDED), self.id, "team"
            )
            undo.callback(self._events.close)
            self._snapshots = SnapshotWriter(
                workspace.snapshots(self.id),
                self.id,
                warn_at=plan.warn_at,
                cutover_at=plan.cutover_at,
                opener=workspace.open,
                now=lambda: datetime.fromtimestamp(clock(), UTC),
            )
            undo.callback(self._snapshots.close)
            self._closing = undo.pop_all()
        self._busy = False
        self.notes: tuple[str, ...] = ()
        """What of the config is not obeyed, or was not given: sentences for the user."""

    # -- what it is ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its id, eight hexadecimal digits."""
        return self.ledger.session.id

    @property
    def standing(self) -> Standing:
        """Where it stands: the state, how many turns are over, whether it ended and why."""
        return self.ledger.standing(begun(self.plan))

    @property
    def moves(self) -> pd.DataFrame:
        """What followed from each turn, a row each."""
        import pandas as pd

        return pd.DataFrame(self.ledger.moves())

    @property
    def session(self) -> Session:
        """The ledger, with the agents' sessions as its children; these alone hold calls."""
        children = tuple(live.session for live in self.sessions.values())
        return msgspec.structs.replace(self.ledger.session, children=children)

    @property
    def account(self) -> pd.DataFrame:
        """What each agent used: a row a session, as ``ctxkit.frame(per="session")``."""
        from ctxkit.frames import frame

        return frame([live.session for live in self.sessions.values()], per="session")

    @property
    def tokens(self) -> int:
        """Tokens billed to all agents together."""
        used = [c.message.usage for live in self.sessions.values() for c in live.session.calls]
        return sum((u.prompt_tokens or 0) + (u.output_tokens or 0) for u in used if u is not None)

    def listen(self, hear: Listener) -> None:
        """Tell every event of every agent to one more listener."""
        for live in self.sessions.values():
            live.listen(hear)

    # -- work ------------------------------------------------------------------------------------

    def run(self, task: str = "") -> Standing:
        """Work until the team has ended; an interrupt leaves it whole, and `run()` goes on.

        Raises:
            BadArguments: there is no task.
            ModelError: a model failed; the same turn is taken again by the next `run()`.
        """
        return run(self.work(task))

    def background(self, task: str = "") -> Background[Standing]:
        """Work beside the notebook; the handle can stop it."""
        return Background(self.work(task))

    async def work(self, task: str = "") -> Standing:
        """Work until the team has ended (see `run`)."""
        self.ask(task)
        while not self.standing.ended:
            await self.step()
        return self.standing

    def ask(self, task: str) -> None:
        """Give the team a task; without words it goes on with the one that it has.

        Raises:
            BadArguments: there is none, or it has another one that is not done.
        """
        task, standing = task.strip(), self.standing
        if not task and not self.ledger.task:
            raise BadArguments("Say what the team shall do.")
        if not task or (task == self.ledger.task and not standing.ended):
            return
        if self.ledger.task and not standing.ended:
            raise BadArguments(
                f"Team {self.name!r} is not done with its task: let it go on without a new one, or "
                "begin another team."
            )
        again = msgspec.structs.replace(
            begun(self.plan), turns=standing.turns, since=standing.turns, own=standing.own
        )
        self.ledger.ask(task, again)

    async def step(self) -> Decided | None:
        """Take one turn; None where the team has ended.

        Raises:
            ModelError: the model failed.
        """
        if self._busy:
            raise BadArguments(f"Team {self.name!r} is busy: its agents take turns.")
        self._busy = True
        try:
            return await self._step()
        finally:
            self._busy = False

    async def _step(self) -> Decided | None:
        standing = self.standing
        if standing.ended:
            return None
        if self.plan.max_tokens is not None and self.tokens >= self.plan.max_tokens:
            return self._over(standing, f"the team has used its {self.plan.max_tokens:,} tokens")
        member = self.plan.member(speaker(self.plan, standing))
        live = self.sessions[member.name]
        begun_at = standing.own.get(member.name, -1)
        late = live.session.turns[-1] if live.session.calls else -1
        outcome: Outcome | None = None
        if late <= begun_at or not _finished(live.session, late):
            outcome = await self._turn(member, standing, cut=late > begun_at)
            if outcome.ended == "error":
                raise ModelError(
                    f"{outcome.why} The turn of {member.name} is taken again when the team goes on."
                )
            if outcome.ended == "limit":
                self._tell("agent_timeout", standing.turns, {"message": outcome.why}, member.name)
        return self._conclude(member, standing, begun_at)

    async def _turn(self, member: Member, standing: Standing, *, cut: bool) -> Outcome:
        live = self.sessions[member.name]
        said = live.session.messages
        known = {str(m.details[FROM]) for m in said if FROM in m.details}
        first = not live.session.calls
        heard = self.ledger.heard(member, known, first=first)
        if member.context:
            block = self._artifacts(member, standing)
            heard = (
                [*([block] if block else []), *heard]
                if not first
                else [*heard, *([block] if block else [])]
            )
        state = self.plan.states.get(standing.state)
        if standing.helper:
            words = helping(member)
        elif cut:
            words = cut_off(member)
        else:
            words = prompt(member, state, self.ledger.task, sum(len(texts(m)) for m in heard))
        played = getattr(live.agent.model, "begin", None)
        if callable(played):
            played(sum(m["agent"] == member.name for m in self.ledger.moves()))
        self._tell("agent_start", standing.turns, {"state": standing.state}, member.name)
        return await live.turn(words, heard)

    def _conclude(self, member: Member, standing: Standing, begun_at: int) -> Decided:
        """Write a turn that is over into the ledger, with what follows from it."""
        session = self.sessions[member.name].session
        own = [m for m in session.messages if (m.turn or 0) > begun_at and FROM not in m.details]
        changes = self._changes(member, begun_at)
        proof = Proof(root=self.root, plan=self.plan, changes=changes)
        turn = TeamReply(member.name, _last(own), _handed(own))
        found = decided(self.plan, standing, turn, proof)
        last = session.turns[-1] if session.path else -1
        found = found._replace(
            standing=msgspec.structs.replace(
                found.standing, own={**standing.own, member.name: last}
            )
        )
        to = speaker(self.plan, found.standing) if not found.standing.ended else ""
        block = ""
        if found.kind == "state_advanced" and found.way is not None and found.way.handoff:
            receiver = to or self.plan.states[found.standing.state].agent
            block = handed(self._shelf(changes), found.way.handoff, receiver)
        self.ledger.conclude(
            member.name,
            own,
            found,
            handed=block,
            to=to,
            extra={"state": standing.state, "own": last, "from_own": begun_at + 1},
        )
        self._record(member, standing, found, own)
        return found

    def _over(self, standing: Standing, why: str) -> Decided:
        ended = msgspec.structs.replace(standing, ended="stopped", why=why)
        found = Decided(ended, "termination_forced")
        self.ledger.conclude("team", (), found, handed="", to="", extra={"state": standing.state})
        self._tell(found.kind, standing.turns, {"message": why}, "team")
        return found

    # -- inside ----------------------------------------------------------------------------------

    def _changes(self, member: Member | None = None, since: int = 0) -> list[Deed]:
        """Return what was changed in all turns; `member`: with its turns from `since` on, not yet
        in the ledger.
        """
        turns = [
            (int(m["turn"] or 0), m["agent"], self.sessions[m["agent"]].session, own)
            for m in self.ledger.moves(of_task=True)
            if m["agent"] in self.sessions
            for own in range(m.get("from_own", 0), m.get("own", -1) + 1)
        ]
        if member is not None:
            session = self.sessions[member.name].session
            last = session.turns[-1] if session.path else -1
            turns += [
                (self.standing.turns, member.name, session, t) for t in range(since + 1, last + 1)
            ]
        return changes_of(turns)

    def _shelf(self, changes: Sequence[Deed]) -> Shelf:
        return Shelf(root=self.root, brief=self.plan.brief, changes=changes)

    def _artifacts(self, member: Member, standing: Standing) -> Message | None:
        shelf = self._shelf(self._changes())
        block = artifacts(shelf, member.context)
        told = {"context_strategy": "artifact_spec", "context_chars": len(block),
                "declared_sources": [s.name for s in member.context],
                "empty_sources": list(empty(shelf, member.context))}  # fmt: skip
        self._tell("context_assembly", standing.turns, told, member.name)
        return Message(role="user", kind=ARTIFACTS, parts=(Text(redact(block)),)) if block else None

    def _record(
        self, member: Member, standing: Standing, found: Decided, own: Sequence[Message]
    ) -> None:
        """Write the row and the events of a turn."""
        used = [m.usage for m in own if m.usage is not None]
        sent, output = (
            sum(u.prompt_tokens or 0 for u in used),
            sum(u.output_tokens or 0 for u in used),
        )
        self._snapshots.turn(member.name, standing.turns, sent, output)
        told: list[tuple[str, dict[str, Any]]] = [
            ("turn_end", {"input_tokens": sent, "output_tokens": output})
        ]
        told.append((found.kind, dict(found.told)))
        if found.correction:
            told.append(("correction_injected", {"reason": found.kind}))
        if found.standing.helper:
            told.append(("recovery_activated", {"agent": found.standing.helper}))
        for kind, payload in told:
            self._tell(kind, standing.turns, payload, member.name)

    def _tell(self, kind: str, turn: int, payload: dict[str, Any], agent: str) -> None:
        self._events.write(kind, self._clock(), turn, payload, agent)

    def _begun(self, name: str) -> None:
        with suppress(StoreError):  # a later kernel asks
            self.workspace.vouch(name)

    def close(self) -> None:
        """Give all its sessions free."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        s = self.standing
        at = f"{s.ended}: {s.why}" if s.ended else s.state or "in turn"
        return f"<Team {self.name}: {', '.join(self.sessions)}; {s.turns} turns; {at}>"


def _finished(session: Session, turn: int) -> bool:
    """Say whether a turn of an agent's session came to its own end."""
    said = [m for m in session.messages if m.turn == turn and m.visible]
    return (
        bool(said)
        and said[-1].role == "assistant"
        and not said[-1].tool_calls
        and said[-1].stop != "length"
    )


def _last(own: Sequence[Message]) -> str:
    """Return the words of the last reply."""
    return next((texts(m) for m in reversed(own) if m.role == "assistant" and m.visible), "")


def _handed(own: Sequence[Message]) -> list[str]:
    """Return the signals that were given by tool calls."""
    calls = [c for m in own for c in m.tool_calls if c.name == HANDOFF_TOOL]
    return [str(c.arguments.get("route_keyword", "")) for c in calls[-1:]]
