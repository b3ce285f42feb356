"""The magics as IPython sees them: `%%agent`, `%compact`, `%context`, `%memory`, `%%team`."""

from __future__ import annotations

from IPython.core.magic import line_cell_magic, line_magic, magics_class, no_var_expand

<<<<<<< HEAD
import msgspec
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from traitlets import Bool, CUnicode, Int, Unicode

from ctxkit.errors import BadArguments
=======
>>>>>>> main
from ctxkit.magics import file_commands, injections, places, recollections, table_commands, views
from ctxkit.magics.arguments import unterminated
from ctxkit.magics.door import door
from ctxkit.magics.kit_state import KitState
from ctxkit.magics.subcommands import dispatch, overview

DEFAULT = "status"
_ROOMS = (views, table_commands, injections, places, file_commands)
CONTEXT = {s.name: s for room in _ROOMS for s in room.SUBCOMMANDS}
"""The subcommands of `%context`, in the order of its help."""


@magics_class
class CtxKit(KitState):
    """Magics over sessions: run an agent, see what fills its context, compact it; in a notebook or
    a terminal.
    """

<<<<<<< HEAD
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
    approve = Unicode("", help="Tools that ask before each call, or files, or all.").tag(
        config=True
    )
    export = Unicode(
        "", help="Where spans of sessions go: an OTLP/HTTP address, or env; empty: nowhere."
    ).tag(config=True)
    export_content = Bool(False, help="Whether those spans say what was said.").tag(config=True)
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

=======
>>>>>>> main
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


CtxKit.context.__doc__ = f"{CtxKit.context.__doc__}\n\n{overview('%context', CONTEXT, DEFAULT)}"
