"""Crush's database as its migrations make it, with the talk of the samples."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, title TEXT NOT NULL,
  message_count INTEGER NOT NULL DEFAULT 0, prompt_tokens INTEGER NOT NULL DEFAULT 0,
  completion_tokens INTEGER NOT NULL DEFAULT 0, cost REAL NOT NULL DEFAULT 0.0,
  updated_at INTEGER NOT NULL, created_at INTEGER NOT NULL, summary_message_id TEXT);
CREATE TABLE messages (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, role TEXT NOT NULL,
  parts BLOB NOT NULL default '[]', model TEXT, created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL, finished_at INTEGER, is_summary_message INTEGER DEFAULT 0 NOT NULL);
"""
BEGUN = 1_772_359_200


def part(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data}


def call(own: str, path: str) -> dict[str, Any]:
    given = json.dumps({"path": path})
    return part("tool_call", id=own, name="read_file", input=given, finished=True)


def result(own: str, said: str, *, wrong: bool = False) -> dict[str, Any]:
    return part("tool_result", tool_call_id=own, name="read_file", content=said, is_error=wrong)


TALK: list[tuple[str, list[dict[str, Any]], bool]] = [
    ("user", [part("text", text="How many words are in notes.txt and log.txt?")], False),
    ("assistant", [call("c1", "notes.txt"), part("finish", reason="tool_use")], False),
    ("tool", [result("c1", "one two three")], False),
    ("assistant", [call("c2", "log.txt"), part("finish", reason="tool_use")], False),
    ("tool", [result("c2", "No such file: log.txt", wrong=True)], False),
    ("assistant", [part("text", text="notes.txt has three words; there is no log.txt.")], False),
    ("assistant", [part("text", text="The user asked for words; notes.txt has three.")], True),
    ("user", [part("text", text="And in both?")], False),
    (
        "assistant",
        [
            part("reasoning", thinking="Only one of the files has words.", signature="c2lnbmVk"),
            part("text", text="Three."),
        ],
        False,
    ),
]
SUBAGENT_TALK: list[tuple[str, list[dict[str, Any]], bool]] = [
    ("user", [part("text", text="Count the words of notes.txt.")], False),
    ("assistant", [part("text", text="There are three.")], False),
]


def crush(path: Path) -> Path:
    """Write the database, closed and whole."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA page_size = 1024")
    db.executescript(SCHEMA)
    for own, parent in (("golden", None), ("sub", "golden")):
        row = (own, parent, "Counting words", 9, 900, 6, 0.25, BEGUN, BEGUN, None)
        db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    for prefix, session_id, talk in (("m", "golden", TALK), ("s", "sub", SUBAGENT_TALK)):
        for n, (role, parts, summary) in enumerate(talk):
            at = BEGUN + n + 1
            message_id, content = f"{prefix}{n}", json.dumps(parts)
            message = (message_id, session_id, role, content, "m-1", at, at, at, int(summary))
            db.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", message)
    db.commit()
    db.close()
    return path
