"""The `ctxkit` command line."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

from ctxkit._internal.distribution_version_and_conflicts import warn_of_module_conflict
from ctxkit._internal.formatting_and_sanitizing import sanitize_text
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.errors import CtxkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "run"]
__dir__ = make_dunder_dir(__all__)

EXIT_OK, EXIT_WORSE, EXIT_ERROR, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = 0, 1, 2, 130, 141
"""Exit codes: all went well; a gate found something worse; it could not be done, with a sentence on
stderr; stopped by Ctrl-C; whoever read the output is gone (as programs that SIGPIPE ends)."""


def run() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(main())


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line on some words (None: those of the process) and return the exit code.

    Args:
        words: arguments; None: those of the process.

    Returns:
        0: done; 1: a gate found figures that got worse; 2: an error, said in a sentence; 130:
        interrupted; 141: the reader of the output is gone.
    """
    words = [*(sys.argv[1:] if words is None else words)]
    if sys.stdout is None:  # closed by whoever started it: what is printed goes nowhere
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        if words[:1] != ["doctor"]:  # it has a line of its own for this
            warn_of_module_conflict()
        return _run_app(words)


def _run_app(words: list[str]) -> int:
    """Run the app, with every failure that a user can cause as a sentence and an exit code."""
    import click

    from ctxkit.cli.app import PipeClosed, app

    try:
        exit_code = app.main(words, prog_name="ctxkit", standalone_mode=False)
    except PipeClosed:
        _discard_output()
        return EXIT_PIPE_CLOSED
    except (click.Abort, KeyboardInterrupt):
        _print_error("Stopped.")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return EXIT_ERROR
    except CtxkitError as error:
        _print_error(str(error))
        return EXIT_ERROR
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        _print_error(f"{name}{error.strerror or error}.")
        return EXIT_ERROR
    return exit_code if isinstance(exit_code, int) else EXIT_OK


def _print_error(sentence: str) -> None:
    sys.stderr.write(f"ctxkit: {sanitize_text(sentence, 2000)}\n")


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _print_error(" ".join(str(message).split()))


def _discard_output() -> None:
    """Let the interpreter end quietly: what is still unwritten goes nowhere."""
    # the interpreter flushes stdout once more at its end, which would fail a second time
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
