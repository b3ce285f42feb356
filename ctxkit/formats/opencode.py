"""OpenCode exports, databases (1.2, 2.x), storage folders and run output.

The columns are those of `session/session.sql.ts` (1.2), the messages of 2.x those of
`session-message.ts` in its schema package; what a compaction of 2.x shows to the model is in
`session/runner/to-llm-message.ts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.fields import as_dict, as_list, as_str, parse_timestamp, str_or_none, to_text
from ctxkit.formats.opencode_messages import build_session
from ctxkit.formats.session_builder import nest_subagents
from ctxkit.formats.source import read_json_object
from ctxkit.formats.sqlite import Database, decode_json_cell, open_database
from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session


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
        return is_opencode_database(source)
    document = source.document
    if type(document) is not dict:
        return is_run_output(source)
    info = document.get("info")
    if type(info) is dict and type(document.get("messages")) is list:
        return as_str(info.get("id")).startswith("ses_") or "projectID" in info
    id_ = as_str(document.get("id"))
    return (id_.startswith("msg_") and "sessionID" in document) or (
        id_.startswith("ses_") and "directory" in document
    )


def read(source: Source) -> list[Session]:
    """Return a database's sessions, or the one of a file; a message reads as a session of one."""
    if source.is_database:
        return nest_subagents(read_database(source))
    document = as_dict(source.document)
    if not document and is_run_output(source):
        return [read_run_output(source)]
    if as_str(document.get("id")).startswith("ses_"):
        return (
            [_stored(source.path.parents[2], source.path)]
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
    return nest_subagents(sessions)


def _stored(path: Path, file: Path) -> Session:
    faults: list[Fault] = []
    info = read_json_object(file, faults)
    files = sorted((path / "message" / file.stem).glob("msg_*.json"))
    found = [read_json_object(f, faults) for f in files]
    found.sort(key=lambda m: parse_timestamp(as_dict(m.get("time")).get("created")) or 0)
    messages = [
        {"info": m, "parts": _stored_parts(path, as_str(m.get("id")), faults)} for m in found
    ]
    made = build_session({"id": file.stem, **info}, messages)
    return replace(made, path_=str(file), faults=(*made.faults, *faults))


def _stored_parts(path: Path, message: str, faults: list[Fault]) -> list[Any]:
    if (
        not message.startswith("msg_") or not message[4:].isalnum()
    ):  # an id is never followed out of the folder
        return []
    return [
        read_json_object(f, faults) for f in sorted((path / "part" / message).glob("prt_*.json"))
    ]


_SESSION = (
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


def is_opencode_database(source: Source) -> bool:
    """Say whether a database has OpenCode's tables, of either generation."""
    with open_database(source) as database:
        first = {"session_id", "message_id", "data"} <= database.columns("part")
        second = {"session_id", "type", "data"} <= database.columns("session_message")
        return first or second


def read_database(source: Source) -> dict[str, Session]:
    """Return all sessions by id; one that both generations hold is read from the newer."""
    with open_database(source) as database:
        found: dict[str, tuple[str, dict[str, Any]]] = {}
        for table in ("session", "session_v2"):
            rows = database.rows(table, _SESSION, "time_created, id")
            found |= {str(row["id"]): (table, row) for row in rows if row.get("id")}
        return {id_: _session(database, table, row) for id_, (table, row) in found.items()}


def _session(database: Database, table: str, row: dict[str, Any]) -> Session:
    faults: list[Fault] = []
    ways = (
        (_read_v2_messages, _read_v1_messages)
        if table == "session_v2"
        else (_read_v1_messages, _read_v2_messages)
    )
    messages = ways[0](database, row["id"], faults) or ways[1](database, row["id"], faults)
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
    database: Database, session: str, faults: list[Fault]
) -> list[dict[str, Any]]:
    """The messages of 1.2, each with its parts."""
    parts: dict[str, list[Any]] = {}
    for row in database.rows(
        "part", ("id", "message_id", "data"), "message_id, id", session_id=session
    ):
        data = _data(row, "part", faults)
        parts.setdefault(str(row.get("message_id")), []).append({**data, "id": row.get("id")})
    wanted = ("id", "time_created", "data")
    found = database.rows("message", wanted, "time_created, id", session_id=session)
    return [
        {
            "info": {**_data(row, "message", faults), "id": row.get("id")},
            "parts": parts.get(str(row.get("id")), []),
        }
        for row in found
    ]


def _read_v2_messages(
    database: Database, session: str, faults: list[Fault]
) -> list[dict[str, Any]]:
    """The messages of 2.x in the words of the older."""
    wanted = ("id", "type", "seq", "time_created", "data")
    found = database.rows("session_message", wanted, "seq, time_created, id", session_id=session)
    out = []
    for row in found:
        data = {"time": {"created": row.get("time_created")}, **_data(row, "message", faults)}
        told = _convert_v2_message(as_str(row.get("type")), data)
        if told:
            out.append({**told, "info": {**told["info"], "id": row.get("id")}})
    return out


def _data(row: dict[str, Any], kind: str, faults: list[Fault]) -> dict[str, Any]:
    data = decode_json_cell(row.get("data"))
    if type(data) is not dict:
        faults.append(Fault(0, f"{kind} {str(row.get('id'))[:80]}: expected a JSON object"))
    return as_dict(data)


def _convert_v2_message(kind: str, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return one message of 2.x as those of 1.2 are; None for a mark that no model is shown."""
    info: dict[str, Any] = {"time": as_dict(data.get("time"))}
    said = [{"type": "text", "text": as_str(data.get("text"))}]
    if kind in _IGNORED_TYPES:
        return None
    if kind == "assistant":
        return {
            "info": _reply(data),
            "parts": [_part(as_dict(p)) for p in as_list(data.get("content"))],
        }
    if kind == "compaction":
        if data.get("status") not in ("completed", None):
            return None
        texts = [t for key in ("summary", "recent") if (t := as_str(data.get(key)))]
        about = {**_reply(data), "summary": True, "reason": data.get("reason")}
        return {"info": about, "parts": [{"type": "text", "text": t} for t in texts]}
    if kind == "shell":
        given = data.get("output")
        shown = as_str(as_dict(given).get("output")) or as_str(given)
        said = [
            {"type": "text", "text": f"Shell command: {as_str(data.get('command'))}\n\n{shown}"}
        ]
        return {"info": {**info, "role": "user", "kind": "bash"}, "parts": said}
    if kind == "system":
        return {"info": {**info, "role": "system"}, "parts": said}
    if kind in ("synthetic", "skill"):
        return {"info": {**info, "role": "user", "kind": "injected"}, "parts": said}
    files = [_file(as_dict(f)) for f in as_list(data.get("files"))]
    return {"info": {**info, "role": kind}, "parts": [*(said if said[0]["text"] else []), *files]}


def _reply(data: dict[str, Any]) -> dict[str, Any]:
    model, error = as_dict(data.get("model")), as_dict(data.get("error"))
    told = {
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
        told["error"] = {
            "name": error.get("type") or "error",
            "data": {"message": error.get("message")},
        }
    return told


def _part(raw: dict[str, Any]) -> dict[str, Any]:
    if raw.get("type") != "tool":
        return raw
    state = as_dict(raw.get("state"))
    shown = as_list(state.get("content"))
    said = "\n".join(
        as_str(as_dict(c).get("text")) for c in shown if as_dict(c).get("type") == "text"
    )
    wrong = as_dict(state.get("error"))
    told = {
        "status": state.get("status"),
        "input": state.get("input"),
        "output": said or to_text(state.get("output")) or to_text(state.get("structured")),
        "error": str_or_none(wrong.get("message")) or said or to_text(state.get("error")),
        "attachments": [_file(as_dict(c)) for c in shown if as_dict(c).get("type") != "text"],
        "time": {"end": as_dict(raw.get("time")).get("completed")},
    }
    return {
        "type": "tool",
        "id": None,
        "tool": raw.get("name"),
        "callID": raw.get("id"),
        "state": told,
    }


def _file(raw: dict[str, Any]) -> dict[str, Any]:
    data, mime = as_str(raw.get("data")), as_str(raw.get("mime")) or as_str(raw.get("mediaType"))
    url = (
        as_str(raw.get("uri"))
        or as_str(raw.get("url"))
        or as_str(as_dict(raw.get("source")).get("uri"))
    )
    return {"type": "file", "mime": mime, "url": f"data:{mime};base64,{data}" if data else url}


_PARTS = {"step_start": "step-start", "text": "text", "reasoning": "reasoning", "tool_use": "tool",
          "step_finish": "step-finish"}  # fmt: skip


def is_run_output(source: Source) -> bool:
    """Say whether the first lines are parts with a session and a time."""
    head = source.head[:4]
    return (
        bool(head)
        and all(
            as_str(r.get("type")) in {*_PARTS, "error"} and "sessionID" in r and "timestamp" in r
            for r in head
        )
        and any(type(r.get("part")) is dict for r in head)
    )


def read_run_output(source: Source) -> Session:
    """Return the session: parts of one message id, or of one step, are a reply."""
    messages: list[dict[str, Any]] = []
    at = None
    for _, record in source.records:
        kind, part = as_str(record.get("type")), as_dict(record.get("part"))
        when = record.get("timestamp")
        if kind == "error":
            told = {
                "role": "assistant",
                "error": as_dict(record.get("error")),
                "time": {"created": when},
            }
            messages.append({"info": told, "parts": []})
            continue
        own = as_str(part.get("messageID")) or at
        if kind == "step_start" or not messages or own != at:
            at = own
            messages.append(
                {
                    "info": {"role": "assistant", "id": own or None, "time": {"created": when}},
                    "parts": [],
                }
            )
        _add_part(messages[-1], {**part, "type": _PARTS.get(kind, kind)}, when)
    first = as_dict(next((r for _, r in source.records), None))
    info = {"id": first.get("sessionID"), "time": {"created": first.get("timestamp")}}
    return build_session(info, messages, source.faults)


def _add_part(message: dict[str, Any], part: dict[str, Any], when: Any) -> None:
    info = message["info"]
    as_list(message["parts"]).append(part)
    if part["type"] == "step-finish":
        info.update(tokens=part.get("tokens"), cost=part.get("cost"), finish=part.get("reason"))
        info["time"]["completed"] = when
