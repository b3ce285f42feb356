"""A subcommand of a magic: its name, a line of help, the shape of its line, and what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.magics.arguments import parse, tokens, uncommented, usage, wants_help
from ctxkit.magics.texts import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ctxkit.magics.kit_state import KitState


@dataclass(frozen=True)
class Subcommand:
    """One word after a magic; `run` gets the kit and the parsed line, and its value is shown and
    returned.
    """

    name: str
    help: str
    shape: type
    run: Callable[[KitState, Any], object]


def dispatch(
    kit: KitState, magic: str, known: Mapping[str, Subcommand], line: str, default: str
) -> object:
    """Run the subcommand that a line names; one without a subcommand goes to the default.

    Raises:
        BadArguments: no subcommand of that name.
    """
    line = uncommented(line)
    first = next(tokens(line), None)
    if first is None or first.text.startswith("-"):
        if wants_help(line):
            return Page(overview(magic, known, default))
        chosen, after = known[default], line
    elif first.text in known:
        chosen, after = known[first.text], line[first.start + len(first.text) :]
    else:
        near = did_you_mean(first.text, known)
        raise BadArguments(
            f"`{magic}` knows no {first.text!r}.{near} It knows: {', '.join(known)}."
        )
    name = magic if chosen.name == default else f"{magic} {chosen.name}"
    if wants_help(after):
        return Page(f"{usage(chosen.shape, name)}\n\n{chosen.help}")
    return chosen.run(kit, parse(chosen.shape, after, name))


def overview(magic: str, known: Mapping[str, Subcommand], default: str) -> str:
    """Return the help of a magic: its own line, then one line a subcommand."""
    width = max(len(name) for name in known)
    lines = [f"  {magic} {name:<{width}}  {s.help}" for name, s in known.items()]
    head = (
        f"{magic} [SUBCOMMAND]: without one it is `{magic} {default}`. `{magic} SUBCOMMAND -h`"
        " explains each."
    )
    return "\n".join([head, "", *lines])
