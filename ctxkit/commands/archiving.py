"""`ctxkit keep`: the sessions of known tools, copied before their tools delete them."""

from __future__ import annotations

from collections import Counter

import click

from ctxkit.commands import options
from ctxkit.commands.printing import Out, TableHead, records
from ctxkit.keeping import keep

HEADS = (
    TableHead("tool", "tool", most=11),
    TableHead("path", "file", wide=True),
    TableHead("what", "what"),
    TableHead("size_bytes", "bytes", "count"),
    TableHead("packed_bytes", "packed", "count"),
)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False))
@options.tool
@options.answer
def keep_(out: Out, *, folder: str, tool: str | None) -> None:
    """Copy the sessions of known tools into FOLDER: only what is new of them, when called again."""
    rows = records(keep(folder, tools=tool))
    told = Counter(row["what"] for row in rows)
    note = ", ".join(f"{n:,} {what}" for what, n in told.items()) or "no session was found"
    shown = rows if out.json else [r for r in rows if r["what"] != "same"]
    out.table(f"Kept in {folder}", HEADS, shown, [f"{note}."])
