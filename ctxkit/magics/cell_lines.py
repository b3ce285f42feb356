"""`%%agent`, `%%team` and `%%compact`: a line with options, and a cell below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.magics.arguments import parse, unterminated, usage, wants_help
from ctxkit.magics.line_options import Ask, AskTeam, Compact
from ctxkit.magics.texts import Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.magics.kit_state import KitState


class CellLine(NamedTuple):
    """How a magic is called, the shape of its line, and what its help says of the cell."""

    magic: str
    shape: type
    note: str


AGENT = CellLine(
    "%%agent",
    Ask,
    "The cell is the prompt. Without one, `%agent` says how the session stands.",
)
TEAM = CellLine(
    "%%team", AskTeam, "The cell is the task; `%team NAME` goes on with the one it has."
)
COMPACT = CellLine(
    "%compact", Compact, "A focus that ends in `?` goes into the cell of `%%compact`."
)


def spoken(
    kit: KitState,
    known: CellLine,
    line: str,
    cell: str | None,
    run: Callable[[KitState, Any, str], object],
) -> object:
    """Run what a line and the cell below it ask for, or say how the line is written."""
    words = line if cell is not None else unterminated(line)
    if wants_help(words):
        return Page(f"{usage(known.shape, known.magic)}\n\n{known.note}")
    return run(kit, parse(known.shape, words, known.magic), cell or "")
