"""The state of the magics in one kernel: the active session, live sessions, branches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.magics.cell_options_and_config import KitSettings
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.agent.live_session import LiveSession
    from ctxkit.magics.live_sessions import LiveSessions


class KitState(KitSettings):
    """The sessions and settings of one kernel, as magics use them."""

    def __init__(self, shell: InteractiveShell, **traits: Any) -> None:
        super().__init__(shell, **traits)
        self._lives: LiveSessions | None = None

    @property
    def lives(self) -> LiveSessions:
        """The live sessions of this kernel."""
        if self._lives is None:
            from ctxkit.magics.live_sessions import LiveSessions

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
            from ctxkit.agent.store.project_folder import Workspace
            from ctxkit.formats.reading import read

            path, workspace = Path(what).expanduser(), Workspace()
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

        Raises:
            BadArguments: there is one of that name.
        """
        from ctxkit.agent.store.project_folder import Workspace
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
