"""Subcommands of line magics: the choice by the first word, their help, and text output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit._internal.formatting_and_sanitizing import escape_html, sanitize_text
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.line_parser import (
    format_usage,
    has_help_flag,
    parse_line,
    split_tokens,
    strip_comment,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.magics.kernel_sessions import KitState


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
    """The task for which it is used: its heading in the help."""
    hidden: bool = False
    """True for a name that still works and that the short help leaves out."""


def run_subcommand(
    kit: KitState, magic: str, subcommands: Mapping[str, Subcommand], line: str, default: str
) -> object:
    """Run the subcommand that a line names; one without a subcommand goes to the default.

    Args:
        kit: given to the subcommand.
        magic: the magic as it is written.
        subcommands: the subcommands by name.
        line: without the magic's name; it may end in a comment.
        default: the subcommand of a line without one.

    Returns:
        What the subcommand returns, or the help that `-h` asks for.

    Raises:
        BadArguments: no subcommand of that name.
    """
    line = strip_comment(line)
    first = next(split_tokens(line), None)
    if first is None or first.text.startswith("-"):
        if has_help_flag(line):
            full = any(token.text == ALL_FLAG for token in split_tokens(line))
            return PreformattedText(format_overview(magic, subcommands, default, full=full))
        chosen, after = subcommands[default], line
    elif first.text in subcommands:
        # Cut by position, so that quotes and blanks behind the subcommand remain.
        chosen, after = subcommands[first.text], line[first.start + len(first.text) :]
    else:
        hint = did_you_mean(first.text, subcommands)
        names = ", ".join(name for name, s in subcommands.items() if not s.hidden)
        raise BadArguments(f"`{magic}` knows no {first.text!r}.{hint} It knows: {names}.")
    name = magic if chosen.name == default else f"{magic} {chosen.name}"
    if has_help_flag(after):
        return PreformattedText(f"{format_usage(chosen.shape, name)}\n\n{chosen.help}")
    return chosen.run(kit, parse_line(chosen.shape, after, name))


ALL_FLAG = "--all"
"""Behind `-h`: name the subcommands, too, that the short help leaves out."""


def format_overview(
    magic: str, subcommands: Mapping[str, Subcommand], default: str, *, full: bool = False
) -> str:
    """Return the help of a magic: its own line, then by task one line a subcommand.

    Args:
        magic: as it is written.
        subcommands: the subcommands by name.
        default: the subcommand of a line without one.
        full: name hidden ones, too.

    Returns:
        Text in columns, with a heading for each task.
    """
    listed = {name: s for name, s in subcommands.items() if full or not s.hidden}
    width = max(len(name) for name in listed)
    head = f"{magic} [SUBCOMMAND]: without one it is `{magic} {default}`."
    lines = [f"{head} `{magic} SUBCOMMAND -h` explains each."]
    for task in dict.fromkeys(s.task for s in listed.values()):
        lines += ["", *([f"{task}:"] if task else [])]
        lines += [
            f"  {magic} {name:<{width}}  {s.help}" for name, s in listed.items() if s.task == task
        ]
    if len(listed) < len(subcommands):
        lines += ["", f"`{magic} -h {ALL_FLAG}` has further names, which still work."]
    return "\n".join(lines)


_TEXT_STYLE = "white-space:pre-wrap;margin:0;color:var(--jp-content-font-color1,inherit)"


@dataclass(frozen=True, repr=False)
class PreformattedText:
    """A text that is displayed unchanged, in a monospaced font."""

    text: str

    def __repr__(self) -> str:
        return sanitize_text(self.text)

    def _repr_html_(self) -> str:
        return f'<pre style="{_TEXT_STYLE}">{escape_html(self.text)}</pre>'
