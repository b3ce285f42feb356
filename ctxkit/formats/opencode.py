"""Reader of OpenCode exports, databases (1.2 and 2.x), storage folders and run output.

OpenCode defines the columns in `session/session.sql.ts` (1.2), the messages of 2.x in
`session-message.ts`, and what the model is sent after a compaction in
`session/runner/to-llm-message.ts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.log_file_content import read_json_object_or_fault
from ctxkit.formats.opencode_messages import build_session
from ctxkit.formats.read_only_sqlite import Database, decode_json_cell, open_database
from ctxkit.formats.session_builder import nest_subagents
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    json_to_text,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session


NAME = "opencode"
CAN = (
    "text, thinking, calls with results, usage per call (cache reads and writes), cost, times; "
    "compactions, prunings"
)
CANNOT = "system prompt, tool schemas"
TABLES = ("session", "message", "part", "session_v2", "session_message")
TRAITS = (
    (
        "all",
        ("an aborted call's zeros are missing; cost is as logged, $0 is missing"),
    ),
)


# OpenCode stores a session in four layouts, all of which are converted to one form, {info, parts}
# per message, which `opencode_messages.build_session` reads:
#   export      one document: info and messages
#   database    tables session/message/part (1.2) or session_v2/session_message (2.x); where both
#               have a session, that of the newer table is read, with the other's messages as
#               fallback
#   storage     folders session/PROJECT/, message/SESSION/ and part/MESSAGE/ of JSON files
#   run output  JSON lines, one part each
def sniff(source: Source) -> bool:
    """Return True for an export, a database, a stored session or message, or `run` output."""
    if source.is_database:
        return _is_opencode_database(source)
    document = source.document
    if type(document) is not dict:
        return _is_run_output(source)
    info = document.get("info")
    if type(info) is dict and type(document.get("messages")) is list:
        return as_str(info.get("id")).startswith("ses_") or "projectID" in info
    id_ = as_str(document.get("id"))
    return (id_.startswith("msg_") and "sessionID" in document) or (
        id_.startswith("ses_") and "directory" in document
    )


def read(source: Source) -> list[Session]:
    """Read the sessions of a database, or the one of a file (a single message is a session)."""
    if source.is_database:
        return nest_subagents(_read_database(source))
    document = as_dict(source.document)
    if not document and _is_run_output(source):
        return [_read_run_output(source)]
    if as_str(document.get("id")).startswith("ses_"):
        return (
            [_read_stored_session(source.path.parents[2], source.path)]
            if source.on_disk and len(source.path.parents) > 2
            else [build_session(document, [])]
        )
    if "messages" not in document:
        document = {
            "info": {"id": document.get("sessionID")},
            "messages": [{"info": document, "parts": []}],
        }
    return [build_session(as_dict(document.get("info")), as_list(document.get("messages")))]


# -- the storage folder ---------------------------------------------------------------------------


def sniff_folder(path: Path) -> bool:
    """Return True if a folder is a storage, with the folders `session` and `message`."""
    try:
        return (
            (path / "session").is_dir()
            and (path / "message").is_dir()
            and any(path.glob("session/*/ses_*.json"))
        )
    except OSError:
        return False


def read_folder(storage: Path) -> list[Session]:
    """Read the main sessions of a storage; those of subagents are their children.

    Raises:
        ReadError: the storage has no session.
    """
    sessions = {
        file.stem: _read_stored_session(storage, file)
        for file in sorted((storage / "session").glob("*/ses_*.json"))
    }
    if not sessions:
        raise ReadError(
            "expected sessions in the folder 'session' of an OpenCode storage, found none.", storage
        )
    return nest_subagents(sessions)


def _read_stored_session(storage: Path, file: Path) -> Session:
    faults: list[Fault] = []
    info = read_json_object_or_fault(file, faults)
    files = sorted((storage / "message" / file.stem).glob("msg_*.json"))
    infos = [read_json_object_or_fault(f, faults) for f in files]
    infos.sort(key=lambda m: parse_timestamp(as_dict(m.get("time")).get("created")) or 0)
    messages = [
        {"info": m, "parts": _read_stored_parts(storage, as_str(m.get("id")), faults)}
        for m in infos
    ]
    session = build_session({"id": file.stem, **info}, messages)
    return replace(session, path_=str(file), faults=(*session.faults, *faults))


def _read_stored_parts(storage: Path, message_id: str, faults: list[Fault]) -> list[Any]:
    # The id becomes a folder name: anything that could lead out of the storage is refused.
    if not message_id.startswith("msg_") or not message_id[4:].isalnum():
        return []
    return [
        read_json_object_or_fault(f, faults)
        for f in sorted((storage / "part" / message_id).glob("prt_*.json"))
    ]


_SESSION_COLUMNS = (
    "id",
    "parent_id",
    "directory",
    "title",
    "version",
    "agent",
    "model",
    "revert",
    "time_created",
)
_IGNORED_TYPES = {"idle", "agent-switched", "model-switched", "location-switched"}


def _is_opencode_database(source: Source) -> bool:
    """Return True if a database has the tables of OpenCode 1.2 or 2.x."""
    with open_database(source) as database:
        is_v1 = {"session_id", "message_id", "data"} <= database.column_names("part")
        is_v2 = {"session_id", "type", "data"} <= database.column_names("session_message")
        return is_v1 or is_v2


def _read_database(source: Source) -> dict[str, Session]:
    """Read all sessions of a database, by id; the newer table has precedence."""
    with open_database(source) as database:
        session_rows: dict[str, tuple[str, dict[str, Any]]] = {}
        for table in ("session", "session_v2"):
            rows = database.iter_rows(table, _SESSION_COLUMNS, "time_created, id")
            session_rows |= {str(row["id"]): (table, row) for row in rows if row.get("id")}
        return {
            id_: _read_session(database, table, row) for id_, (table, row) in session_rows.items()
        }


def _read_session(database: Database, table: str, row: dict[str, Any]) -> Session:
    faults: list[Fault] = []
    read_functions = (
        (_read_v2_messages, _read_v1_messages)
        if table == "session_v2"
        else (_read_v1_messages, _read_v2_messages)
    )
    messages = read_functions[0](database, row["id"], faults) or read_functions[1](
        database, row["id"], faults
    )
    info = {
        "id": row["id"],
        "parentID": row.get("parent_id"),
        "directory": row.get("directory"),
        "title": row.get("title"),
        "version": row.get("version"),
        "agent": row.get("agent"),
        "model": decode_json_cell(row.get("model")),
        "revert": decode_json_cell(row.get("revert")),
        "time": {"created": row.get("time_created")},
    }
    return build_session(info, messages, faults)


def _read_v1_messages(
    database: Database, session_id: str, faults: list[Fault]
) -> list[dict[str, Any]]:
    """Read the messages of 1.2, each with its parts."""
    parts: dict[str, list[Any]] = {}
    for row in database.iter_rows(
        "part", ("id", "message_id", "data"), "message_id, id", session_id=session_id
    ):
        data = _decode_data(row, "part", faults)
        parts.setdefault(str(row.get("message_id")), []).append({**data, "id": row.get("id")})
    columns = ("id", "time_created", "data")
    message_rows = database.iter_rows("message", columns, "time_created, id", session_id=session_id)
    return [
        {
            "info": {**_decode_data(row, "message", faults), "id": row.get("id")},
            "parts": parts.get(str(row.get("id")), []),
        }
        for row in message_rows
    ]


def _read_v2_messages(
    database: Database, session_id: str, faults: list[Fault]
) -> list[dict[str, Any]]:
    """Read the messages of 2.x, converted to the form of 1.2."""
    columns = ("id", "type", "seq", "time_created", "data")
    message_rows = database.iter_rows(
        "session_message", columns, "seq, time_created, id", session_id=session_id
    )
    messages = []
    for row in message_rows:
        data = {
            "time": {"created": row.get("time_created")},
            **_decode_data(row, "message", faults),
        }
        converted = _convert_v2_message(as_str(row.get("type")), data)
        if converted:
            messages.append({**converted, "info": {**converted["info"], "id": row.get("id")}})
    return messages


def _decode_data(row: dict[str, Any], noun: str, faults: list[Fault]) -> dict[str, Any]:
    data = decode_json_cell(row.get("data"))
    if type(data) is not dict:
        faults.append(Fault(0, f"{noun} {str(row.get('id'))[:80]}: expected a JSON object"))
    return as_dict(data)


def _convert_v2_message(message_type: str, data: dict[str, Any]) -> dict[str, Any] | None:
    """Convert a message of 2.x to the form of 1.2; None for a mark that is not sent."""
    info: dict[str, Any] = {"time": as_dict(data.get("time"))}
    text_parts = [{"type": "text", "text": as_str(data.get("text"))}]
    if message_type in _IGNORED_TYPES:
        return None
    if message_type == "assistant":
        return {
            "info": _convert_reply(data),
            "parts": [_convert_part(as_dict(p)) for p in as_list(data.get("content"))],
        }
    if message_type == "compaction":
        if data.get("status") not in ("completed", None):
            return None
        texts = [t for key in ("summary", "recent") if (t := as_str(data.get(key)))]
        reply_info = {**_convert_reply(data), "summary": True, "reason": data.get("reason")}
        return {"info": reply_info, "parts": [{"type": "text", "text": t} for t in texts]}
    if message_type == "shell":
        output = data.get("output")
        output_text = as_str(as_dict(output).get("output")) or as_str(output)
        text_parts = [
            {
                "type": "text",
                "text": f"Shell command: {as_str(data.get('command'))}\n\n{output_text}",
            }
        ]
        return {"info": {**info, "role": "user", "kind": "bash"}, "parts": text_parts}
    if message_type == "system":
        return {"info": {**info, "role": "system"}, "parts": text_parts}
    if message_type in ("synthetic", "skill"):
        return {"info": {**info, "role": "user", "kind": "injected"}, "parts": text_parts}
    files = [_convert_file(as_dict(f)) for f in as_list(data.get("files"))]
    return {
        "info": {**info, "role": message_type},
        "parts": [*(text_parts if text_parts[0]["text"] else []), *files],
    }


def _convert_reply(data: dict[str, Any]) -> dict[str, Any]:
    """Return the `info` that 1.2 has for a reply (or summary) of 2.x."""
    model, error = as_dict(data.get("model")), as_dict(data.get("error"))
    info = {
        "role": "assistant",
        "agent": data.get("agent"),
        "modelID": model.get("id"),
        "providerID": model.get("providerID"),
        "tokens": data.get("tokens"),
        "cost": data.get("cost"),
        "finish": data.get("finish"),
        "time": as_dict(data.get("time")),
    }
    if error:
        info["error"] = {
            "name": error.get("type") or "error",
            "data": {"message": error.get("message")},
        }
    return info


def _convert_part(raw: dict[str, Any]) -> dict[str, Any]:
    if raw.get("type") != "tool":
        return raw
    state = as_dict(raw.get("state"))
    content = as_list(state.get("content"))
    text = "\n".join(
        as_str(as_dict(c).get("text")) for c in content if as_dict(c).get("type") == "text"
    )
    error = as_dict(state.get("error"))
    converted_state = {
        "status": state.get("status"),
        "input": state.get("input"),
        "output": text
        or json_to_text(state.get("output"))
        or json_to_text(state.get("structured")),
        "error": str_or_none(error.get("message")) or text or json_to_text(state.get("error")),
        "attachments": [
            _convert_file(as_dict(c)) for c in content if as_dict(c).get("type") != "text"
        ],
        "time": {"end": as_dict(raw.get("time")).get("completed")},
    }
    return {
        "type": "tool",
        "id": None,
        "tool": raw.get("name"),
        "callID": raw.get("id"),
        "state": converted_state,
    }


def _convert_file(raw: dict[str, Any]) -> dict[str, Any]:
    data, mime = as_str(raw.get("data")), as_str(raw.get("mime")) or as_str(raw.get("mediaType"))
    url = (
        as_str(raw.get("uri"))
        or as_str(raw.get("url"))
        or as_str(as_dict(raw.get("source")).get("uri"))
    )
    return {"type": "file", "mime": mime, "url": f"data:{mime};base64,{data}" if data else url}


_PART_TYPES = {
    "step_start": "step-start",
    "text": "text",
    "reasoning": "reasoning",
    "tool_use": "tool",
    "step_finish": "step-finish",
}
"""Part types by the event types of run output."""


def _is_run_output(source: Source) -> bool:
    """Return True if the first lines are parts with a session and a time."""
    head = source.head[:4]
    return (
        bool(head)
        and all(
            as_str(r.get("type")) in {*_PART_TYPES, "error"}
            and "sessionID" in r
            and "timestamp" in r
            for r in head
        )
        and any(type(r.get("part")) is dict for r in head)
    )


def _read_run_output(source: Source) -> Session:
    """Read run output; the parts of one message id, or of one step, are a reply.

    An error is a reply of its own; a part after it belongs to the reply that was under way.
    """
    messages: list[dict[str, Any]] = []
    reply: dict[str, Any] | None = None
    current_id = None
    for _, record in source.records:
        event_type, part = as_str(record.get("type")), as_dict(record.get("part"))
        timestamp = record.get("timestamp")
        if event_type == "error":
            error_info = {
                "role": "assistant",
                "error": as_dict(record.get("error")),
                "time": {"created": timestamp},
            }
            messages.append({"info": error_info, "parts": []})
            continue
        message_id = as_str(part.get("messageID")) or current_id
        if event_type == "step_start" or reply is None or message_id != current_id:
            current_id = message_id
            reply_info = {
                "role": "assistant",
                "id": message_id or None,
                "time": {"created": timestamp},
            }
            reply = {"info": reply_info, "parts": []}
            messages.append(reply)
        _add_part(reply, {**part, "type": _PART_TYPES.get(event_type, event_type)}, timestamp)
    first_record = as_dict(next((r for _, r in source.records), None))
    info = {"id": first_record.get("sessionID"), "time": {"created": first_record.get("timestamp")}}
    return build_session(info, messages, source.faults)


def _add_part(message: dict[str, Any], part: dict[str, Any], timestamp: Any) -> None:
    info = message["info"]
    as_list(message["parts"]).append(part)
    if part["type"] == "step-finish":
        info.update(tokens=part.get("tokens"), cost=part.get("cost"), finish=part.get("reason"))
        info["time"]["completed"] = timestamp
