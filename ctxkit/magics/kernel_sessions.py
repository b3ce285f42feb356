"""The sessions of one kernel: live sessions by name, the active session, branches."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal.safe_files import expand_home
from ctxkit.agent.session_settings_seal_and_changes import read_session_settings
from ctxkit.agent.system_prompt import parse_section_names
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.cell_magic_arguments import SESSION_SETTINGS
from ctxkit.magics.mcp_servers_and_acp_agents import (
    McpServerProcesses,
    open_acp_session,
)
from ctxkit.magics.session_settings_and_name_resolver import (
    KitSettings,
    LiveSessionConfig,
    ModelRulesAndToolResolver,
)
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.agent.event_loop_threads import BackgroundTask
    from ctxkit.agent.live_session import LiveSession
    from ctxkit.agent.span_export import OtlpCollectorSettings
    from ctxkit.agent.turn_state_and_events import Listener
    from ctxkit.engine.sent_prompts import SentPrompts


DEFAULT_SESSION = "main"
"""Name of a session if the user gives none."""


# A name is unknown, remembered (settings only) or open. `_open_sessions` holds open sessions and
# `_configs` the parts that each was opened with; where new settings resolve to other parts, the
# session is opened again. `_remembered` holds settings with which a session is opened next,
# `_running` the latest background turn of each, `_always` the tools allowed for good. Only `open`
# adds to `_open_sessions`, and no session is closed or changed by `open` while a turn of it runs.
class LiveSessions:
    """Live sessions by name.

    Args:
        kit: the magics; its settings are the defaults.
    """

    def __init__(self, kit: KitSettings) -> None:
        self._kit, self.resolver = kit, ModelRulesAndToolResolver(kit)
        self._open_sessions: dict[str, LiveSession] = {}
        self._configs: dict[str, LiveSessionConfig] = {}
        self._remembered: dict[str, dict[str, Any]] = {}
        self._running: dict[str, BackgroundTask[Any]] = {}
        self._always: dict[str, set[str]] = {}
        self.servers = McpServerProcesses()
        self.current: str | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._open_sessions

    def get(self, name: str | None = None) -> LiveSession:
        """Return a session that is open; without a name the active one, else the one that was last
        talked to.

        Raises:
            BadArguments: it is not open, or none is.
        """
        chosen = name or self.current_name
        if chosen is None or chosen not in self._open_sessions:
            sentence = (
                f"No live session is called {chosen!r}" if chosen else "No live session is open"
            )
            command = f"%%agent --session {chosen}" if chosen else "%%agent"
            suggestion = did_you_mean(chosen or "", self._open_sessions)
            raise BadArguments(f"{sentence}: begin one with `{command}`.{suggestion}")
        return self._open_sessions[chosen]

    @property
    def current_name(self) -> str | None:
        """Name of the session that is meant where none is named; None: there is none yet."""
        active = self._kit.sessions.active_name
        return (
            active if active in self._open_sessions or active in self._remembered else self.current
        )

    def open(self, name: str, **options: Any) -> LiveSession:
        """Return a session ready for a turn: opened, resumed from its file, or as it is with what
        was asked again.

        Args:
            name: name of the session.
            options: settings that the cell asks for; those left out stay as they were.

        Raises:
            BadArguments: it is busy; or a model, rules or a tool do not exist.
            StoreError: another process holds it.
        """
        # A session whose parts differ from those it was opened with (or whose log was closed) is
        # closed and opened again from its file; otherwise only what was asked is changed in place.
        self.check_idle(name)
        settings = self.settings(name, options)
        parts = self.resolver.resolve_config(
            settings
        )  # refuses what is not there before anything is closed
        previous = self._open_sessions.get(name)
        has_log = previous is not None and bool(previous.session.log)
        system = (
            self.resolver.load_instructions(settings)
            if options.get("system") or not has_log
            else ""
        )
        parse_section_names(settings["sections"])
        listeners: tuple[Listener, ...] = ()
        prompts: SentPrompts | None = None
        if previous is not None and (self._configs[name] != parts or previous.log.stopped):
            del self._open_sessions[name]
            self._remembered[name], listeners = previous.settings, previous.listeners
            prompts = previous.agent.prompts
            previous.close()
        if name not in self._open_sessions:
            self._open_sessions[name] = self._open_session(name, settings, parts, prompts)
            self._configs[name] = parts
            for hear in listeners:
                self._open_sessions[name].listen(hear)
            if previous is not None:  # what differs was named in this kernel
                self._open_sessions[name].notes = ()
        live = self._open_sessions[name]
        if not parts.via:
            live.inject(
                settings["sections"],
                system if options.get("system") or not live.session.log else "",
            )
        live.settings = settings
        self.current = name
        self._kit.sessions.add(live.session, name)
        return live

    def always(self, name: str) -> set[str]:
        """Return the tools of a session that were allowed permanently; the set may grow."""
        return self._always.setdefault(name, set())

    def remember(self, name: str, settings: Mapping[str, Any]) -> None:
        """Store the settings of a session that is not open yet, and make it the current one.

        Args:
            name: name of the session.
            settings: its settings by name, as `open` takes them.
        """
        self._remembered[name], self.current = dict(settings), name

    def check_idle(self, name: str) -> None:
        """Check that no turn of a session is running.

        Raises:
            BadArguments: one is.
        """
        running, live = self._running.get(name), self._open_sessions.get(name)
        in_background = running is not None and running.state in ("running", "stopping")
        if in_background or (live is not None and live.busy):
            from ctxkit.agent.live_session import busy_error

            raise busy_error(name)

    def note_running(self, name: str, handle: BackgroundTask[Any]) -> None:
        """Record that a turn of a session runs in the background.

        Args:
            name: name of the session.
            handle: the task of the turn.
        """
        self._running[name] = handle

    def close(self, name: str | None = None) -> None:
        """Close one session, or all.

        Raises:
            StoreError: the file of one was replaced or cut; the sentence says where its content is.
        """
        with ExitStack() as closing:  # all are closed, also where one has something to say
            for each in [name] if name else list(self._open_sessions):
                live = self._open_sessions.pop(each, None)
                self._always.pop(each, None)
                closing.callback(self.servers.close, each)
                if live is not None:
                    handle = self._running.pop(each, None)
                    if handle is not None:
                        handle.stop()
                        handle.wait(5)
                    closing.callback(live.close)

    # -- what a session is made of ----------------------------------------------------------------

    def settings(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a session: those asked for now, else earlier ones, else the kit's.

        Args:
            name: name of the session.
            options: settings that the cell asks for.
        """
        live = self._open_sessions.get(name)
        before = live.settings if live is not None else self._remembered.get(name)
        if before is None:
            stored = read_session_settings(self._kit.read_stored_session(name))
            before = stored.words if stored is not None else {}
        # Precedence, from low to high: the kit, the session as it was opened, this line.
        defaults = {k: getattr(self._kit, k) for k in SESSION_SETTINGS}
        merged = {**defaults, **before, **{k: v for k, v in options.items() if v is not None}}
        if merged["via"]:  # the agent's model is its own affair
            merged["model"] = ""
        return {k: merged[k] for k in defaults}

    def _open_session(
        self,
        name: str,
        settings: dict[str, Any],
        parts: LiveSessionConfig,
        sent: SentPrompts | None,
    ) -> LiveSession:
        from ctxkit.agent.live_session import LiveSession

        if parts.via:
            return open_acp_session(
                name,
                parts.via,
                root=parts.root,
                servers=parts.mcp,
                settings=settings,
                seed=self._kit.seed,
            )
        model = self.resolver.resolve_model(parts.model, parts.rules)
        span_address = self._span_address()
        live = LiveSession(
            name,
            memory=self.resolver.resolve_memory(settings["memory"], model),
            model=model,
            summary_model=(
                self.resolver.resolve_model(parts.summary_model, parts.rules)
                if parts.summary_model
                else None
            ),
            rules=parts.rules,
            clock=time.time,
            tools=[
                *self.resolver.resolve_tools(settings["tools"]),
                *self.servers.tools(name, parts.mcp),
            ],
            root=parts.root,
            allow=parts.allow,
            namespace=self._kit.shell.user_ns,
            words=settings,
            seed=self._kit.seed,
            prompts=sent,
            outputs=parts.outputs,
        )
        if span_address is not None:
            live.export(span_address)
        return live

    def _span_address(self) -> OtlpCollectorSettings | None:
        """Return where the spans of sessions go; None: nowhere."""
        if not self._kit.export:
            return None
        from ctxkit.agent.span_export import OtlpCollectorSettings

        return OtlpCollectorSettings.of(self._kit.export, content=self._kit.export_content)


