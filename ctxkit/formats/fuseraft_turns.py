"""fuseraft's post-mortem of a session: `turns.jsonl`, one line a message, with the manifest beside
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.fields import (
    as_str,
    float_or_none,
    parse_timestamp,
    read_each_line,
    str_or_none,
)
from ctxkit.formats.fuseraft_common import add_turn, read_companion_file, read_companion_files
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.source import Source
from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ctxkit.session.session import Session

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
            groups.setdefault(as_str(record.get("session")) or source.path.stem, []).append(
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
    log = SessionBuilder()
    read_each_line(records, lambda record: add_turn(log, record), log.faults)
    manifest = read_companion_file(source, "manifest.json")
    told: dict[str, Any] = {}
    if as_str(manifest.get("session")) == id_:
        told = {
            "error": str_or_none(manifest.get("error_message")),
            "seconds": float_or_none(manifest.get("elapsed_seconds")),
        }
        if type(manifest.get("succeeded")) is bool:
            told["succeeded"] = manifest["succeeded"]
    return log.session(
        id=id_,
        format=NAME,
        product="fuseraft",
        title=str_or_none(manifest.get("task")) if told else None,
        started=next(
            (t for _, r in records if (t := parse_timestamp(r.get("ts"))) is not None), None
        ),
        details={
            **{k: v for k, v in told.items() if v is not None},
            **read_companion_files(source, id_),
        },
    )
