"""The magics as IPython sees them: `%context`, its settings for `%config CtxKit`, and the sessions it knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_magic, magics_class
from traitlets import Int, Unicode

from ctxkit.magics import files, tables, views
from ctxkit.magics.arguments import unterminated
from ctxkit.magics.door import door
from ctxkit.magics.registry import Registry
from ctxkit.magics.subcommands import dispatch, overview

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.session import Session

DEFAULT = "status"
CONTEXT = {s.name: s for s in (*views.SUBCOMMANDS, *tables.SUBCOMMANDS, *files.SUBCOMMANDS)}
"""The subcommands of `%context`, in the order of its help."""


@magics_class
class CtxKit(Magics):
    """Magics over sessions: see what fills a context, in a notebook or a terminal."""

    session_file = Unicode("", help="A session file that is read when none is active yet.").tag(config=True)
    contributors = Int(3, min=0, help="How many of the largest messages `%context` names.").tag(config=True)

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, **traits: Any) -> None:
        super().__init__(shell, **traits)
        self.sessions = Registry()

    def session(self, name: str | None = None) -> Session:
        """Return a session by name, or the active one.

        Raises:
            BadArguments: there is none of that name, or none at all.
            ReadError: the file that the settings name cannot be read.
        """
        if name is not None:
            return self.sessions.get(name)
        if self.sessions.active_name is None and self.session_file:
            files.use(self, files.Use(self.session_file))
        return self.sessions.active

    @line_magic
    @door
    def context(self, line: str = "") -> object:
        """Show what fills the context of a session."""
        return dispatch(self, "%context", CONTEXT, unterminated(line), DEFAULT)


CtxKit.context.__doc__ = f"{CtxKit.context.__doc__}\n\n{overview('%context', CONTEXT, DEFAULT)}"
