"""Subcommands and cell magics: their lines, dispatch, help and text output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting import escape_html, sanitize_text
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.arguments import (
    format_usage,
    parse_line,
    split_tokens,
    strip_comment,
    strip_semicolon,
    wants_help,
)
from ctxkit.magics.cell_arguments import AgentArguments, CompactArguments, TeamArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.magics.kernel_state import KitState


@dataclass(frozen=True)
class Subcommand:
    """One word after a magic; `run` gets the kit and the parsed line, and its value is shown and
    returned.
    """

    name: str
    help: str
    shape: type
    run: Callable[[KitState, Any], object]
    task: str = ""
    """What a person wants who looks for it: the heading of the help under which it stands."""
    hidden: bool = False
    """True for a name that still works and that the short help leaves out."""


def run_subcommand(
    kit: KitState, magic: str, subcommands: Mapping[str, Subcommand], line: str, default: str
) -> object:
    """Run the subcommand that a line names; one without a subcommand goes to the default.

    Raises:
        BadArguments: no subcommand of that name.
    """
    line = strip_comment(line)
    first = next(split_tokens(line), None)
    if first is None or first.text.startswith("-"):
        if wants_help(line):
            full = any(token.text == ALL_FLAG for token in split_tokens(line))
            return TextPage(format_overview(magic, subcommands, default, full=full))
        chosen, after = subcommands[default], line
    elif first.text in subcommands:
        # Cut by position, so that quotes and blanks behind the subcommand remain.
        chosen, after = subcommands[first.text], line[first.start + len(first.text) :]
    else:
        hint = did_you_mean(first.text, subcommands)
        known = ", ".join(name for name, s in subcommands.items() if not s.hidden)
        raise BadArguments(f"`{magic}` knows no {first.text!r}.{hint} It knows: {known}.")
    name = magic if chosen.name == default else f"{magic} {chosen.name}"
    if wants_help(after):
        return TextPage(f"{format_usage(chosen.shape, name)}\n\n{chosen.help}")
    return chosen.run(kit, parse_line(chosen.shape, after, name))


ALL_FLAG = "--all"
"""Behind `-h`: name the subcommands, too, that the short help leaves out."""


def format_overview(
    magic: str, subcommands: Mapping[str, Subcommand], default: str, *, full: bool = False
) -> str:
    """Return the help of a magic: its own line, then by task one line a subcommand.

    Args:
        magic: as it is written.
        subcommands: by name.
        default: the subcommand of a line without one.
        full: name hidden ones, too.
    """
    shown = {name: s for name, s in subcommands.items() if full or not s.hidden}
    width = max(len(name) for name in shown)
    head = f"{magic} [SUBCOMMAND]: without one it is `{magic} {default}`."
    lines = [f"{head} `{magic} SUBCOMMAND -h` explains each."]
    for task in dict.fromkeys(s.task for s in shown.values()):
        lines += ["", *([f"{task}:"] if task else [])]
        lines += [
            f"  {magic} {name:<{width}}  {s.help}" for name, s in shown.items() if s.task == task
        ]
    if len(shown) < len(subcommands):
        lines += ["", f"`{magic} -h {ALL_FLAG}` has further names, which still work."]
    return "\n".join(lines)


class CellMagic(NamedTuple):
    """How a magic is called, the shape of its line, and what its help says of the cell."""

    magic: str
    shape: type
    note: str


AGENT_MAGIC = CellMagic(
    "%%agent",
    AgentArguments,
    "The cell is the prompt. `%agent` alone says how the session stands.",
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
    """Run what a line and the cell below it ask for, or say how the line is written."""
    # A `;` silences a line magic; above a cell it is text.
    words = line if cell is not None else strip_semicolon(line)
    if wants_help(words):
        return TextPage(f"{format_usage(magic.shape, magic.magic)}\n\n{magic.note}")
    return run(kit, parse_line(magic.shape, words, magic.magic), cell or "")


_TEXT_STYLE = "white-space:pre-wrap;margin:0;color:var(--jp-content-font-color1,inherit)"


@dataclass(frozen=True, repr=False)
class TextPage:
    """A text that is shown as it stands, in a fixed pitch."""

    text: str

    def __repr__(self) -> str:
        return sanitize_text(self.text)

    def _repr_html_(self) -> str:
        return f'<pre style="{_TEXT_STYLE}">{escape_html(self.text)}</pre>'
