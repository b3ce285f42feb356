"""Goose: the database tells what the export tells; older logs; compactions by who still sees what."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest
from log_damage import cut, flip
from msgspec.structs import replace
from synthetic_logs_current_layouts import GOOSE

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import Source, read_source

EXPORT = Path(__file__).parent / "golden" / "goose.json"
SCHEMA = """
CREATE TABLE schema_version (version INTEGER PRIMARY KEY);
CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', description TEXT NOT NULL DEFAULT '',
  session_type TEXT NOT NULL DEFAULT 'user', working_dir TEXT NOT NULL, created_at TIMESTAMP, updated_at TIMESTAMP,
  extension_data TEXT DEFAULT '{}', total_tokens INTEGER, input_tokens INTEGER, output_tokens INTEGER,
  accumulated_total_tokens INTEGER, accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER,
  model_config_json TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT NOT NULL,
  role TEXT NOT NULL, content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL, tokens INTEGER,
  metadata_json TEXT);
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    told = json.loads(EXPORT.read_bytes())
    db = sqlite3.connect(tmp_path / "sessions.db")
    db.execute("PRAGMA page_size = 1024")
    db.executescript(SCHEMA)
    about = {
        k: v for k, v in told.items() if k not in ("conversation", "message_count", "model_config")
    }
    about |= {"extension_data": "{}", "model_config_json": json.dumps(told["model_config"])}
    db.execute(
        f"INSERT INTO sessions ({', '.join(about)}) VALUES ({', '.join('?' * len(about))})",
        [*about.values()],
    )
    for m in told["conversation"]:
        row = (
            m["id"],
            told["id"],
            m["role"],
            json.dumps(m["content"]),
            m["created"],
            json.dumps(m["metadata"]),
        )
        db.execute("INSERT INTO messages VALUES (NULL, ?, ?, ?, ?, ?, NULL, ?)", row)
    db.commit()
    db.close()
    return tmp_path / "sessions.db"


def test_a_database_tells_what_the_export_tells(database: Path):
    found, wanted = ck.read(database), ck.read(EXPORT)
    assert replace(found, path_=None) == replace(wanted, path_=None)
    assert found.details["totals"]["accumulated_total_tokens"] == 5000


def test_an_older_log_is_read():
    (session,) = read_source(Source("s.jsonl", GOOSE))
    assert [m.role for m in session.messages] == ["user", "assistant", "tool"]
    assert session.messages[2].error == "no"


def test_two_compactions_one_after_the_other():
    told = json.loads(EXPORT.read_bytes())
    for m in told["conversation"][6:]:
        m["metadata"]["agentVisible"] = False
    only = {"userVisible": False, "agentVisible": True}
    told["conversation"] += [
        {"role": "user", "content": [{"type": "text", "text": "Twice."}], "metadata": only}
    ]
    (session,) = read_source(Source("s.json", json.dumps(told).encode()))
    assert [m.text for m in session.view()] == ["Twice."]
    assert [len(e.targets) for e in session.edits] == [6, 4]


def test_what_the_agent_never_saw_is_not_shown():
    told = json.loads(EXPORT.read_bytes())
    note = {"userVisible": True, "agentVisible": False}
    value = {"content": [{"type": "text", "text": "Late."}]}
    answer = {"type": "toolResponse", "id": "c2", "toolResult": {"value": value}}
    told["conversation"] += [
        {"role": "assistant", "content": [{"type": "text", "text": "Bye."}], "metadata": note},
        {"role": "user", "content": [answer], "metadata": note},
    ]
    (session,) = read_source(Source("s.json", json.dumps(told).encode()))
    assert session.view()[-1].parts[-1].text == "Three."
    assert [(m.parts[-1].text, m.visible) for m in session.messages[-3:]] == [
        ("Three.", True),
        ("Bye.", False),
        ("Late.", False),
    ]


def test_only_read_errors_come_out_of_torn_databases(database: Path):
    data, r = database.read_bytes(), random.Random(5)
    for _ in range(1_000):
        try:
            read_source(Source("damaged", r.choice((flip, cut))(data, r) or b"{}"))
        except ReadError as e:
            assert "damaged goose" not in e.why, e.__cause__  # noqa: PT017  the cause is told


def test_a_part_that_the_reader_does_not_know_is_counted_and_the_others_stay():
    export = json.loads(EXPORT.read_bytes())
    message = next(m for m in export["conversation"] if m["role"] == "assistant")
    before = read_source(Source("a.json", json.dumps(export).encode()))[0]
    message["content"] += [{"type": "hologram"}]
    (session,) = read_source(Source("a.json", json.dumps(export).encode()))
    assert session.skipped == before.skipped | {"part: hologram": 1}
    assert [m.parts for m in session.messages] == [m.parts for m in before.messages]
    assert not session.faults
