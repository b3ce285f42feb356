"""The live sessions of a team: one for each agent, opened with its model, tools and memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit.agent.agent import COMPACT_TOOL
from ctxkit.agent.document_store import ContextStore
from ctxkit.agent.live_session import LiveSession
from ctxkit.agent.memory.entry_store import MemoryStore
from ctxkit.agent.memory.entry_store import get_ctxkit_and_fuseraft_memory_folders as memory_homes
from ctxkit.agent.memory.providers import make_memory_provider
from ctxkit.agent.memory.session_memory import SessionMemory
from ctxkit.agent.models.model_factory import make_model as named
from ctxkit.agent.system_prompt import OFF
from ctxkit.agent.tools.file_tools_and_pdf_office_text import make_file_tools
from ctxkit.agent.tools.python_shell_and_summary_tools import FILE_TOOLS, make_tools
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.policies.memory_entries import get_memory_folder_name
from ctxkit.teams.handoffs_and_contracts import make_team_tools
from ctxkit.teams.member_config_and_views import PLUGIN_TOOLS, SUB_AGENT_RULES
from ctxkit.teams.scripted_teams import is_team_script_name
from ctxkit.teams.sub_agents_and_permissions import (
    ASKING,
    SUB_AGENT_INSTRUCTIONS,
    SubAgent,
    limit_tools,
    sub_agent_name,
)
from ctxkit.tokens import default_counter
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
    from ctxkit.agent.models.model import Model
    from ctxkit.agent.tools.confined_root import RootFolder
    from ctxkit.agent.tools.execution_and_results import Approve
    from ctxkit.agent.tools.tool import Tool
    from ctxkit.agent.turn_limits_and_token_budgets import Limits
    from ctxkit.agent.turn_state_and_events import Listener
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.teams.handoffs_and_contracts import TurnFilesAndCommands
    from ctxkit.teams.team_definition import Member, SubAgentPlan, TeamPlan, ToolCapabilities


_SUMMARY_MODEL = "Compaction.Model"
USER_MEMORY, WEBHOOK_MEMORY = MEMORY_ACCESS = ("user", "webhook")
"""Memory outside the team's own that it may use: the user's memory folders for agents of these
names (fuseraft's folders, too), and the webhook that the config names.
"""


class _SessionSpec(NamedTuple):
    """Arguments with which one session is opened."""

    name: str
    agent: str
    parent: str
    rules: Rules
    tools: list[str | Tool]
    calls: int | None
    model: Model
    instructions: str
    memory: SessionMemory | None = None


class SessionFactory:
    """Opens the sessions of a team's agents.

    Args:
        plan: the team.
        models: models or model names, by agent or by the config's name for a model.
        model: model of all other agents; empty: as the config names them.
        tools: tools that agents may have at most, as for `LiveSession`; every agent gets the
            user's own tools.
        root: the folder in which all agents work.
        allow: protected names that their tools may write.
        clock: returns seconds since 1970.
        limits: limits of each turn.
        approve: decides before each tool call whether it may run.
        listener: called with every event.
        seed: makes the ids reproducible.
        sections: prompt sections of each agent (see `agent.system_prompt.parse_section_names`);
            empty: those that the folder has, and memory.
        memory: memory outside the team's own that the config may use: words of `MEMORY_ACCESS`.
    """

    def __init__(
        self,
        plan: TeamPlan,
        *,
        models: Mapping[str, Model | str],
        model: Model | str,
        tools: Sequence[str | Tool],
        root: RootFolder,
        allow: Sequence[str],
        clock: Callable[[], float],
        limits: Limits,
        approve: Approve | None,
        listener: Listener,
        seed: str,
        sections: str = "",
        memory: Sequence[str] = (),
    ) -> None:
        for name in (m for m in memory if m not in MEMORY_ACCESS):
            raise BadArguments(
                f"There is no memory {sanitize_text(name, 40)!r}: a team can reach "
                f"{' and '.join(MEMORY_ACCESS)} beyond its own."
            )
        self._reaches = tuple(memory)
        tool_groups = list(dict.fromkeys(PLUGIN_TOOLS.values()))
        for name in (t for t in tools if isinstance(t, str) and t not in tool_groups):
            raise BadArguments(
                f"Agents of a team can have no tool {sanitize_text(name, 60)!r}; name some of "
                f"{', '.join(tool_groups)}, or give tools of your own."
                f"{did_you_mean(name, tool_groups)}"
            )
        self.root, self._plan, self._tools, self._allow = root, plan, tuple(tools), tuple(allow)
        self._named_models = {k.casefold(): m for k, m in models.items()}
        self._clock, self._limits, self._approve = clock, limits, approve
        self._listener, self._seed, self._sections = listener, seed, sections
        self._models = {  # raises for a missing model before anything is opened
            m.name: self._resolve_model((m.name, m.model), model or m.model) for m in plan.members
        }
        self._subs = {
            m.name: self._resolve_model(
                (sub_agent_name(m.name), m.sub_agent.model), m.sub_agent.model
            )
            for m in plan.members
            if m.sub_agent is not None
            and (m.sub_agent.model or sub_agent_name(m.name).casefold() in self._named_models)
        }
        self._named: dict[str, dict[str, str]] = {}
        self._writer = self._summary_model(plan.summary_model, model)
        transitions = [t for s in plan.states.values() for t in s.transitions]
        sources = [
            *(s for t in transitions for s in t.handoff),
            *(s for m in plan.members for s in m.context),
        ]
        self._summary = any(s.kind == "session_context" for s in sources)
        self.envelope = plan.envelope
        """Files that agents may write."""

    def open(
        self,
        member: Member,
        team: str,
        parent: str,
        workspace: Workspace,
        *,
        sub: SubAgent | None,
        changes: Callable[[], Sequence[TurnFilesAndCommands]],
    ) -> LiveSession:
        """Open or resume the session of an agent, which may have a sub-agent.

        Args:
            member: the agent.
            team: name of the team.
            parent: id of the team.
            workspace: folder in which the session is stored.
            sub: the sub-agent that it may call.
            changes: returns the team's changes so far.
        """
        question_tools = sub.tools() if sub is not None else []
        spec = _SessionSpec(
            name=self._session_names(team)[member.name], agent=member.name, parent=parent,
            rules=member.rules,
            tools=[*self._offered_tools(member, workspace, changes), *question_tools],
            calls=member.max_calls,
            model=self._models[member.name], instructions=member.instructions,
            memory=self._make_memory(member, team, workspace),
        )  # fmt: skip
        return self._open_session(spec, team, workspace)

    def open_sub(
        self, member: Member, team: str, parent: LiveSession, workspace: Workspace
    ) -> LiveSession:
        """Open the session of a sub-agent.

        Args:
            member: the team's member with a sub-agent.
            team: id of the team.
            parent: session of the member.
            workspace: folder of the session's files.

        Returns:
            The open session.
        """
        plan = cast("SubAgentPlan", member.sub_agent)
        model = self._subs.get(member.name) or self._models[member.name]
        granted = [t for t in plan.tools if t in self._tools]
        tools = self._permitted_tools(granted, member.capabilities, workspace)
        spec = _SessionSpec(
            name=sub_agent_name(parent.name),
            agent=sub_agent_name(member.name),
            parent=parent.id,
            rules=SUB_AGENT_RULES,
            tools=tools,
            calls=plan.max_calls,
            model=model,
            instructions=SUB_AGENT_INSTRUCTIONS,
        )
        return self._open_session(spec, team, workspace)

    def tool_names(self) -> list[str]:
        """Return the names of all agents' tools, each once."""
        offered = [t for m in self._plan.members for t in self._offered_tools(m, None, tuple)]
        for sub in (m.sub_agent for m in self._plan.members if m.sub_agent is not None):
            offered += [*(t for t in sub.tools if t in self._tools), *ASKING]
        groups = dict.fromkeys(t for t in offered if isinstance(t, str))
        own_tools = [t for t in offered if not isinstance(t, str)]
        tools = (*make_tools(list(groups), self.root, {}), *own_tools, COMPACT_TOOL)
        return list(dict.fromkeys(t.name for t in tools))

    def _session_names(self, team: str) -> dict[str, str]:
        if team not in self._named:
            self._named[team] = get_session_names(team, self._plan)
        return self._named[team]

    def _open_session(self, spec: _SessionSpec, team: str, workspace: Workspace) -> LiveSession:
        live = LiveSession(
            spec.name,
            model=spec.model,
            rules=spec.rules,
            clock=self._clock,
            tools=spec.tools,
            root=self.root.folder,
            allow=self._allow,
            workspace=workspace,
            listener=self._listener,
            limits=replace(self._limits, calls=spec.calls) if spec.calls else self._limits,
            approve=self._approve,
            words={"model": spec.model.name, "team": team},
            seed=self._seed,
            agent=spec.agent,
            parent=spec.parent,
            memory=spec.memory,
            summary_model=self._writer,
        )
        with ExitStack() as undo:
            undo.callback(live.close)
            live.inject(self._sections or self._find_sections(live), spec.instructions)
            undo.pop_all()
        return live

    def _find_sections(self, live: LiveSession) -> str:
        """Return the prompt sections of an agent where none are named: those with a source.

        What differs from machine to machine, such as the shell and the time, is not among them.
        """
        has_source = {
            "gitignore": self.root.is_file((".gitignore",)),
            "store": bool(live.store.items()),
            "memory": live.memory is not None,
        }
        return ",".join(name for name, found in has_source.items() if found) or OFF

    def _make_memory(self, member: Member, team: str, workspace: Workspace) -> SessionMemory | None:
        """Return the memory of an agent; None: it has none.

        It is a folder for this team in the user's state folder, or, if the user allows it, the
        folders for the agent's name, which all teams share.
        """
        memory_config = dict(self._plan.memory)
        if memory_config.get("Provider") == WEBHOOK_MEMORY and WEBHOOK_MEMORY not in self._reaches:
            memory_config = {}
        if not (member.remembers or memory_config):
            return None
        team_home, *user_homes = memory_homes()
        name = get_memory_folder_name(member.name)
        if USER_MEMORY in self._reaches:
            folders = [home.parent / "agents" for home in (team_home, *user_homes)]
            homes = [folder / name for folder in folders]
            homes += [
                h for folder in folders if (h := _find_folder_as_written(folder, member.name))
            ]
        else:
            # teams of one name in two workspaces must not share a memory
            mark = sha256(f"{workspace.folder.resolve()}\n{team}".encode()).hexdigest()[:16]
            homes = [team_home.parent / "teams" / mark / name]
        store = MemoryStore(homes, self.root.folder)
        providers = [make_memory_provider(memory_config, store)] if memory_config else []
        # `EnableMemory` is a key of fuseraft's older program, whose block is the documented one
        return SessionMemory(store, providers, whole=member.remembers, order="oldest")

    def _offered_tools(
        self,
        member: Member,
        workspace: Workspace | None,
        changes: Callable[[], Sequence[TurnFilesAndCommands]],
    ) -> list[str | Tool]:
        granted = [t for t in self._tools if t in member.tools or not isinstance(t, str)]
        own_tools = make_team_tools(
            self.root,
            by_call=member.handoff,
            summary=self._summary,
            changes=changes if member.reads_changes else None,
        )
        return [*self._permitted_tools(granted, member.capabilities, workspace), *own_tools]

    def _permitted_tools(
        self,
        granted: Sequence[str | Tool],
        capabilities: ToolCapabilities,
        workspace: Workspace | None,
    ) -> list[str | Tool]:
        """Return tools limited to the agent's capabilities and the team's change envelope."""
        named = [t for t in granted if t != "shell" or capabilities.may_run]
        if FILE_TOOLS not in named or (capabilities.may_write and not self.envelope.globs):
            return named
        store = ContextStore(workspace.folder.parent) if workspace is not None else None
        files = limit_tools(
            make_file_tools(self.root, store), capabilities, self.envelope, self.root
        )
        return [*files, *(t for t in named if t != FILE_TOOLS)]

    def _summary_model(self, name: str, model: Model | str) -> Model | None:
        """Return the model that writes all agents' summaries: the config's, else the first agent's.

        None if the agents are scripted, as a script of turns has no summaries.
        """
        named_models = {name.casefold(), _SUMMARY_MODEL.casefold()}
        if is_team_script_name(model) and not named_models & set(self._named_models):
            return None
        if not name:
            first = self._models[self._plan.members[0].name]
            return None if first.notice.startswith("scripted") else first
        return self._resolve_model((_SUMMARY_MODEL, name), model or name)

    def _resolve_model(self, names: tuple[str, str], default_model: Model | str) -> Model:
        """Return a model by the agent's name, the config's name for it, or its own name."""
        agent, model = names
        chosen = self._named_models.get(
            agent.casefold(), self._named_models.get(model.casefold(), default_model)
        )
        if not isinstance(chosen, str):
            return chosen
        if not chosen:
            raise BadArguments(
                f"No model is named for {sanitize_text(agent, 40)}: give the team model=."
            )
        if "/" not in chosen and price(chosen) is None:
            raise BadArguments(
                f"{sanitize_text(agent, 40)} asks for model {sanitize_text(chosen, 60)!r}, which "
                "is not known:"
                f" say which is meant, models={{{sanitize_text(chosen, 60)!r}: 'PROVIDER/MODEL'}}."
            )
        return named(chosen, counter=default_counter(), clock=self._clock)


def _find_folder_as_written(folder: Path, agent: str) -> Path | None:
    """Return the folder with exactly the agent's name, or None; fuseraft's is in lower case."""
    is_name = re.fullmatch(r"[\w -]{1,100}", agent) is not None
    if not is_name or agent == get_memory_folder_name(agent):
        return None
    names = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    return folder / agent if agent in names else None


def get_session_names(team: str, plan: TeamPlan) -> dict[str, str]:
    """Return the name of each agent's session, by the agent's name.

    Args:
        team: name of the team.
        plan: its plan.

    Returns:
        Names such as `team.planner`; equal ones get the position of the agent.
    """
    slugs = [_make_slug(m.name) for m in plan.members]
    slug_counts = Counter(slugs)
    return {
        m.name: f"{team[:30]}.{slug}" + (f"-{n}" if slug_counts[slug] > 1 else "")
        for n, (m, slug) in enumerate(zip(plan.members, slugs, strict=True))
    }


def _make_slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:28].strip("-") or "agent"


