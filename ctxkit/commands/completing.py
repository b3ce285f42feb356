"""`ctxkit completion`: what a shell needs to complete commands, options, sessions and rules."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_(shell: str) -> None:
    """Print the completion for SHELL; to use it now: eval "$(ctxkit completion bash)"."""
    from ctxkit.commands.commands import app

    made = get_completion_class(shell)
    if made is not None:
        sys.stdout.write(made(app, {}, "ctxkit", "_CTXKIT_COMPLETE").source() + "\n")
