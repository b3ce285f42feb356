"""OpenCode: exports, its database (1.2 and 2.x), the older folder of a file a part, `opencode run
--format json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.readers.fields import items, mapping, text, time
from ctxkit.readers.nesting import nested
from ctxkit.readers.opencode_messages import to_session
from ctxkit.readers.opencode_run import is_run, read_run
from ctxkit.readers.opencode_tables import is_store, read_store
from ctxkit.readers.source import object_in

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.messages import Fault
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "opencode"
CAN = (
    "text, thinking, calls with results, usage per call (cache reads and writes), money, times;"
    " compactions, prunings"
)
CANNOT = "system prompt, tool schemas"
TABLES = ("session", "message", "part", "session_v2", "session_message")
TRAITS = (("all", "an aborted call's zeros are missing; money is the log's own, $0 is missing"),)


def sniff(source: Source) -> bool:
    """Say whether this is an export, a database, a stored session or message, or `run` output."""
    if source.is_database:
        return is_store(source)
    document = source.document
    if type(document) is not dict:
        return is_run(source)
    info = document.get("info")
    if type(info) is dict and type(document.get("messages")) is list:
        return text(info.get("id")).startswith("ses_") or "projectID" in info
    id_ = text(document.get("id"))
    return (id_.startswith("msg_") and "sessionID" in document) or (
        id_.startswith("ses_") and "directory" in document
    )


def read(source: Source) -> list[Session]:
    """Return a database's sessions, or the one of a file; a message reads as a session of one."""
    if source.is_database:
        return nested(read_store(source))
    document = mapping(source.document)
    if not document and is_run(source):
        return [read_run(source)]
    if text(document.get("id")).startswith("ses_"):
        return (
            [_stored(source.path.parents[2], source.path)]
            if source.on_disk and len(source.path.parents) > 2
            else [to_session(document, [])]
        )
    if "messages" not in document:
        document = {
            "info": {"id": document.get("sessionID")},
            "messages": [{"info": document, "parts": []}],
        }
    return [to_session(mapping(document.get("info")), items(document.get("messages")))]


# -- the storage folder ---------------------------------------------------------------------------


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is a storage: it has the folders `session` and `message`."""
    try:
        return (
            (path / "session").is_dir()
            and (path / "message").is_dir()
            and any(path.glob("session/*/ses_*.json"))
        )
    except OSError:
        return False


def read_folder(path: Path) -> list[Session]:
    """Return the main sessions of a storage; those of subagents are their children."""
    sessions = {
        file.stem: _stored(path, file) for file in sorted((path / "session").glob("*/ses_*.json"))
    }
    if not sessions:
        raise ReadError(
            "expected sessions in the folder 'session' of an OpenCode storage, found none.", path
        )
    return nested(sessions)


def _stored(path: Path, file: Path) -> Session:
    faults: list[Fault] = []
    info = object_in(file, faults)
    files = sorted((path / "message" / file.stem).glob("msg_*.json"))
    found = [object_in(f, faults) for f in files]
    found.sort(key=lambda m: time(mapping(m.get("time")).get("created")) or 0)
    messages = [{"info": m, "parts": _stored_parts(path, text(m.get("id")), faults)} for m in found]
    made = to_session({"id": file.stem, **info}, messages)
    return replace(made, path_=str(file), faults=(*made.faults, *faults))


def _stored_parts(path: Path, message: str, faults: list[Fault]) -> list[Any]:
    if (
        not message.startswith("msg_") or not message[4:].isalnum()
    ):  # an id is never followed out of the folder
        return []
    return [object_in(f, faults) for f in sorted((path / "part" / message).glob("prt_*.json"))]