def describe_missing_grants(
    plan: TeamPlan, tools: Sequence[Any], memory: Sequence[str] = ()
) -> list[str]:
    """Return sentences on tools and memory that the config requests and the user did not grant.

    Args:
        plan: the plan of the team.
        tools: tools that the user granted.
        memory: memory that the user granted.

    Returns:
        A sentence for each; it says which argument grants it.
    """
    sentences = [
        f"{sanitize_text(m.name, 40)} asks for {t}: name it, tools=('files', {t!r}), if it may "
        "have it."
        for m in plan.members
        for t in m.tools
        if t not in tools
    ]
    if plan.memory.get("Provider") == WEBHOOK_MEMORY and WEBHOOK_MEMORY not in memory:
        sentences.append(
            "Memory asks a webhook: name it, memory=('webhook',), if the team's talk, and what the"
            " headers name of your environment, may be sent to its address."
        )
    return sentences


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.teams.sub_agents_and_permissions import SubAgentListener
    from ctxkit.teams.team_definition import Member

    Open = Callable[[Member, SubAgent | None], LiveSession]
    OpenSub = Callable[[Member, LiveSession], LiveSession]


class TeamSessions(Mapping[str, LiveSession]):
    """Live sessions by an agent's name.

    Opening one creates five files and takes some milliseconds, so each is opened at first use.

    Args:
        members: the agents.
        open_session: opens the session of an agent, which may have a sub-agent.
        open_sub: opens the session of a sub-agent.
        emit: called with the events of sub-agents.
    """

    def __init__(
        self,
        members: Sequence[Member],
        open_session: Open,
        open_sub: OpenSub,
        emit: SubAgentListener,
    ) -> None:
        self._members = {m.name: m for m in members}
        self._open, self._open_sub, self._emit = open_session, open_sub, emit
        self._lock = RLock()
        """The team runs in one thread, and another may read."""
        self._hooks: list[Callable[[LiveSession], None]] = []
        self.opened: dict[str, LiveSession] = {}
        """Open sessions, in the order in which they were opened."""
        self.subs: dict[str, LiveSession] = {}
        """Sessions of sub-agents, by the name of their agent."""
        self._closing, self._closed = ExitStack(), False

    def __getitem__(self, name: str) -> LiveSession:
        with self._lock:
            if name not in self.opened and not self._closed:
                self._open_member(self._members[name])
            return self.opened[name]

    def __contains__(self, name: object) -> bool:
        return name in (self.opened if self._closed else self._members)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._members if name in self)

    def __len__(self) -> int:
        return len(self.opened if self._closed else self._members)

    def each(self, action: Callable[[LiveSession], None]) -> None:
        """Call a function with each open session, and later with each that is opened."""
        with self._lock:
            self._hooks.append(action)
            for live in (*self.opened.values(), *self.subs.values()):
                action(live)

    def close(self) -> None:
        """Close all open sessions; none can be opened afterwards."""
        with self._lock:
            self._closed = True
            self._closing.close()

    def _open_member(self, member: Member) -> None:
        with ExitStack() as undo:
            sub = SubAgent(member.name, self._emit) if member.sub_agent is not None else None
            # the session is closed again if that of its sub-agent cannot be opened
            live = self._open(member, sub)
            undo.callback(live.close)
            new = [live]
            if sub is not None:
                sub.live = self._open_sub(member, live)
                undo.callback(sub.live.close)
                self.subs[member.name] = sub.live
                new.append(sub.live)
            self.opened[member.name] = live
            self._closing.push(undo.pop_all())
        for each in new:
            for do in self._hooks:
                do(each)
