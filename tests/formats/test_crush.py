"""Crush: summaries told by a mark at the message, or by the session alone."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

from crush_databases import crush

import ctxkit as ck
from ctxkit.formats import Source
from ctxkit.formats import crush as crush_format
from ctxkit.session import Attachment

if TYPE_CHECKING:
    from pathlib import Path


def test_a_database_with_the_three_columns_that_name_a_message_is_crushs(tmp_path: Path):
    for columns, is_crush in (("session_id, parts, role", True), ("session_id, parts", False)):
        path = tmp_path / f"{is_crush}.db"
        database = sqlite3.connect(path)
        database.execute(f"CREATE TABLE messages ({columns})")
        database.close()
        assert crush_format.sniff(Source(str(path), path.read_bytes())) == is_crush


def test_older_databases_name_the_latest_summary_at_the_session(tmp_path: Path):
    wanted = ck.read(crush(tmp_path / "crush.db"))
    db = sqlite3.connect(tmp_path / "crush.db")
    db.execute("ALTER TABLE messages DROP COLUMN is_summary_message")
    db.execute("UPDATE sessions SET summary_message_id = 'm6' WHERE id = 'golden'")
    db.commit()
    db.close()
    found = ck.read(tmp_path / "crush.db")
    assert len(found.edits) == 1
    assert found.log == wanted.log


def test_a_picture_that_a_tool_gave_is_kept(tmp_path: Path):
    database = sqlite3.connect(crush(tmp_path / "crush.db"))
    held = {"tool_call_id": "c1", "content": "Loaded", "data": "AA==", "mime_type": "image/png"}
    parts = json.dumps([{"type": "tool_result", "data": held}])
    with database:
        database.execute("UPDATE messages SET parts = ? WHERE id = 'm2'", (parts,))
    database.close()
    (found,) = (m for m in ck.read(tmp_path / "crush.db").messages if m.text == "Loaded")
    assert found.parts[1:] == (Attachment("image/png", "AA=="),)


def test_a_reply_that_ended_in_an_error_is_no_answer(tmp_path: Path):
    database = sqlite3.connect(crush(tmp_path / "crush.db"))
    parts = json.dumps([{"type": "finish", "data": {"reason": "error"}}])
    with database:
        database.execute("UPDATE messages SET parts = ? WHERE id = 'm5'", (parts,))
    database.close()
    replies = [m for m in ck.read(tmp_path / "crush.db").messages if m.role == "assistant"]
    assert [(m.stop, m.is_error) for m in replies[1:4]] == [
        ("tool", False),
        ("error", True),
        (None, False),
    ]


def test_messages_of_an_unknown_role_are_counted_by_their_role(tmp_path: Path):
    database = sqlite3.connect(crush(tmp_path / "crush.db"))
    with database:
        database.execute("UPDATE messages SET role = 'note' WHERE id = 'm0'")
        database.execute("UPDATE messages SET role = '' WHERE id = 'm7'")
    database.close()
    skipped = ck.read(tmp_path / "crush.db").skipped
    assert skipped == {"message: note": 1, "message: no role": 1}
