"""`ctxkit convert`: a session in another format."""

from __future__ import annotations

from pathlib import Path

import click

from ctxkit.commands.finding import session_of
from ctxkit.commands.options import one_session
from ctxkit.commands.printing import say
from ctxkit.writers import FORMATS, write


@click.command()
@one_session
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--to", "format_", type=click.Choice(FORMATS), default="native", show_default=True)
@click.option("--replace", is_flag=True, help="Write over a file that is there.")
def convert_(session: str, file: Path, format_: str, replace: bool) -> None:
    """Write SESSION to FILE in another format, and say what that format cannot hold."""
    if file.exists() and not replace:
        raise click.UsageError(f"{str(file)!r} is there already: --replace writes over it.")
    done = write(session_of(session), file, format_)
    lost = ", ".join(f"{n:,} {name}" for name, n in done.lost.items()) or "nothing"
    say(f"written: {done.path} ({done.format}); lost: {lost}")
