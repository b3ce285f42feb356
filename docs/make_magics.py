"""Write `docs/magics.md` from the definitions of the magics: `python docs/make_magics.py`.

A test compares the page.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ctxkit.magics.line_parser import (
    get_option_fields,
    get_positional_fields,
    get_setting_defaults_and_help,
)
from ctxkit.magics.magic_dispatch import AGENT_MAGIC, COMPACT_MAGIC, TEAM_MAGIC, Subcommand
from ctxkit.magics.magics_class import CONTEXT_SUBCOMMANDS
from ctxkit.magics.memory_commands import MEMORY_SUBCOMMANDS
from ctxkit.magics.session_settings_and_name_resolver import KitSettings

PAGE = Path(__file__).with_name("magics.md")
HEAD = """# The magics and their options

`%load_ext ctxkit` loads the magics; `-h` after a magic prints its part of this page.
[How do I run an agent in a cell?](guide-live.md) has examples. Written by `python docs/make_magics.py` from the magics;
do not edit by hand.
"""
SETTINGS_HEAD = """
## Settings

`%config CtxKit.NAME = VALUE` changes a setting for this kernel, `%config CtxKit` lists all settings.

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
        for task in sorted(
            dict.fromkeys(field.metadata.get("task", "") for *_, field in arguments), key=bool
        ):
            parts += [
                f"\n{task}:\n" if task else "",
                "\n| option | meaning | default |\n| --- | --- | --- |\n",
            ]
            for name, meaning, field in (
                argument for argument in arguments if argument[2].metadata.get("task", "") == task
            ):
                default = (
                    f"`{settings[field.name][0]}`" if settings.get(field.name, ("",))[0] else ""
                )
                parts.append(f"| `{name}` | {meaning} | {default} |\n")
    for name, subcommands in (("%context", CONTEXT_SUBCOMMANDS), ("%memory", MEMORY_SUBCOMMANDS)):
        parts.append(f"\n## `{name}`\n")
        visible = [subcommand for subcommand in subcommands.values() if not subcommand.hidden]
        for task in dict.fromkeys(subcommand.task for subcommand in visible):
            parts += [
                f"\n{task}:\n" if task else "",
                *_format_table(
                    name, [subcommand for subcommand in visible if subcommand.task == task]
                ),
            ]
        hidden = [subcommand for subcommand in subcommands.values() if subcommand.hidden]
        if hidden:
            parts += [
                f"\nFurther names, which `{name} -h --all` has:\n",
                *_format_table(name, hidden),
            ]
    parts.append(SETTINGS_HEAD)
    for name, trait in KitSettings.class_own_traits(config=True).items():
        meaning = (
            trait.help.partition(": ")[0]
            if name in get_setting_defaults_and_help(AGENT_MAGIC.shape)
            else trait.help
        )
        parts.append(f"| `{name}` | `{trait.default_value!r}` | {meaning.rstrip('.')} |\n")
    return "".join(parts)


def _format_table(magic: str, subcommands: list[Subcommand]) -> list[str]:
    """Return the table of some subcommands."""
    head = "\n| subcommand | what it does | its words and options |\n| --- | --- | --- |\n"
    lines = [head]
    for subcommand in subcommands:
        arguments = ", ".join(f"`{syntax}`" for syntax, *_ in _list_arguments(subcommand.shape))
        lines.append(f"| `{magic} {subcommand.name}` | {subcommand.help} | {arguments} |\n")
    return lines


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
