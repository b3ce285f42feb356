"""The command line: the kit's functions for whoever does not live in a notebook."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from ctxkit.display.markup import plain
from ctxkit.errors import CtxkitError
from ctxkit.faces import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "run"]
__dir__ = listed(__all__)

FINE, WORSE, WRONG, STOPPED, CLOSED = 0, 1, 2, 130, 141
"""Exit codes: all went well; a gate found something worse; it could not be done, with a sentence on
stderr; stopped by Ctrl-C; whoever read the output is gone (as programs that SIGPIPE ends)."""


def run() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(main())


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line on some words (None: those of the process) and return the exit code."""
    import click

    from ctxkit.commands.commands import PipeClosed, app

    if sys.stdout is None:  # closed by whoever started it: what is printed goes nowhere
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            told = app.main(words, prog_name="ctxkit", standalone_mode=False)
    except PipeClosed:
        _hush()
        return CLOSED
    except (click.Abort, KeyboardInterrupt):
        _say("Stopped.")
        return STOPPED
    except click.ClickException as error:
        error.show()
        return WRONG
    except CtxkitError as error:
        _say(str(error))
        return WRONG
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _say(f"{name}{error.strerror or error}.")
        return WRONG
    return told if isinstance(told, int) else FINE


def _say(sentence: str) -> None:
    sys.stderr.write(f"ctxkit: {plain(sentence, 2000)}\n")


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    _say(" ".join(str(message).split()))


def _hush() -> None:
    """Let the interpreter end quietly: what is still unwritten goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
