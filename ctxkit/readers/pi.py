"""Sessions of Pi, versions 1 to 3, and of its family (OpenClaw, Fased, ai): JSON Lines, a tree from
version 2 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.readers.fields import text
from ctxkit.readers.pi_entries import ROLES, Entries

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "pi"
ALIASES = ("openclaw", "fased", "ai")
CAN = (
    "text, thinking, calls and results, usage per call (cache reads and writes), money, times,"
    " branches, compactions"
)
CANNOT = "system prompt, tool schemas"
TRAITS = (
    (
        "all",
        (
            "calls of broken-off replies were not run and count all the same; a failed call's zeros"
            " are missing"
        ),
    ),
    ("1 to 3", "summaries are mostly not priced: estimated"),
    ("all", "money is the log's own; $0 (a free model, or one without a price) is missing"),
)


def sniff(source: Source) -> bool:
    """Say whether the first lines are Pi's header, Pi's entries, or bare messages of early ai."""
    for record in source.head[:4]:
        kind = record.get("type")
        if kind == "session":
            return type(record.get("id")) is str or "cwd" in record or "version" in record
        message = record.get("message") if kind == "message" else record if kind is None else None
        if type(message) is dict and text(message.get("role")) in ROLES:
            return "parentId" in record or "stopReason" in message or _is_pi(message)
    return False


def _is_pi(message: dict[str, Any]) -> bool:
    return message["role"] not in ("user", "assistant") or type(message.get("timestamp")) is int


def read(source: Source) -> list[Session]:
    """Read the one session of a file; entries that are damaged are counted and the rest is kept."""
    return [Entries(source).session(NAME)]
