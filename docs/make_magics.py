"""Write `docs/magics.md` from the definitions of the magics: `python docs/make_magics.py`.

A test compares the page.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkit.magics.line_parser import (
    get_option_fields,
    get_positional_fields,
    get_setting_defaults_and_help,
)
from ctxkit.magics.magics_class import AGENT_MAGIC, COMPACT_MAGIC, CONTEXT_SUBCOMMANDS, TEAM_MAGIC
from ctxkit.magics.memory_commands import MEMORY_SUBCOMMANDS
from ctxkit.magics.session_settings_and_name_resolver import KitSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).with_name("magics.md")
HEAD = """# The magics and their options

```ipython
%load_ext ctxkit
%context -h          # the part of this page on one magic
%config CtxKit       # all settings; %config CtxKit.NAME = VALUE changes one for this kernel
```

This page lists every magic with its options; `python docs/make_magics.py` writes it from their definitions.
[How do I run an agent in a cell?](guide-live.md) has examples.
"""
SETTINGS_HEAD = """
## Settings

| setting | default | meaning |
| --- | --- | --- |
"""


def format_page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD]
    for magic in (AGENT_MAGIC, TEAM_MAGIC, COMPACT_MAGIC):
        settings = get_setting_defaults_and_help(magic.shape)
        parts.append(f"\n## `{magic.magic}`\n\n{magic.note}\n")
        arguments = _list_arguments(magic.shape)
        tasks = list(
            dict.fromkeys(["", *(field.metadata.get("task", "") for *_, field in arguments)])
        )
        rows = []
        for name, meaning, field in arguments:
            default = settings.get(field.name, ("",))[0]
            task = field.metadata.get("task", "")
            rows.append((task, f"`{name}`", meaning, f"`{default}`" if default else ""))
        rows.sort(key=lambda row: tasks.index(row[0]))
        parts.append(_format_table(("option", "meaning", "default"), rows))
    for name, subcommands in (("%context", CONTEXT_SUBCOMMANDS), ("%memory", MEMORY_SUBCOMMANDS)):
        parts.append(f"\n## `{name}`\n")
        visible = [subcommand for subcommand in subcommands.values() if not subcommand.hidden]
        hidden = [subcommand for subcommand in subcommands.values() if subcommand.hidden]
        rows = [
            (
                f"only in `{name} -h --all`" if subcommand.hidden else subcommand.task,
                f"`{name} {subcommand.name}`",
                subcommand.help,
                ", ".join(f"`{syntax}`" for syntax, *_ in _list_arguments(subcommand.shape)),
            )
            for subcommand in (*visible, *hidden)
        ]
        parts.append(_format_table(("subcommand", "what it does", "its words and options"), rows))
    parts.append(SETTINGS_HEAD)
    for name, trait in KitSettings.class_own_traits(config=True).items():
        meaning = (
            trait.help.partition(": ")[0]
            if name in get_setting_defaults_and_help(AGENT_MAGIC.shape)
            else trait.help
        )
        parts.append(f"| `{name}` | `{trait.default_value!r}` | {meaning.rstrip('.')} |\n")
    return "".join(parts)


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose rows begin with their task; it is shown where it changes."""
    lines = [("", *head), ("---",) * (len(head) + 1)]
    shown = ""
    for task, *cells in rows:
        lines.append((task if task != shown else "", *cells))
        shown = task
    if not any(task for task, *_ in rows):
        lines = [cells[1:] for cells in lines]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _list_arguments(shape: type) -> list[tuple[str, str, Any]]:
    """Return each word and option of a magic: its syntax, its meaning, its field."""
    positional = [(field.name.upper(), field) for field in get_positional_fields(shape)]
    options = [
        (name if field.type == "bool" else f"{name} {field.name.rstrip('_').upper()}", field)
        for name, field in get_option_fields(shape).items()
    ]
    return [
        (syntax, field.metadata["help"].replace("|", "\\|"), field)
        for syntax, field in (*positional, *options)
    ]


if __name__ == "__main__":
    PAGE.write_text(format_page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
