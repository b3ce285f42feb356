"""Runner of a team: gives the task, runs one turn after another, and decides after each."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ctxkit._internal.redaction import redact
from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace, check_session_name
from ctxkit.agent.event_loop_threads import BackgroundTask, run_coroutine
from ctxkit.agent.session_log import SessionLog
from ctxkit.errors import BadArguments, ModelError, StoreError
from ctxkit.metrics.team_agent_logs_and_turns import ARTIFACTS, SOURCE_KEY, TASK
from ctxkit.policies.tool_evidence_summaries import TEAM_STATE_KEY
from ctxkit.session.messages import Message, Text, get_plain_text
from ctxkit.session.session import Session
from ctxkit.teams.handoffs_and_contracts import (
    HANDOFF_TOOL,
    ContextSourceInputs,
    ContractChecker,
    collect_changes,
    find_called_signals,
    format_declared_context,
    format_handoff,
    get_last_reply,
    is_turn_finished,
    list_empty_sources,
    make_turn_changes,
)
from ctxkit.teams.live_team_sessions import TeamSessions, get_session_names
from ctxkit.teams.shared_history_and_checkpoint import (
    EventAndCheckpointWriter,
    SharedHistoryAndStatus,
)
from ctxkit.teams.turn_decisions import (
    check_resumable,
    decide_turn,
    get_next_agent,
    get_next_state_name,
    make_initial_status,
)
from ctxkit.teams.turn_prompts_and_team_state import (
    TurnDecision,
    TurnReply,
    quote_previous_reply,
    recovery_prompt,
    resume_prompt,
    turn_prompt,
    verifier_prompt,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.agent.turn_state_and_events import Listener, Outcome
    from ctxkit.teams.handoffs_and_contracts import TurnFilesAndCommands
    from ctxkit.teams.live_team_sessions import SessionFactory
    from ctxkit.teams.team_definition import Member, TeamPlan
    from ctxkit.teams.turn_prompts_and_team_state import TeamStatus


class Team:
    """A team on disk: a session for each agent, and a ledger of their shared history.

    Args:
        plan: agents and routing.
        session_factory: opens the session of each agent.
        name: name of the team; an existing one is resumed.
        workspace: folder in which the team is stored.
        clock: returns seconds since 1970.
        seed: makes its id reproducible; empty: random.
        words: how the user named its parts, stored under the user's seal.

    Raises:
        StoreError: another process runs it.
        BadArguments: it is not trusted, or was begun with another config.
    """

    def __init__(
        self,
        plan: TeamPlan,
        session_factory: SessionFactory,
        *,
        name: str,
        workspace: Workspace,
        clock: Callable[[], float],
        seed: str = "",
        words: Mapping[str, Any] | None = None,
    ) -> None:
        self.plan, self.name, self._clock = plan, check_session_name(name), clock
        self.workspace, self._crew = workspace, session_factory
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
        # on failure everything opened so far is closed; otherwise `close` does it
        with ExitStack() as undo:
            log = SessionLog(workspace.sessions, name, fresh, self._vouch_for)
            undo.callback(log.close)
            self.ledger = SharedHistoryAndStatus(log, clock)
            check_resumable(plan, self.status, self.ledger.list_active_agents(), name)
            self.ledger.store_plan(plan, dict(words or {}))
            self.root = session_factory.root
            self._files = EventAndCheckpointWriter(
                workspace, self.id, plan, clock, self.status.turns
            )
            undo.callback(self._files.close)
            self.sessions = TeamSessions(
                plan.members,
                lambda member, sub: session_factory.open(
                    member, name, self.id, workspace, sub=sub, changes=self._turns.collect_changes
                ),
                lambda member, live: session_factory.open_sub(member, name, live, workspace),
                self._record_event,
            )
            """The agents' sessions by name, each opened at first use."""
            undo.callback(self.sessions.close)
            self.listen(self._files.on_event)
            self._turns = TurnRunner(plan, self.ledger, self.sessions, self.root, self._files)
            self._open_first()
            self._closing = undo.pop_all()
        self._busy = False
        self.notes: tuple[str, ...] = ()
        """Sentences for the user on config keys without effect and missing grants."""

    def _open_first(self) -> None:
        """Open the existing sessions, which may be refused, and that of the first agent."""
        session_names_here = set(self.workspace.names())
        for agent, name in get_session_names(self.name, self.plan).items():
            if name in session_names_here:
                self.sessions[agent]
        if not self.status.ended:
            self.sessions[get_next_agent(self.plan, self.status)]

    # -- what it is ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """Its id, eight hexadecimal digits."""
        return self.ledger.session.id

    @property
    def status(self) -> TeamStatus:
        """Its state, number of turns, and whether and why it ended."""
        return self.ledger.status(make_initial_status(self.plan))

    @property
    def moves(self) -> pd.DataFrame:
        """The decisions, one row per turn."""
        import pandas as pd

        return pd.DataFrame(self.ledger.moves())

    @property
    def session(self) -> Session:
        """The ledger, with the agents' sessions as its children; only these have calls.

        While the team is open every agent has a session, afterwards only those that were used.
        """
        children = tuple(self._with_sub(name) for name in self.sessions)
        return msgspec.structs.replace(self.ledger.session, children=children)

    def _with_sub(self, name: str) -> Session:
        """Return an agent's session, with its sub-agent's session as its child."""
        session = self.sessions[name].session
        sub = self.sessions.subs.get(name)
        if sub is None:
            return session
        with_child = msgspec.structs.replace(session, children=(sub.session,))
        return with_child.set_prompt_source(session.prompt_source)

    @property
    def subs(self) -> Mapping[str, LiveSession]:
        """Sessions of sub-agents, by the name of their agent."""
        for member in self.plan.members:
            if member.sub_agent is not None and member.name in self.sessions:
                self.sessions[member.name]
        return self.sessions.subs

    @property
    def account(self) -> pd.DataFrame:
        """Usage of each agent: one row per session, as ``ctxkit.frame(per="session")``."""
        from ctxkit.metrics.frames import frame

        lives = (*self.sessions.values(), *self.sessions.subs.values())
        return frame([live.session for live in lives], per="session")

    @property
    def tokens(self) -> int:
        """Tokens billed to all agents together."""
        used = [c.message.usage for live in self.lives for c in live.session.calls]
        return sum((u.prompt_tokens or 0) + (u.output_tokens or 0) for u in used if u is not None)

    @property
    def tool_names(self) -> list[str]:
        """Names of all agents' tools."""
        return self._crew.tool_names()

    def listen(self, listener: Listener) -> None:
        """Add a listener for the events of every agent."""
        self.sessions.each(lambda live: live.listen(listener))

    @property
    def lives(self) -> list[LiveSession]:
        """Open sessions of agents and sub-agents."""
        opened = self.sessions.opened
        agents = [opened[m.name] for m in self.plan.members if m.name in opened]
        return [*agents, *self.sessions.subs.values()]

    def _record_event(self, kind: str, payload: Mapping[str, object], agent: str) -> None:
        self._files.write_event(kind, self.status.turns, payload, agent)

    # -- work ------------------------------------------------------------------------------------

    def run(self, task: str = "") -> TeamStatus:
        """Run until the team has ended; after an interrupt `run()` continues.

        Returns:
            The status at the end.

        Raises:
            BadArguments: there is no task.
            ModelError: a model failed; the next `run()` repeats the turn.
        """
        return run_coroutine(self.work(task))

    def background(self, task: str = "") -> BackgroundTask[TeamStatus]:
        """Run in the background; the handle can stop it."""
        return BackgroundTask(self.work(task))

    async def work(self, task: str = "") -> TeamStatus:
        """Run until the team has ended (see `run`)."""
        self.set_task(task)
        while not self.status.ended:
            await self.step()
        return self.status

    def set_task(self, task: str) -> None:
        """Give the team a task; an empty one continues the current task.

        Raises:
            BadArguments: there is no task, or another one is unfinished.
        """
        task, status = task.strip(), self.status
        if not task and not self.ledger.task:
            raise BadArguments("Say what the team shall do.")
        if not task or (task == self.ledger.task and not status.ended):
            return
        if self.ledger.task and not status.ended:
            raise BadArguments(
                f"Team {self.name!r} is not done with its task: let it go on without a new one, or "
                "begin another team."
            )
        again = msgspec.structs.replace(
            make_initial_status(self.plan),
            turns=status.turns,
            turns_before_task=status.turns,
            last_own_turns=status.last_own_turns,
        )
        self.ledger.set_task(task, again)

    async def step(self) -> TurnDecision | None:
        """Take one turn; return None if the team has ended.

        Raises:
            ModelError: the model failed.
        """
        if self._busy:
            raise BadArguments(f"Team {self.name!r} is busy: its agents take turns.")
        self._busy = True
        try:
            return await self._take_step()
        finally:
            self._busy = False

    async def _take_step(self) -> TurnDecision | None:
        status = self.status
        if status.ended:
            return None
        max_tokens = self.plan.max_tokens
        if max_tokens is not None and self.tokens >= max_tokens:
            return self._turns.end_team(status, f"the team has used its {max_tokens:,} tokens")
        return await self._turns.take_turn(status)

    def _vouch_for(self, name: str) -> None:
        with suppress(StoreError):  # a later kernel asks
            self.workspace.trust(name)

    def close(self) -> None:
        """Close all sessions and the ledger."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        s = self.status
        at = f"{s.ended}: {s.why}" if s.ended else s.state or "in turn"
        names = ", ".join(m.name for m in self.plan.members)
        return f"<Team {self.name}: {names}; {s.turns} turns; {at}>"


class TurnRunner:
    """Takes the turns of a team, one after the other.

    Args:
        plan: plan of the team.
        ledger: shared history of the team.
        sessions: sessions of its agents, by name.
        root: the folder of their tools.
        files: writes the events, snapshots and checkpoint.
    """

    def __init__(
        self,
        plan: TeamPlan,
        ledger: SharedHistoryAndStatus,
        sessions: TeamSessions,
        root: RootFolder,
        files: EventAndCheckpointWriter,
    ) -> None:
        self._plan, self._ledger, self._sessions = plan, ledger, sessions
        self._root, self._files = root, files

    # A turn can be taken again after a crash, as it is written in two places, one after the other:
    # the agent's session gets the messages while it works, the ledger gets the conclusion at the
    # end. `concluded_turn` is the agent's last turn that the ledger has. If a later turn in the
    # session is finished, only its conclusion is written and no model is called. If a later turn is
    # unfinished, it continues with a prompt that says so. Otherwise a new turn begins. Invariant:
    # each turn has one conclusion.
    async def take_turn(self, status: TeamStatus) -> TurnDecision:
        """Take the next turn.

        Returns:
            The decision after the turn, with the new status.

        Raises:
            ModelError: the model failed.
        """
        member = self._plan.member(get_next_agent(self._plan, status))
        live = self._sessions[member.name]
        concluded_turn = status.last_own_turns.get(member.name, -1)
        last_turn = live.session.turns[-1] if live.session.calls else -1
        if last_turn <= concluded_turn or not is_turn_finished(live.session, last_turn):
            outcome = await self._run_turn(member, status, is_resumed=last_turn > concluded_turn)
            if outcome.ended == "error":
                raise ModelError(
                    f"{outcome.why} The turn of {member.name} is taken again when the team goes on."
                )
            if outcome.ended == "limit":
                payload = {"message": outcome.why}
                self._files.write_event("agent_timeout", status.turns, payload, member.name)
        return self._conclude_turn(member, status, concluded_turn)

    def end_team(self, status: TeamStatus, why: str) -> TurnDecision:
        """End the team without a turn.

        Args:
            status: the team's status after its last turn.
            why: one sentence.
        """
        ended = msgspec.structs.replace(status, ended="stopped", why=why)
        decision = TurnDecision(ended, "termination_forced")
        self._ledger.conclude(
            "team", (), decision, handoff="", to="", extra={"state": status.state}
        )
        self._files.write_event(decision.kind, status.turns, {"message": why}, "team")
        return decision

    # -- before ----------------------------------------------------------------------------------

    async def _run_turn(self, member: Member, status: TeamStatus, *, is_resumed: bool) -> Outcome:
        live = self._sessions[member.name]
        news = self._collect_news(member, status)
        self._warn_of_cap(member, status, len(live.session.messages) + len(news))
        state = None if status.branches else self._plan.states.get(status.state)
        if status.recovery_or_verifier:
            words = verifier_prompt(member) if status.is_verifier_due else recovery_prompt(member)
        elif is_resumed:
            words = resume_prompt(member)
        else:
            # the task is the first of the new messages when it is given
            chars_since_task = sum(len(get_plain_text(m)) for m in news if m.kind != TASK)
            words = turn_prompt(member, state, self._ledger.task, chars_since_task)
        # a scripted model continues after the agent's concluded turns
        begin_script = getattr(live.agent.model, "begin", None)
        if callable(begin_script):
            over = sum(m["agent"] == member.name for m in self._ledger.moves())
            begin_script(over, status)
        self._files.write_event("agent_start", status.turns, {"state": status.state}, member.name)
        if not status.recovery_or_verifier:
            words += quote_previous_reply(
                self._plan.states.get(get_next_state_name(status)), status, self._sessions
            )
        changes = self.collect_changes()
        details = self._status_details(member, status, changes)
        live.agent.describe_result = self._make_describer(member, status, changes, details)
        return await live.turn(words, news, details=details)

    # A compaction may happen within a turn, after files were written. So each result that changed
    # the status of a contract stores the new status, and a summary uses the newest one: it
    # describes the files as they are then, and a replay of the log gives the same summary.
    def _make_describer(
        self,
        member: Member,
        status: TeamStatus,
        earlier: Sequence[TurnFilesAndCommands],
        last: dict[str, Any],
    ) -> Callable[[Message], dict[str, Any]]:
        """Return a function that returns the team's status after a result if it is new, else {}."""

        def describe(result: Message) -> dict[str, Any]:
            nonlocal last
            if not last:
                return {}
            session = self._sessions[member.name].session
            turn_messages = [m for m in session.messages if m.turn == session.turns[-1]]
            change = make_turn_changes(status.turns, member.name, [*turn_messages, result])
            now = self._status_details(member, status, [*earlier, *([change] if change else [])])
            if now == last:
                return {}
            last = now
            return now

        return describe

    def _status_details(
        self, member: Member, status: TeamStatus, changes: Sequence[TurnFilesAndCommands]
    ) -> dict[str, Any]:
        """Return the team's status as details of a message, for later summaries.

        Contracts are checked now, with the current files and these changes.
        """
        state = self._plan.states.get(status.state)
        if state is None:
            return {}
        proof = ContractChecker(
            root=self._root, plan=self._plan, changes=changes, turn=status.turns
        )
        failures = [f"{way}: {n} in a row" for way, n in status.failures.items()]
        ways = state.transitions
        return {TEAM_STATE_KEY: {
            "state": state.name, "agent": member.name, "entered": list(status.visited),
            "signals": [f"{t.signal} → {t.to}" for t in ways if t.signal], "failures": failures,
            "contracts": proof.status(c for t in ways for c in t.contracts),
        }}  # fmt: skip

    def _collect_news(self, member: Member, status: TeamStatus) -> list[Message]:
        """Return the messages that go into an agent's session before its prompt."""
        session = self._sessions[member.name].session
        visible_ids = {
            str(m.details[SOURCE_KEY]) for m in session.messages if SOURCE_KEY in m.details
        }
        first = not session.calls
        news = self._ledger.collect_unheard(
            member, visible_ids, first=first, forked=bool(status.branches)
        )
        block = self._declared_context(member, status) if member.context else None
        if block is None:
            return news
        # the first turn begins with the task; later the block comes before the new messages
        return [*news, block] if first else [block, *news]

    def _warn_of_cap(self, member: Member, status: TeamStatus, messages: int) -> None:
        """Emit a warning if an agent's history is near the cap of its view."""
        threshold = int(member.message_cap * member.warning_share)
        if threshold and messages > threshold:
            payload = {"messages": messages, "cap": member.message_cap,
                    "fraction": member.warning_share, "threshold": threshold}  # fmt: skip
            self._files.write_event("context_cap_warning", status.turns, payload, member.name)

    def _declared_context(self, member: Member, status: TeamStatus) -> Message | None:
        files = self._source_files(self.collect_changes())
        block = format_declared_context(files, member.context)
        payload = {"context_strategy": "artifact_spec", "context_chars": len(block),
                "declared_sources": [s.name for s in member.context],
                "empty_sources": list(list_empty_sources(files, member.context))}  # fmt: skip
        self._files.write_event("context_assembly", status.turns, payload, member.name)
        return Message(role="user", kind=ARTIFACTS, parts=(Text(redact(block)),)) if block else None

    # -- after -----------------------------------------------------------------------------------

    def _conclude_turn(
        self, member: Member, status: TeamStatus, concluded_turn: int
    ) -> TurnDecision:
        """Write a finished turn and the decision after it into the ledger."""
        session = self._sessions[member.name].session
        turns = [
            m
            for m in session.messages
            if (m.turn or 0) > concluded_turn and SOURCE_KEY not in m.details
        ]
        changes = self.collect_changes(member, concluded_turn, status.turns)
        proof = ContractChecker(
            root=self._root, plan=self._plan, changes=changes, turn=status.turns
        )
        # a turn that only hands off counts as one without tools
        worked = any(c.name != HANDOFF_TOOL for m in turns for c in m.tool_calls)
        turn = TurnReply(member.name, get_last_reply(turns), find_called_signals(turns), worked)
        decision = decide_turn(self._plan, status, turn, proof)
        last = session.turns[-1] if session.path else -1
        at = {**status.last_own_turns, member.name: last}
        decision = decision._replace(
            status=msgspec.structs.replace(decision.status, last_own_turns=at)
        )
        to = get_next_agent(self._plan, decision.status) if not decision.status.ended else ""
        self._ledger.conclude(
            member.name,
            turns,
            decision,
            handoff=self._format_handoff(decision, to, changes),
            to=to,
            extra={"state": status.state, "own": last, "from_own": concluded_turn + 1},
        )
        self._files.record(member.name, status.turns, decision, turns)
        members = {name: live.session for name, live in self._sessions.opened.items()}
        folder = str(self._root.folder)
        self._files.checkpoint(self._ledger.session, members, decision.status, folder)
        return decision

    def _format_handoff(
        self, decision: TurnDecision, to: str, changes: Sequence[TurnFilesAndCommands]
    ) -> str:
        """Return the block of a hand-off; empty if there is none."""
        if (
            decision.kind != "state_advanced"
            or decision.transition is None
            or not decision.transition.handoff
        ):
            return ""
        receiver = to or self._plan.states[decision.status.state].agent
        return format_handoff(self._source_files(changes), decision.transition.handoff, receiver)

    def collect_changes(
        self, member: Member | None = None, since: int = 0, number: int = 0
    ) -> list[TurnFilesAndCommands]:
        """Return the changes of files and the commands of all turns, from the ledger.

        Args:
            member: the agent of the turn that is being concluded, whose changes are added; None:
                none.
            since: the last turn of its own session that is in the ledger, from 0.
            number: number of the turn among those of the team, for its changes.
        """
        # turns in the ledger, then the turn that is being concluded
        turns = [
            (int(m["turn"] or 0), m["agent"], self._sessions[m["agent"]].session, turn)
            for m in self._ledger.moves(of_task=True)
            if m["agent"] in self._sessions
            for turn in range(m.get("from_own", 0), m.get("own", -1) + 1)
        ]
        if member is not None:
            session = self._sessions[member.name].session
            last = session.turns[-1] if session.path else -1
            turns += [(number, member.name, session, t) for t in range(since + 1, last + 1)]
        return collect_changes(turns)

    def _source_files(self, changes: Sequence[TurnFilesAndCommands]) -> ContextSourceInputs:
        return ContextSourceInputs(root=self._root, brief=self._plan.brief_path, changes=changes)
