"""A real IPython for tests of magics, without files of history."""

from __future__ import annotations

import atexit
from typing import Any


def new_shell() -> Any:
    """Return a shell in place of the one before, of which nothing is kept.

    IPython would keep each until the process ends, and would then reset one after the other, which
    looks for garbage each time.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    atexit.unregister(shell.atexit_operations)
    return shell


def completions(shell: Any, text: str) -> list[str]:
    """What the Tab key offers at the end of a text, as the notebook asks for it."""
    from IPython.core.completer import provisionalcompleter, rectify_completions

    with provisionalcompleter():
        found = rectify_completions(text, shell.Completer.completions(text, len(text)))
        return [c.text for c in found]
