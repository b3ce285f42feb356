"""Write `docs/magics.md` from the lines of the magics: `python docs/make_magics.py` (a test
compares the page).
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
from ctxkit.magics.magic_arguments_and_sessions import KitSettings
from ctxkit.magics.magic_dispatch import AGENT_MAGIC, COMPACT_MAGIC, TEAM_MAGIC, Subcommand
from ctxkit.magics.magics_class import CONTEXT_SUBCOMMANDS
from ctxkit.magics.memory_commands import MEMORY_SUBCOMMANDS

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


def page() -> str:
    """Return the page."""
    out = [HEAD]
    for magic in (AGENT_MAGIC, TEAM_MAGIC, COMPACT_MAGIC):
        settings = get_setting_defaults_and_help(magic.shape)
        out.append(f"\n## `{magic.magic}`\n\n{magic.note}\n")
        rows = _rows(magic.shape)
        for task in sorted(dict.fromkeys(f.metadata.get("task", "") for *_, f in rows), key=bool):
            out += [
                f"\n{task}:\n" if task else "",
                "\n| option | meaning | default |\n| --- | --- | --- |\n",
            ]
            for name, what, f in (r for r in rows if r[2].metadata.get("task", "") == task):
                default = f"`{settings[f.name][0]}`" if settings.get(f.name, ("",))[0] else ""
                out.append(f"| `{name}` | {what} | {default} |\n")
    for name, known in (("%context", CONTEXT_SUBCOMMANDS), ("%memory", MEMORY_SUBCOMMANDS)):
        out.append(f"\n## `{name}`\n")
        shown = [s for s in known.values() if not s.hidden]
        for task in dict.fromkeys(s.task for s in shown):
            out += [
                f"\n{task}:\n" if task else "",
                *_table(name, [s for s in shown if s.task == task]),
            ]
        hidden = [s for s in known.values() if s.hidden]
        if hidden:
            out += [f"\nFurther names, which `{name} -h --all` has:\n", *_table(name, hidden)]
    out.append(SETTINGS_HEAD)
    for name, trait in KitSettings.class_own_traits(config=True).items():
        what = (
            trait.help.partition(": ")[0]
            if name in get_setting_defaults_and_help(AGENT_MAGIC.shape)
            else trait.help
        )
        out.append(f"| `{name}` | `{trait.default_value!r}` | {what.rstrip('.')} |\n")
    return "".join(out)


def _table(magic: str, subcommands: list[Subcommand]) -> list[str]:
    """Return the table of some subcommands."""
    head = "\n| subcommand | what it does | its words and options |\n| --- | --- | --- |\n"
    rows = [
        f"| `{magic} {s.name}` | {s.help} | {', '.join(f'`{row[0]}`' for row in _rows(s.shape))} |\n"
        for s in subcommands
    ]
    return [head, *rows]


def _rows(shape: type) -> list[tuple[str, str, Any]]:
    """Return each word and option of a line: how it is written, what it is, its field."""
    words = [(f.name.upper(), f) for f in get_positional_fields(shape)]
    options = [
        (name if f.type == "bool" else f"{name} {f.name.rstrip('_').upper()}", f)
        for name, f in get_option_fields(shape).items()
    ]
    return [
        (written, f.metadata["help"].replace("|", "\\|"), f) for written, f in (*words, *options)
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
