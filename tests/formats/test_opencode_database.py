"""OpenCode's database: both generations tell the talk of the export; written at the moment, locked, torn."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path

import pytest
from log_damage import cut, flip
from msgspec.structs import replace
from opencode_databases import newer, older

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import Source, read_only_sqlite, read_source
from ctxkit.session import Edit, Message

EXPORT = Path(__file__).parent / "golden" / "opencode.json"
TALK = json.loads(EXPORT.read_bytes())
MADE = {"1.2": older, "2.x": newer}


def list_entries(session: ck.Session) -> list[Message | Edit]:
    """Return the log without what 2.x does not record: ids, marks without content, and the time of a pruning."""
    out: list[Message | Edit] = []
    for e in session.log:
        if isinstance(e, Edit) and e.method == "prune":
            continue
        if isinstance(e, Edit):
            inserted = tuple(replace(m, id="") for m in e.inserted)
            out.append(replace(e, id="", targets=(), inserted=inserted, trigger=None))
        elif e.parts:
            out.append(replace(e, id=""))
    return out


@pytest.fixture(params=MADE)
def database(request, tmp_path: Path) -> Path:
    MADE[request.param](tmp_path / "opencode.db", TALK).close()
    return tmp_path / "opencode.db"


def test_a_database_tells_what_the_export_tells(database: Path):
    found, wanted = ck.read(database), ck.read(EXPORT)
    assert list_entries(found) == list_entries(wanted)
    assert [e.method for e in found.edits] in (["compaction"], [e.method for e in wanted.edits])
    assert [m.text for m in found.view()] == [m.text for m in wanted.view()]
    assert (found.id, found.title, found.cwd, found.started) == (
        wanted.id,
        wanted.title,
        wanted.cwd,
        wanted.started,
    )
    assert len(ck.read_all(database.parent, progress=False)) == 1


def test_it_is_read_while_the_tool_writes(tmp_path: Path):
    file = tmp_path / "opencode.db"
    db = older(file, TALK)
    assert Path(f"{file}-wal").stat().st_size
    before = {p: p.read_bytes() for p in (file, Path(f"{file}-wal"))}
    said = json.dumps({"role": "user", "time": {"created": 1}})
    db.execute(
        "INSERT INTO message VALUES ('msg_x', 'ses_golden', 1, 1, ?)", (said,)
    )  # not committed
    assert len(ck.read(file).calls) == 4
    assert {p: p.read_bytes() for p in before} == before
    db.commit()
    db.close()


def test_one_whose_tool_was_killed_is_read_from_a_copy(tmp_path: Path):
    db = older(tmp_path / "live.db", TALK)
    (tmp_path / "left").mkdir()
    for end in ("", "-wal"):
        (tmp_path / "left" / f"opencode.db{end}").write_bytes(
            Path(f"{tmp_path}/live.db{end}").read_bytes()
        )
    db.close()
    assert len(ck.read(tmp_path / "left" / "opencode.db").calls) == 4
    assert sorted(p.name for p in (tmp_path / "left").iterdir()) == [
        "opencode.db",
        "opencode.db-wal",
    ]


def test_the_index_of_a_killed_tool_is_enough(tmp_path: Path):
    db = older(tmp_path / "live.db", TALK)
    (tmp_path / "left").mkdir()
    for end in ("", "-wal", "-shm"):
        (tmp_path / "left" / f"opencode.db{end}").write_bytes(
            Path(f"{tmp_path}/live.db{end}").read_bytes()
        )
    db.close()
    before = {p: p.read_bytes() for p in (tmp_path / "left").iterdir() if p.suffix != ".db-shm"}
    assert len(ck.read(tmp_path / "left" / "opencode.db").calls) == 4
    assert {p: p.read_bytes() for p in before} == before


def test_nothing_is_made_beside_it(database: Path):
    database.parent.chmod(0o755)
    before = sorted(p.name for p in database.parent.iterdir())
    ck.read(database)
    assert sorted(p.name for p in database.parent.iterdir()) == before


def test_a_locked_one_gives_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(read_only_sqlite, "LOCK_TIMEOUT", 0.1)
    file = tmp_path / "opencode.db"
    older(file, TALK).close()
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA journal_mode = delete")
    db.execute("BEGIN EXCLUSIVE")
    db.execute("DELETE FROM part")
    with pytest.raises(ReadError, match="locked by the tool"):
        ck.read(file)
    db.execute("ROLLBACK")
    db.close()
    assert ck.read(file).calls


def test_subagents_are_children(tmp_path: Path):
    file = tmp_path / "opencode.db"
    db = older(file, TALK)
    db.execute("INSERT INTO session SELECT 'ses_child', project_id, id, slug, directory, 'find it', version, revert, "
               "agent, model, time_created, time_updated FROM session")  # fmt: skip
    db.commit()
    db.close()
    (main,) = ck.read_all(file, progress=False)
    assert [c.title for c in main.children] == ["find it"]


def test_another_programs_database_is_named(tmp_path: Path):
    db = sqlite3.connect(tmp_path / "other.db")
    db.execute("CREATE TABLE notes (id)")
    db.commit()
    db.close()
    with pytest.raises(ck.UnknownFormat, match="SQLite database of another program"):
        ck.read(tmp_path / "other.db")


def test_the_views_of_a_hostile_one_are_not_run(tmp_path: Path):
    file = tmp_path / "opencode.db"
    older(file, TALK).close()
    db = sqlite3.connect(file)
    db.executescript(
        "DROP TABLE part; CREATE VIEW part AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS id, 'x' AS message_id, 'ses_golden' AS session_id, '{}' AS data FROM n;"
    )
    db.close()
    assert all(not m.parts for m in ck.read(file).messages)


def test_broken_cells_are_counted(database: Path):
    db = sqlite3.connect(database)
    new = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'session_v2'").fetchone()
    table = "session_message" if new else "message"
    db.execute(f"UPDATE {table} SET data = '{{' WHERE rowid = 2")
    db.commit()
    db.close()
    assert [f.why for f in ck.read(database).faults] == [
        "message msg_1: expected a JSON object"
    ] or table == "message"
    assert ck.read(database).faults


def test_only_read_errors_come_out_of_torn_ones(database: Path):
    data, r = database.read_bytes(), random.Random(5)
    for n in range(1_000):
        broken = r.choice((flip, cut))(data, r) or b"{}"
        try:
            if n % 10:
                read_source(Source("damaged", broken))
            else:
                (database.parent / "torn.db").write_bytes(broken)
                ck.read_all(database.parent / "torn.db", progress=False)
        except ReadError as e:
            assert "damaged opencode" not in e.why, e.__cause__  # noqa: PT017  the cause is told


def test_the_schema_of_a_database_calls_no_function_that_may_act(tmp_path: Path):
    """A generated column of a hostile file could otherwise run a function of this program."""
    file = tmp_path / "opencode.db"
    connection = sqlite3.connect(file)
    connection.create_function("act", 1, lambda _: "acted", deterministic=True)
    connection.execute("CREATE TABLE part (id TEXT, data TEXT AS (act(id)) VIRTUAL)")
    connection.execute("INSERT INTO part (id) VALUES ('p')")
    assert connection.execute("SELECT data FROM part").fetchone() == ("acted",)
    connection.commit()
    assert list(read_only_sqlite.Database(connection, file).iter_rows("part", ("id",), "id"))
    with pytest.raises(sqlite3.OperationalError, match="unsafe use of act"):
        connection.execute("SELECT data FROM part").fetchone()
    connection.close()
