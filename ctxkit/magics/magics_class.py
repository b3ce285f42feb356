"""The magics class with its error handling: `%context`, `%%agent`, `%compact`, `%memory`,
`%%team`.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, line_magic, magics_class, no_var_expand

from ctxkit.errors import BadArguments, StoreError
from ctxkit.magics import checkpoint_commands, memory_commands, session_report_commands
from ctxkit.magics import prompt_section_and_document_commands as context_commands
from ctxkit.magics.cell_magic_arguments import AgentArguments, CompactArguments, TeamArguments
from ctxkit.magics.kernel_sessions import KitState
from ctxkit.magics.line_parser import format_usage, has_help_flag, parse_line, strip_semicolon
from ctxkit.magics.subcommand_dispatch import (
    PreformattedText,
    format_overview,
    run_subcommand,
)

if TYPE_CHECKING:
    from collections.abc import Callable


P = ParamSpec("P")
R = TypeVar("R")


def convert_to_kit_errors(magic: Callable[P, R]) -> Callable[P, R]:
    """Turn IPython's `UsageError` (invisible to notebook tests) and trouble with files into errors
    of the kit.

    Args:
        magic: method of the magics class.

    Returns:
        The method with the same signature.

    Raises:
        BadArguments: raised by the result in place of `UsageError`.
        StoreError: raised by the result in place of `OSError`.
    """

    @wraps(magic)
    def converted(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return magic(*args, **kwargs)
        except UsageError as e:
            raise BadArguments(str(e)) from None
        except OSError as e:
            where = f" {e.filename}" if e.filename else ""
            raise StoreError(
                f"The file{where} could not be used: {e.strerror or type(e).__name__}."
            ) from None

    return converted


class CellMagic(NamedTuple):
    """A cell magic: its name, the dataclass of its line, and the help on its cell."""

    magic: str
    shape: type
    note: str


AGENT_MAGIC = CellMagic(
    "%%agent",
    AgentArguments,
    "The cell is the prompt. `%agent` alone shows the state of the session.",
)
TEAM_MAGIC = CellMagic(
    "%%team",
    TeamArguments,
    "The cell is the task. `%team NAME` continues the task that a team has.",
)
COMPACT_MAGIC = CellMagic(
    "%compact", CompactArguments, "Write a focus that ends in `?` into a cell of `%%compact`."
)


def run_cell_magic(
    kit: KitState,
    magic: CellMagic,
    line: str,
    cell: str | None,
    run: Callable[[KitState, Any, str], object],
) -> object:
    """Run a cell magic with its line and cell, or show its usage.

    Args:
        kit: given to the magic.
        magic: its name, the dataclass of its line and the help on its cell.
        line: behind the magic's name.
        cell: None: it was called as a line magic.
        run: the magic.

    Returns:
        What the magic returns, or the help that `-h` asks for.
    """
    # A `;` silences a line magic; above a cell it is text.
    words = line if cell is not None else strip_semicolon(line)
    if has_help_flag(words):
        return PreformattedText(f"{format_usage(magic.shape, magic.magic)}\n\n{magic.note}")
    return run(kit, parse_line(magic.shape, words, magic.magic), cell or "")


DEFAULT_SUBCOMMAND = "status"
CONTEXT_SUBCOMMANDS = {
    s.name: s
    for s in (
        *session_report_commands.VIEW_SUBCOMMANDS,
        *context_commands.SECTION_AND_STORE_SUBCOMMANDS,
        *session_report_commands.REPORT_SUBCOMMANDS,
        *session_report_commands.TABLE_SUBCOMMANDS,
        *checkpoint_commands.CHECKPOINT_SUBCOMMANDS,
        *session_report_commands.SESSION_SUBCOMMANDS,
        *session_report_commands.FILE_SUBCOMMANDS,
    )
}
"""The subcommands of `%context`, in the order of its help."""


@magics_class
class CtxKit(KitState):
    """Magics over sessions: run an agent, see what fills its context, compact it; in a notebook or
    a terminal.
    """

    @line_magic
    @convert_to_kit_errors
    def context(self, line: str = "") -> object:
        """Show what fills the context of a session."""
        return run_subcommand(
            self, "%context", CONTEXT_SUBCOMMANDS, strip_semicolon(line), DEFAULT_SUBCOMMAND
        )

    @no_var_expand
    @line_cell_magic
    @convert_to_kit_errors
    def agent(self, line: str = "", cell: str | None = None) -> object:
        """Take a turn of an agent: the cell is the prompt. Alone: the state of the session. See
        `%agent -h`.
        """
        from ctxkit.magics.agent_magic import run_agent_magic

        return run_cell_magic(self, AGENT_MAGIC, line, cell, run_agent_magic)

    @no_var_expand
    @line_magic("memory")  # type: ignore[arg-type]  # `memory` is a setting, too
    @convert_to_kit_errors
    def recollect(self, line: str = "") -> object:
        """Show what is remembered, and change it."""
        return run_subcommand(
            self,
            "%memory",
            memory_commands.MEMORY_SUBCOMMANDS,
            strip_semicolon(line),
            memory_commands.LIST_SUBCOMMAND,
        )

    @no_var_expand
    @line_cell_magic
    @convert_to_kit_errors
    def team(self, line: str = "", cell: str | None = None) -> object:
        """Let a team of agents work on the task in the cell. `%team -h` has the options."""
        from ctxkit.magics.team_magic import run_team_magic

        return run_cell_magic(self, TEAM_MAGIC, line, cell, run_team_magic)

    @no_var_expand
    @line_cell_magic
    @convert_to_kit_errors
    def compact(self, line: str = "", cell: str | None = None) -> object:
        """Compact the session by hand; the rest of the line is the focus. `%compact -h` has the
        options.
        """
        from ctxkit.magics.compact_magic import run_compact_magic

        return run_cell_magic(self, COMPACT_MAGIC, line, cell, run_compact_magic)


_OVERVIEW = format_overview("%context", CONTEXT_SUBCOMMANDS, DEFAULT_SUBCOMMAND, full=True)
CtxKit.context.__doc__ = f"{CtxKit.context.__doc__}\n\n{_OVERVIEW}"
