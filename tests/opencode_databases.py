"""OpenCode's database as 1.2 and as 2.x make it, filled from an export of the same session."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_SESSION = (
    "id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL, directory text NOT NULL,"
    "title text NOT NULL, version text NOT NULL, revert text, agent text, model text,"
    "time_created integer NOT NULL, time_updated integer NOT NULL"
)
_ROW = "id text PRIMARY KEY, session_id text NOT NULL, time_created integer, time_updated integer, data text NOT NULL"
OLD = f"""
CREATE TABLE session ({_SESSION});
CREATE TABLE message ({_ROW});
CREATE TABLE part (message_id text NOT NULL, {_ROW});
CREATE TABLE session_message (type text NOT NULL, {_ROW});
"""
NEW = f"""
CREATE TABLE session ({_SESSION});
CREATE TABLE session_v2 ({_SESSION});
CREATE TABLE session_message (type text NOT NULL, seq integer NOT NULL, {_ROW});
"""


def older(path: Path, export: dict[str, Any], parent: str | None = None) -> sqlite3.Connection:
    """Write an export as 1.2 holds it; the connection is open and has committed."""
    db = _begun(path, OLD)
    info, own = export["info"], export["info"]["id"]
    _session(db, "session", info, parent)
    for m in export["messages"]:
        told = {k: v for k, v in m["info"].items() if k not in ("id", "sessionID")}
        when = m["info"]["time"]["created"]
        db.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
            (m["info"]["id"], own, when, when, json.dumps(told)),
        )
        for p in m["parts"]:
            data = json.dumps({k: v for k, v in p.items() if k != "id"})
            row = (m["info"]["id"], p["id"], own, when, when, data)
            db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
    db.commit()
    return db


def newer(path: Path, export: dict[str, Any]) -> sqlite3.Connection:
    """Write an export as 2.x holds it."""
    db = _begun(path, NEW)
    info = export["info"]
    _session(db, "session_v2", info, None)
    told = [t for m in export["messages"] if (t := _newer(m))]
    marks = [
        ("model-switched", {"model": {"id": "m-1", "providerID": "made"}}),
        ("idle", {"outcome": "succeeded"}),
    ]
    for seq, (kind, data) in enumerate([marks[0], *told, marks[1]]):
        when = data.get("time", {}).get("created", info["time"]["created"])
        row = (kind, seq, f"msg_{seq}", info["id"], when, when, json.dumps(data))
        db.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    db.commit()
    return db


def _begun(path: Path, schema: str) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.execute("PRAGMA page_size = 1024")
    db.executescript(schema)
    db.execute("PRAGMA journal_mode = wal")
    return db


def _session(db: sqlite3.Connection, table: str, info: dict[str, Any], parent: str | None) -> None:
    t = info["time"]
    row = (
        info["id"],
        "p",
        parent,
        "s",
        info["directory"],
        info["title"],
        info["version"],
        None,
        None,
        None,
    )
    db.execute(
        f"INSERT INTO {table} VALUES ({', '.join('?' * 12)})", (*row, t["created"], t["updated"])
    )


def _newer(m: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    info, parts = m["info"], m["parts"]
    texts = "\n".join(p["text"] for p in parts if p["type"] == "text")
    if info["role"] == "user":
        return ("user", {"text": texts, "time": info["time"]}) if texts else None
    told = {k: info[k] for k in ("agent", "cost", "tokens", "finish", "time")}
    told["model"] = {"id": info["modelID"], "providerID": info["providerID"]}
    if info.get("summary"):
        return "compaction", {
            **told,
            "status": "completed",
            "reason": "auto",
            "summary": texts,
            "recent": "",
        }
    content = [_content(p) for p in parts if p["type"] in ("text", "reasoning", "tool")]
    return "assistant", {**told, "content": content}


def _content(p: dict[str, Any]) -> dict[str, Any]:
    if p["type"] in ("text", "reasoning"):
        return {"type": p["type"], "text": p["text"]}
    state = {"status": p["state"]["status"], "input": p["state"]["input"]}
    if state["status"] == "completed":
        state["content"] = [{"type": "text", "text": p["state"]["output"]}]
    else:
        state["error"] = {"type": "tool", "message": p["state"]["error"]}
    ended = {"created": p["state"]["time"]["start"], "completed": p["state"]["time"]["end"]}
    return {"type": "tool", "id": p["callID"], "name": p["tool"], "state": state, "time": ended}
