"""A team at work: agents take turns, each in its own session, with one ledger between them."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ctxkit.agent.threads import Background, run
from ctxkit.errors import BadArguments, StoreError
from ctxkit.session import Session
from ctxkit.store.session_log import SessionLog
from ctxkit.store.workspace import Workspace, checked
from ctxkit.teams.crew import session_names
from ctxkit.teams.ledger import TeamLedger
from ctxkit.teams.machine import begun, check, speaker
from ctxkit.teams.team_files import TeamFiles
from ctxkit.teams.team_sessions import TeamSessions
from ctxkit.teams.turn_taking import TurnTaker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from ctxkit.agent.events import Listener
    from ctxkit.agent.live import LiveSession
    from ctxkit.teams.crew import Crew
    from ctxkit.teams.decisions import Decided, Standing
    from ctxkit.teams.rosters import Roster


class Team:
    """A team that is kept: what its agents say is in their sessions, what they hear in its ledger.

    Args:
        plan: who is in it, and how they hand on.
        crew: opens the session of each agent.
        name: of the team; one that exists goes on.
        workspace: where it is kept.
        clock: seconds since 1970.
        seed: what its id follows from; empty: by chance.
        words: how it was opened, kept under the user's seal.

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
        words: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan, self.name, self._clock = plan, checked(name), clock
        self.workspace, self._crew = workspace, crew
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
        )
        with ExitStack() as undo:
            log = SessionLog(workspace.sessions, name, fresh, self._begun)
            undo.callback(log.close)
            self.ledger = TeamLedger(log, clock)
            check(plan, self.standing, self.ledger.worked(), name)
            self.ledger.note(plan, dict(words or {}))
            self.root = crew.root
            self._files = TeamFiles(workspace, self.id, plan, clock)
            undo.callback(self._files.close)
            self.sessions = TeamSessions(
                plan.members,
                lambda member, sub: crew.open(member, name, self.id, workspace, sub),
                lambda member, live: crew.open_sub(member, name, live, workspace),
                self._told,
            )
            """The agents' sessions by name; each is opened when its agent is first asked for."""
            undo.callback(self.sessions.close)
            self._turns = TurnTaker(plan, self.ledger, self.sessions, self.root, self._files)
            self._open_first()
            self._closing = undo.pop_all()
        self._busy = False
        self.notes: tuple[str, ...] = ()
        """What of the config is not obeyed, or was not given: sentences for the user."""

    def _open_first(self) -> None:
        """Open the sessions that were begun, which may be refused, and that of who speaks first."""
        begun_before = set(self.workspace.names())
        for agent, name in session_names(self.name, self.plan).items():
            if name in begun_before:
                self.sessions[agent]
        if not self.standing.ended:
            self.sessions[speaker(self.plan, self.standing)]

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
        """The ledger, with the agents' sessions as its children; these alone hold calls.

        While the team is open all of its agents have one, afterwards those that were asked for.
        """
        children = tuple(self._with_sub(name) for name in self.sessions)
        return msgspec.structs.replace(self.ledger.session, children=children)

    def _with_sub(self, name: str) -> Session:
        """Return an agent's session, with that of the agent that it asks as its child."""
        session = self.sessions[name].session
        sub = self.sessions.subs.get(name)
        if sub is None:
            return session
        own = msgspec.structs.replace(session, children=(sub.session,))
        return own.backed(session.behind)

    @property
    def subs(self) -> Mapping[str, LiveSession]:
        """The sessions of agents that others ask, by the name of the one who asks."""
        for member in self.plan.members:
            if member.sub is not None and member.name in self.sessions:
                self.sessions[member.name]
        return self.sessions.subs

    @property
    def account(self) -> pd.DataFrame:
        """What each agent used: a row a session, as ``ctxkit.frame(per="session")``."""
        from ctxkit.frames import frame

        lives = (*self.sessions.values(), *self.sessions.subs.values())
        return frame([live.session for live in lives], per="session")

    @property
    def tokens(self) -> int:
        """Tokens billed to all agents together."""
        used = [c.message.usage for live in self.lives for c in live.session.calls]
        return sum((u.prompt_tokens or 0) + (u.output_tokens or 0) for u in used if u is not None)

    @property
    def tool_names(self) -> list[str]:
        """The names of the tools that some agent of the team has."""
        return self._crew.tool_names()

    def listen(self, hear: Listener) -> None:
        """Tell every event of every agent to one more listener."""
        self.sessions.each(lambda live: live.listen(hear))

    @property
    def lives(self) -> list[LiveSession]:
        """The sessions that are open: of agents that were asked for, and of those that they ask."""
        opened = self.sessions.opened
        agents = [opened[m.name] for m in self.plan.members if m.name in opened]
        return [*agents, *self.sessions.subs.values()]

    def _told(self, kind: str, payload: Mapping[str, object], agent: str) -> None:
        self._files.tell(kind, self.standing.turns, payload, agent)

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
        most = self.plan.max_tokens
        if most is not None and self.tokens >= most:
            return self._turns.over(standing, f"the team has used its {most:,} tokens")
        return await self._turns.take(standing)

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
        names = ", ".join(m.name for m in self.plan.members)
        return f"<Team {self.name}: {names}; {s.turns} turns; {at}>"
