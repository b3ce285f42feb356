"""OpenCode's database: the tables of 1.2 and those of 2.x, told as its exports tell a session.

The columns are those of `session/session.sql.ts` (1.2), the messages of 2.x those of
`session-message.ts` in its schema package; what a compaction of 2.x shows to the model is in
`session/runner/to-llm-message.ts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Fault
from ctxkit.readers.databases import Tables, cell, opened
from ctxkit.readers.fields import as_text, items, mapping, text, word
from ctxkit.readers.opencode_messages import to_session

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

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
_QUIET = {"idle", "agent-switched", "model-switched", "location-switched"}


def is_store(source: Source) -> bool:
    """Say whether a database has OpenCode's tables, of either generation."""
    with opened(source) as database:
        first = {"session_id", "message_id", "data"} <= database.columns("part")
        second = {"session_id", "type", "data"} <= database.columns("session_message")
        return first or second


def read_store(source: Source) -> dict[str, Session]:
    """Return all sessions by id; one that both generations hold is read from the newer."""
    with opened(source) as database:
        found: dict[str, tuple[str, dict[str, Any]]] = {}
        for table in ("session", "session_v2"):
            rows = database.rows(table, _SESSION, "time_created, id")
            found |= {str(row["id"]): (table, row) for row in rows if row.get("id")}
        return {id_: _session(database, table, row) for id_, (table, row) in found.items()}


def _session(database: Tables, table: str, row: dict[str, Any]) -> Session:
    faults: list[Fault] = []
    ways = (_newer, _older) if table == "session_v2" else (_older, _newer)
    messages = ways[0](database, row["id"], faults) or ways[1](database, row["id"], faults)
    info = {
        "id": row["id"],
        "parentID": row.get("parent_id"),
        "directory": row.get("directory"),
        "title": row.get("title"),
        "version": row.get("version"),
        "agent": row.get("agent"),
        "model": cell(row.get("model")),
        "revert": cell(row.get("revert")),
        "time": {"created": row.get("time_created")},
    }
    return to_session(info, messages, faults)


def _older(database: Tables, session: str, faults: list[Fault]) -> list[dict[str, Any]]:
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


def _newer(database: Tables, session: str, faults: list[Fault]) -> list[dict[str, Any]]:
    """The messages of 2.x in the words of the older."""
    wanted = ("id", "type", "seq", "time_created", "data")
    found = database.rows("session_message", wanted, "seq, time_created, id", session_id=session)
    out = []
    for row in found:
        data = {"time": {"created": row.get("time_created")}, **_data(row, "message", faults)}
        told = _told(text(row.get("type")), data)
        if told:
            out.append({**told, "info": {**told["info"], "id": row.get("id")}})
    return out


def _data(row: dict[str, Any], kind: str, faults: list[Fault]) -> dict[str, Any]:
    data = cell(row.get("data"))
    if type(data) is not dict:
        faults.append(Fault(0, f"{kind} {str(row.get('id'))[:80]}: expected a JSON object"))
    return mapping(data)


def _told(kind: str, data: dict[str, Any]) -> dict[str, Any] | None:
    """Return one message of 2.x as those of 1.2 are; None for a mark that no model is shown."""
    info: dict[str, Any] = {"time": mapping(data.get("time"))}
    said = [{"type": "text", "text": text(data.get("text"))}]
    if kind in _QUIET:
        return None
    if kind == "assistant":
        return {
            "info": _reply(data),
            "parts": [_part(mapping(p)) for p in items(data.get("content"))],
        }
    if kind == "compaction":
        if data.get("status") not in ("completed", None):
            return None
        texts = [t for key in ("summary", "recent") if (t := text(data.get(key)))]
        about = {**_reply(data), "summary": True, "reason": data.get("reason")}
        return {"info": about, "parts": [{"type": "text", "text": t} for t in texts]}
    if kind == "shell":
        given = data.get("output")
        shown = text(mapping(given).get("output")) or text(given)
        said = [{"type": "text", "text": f"Shell command: {text(data.get('command'))}\n\n{shown}"}]
        return {"info": {**info, "role": "user", "kind": "bash"}, "parts": said}
    if kind == "system":
        return {"info": {**info, "role": "system"}, "parts": said}
    if kind in ("synthetic", "skill"):
        return {"info": {**info, "role": "user", "kind": "injected"}, "parts": said}
    files = [_file(mapping(f)) for f in items(data.get("files"))]
    return {"info": {**info, "role": kind}, "parts": [*(said if said[0]["text"] else []), *files]}


def _reply(data: dict[str, Any]) -> dict[str, Any]:
    model, error = mapping(data.get("model")), mapping(data.get("error"))
    told = {
        "role": "assistant",
        "agent": data.get("agent"),
        "modelID": model.get("id"),
        "providerID": model.get("providerID"),
        "tokens": data.get("tokens"),
        "cost": data.get("cost"),
        "finish": data.get("finish"),
        "time": mapping(data.get("time")),
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
    state = mapping(raw.get("state"))
    shown = items(state.get("content"))
    said = "\n".join(
        text(mapping(c).get("text")) for c in shown if mapping(c).get("type") == "text"
    )
    wrong = mapping(state.get("error"))
    told = {
        "status": state.get("status"),
        "input": state.get("input"),
        "output": said or as_text(state.get("output")) or as_text(state.get("structured")),
        "error": word(wrong.get("message")) or said or as_text(state.get("error")),
        "attachments": [_file(mapping(c)) for c in shown if mapping(c).get("type") != "text"],
        "time": {"end": mapping(raw.get("time")).get("completed")},
    }
    return {
        "type": "tool",
        "id": None,
        "tool": raw.get("name"),
        "callID": raw.get("id"),
        "state": told,
    }


def _file(raw: dict[str, Any]) -> dict[str, Any]:
    data, mime = text(raw.get("data")), text(raw.get("mime")) or text(raw.get("mediaType"))
    url = (
        text(raw.get("uri")) or text(raw.get("url")) or text(mapping(raw.get("source")).get("uri"))
    )
    return {"type": "file", "mime": mime, "url": f"data:{mime};base64,{data}" if data else url}
