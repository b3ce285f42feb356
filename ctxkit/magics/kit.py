"""The magics as IPython sees them: `%%agent`, `%compact`, `%context`, and their settings for
`%config CtxKit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from traitlets import CUnicode, Int, Unicode

from ctxkit.errors import BadArguments
from ctxkit.magics import file_commands, injections, places, recollections, table_commands, views
from ctxkit.magics.arguments import unterminated
from ctxkit.magics.door import door
from ctxkit.magics.registry import Registry
from ctxkit.magics.subcommands import dispatch, overview

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.agent.live import LiveSession
    from ctxkit.magics.lives import Lives
    from ctxkit.session import Session

DEFAULT = "status"
_ROOMS = (views, table_commands, injections, places, file_commands)
CONTEXT = {s.name: s for room in _ROOMS for s in room.SUBCOMMANDS}
"""The subcommands of `%context`, in the order of its help."""


@magics_class
class CtxKit(Magics):
    """Magics over sessions: run an agent, see what fills its context, compact it; in a notebook or
    a terminal.
    """

    session_file = Unicode("", help="A session file that is read when none is active yet.").tag(
        config=True
    )
    contributors = Int(3, min=0, help="How many of the largest messages `%context` names.").tag(
        config=True
    )

    model = Unicode(
        "scripted/tour", help="The model of `%%agent` unless --model names another."
    ).tag(config=True)
    summary_model = Unicode(
        "", help="The model that writes summaries; empty: the session's own."
    ).tag(config=True)
    rules = Unicode("standard", help="The rules of `%%agent` unless --rules names others.").tag(
        config=True
    )
    tools = Unicode("files", help="The tools of `%%agent` unless --tools names others.").tag(
        config=True
    )
    root = Unicode("", help="The folder of the file tools; empty: a scratch folder.").tag(
        config=True
    )
    allow = Unicode("", help="Protected names the file tools may write.").tag(config=True)
    system = Unicode("", help="Instructions of new sessions: a text, a file, a variable.").tag(
        config=True
    )
    sections = Unicode("on", help="Sections put into prompts: on, off, names, or -name.").tag(
        config=True
    )
    memory = Unicode("", help="Memory: see --memory; empty: on, off for scripts.").tag(config=True)
    output = Unicode("", help="Limits of tools' outputs: see --output.").tag(config=True)
    approve = Unicode("", help="Tools that ask before each call, or files, or all.").tag(
        config=True
    )
    seed = CUnicode("", help="Ids of new sessions follow from it; empty: by chance.").tag(
        config=True
    )

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, **traits: Any) -> None:
        super().__init__(shell, **traits)
        self.sessions = Registry()
        self._lives: Lives | None = None
        self.teams: dict[str, dict[str, str]] = {}
        """Of each team that worked in this kernel: what it was opened with."""

    @property
    def lives(self) -> Lives:
        """The live sessions of this kernel."""
        if self._lives is None:
            from ctxkit.magics.lives import Lives

            self._lives = Lives(self)
        return self._lives

    @property
    def rich(self) -> bool:
        """True in a front end that can update a display in place; a terminal cannot."""
        return hasattr(self.shell, "kernel")

    def session(self, name: str | None = None) -> Session:
        """Return a session by name, or the active one.

        Raises:
            BadArguments: there is none of that name, or none at all.
            ReadError: the file that the settings name cannot be read.
        """
        wanted = name or self.sessions.active_name
        if self._lives is not None and wanted in self._lives:
            return self._lives.get(wanted).session
        if name is not None:
            return self.sessions.get(name)
        if self.sessions.active_name is None and self.session_file:
            file_commands.use(self, file_commands.Use(self.session_file))
        return self.sessions.active

    @line_magic
    @door
    def context(self, line: str = "") -> object:
        """Show what fills the context of a session."""
        return dispatch(self, "%context", CONTEXT, unterminated(line), DEFAULT)

    @no_var_expand
    @line_cell_magic
    @door
    def agent(self, line: str = "", cell: str | None = None) -> object:
        """Take a turn of an agent: the cell is the prompt. Alone: how the session stands. See
        `%agent -h`.
        """
        from ctxkit.magics.agents import agent

        return agent(self, line if cell is not None else unterminated(line), cell)

    @no_var_expand
    @line_magic("memory")  # type: ignore[arg-type]  # `memory` is a setting, too
    @door
    def recollect(self, line: str = "") -> object:
        """Show what is remembered, and change it."""
        return dispatch(
            self, "%memory", recollections.MEMORY, unterminated(line), recollections.LIST
        )

    @no_var_expand
    @line_cell_magic
    @door
    def team(self, line: str = "", cell: str | None = None) -> object:
        """Let a team of agents work on the task in the cell. `%team -h` has the options."""
        from ctxkit.magics.crews import team

        return team(self, line if cell is not None else unterminated(line), cell)

    @no_var_expand
    @line_cell_magic
    @door
    def compact(self, line: str = "", cell: str | None = None) -> object:
        """Compact the session by hand; the rest of the line is the focus. `%compact -h` has the
        options.
        """
        from ctxkit.magics.compacts import compact

        return compact(self, line if cell is not None else unterminated(line), cell)

    def close(self) -> None:
        """Give all live sessions free."""
        if self._lives is not None:
            self._lives.close()

    # -- sessions that are kept on disk
    # --------------------------------------------------------------------------

    def kept(self, name: str) -> Session | None:
        """Return a session that is kept in the working folder, or None."""
        from ctxkit.store.workspace import Workspace

        return Workspace().session(name)

    def branched(self, name: str, session: Session, origin: str | None) -> bool:
        """Keep a session under a new name; return True where it is live, and goes on as its origin
        would.

        Raises:
            BadArguments: there is one of that name.
        """
        from ctxkit.store.workspace import Workspace
        from ctxkit.writers import write

        place = Workspace()
        path = place.sessions / f"{name}.jsonl"
        if place.begun(name):
            raise BadArguments(f"There is a session {name!r} already; choose another name.")
        place.make()
        moved = msgspec.structs.replace(
            session, id=place.new_id(name, self.seed), title=name, parent=session.id
        )
        settings: dict[str, Any] = {}
        if origin in self.lives:  # the same model, rules and files
            live = self.lives.get(origin)
            settings = {**live.settings, "root": str(live.root.folder)}
        write(moved, path)
        place.vouch(name)
        self.sessions.add(moved, name)
        self.lives.remember(name, settings)
        if settings:
            self.lives.open(name).notes = ()
        return bool(settings)

    def put_aside(self, live: LiveSession) -> str:
        """Close a live session and keep it under another name; return that name."""
        session, path = live.session, live.log.path
        name = f"{live.name}-{live.id}"
        self.lives.close(live.name)
        path.rename(path.with_name(f"{name}.jsonl"))
        live.workspace.vouch(name)
        self.sessions.add(session, name)
        return name


CtxKit.context.__doc__ = f"{CtxKit.context.__doc__}\n\n{overview('%context', CONTEXT, DEFAULT)}"
