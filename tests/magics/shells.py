"""A real IPython for tests of magics, without files of history."""

from __future__ import annotations

from typing import Any


def new_shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    InteractiveShell.clear_instance()
    return InteractiveShell.instance(config=config)


def completions(shell: Any, text: str) -> list[str]:
    """What the Tab key offers at the end of a text, as the notebook asks for it."""
    from IPython.core.completer import provisionalcompleter, rectify_completions

    with provisionalcompleter():
        found = rectify_completions(text, shell.Completer.completions(text, len(text)))
        return [c.text for c in found]
