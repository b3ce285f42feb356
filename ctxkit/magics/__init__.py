"""The IPython extension: `%%agent`, `%compact`, `%context`, `%memory`, `%%team`, and their
completion.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from IPython.core.interactiveshell import InteractiveShell

    from ctxkit.magics.magics_class import CtxKit

__all__ = ["get_kit", "load", "unload"]
__dir__ = make_dunder_dir(__all__)

_LINE_MAGICS = {
    "context": "context",
    "agent": "agent",
    "team": "team",
    "compact": "compact",
    "memory": "recollect",
}
"""Line magics, and the methods that they are."""
_CELL_MAGICS = ("agent", "team", "compact")
# The call that IPython makes of a magic's line, with a `;` behind the name or the arguments.
_CALL = rf"run_line_magic\((['\"])(?:{'|'.join(_LINE_MAGICS)})"
_SEMICOLON_CALL = re.compile(
    rf"""({_CALL})(?:;(\2, ['"]['"]\))|(\2, (['"]).*?)[ \t]*;[ \t]*(\5\)))(\s*)$"""
)


# The call that IPython makes of a cell magic without a body, and refuses before the magic runs.
_EMPTY_CELL_CALL = re.compile(
    rf"""run_cell_magic\((['\"])({"|".join(_CELL_MAGICS)})\1, (['"])(.*)\3, (['"])\5\)"""
)


def load(shell: InteractiveShell) -> None:
    """Register the magics, their settings for `%config CtxKit`, and their completion."""
    from ctxkit._internal.distribution_version_and_conflicts import warn_of_module_conflict
    from ctxkit.agent.ctxkit_folder_and_session_trust import Workspace
    from ctxkit.agent.system_prompt import SECTIONS
    from ctxkit.formats.registry import format_names
    from ctxkit.magics.line_parser import make_completion_matcher
    from ctxkit.magics.magics_class import (
        AGENT_MAGIC,
        COMPACT_MAGIC,
        CONTEXT_SUBCOMMANDS,
        DEFAULT_SUBCOMMAND,
        TEAM_MAGIC,
        CtxKit,
    )
    from ctxkit.magics.memory_commands import MEMORY_SUBCOMMANDS
    from ctxkit.magics.session_settings_and_name_resolver import MEMORY_WORDS, open_memory_store
    from ctxkit.policies.memory_entries import MEMORY_TYPES
    from ctxkit.presets.registry_and_setting_checks import names as presets

    warn_of_module_conflict()
    unload(shell)
    kit = CtxKit(shell)
    shell.register_magics(kit)
    if kit not in shell.configurables:
        shell.configurables.append(kit)
    shell.input_transformers_post += TRANSFORMERS
    if shell.Completer is not None:
        sources: dict[str, Callable[[], Iterable[str]]] = {
            "session": lambda: dict.fromkeys((*kit.sessions, *Workspace().names())),
            "format": format_names,
            "rules": lambda: ("standard", *presets()),
            "tools": lambda: ("files", "document", "work", "shell", "python"),
            "memory": lambda: MEMORY_WORDS,
            "memory_type": lambda: MEMORY_TYPES,
            "entry": lambda: [e.name for e in open_memory_store().entries() if " " not in e.name],
            "section": lambda: ("on", "off", *SECTIONS, *(f"-{name}" for name in SECTIONS)),
        }
        shapes = {
            "context": {name: s.shape for name, s in CONTEXT_SUBCOMMANDS.items()},
            "agent": {"": AGENT_MAGIC.shape},
            "team": {"": TEAM_MAGIC.shape},
            "compact": {"": COMPACT_MAGIC.shape},
            "memory": {name: s.shape for name, s in MEMORY_SUBCOMMANDS.items()},
        }
        shell.Completer.custom_matchers.append(
            make_completion_matcher(shapes, sources, DEFAULT_SUBCOMMAND)
        )


def unload(shell: InteractiveShell) -> None:
    """Remove everything that `load` registered, and forget the sessions that were read."""
    manager, kit = shell.magics_manager, get_kit(shell)
    if kit is None:
        return
    kit.close()
    for name in _LINE_MAGICS:
        manager.magics["line"].pop(name, None)
    for name in _CELL_MAGICS:
        manager.magics["cell"].pop(name, None)
    del manager.registry[type(kit).__name__]
    shell.configurables[:] = [c for c in shell.configurables if c is not kit]
    shell.input_transformers_post[:] = [
        t for t in shell.input_transformers_post if t not in TRANSFORMERS
    ]
    if shell.Completer is not None:
        matchers = [
            m
            for m in shell.Completer.custom_matchers
            if getattr(m, "__name__", "") != "ctxkit_matcher"
        ]
        shell.Completer.custom_matchers[:] = matchers


def get_kit(shell: InteractiveShell) -> CtxKit | None:
    """Return the magics of a shell, or None where the extension is not loaded."""
    kit = shell.magics_manager.registry.get("CtxKit")
    return kit if type(kit).__module__.startswith("ctxkit.") else None


def move_semicolons(lines: list[str]) -> list[str]:
    """Move a `;` at the end of a magic's line behind the call that IPython made of it.

    There it does what it does in Python: nothing is displayed, and `r = %context;` still has the
    value.
    """
    return [
        _SEMICOLON_CALL.sub(lambda m: f"{m[1]}{m[3] or m[4] + m[6]};{m[7]}", line) for line in lines
    ]


def allow_help_in_empty_cells(lines: list[str]) -> list[str]:
    """Let `%%agent -h` help in a cell that holds nothing else, as `%agent -h` does."""
    return [_EMPTY_CELL_CALL.sub(_as_line_magic, line) for line in lines]


def _as_line_magic(match: re.Match[str]) -> str:
    from ctxkit.magics.line_parser import has_help_flag

    quote, name, text_quote, text = match.group(1, 2, 3, 4)
    if not has_help_flag(text):
        return match[0]
    return f"run_line_magic({quote}{name}{quote}, {text_quote}{text}{text_quote})"


TRANSFORMERS = (move_semicolons, allow_help_in_empty_cells)
"""Changes to the lines of a cell before they run."""