class KitState(KitSettings):
    """The sessions and settings of one kernel, as magics use them."""

    def __init__(self, shell: InteractiveShell, **traits: Any) -> None:
        super().__init__(shell, **traits)
        self._lives: LiveSessions | None = None

    @property
    def lives(self) -> LiveSessions:
        """The live sessions of this kernel."""
        if self._lives is None:
            self._lives = LiveSessions(self)
        return self._lives

    def session(self, name: str | None = None) -> Session:
        """Return a session by name, or the active one.

        Raises:
            BadArguments: there is none of that name, or none at all.
            ReadError: the file that the settings name cannot be read.
        """
        chosen = name or self.sessions.active_name
        # A live session may have grown since it was registered.
        if self._lives is not None and chosen in self._lives:
            return self._lives.get(chosen).session
        if name is not None:
            return self.sessions.get(name)
        if self.sessions.active_name is None and self.session_file:
            return self.use(self.session_file)
        return self.sessions.active

    def use(self, what: str, name: str | None = None, format: str | None = None) -> Session:  # noqa: A002
        """Make a session the active one: known by name, held by a variable, or read from a file.

        Args:
            what: name of a session or a variable, or a path.
            name: name under which the session is kept; None: its own.
            format: format of the file; None: detect it.

        Raises:
            ReadError: the file cannot be read.
        """
        registry = self.sessions
        variable = self.shell.user_ns.get(what) if what.isidentifier() else None
        if what in registry and format is None:
            session, name = registry.get(what), name or what
        elif isinstance(variable, Session) and format is None:
            session, name = variable, name or what
        else:
            from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
            from ctxkit.formats.reading import read

            path, workspace = expand_home(what), Workspace()
            if not path.exists() and what in workspace.names():  # kept here, a team among them
                path, name = workspace.sessions / f"{what}.jsonl", name or what
            session = read(path, format=format)
        registry.add(session, name)
        return session

    def close(self) -> None:
        """Give all live sessions free."""
        if self._lives is not None:
            self._lives.close()

    def add_branch(self, name: str, session: Session, origin: str | None) -> bool:
        """Keep a session under a new name; return True where it is live and continues as its
        origin would.

        Args:
            name: the new name.
            session: the branch.
            origin: name of the session that it branches from; None: none that is known here.

        Raises:
            BadArguments: there is one of that name.
        """
        from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
        from ctxkit.formats.writing import write

        place = Workspace()
        path = place.sessions / f"{name}.jsonl"
        if place.has_session(name):
            raise BadArguments(f"There is a session {name!r} already; choose another name.")
        place.make()
        moved = msgspec.structs.replace(
            session, id=place.new_id(name, self.seed), title=name, parent=session.id
        )
        settings: dict[str, Any] = {}
        if origin in self.lives:  # the same model, rules and files
            live = self.lives.get(origin)
            settings = {**live.settings, "root": str(live.root.folder)}
        # The file comes first, since opening the session reads it.
        write(moved, path)
        place.trust(name)
        self.sessions.add(moved, name)
        self.lives.remember(name, settings)
        if settings:
            self.lives.open(name).notes = ()
        return bool(settings)

    def set_aside(self, live: LiveSession) -> str:
        """Close a live session and keep it under another name; return that name."""
        session, path = live.session, live.log.path
        name = f"{live.name}-{live.id}"
        self.lives.close(live.name)
        # The log is closed by now, so no writer holds the old name.
        path.rename(path.with_name(f"{name}.jsonl"))
        live.workspace.trust(name)
        self.sessions.add(session, name)
        return name
