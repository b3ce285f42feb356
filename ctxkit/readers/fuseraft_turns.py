"""fuseraft's post-mortem of a session: `turns.jsonl`, one line a message, with the manifest beside
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.messages import Fault
from ctxkit.readers.damaged import each_line
from ctxkit.readers.fields import real, text, time, word
from ctxkit.readers.fuseraft_files import companion, companions, write_turn
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ctxkit.session import Session

NAME = "fuseraft-turns"
CAN = (
    "text, calls (arguments in short, whether they succeeded), usage per turn, agents, times,"
    " summaries"
)
CANNOT = (
    "single calls, what tools answered, cache, model, system prompt; what stood before a summary"
)


def sniff(source: Source) -> bool:
    """Say whether the first line is a message of a post-mortem."""
    first = source.head[0] if source.head else {}
    return (
        {"session", "turn", "role", "content"} <= first.keys()
        and "agent" in first
        and "ts" in first
    )


def read(source: Source) -> list[Session]:
    """Return one session for each id in the file; `details` tell of the files beside it."""
    groups: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    faults = list(source.faults)
    for line, record in source.records:
        if "role" in record:
            groups.setdefault(text(record.get("session")) or source.path.stem, []).append(
                (line, record)
            )
        else:
            faults.append(Fault(line, "expected a message with a 'role'"))
    out = [_session(id_, records, source) for id_, records in groups.items()]
    if out:
        out[0] = replace(out[0], faults=(*faults, *out[0].faults))
    return out


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is a post-mortem: it has `turns.jsonl` and `manifest.json`."""
    file = path / "turns.jsonl"
    try:
        return file.is_file() and (path / "manifest.json").is_file() and sniff(Source(file))
    except (OSError, ReadError):
        return False


def read_folder(path: Path) -> list[Session]:
    """Return the sessions of the folder's `turns.jsonl`."""
    return read(Source(path / "turns.jsonl"))


def _session(id_: str, records: Sequence[tuple[int, dict[str, Any]]], source: Source) -> Session:
    log = ReaderLog()
    each_line(records, lambda record: write_turn(log, record), log.faults)
    manifest = companion(source, "manifest.json")
    told: dict[str, Any] = {}
    if text(manifest.get("session")) == id_:
        told = {
            "error": word(manifest.get("error_message")),
            "seconds": real(manifest.get("elapsed_seconds")),
        }
        if type(manifest.get("succeeded")) is bool:
            told["succeeded"] = manifest["succeeded"]
    return log.session(
        id=id_,
        format=NAME,
        product="fuseraft",
        title=word(manifest.get("task")) if told else None,
        started=next((t for _, r in records if (t := time(r.get("ts"))) is not None), None),
        details={**{k: v for k, v in told.items() if v is not None}, **companions(source, id_)},
    )
