"""fuseraft's event logs: the sizes of every call, its bill, compactions; a sub-agent's calls as
their own session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.readers.damaged import noting
from ctxkit.readers.fields import text
from ctxkit.readers.fuseraft_calls import Teller
from ctxkit.readers.fuseraft_files import companions
from ctxkit.readers.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.session import Session

NAME = "fuseraft-events"
ALIASES = ("fuseraft-repl",)
CAN = (
    "usage and occupancy per call, sizes by kind, requests, answers, tools with sizes, compactions,"
    " agents, subagents"
)
CANNOT = "what tools answered (sizes only), cache per call (per turn only), system prompt, money"


def sniff(source: Source) -> bool:
    """Say whether the first lines are events: a time, a type and a payload."""
    return any(
        type(r.get("event_type")) is str and ("ts" in r or "session" in r) for r in source.head[:3]
    )


def read(source: Source) -> list[Session]:
    """Return one session for each id in the file (older versions write all a project's in one)."""
    tellers: dict[str, Teller] = {}
    faults = list(source.faults)
    for line, record in source.records:
        id_ = text(record.get("session")) or next(reversed(tellers), source.path.stem)
        if id_ not in tellers:
            tellers[id_] = Teller(id_)
        with noting(faults, line):
            tellers[id_].take(record)
    out = [t.session(companions(source, t.id)) for t in tellers.values()]
    if out:
        out[0] = replace(out[0], faults=tuple(faults))
    return out


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is a session: its `events.jsonl` is the event log of one session."""
    file = path / "events.jsonl"
    try:
        return (
            file.is_file()
            and any((path / name).exists() for name in _BESIDE)
            and sniff(Source(file))
        )
    except (OSError, ReadError):
        return False


def read_folder(path: Path) -> list[Session]:
    """Return the sessions of the folder's `events.jsonl`; `details` tell of the files beside it."""
    return read(Source(path / "events.jsonl"))


_BESIDE = {
    "ctx_snapshots.jsonl",
    "intents.json",
    "evidence.json",
    "tool-results",
    "context_summary.md",
    "ctx_viz.html",
}
"""What stands beside the events of one session: without any, a folder may hold other logs too."""
