"""Reader of fuseraft post-mortems: `turns.jsonl`, one message per line, and its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.fuseraft_turn_messages_and_work_records import (
    add_turn,
    read_companion_file,
    summarize_work_records,
)
from ctxkit.formats.log_file_content import Source
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_str,
    float_or_none,
    parse_timestamp,
    read_each_line,
    str_or_none,
)
from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ctxkit.session.session import Session

NAME = "fuseraft-turns"
CAN = "text, calls (shortened arguments, success), usage per turn, agents, times, summaries"
CANNOT = "single calls, tool results, cache, model, system prompt; messages before a summary"


def sniff(source: Source) -> bool:
    """Return True if the first line is a message of a post-mortem."""
    first_record = source.head[0] if source.head else {}
    return (
        {"session", "turn", "role", "content"} <= first_record.keys()
        and "agent" in first_record
        and "ts" in first_record
    )


def read(source: Source) -> list[Session]:
    """Read one session per id; companion files are summarized in `details`."""
    records_by_session: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    faults = list(source.faults)
    for line, record in source.records:
        if "role" in record:
            records_by_session.setdefault(
                as_str(record.get("session")) or source.path.stem, []
            ).append((line, record))
        else:
            faults.append(Fault(line, "expected a message with a 'role'"))
    sessions = [
        _build_session(session_id, records, source)
        for session_id, records in records_by_session.items()
    ]
    if sessions:
        sessions[0] = replace(sessions[0], faults=(*faults, *sessions[0].faults))
    return sessions


def sniff_folder(path: Path) -> bool:
    """Return True if a folder is a post-mortem, with `turns.jsonl` and `manifest.json`."""
    file = path / "turns.jsonl"
    try:
        return file.is_file() and (path / "manifest.json").is_file() and sniff(Source(file))
    except (OSError, ReadError):
        return False


def read_folder(path: Path) -> list[Session]:
    """Read the sessions of the folder's `turns.jsonl`."""
    return read(Source(path / "turns.jsonl"))


def _build_session(
    session_id: str, records: Sequence[tuple[int, dict[str, Any]]], source: Source
) -> Session:
    builder = SessionBuilder()
    read_each_line(records, lambda record: add_turn(builder, record), builder.faults)
    manifest = read_companion_file(source, "manifest.json")
    manifest_details: dict[str, Any] = {}
    if as_str(manifest.get("session")) == session_id:
        manifest_details = {
            "error": str_or_none(manifest.get("error_message")),
            "seconds": float_or_none(manifest.get("elapsed_seconds")),
        }
        if type(manifest.get("succeeded")) is bool:
            manifest_details["succeeded"] = manifest["succeeded"]
    return builder.session(
        id=session_id,
        format=NAME,
        product="fuseraft",
        title=str_or_none(manifest.get("task")) if manifest_details else None,
        started=next(
            (
                time
                for _, turn_record in records
                if (time := parse_timestamp(turn_record.get("ts"))) is not None
            ),
            None,
        ),
        details={
            **{name: value for name, value in manifest_details.items() if value is not None},
            **summarize_work_records(source, session_id),
        },
    )
