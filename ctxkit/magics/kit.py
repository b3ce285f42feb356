"""The magics as IPython sees them: `%%agent`, `%compact`, `%context`, `%memory`, `%%team`."""

from __future__ import annotations

from IPython.core.magic import line_cell_magic, line_magic, magics_class, no_var_expand

from ctxkit.magics import (
    file_commands,
    injections,
    places,
    recollections,
    report_commands,
    table_commands,
    views,
)
from ctxkit.magics.arguments import unterminated
from ctxkit.magics.cell_lines import AGENT, COMPACT, TEAM, spoken
from ctxkit.magics.door import door
from ctxkit.magics.kit_state import KitState
from ctxkit.magics.subcommands import dispatch, overview

DEFAULT = "status"
_ROOMS = (views, report_commands, table_commands, injections, places, file_commands)
CONTEXT = {s.name: s for room in _ROOMS for s in room.SUBCOMMANDS}
"""The subcommands of `%context`, in the order of its help."""


@magics_class
class CtxKit(KitState):
    """Magics over sessions: run an agent, see what fills its context, compact it; in a notebook or
    a terminal.
    """

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
        from ctxkit.magics.agents import take

        return spoken(self, AGENT, line, cell, take)

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
        from ctxkit.magics.crews import work

        return spoken(self, TEAM, line, cell, work)

    @no_var_expand
    @line_cell_magic
    @door
    def compact(self, line: str = "", cell: str | None = None) -> object:
        """Compact the session by hand; the rest of the line is the focus. `%compact -h` has the
        options.
        """
        from ctxkit.magics.compacts import compact

        return spoken(self, COMPACT, line, cell, compact)


CtxKit.context.__doc__ = f"{CtxKit.context.__doc__}\n\n{overview('%context', CONTEXT, DEFAULT)}"
