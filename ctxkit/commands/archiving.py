"""`ctxkit keep`: the sessions of known tools, copied before their tools delete them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from ctxkit.commands import options
from ctxkit.commands.printing import Head, Out
from ctxkit.keeping import keep

if TYPE_CHECKING:
    from pathlib import Path

HEADS = (
    Head("tool", "tool", most=11),
    Head("path", "file", wide=True),
    Head("what", "what"),
    Head("size_bytes", "bytes", "count"),
    Head("packed_bytes", "packed", "count"),
)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False))
@options.tool
@options.answer
def keep_(out: Out, *, folder: Path, tool: str | None) -> None:
    """Copy the sessions of known tools into FOLDER: only what is new of them, when called again."""
    frame = keep(folder, tools=tool)
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    told = Counter(row["what"] for row in rows)
    note = ", ".join(f"{n:,} {what}" for what, n in told.items()) or "no session was found"
    shown = rows if out.json else [r for r in rows if r["what"] != "same"]
    out.table(f"Kept in {folder}", HEADS, shown, [f"{note}."])
