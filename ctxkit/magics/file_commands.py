"""`%context use` and `%context export`: from a file to the active session, and to a page that opens
anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkit.display.markup import line
from ctxkit.magics.arguments import option, word
from ctxkit.magics.subcommands import Subcommand
from ctxkit.magics.table_commands import TableLine
from ctxkit.magics.texts import Page

if TYPE_CHECKING:
    from ctxkit.magics.kit_state import KitState
    from ctxkit.session import Session


@dataclass(frozen=True)
class Use:
    """The line of `%context use`."""

    what: str = word(
        "a session file, a session read before, or a variable that holds one",
        completes="session path",
    )
    name: str | None = option("what to call it from now on", completes="session")
    format: str | None = option(
        "read the file as this format instead of looking at its content", completes="format"
    )


@dataclass(frozen=True)
class Export(TableLine):
    """The line of `%context export`."""

    path: str = word("the HTML file to write", completes="path")


@dataclass(frozen=True)
class Validate:
    """The line of `%context validate`."""

    path: str = word("a config file of fuseraft, Pi, ai, ...", completes="path")
    system: str | None = option("whose file it is, where its keys do not say")


def validate(_: KitState, asked: Validate) -> Page:
    """Say what is wrong with a config file, a line each."""
    from ctxkit.gates.config_faults import validate as of

    table = of(Path(asked.path).expanduser(), system=asked.system)
    rows = [f"{level}: {why}" for level, why in table.itertuples(index=False)]
    return Page("\n".join(rows) or f"{line(asked.path, 200)}: nothing is wrong with it.")


def use(kit: KitState, asked: Use) -> Session:
    """Make a session the active one: known by name, held by a variable, or read from a file."""
    return kit.use(asked.what, asked.name, asked.format)


def export(kit: KitState, asked: Export) -> Page:
    """Write the active session as one HTML file that opens offline."""
    from ctxkit.reports import export as write

    session = kit.session(asked.session)
    path = write(session, Path(asked.path).expanduser())
    return Page(
        f"{line(session.id, 60)} is in {path} ({path.stat().st_size / 1e6:.1f} MB): it opens"
        " without a network."
    )


SUBCOMMANDS = (
    Subcommand(
        "use",
        "Read a session file and make it the active session; or switch to one known by name.",
        Use,
        use,
    ),
    Subcommand("validate", "What is wrong with a config file.", Validate, validate),
    Subcommand("export", "Write the session as one HTML file that opens offline.", Export, export),
)
