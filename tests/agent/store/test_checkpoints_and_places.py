"""Checkpoints by number, the places of a session's files, and the end of a log that was torn."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import assistant, session, summarised, user
from msgspec.structs import replace

from ctxkit.agent import SessionLog, Workspace, get_checkpoint, list_checkpoints
from ctxkit.agent.session_log import is_complete_json_object, read_unterminated_line
from ctxkit.errors import BadArguments, StoreError


def test_a_checkpoint_is_the_entry_before_a_compaction():
    a, b = user(), assistant()
    edit = replace(summarised([a, b]), trigger="manual", time=5.0, tokens_before=900)
    log = session(a, b, edit, user(), replace(summarised([]), id="e2"))
    first, last = list_checkpoints(log)
    assert (first.number, first.entry, first.trigger, first.time, first.tokens, first.stands) == (
        0, 1, "manual", 5.0, 900, True)  # fmt: skip
    assert (last.number, last.entry, last.trigger, last.tokens) == (1, 3, None, None)
    branched = log.branch(b.id)
    assert [c.stands for c in list_checkpoints(branched)] == [False, False]
    assert list_checkpoints(session(replace(summarised([]), id="e0")))[0].entry == -1
    for number, expected in ((0, first), (1, last), (-1, last), (-2, first)):
        assert get_checkpoint(log, number) == expected
    for number in (2, -3):
        with pytest.raises(
            BadArguments, match=rf"^There is no checkpoint {number}: there are 0 to 1\.$"
        ):
            get_checkpoint(log, number)
    with pytest.raises(BadArguments, match=r"^There is no checkpoint 0: none was made yet\.$"):
        get_checkpoint(session(user()), 0)


def test_the_places_of_a_session(tmp_path):
    workspace, folder = Workspace(tmp_path), tmp_path / ".ctxkit"
    assert {name: getattr(workspace, name)("s1").relative_to(folder).as_posix()
            for name in ("scratch", "snapshots", "events", "chart", "state", "results", "crash")} == {
        "scratch": "scratch/s1",
        "snapshots": "logs/ctx_snapshots_s1.jsonl",
        "events": "logs/events_s1.jsonl",
        "chart": "logs/ctx_viz_s1.html",
        "state": "state/s1",
        "results": "artifacts/sessions/s1/tool-results",
        "crash": "logs/crash_s1.txt",
    }  # fmt: skip
    assert workspace.sessions == folder / "sessions"
    assert workspace.names() == []
    assert not workspace.has_session("s1")
    assert workspace.session("s1") is None
    workspace.make()
    workspace.make()
    assert (folder / ".gitignore").read_text() == "*\n"
    assert {
        p.stat().st_mode & 0o777 for p in (workspace.sessions, folder / "logs", folder / "scratch")
    } == {0o700}
    for name, age in (
        ("old", 300),
        ("new", 100),
        ("middle", 200),
        (".hidden", 1),
        ("ctx_x", 1),
        ("events_x", 1),
    ):
        path = workspace.sessions / f"{name}.jsonl"
        path.write_text("")
        os.utime(path, (10_000 - age, 10_000 - age))
    (workspace.sessions / "other.txt").write_text("")
    assert workspace.names() == ["new", "middle", "old"]
    assert (workspace.has_session("old"), workspace.has_session("other")) == (True, False)
    assert Workspace().folder == Path.cwd() / ".ctxkit"


def test_ids_of_sessions(tmp_path):
    workspace = Workspace(tmp_path)
    workspace.make()
    first = workspace.new_id("s1", "seed")
    assert first == workspace.new_id("s1", "seed")
    assert len({first, workspace.new_id("s2", "seed"), workspace.new_id("s1", "other")}) == 3
    workspace.events(first).write_text("")  # it is taken
    second = workspace.new_id("s1", "seed")
    assert second != first
    ids = {workspace.new_id("s1") for _ in range(5)}
    assert len(ids) == 5
    assert {len(i) for i in (*ids, first, second)} == {8}
    assert all(set(i) <= set("0123456789abcdef") for i in ids)


def test_files_of_a_workspace(tmp_path):
    workspace = Workspace(tmp_path)
    folder = workspace.state("s1")
    assert workspace.read_file(folder, "a.json") == ""
    with pytest.raises(
        StoreError,
        match=r"cannot be used \(No such file or directory; links are not followed there\)\.$",
    ):
        workspace.write(folder / "a.json", "x")
    workspace.write_file(folder, "a.json", "é\ud800")
    assert workspace.read_file(folder, "a.json") == "é?"
    assert workspace.read_file(folder, "a.json", 2) == "é"
    workspace.write(folder / "a.json", [b"one", b"two"])
    assert workspace.read_file(folder, "a.json") == "onetwo"
    assert (folder / "a.json").stat().st_mode & 0o777 == 0o600
    handle = workspace.open(folder / "b", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.close(handle)
    assert (folder / "b").stat().st_mode & 0o777 == 0o600
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(StoreError):
        workspace.write_file(folder / "link", "c", "x")
    assert workspace.read_file(folder / "link", "c") == ""


@pytest.mark.parametrize(
    ("data", "rest"),
    [
        (b"", b""),
        (b"one", b"one"),
        (b"one\n", b""),
        (b"one\ntwo", b"two"),
        (b"\n", b""),
        (b"a\n" + b"x" * 200_000, b"x" * 200_000),
        (b"x" * 65_535 + b"\n" + b"y" * 65_536, b"y" * 65_536),
    ],
)
def test_the_bytes_behind_the_last_newline(tmp_path, data, rest):
    path = tmp_path / "a"
    path.write_bytes(data)
    handle = os.open(path, os.O_RDONLY)
    assert read_unterminated_line(handle, len(data)) == rest
    os.close(handle)


def test_a_line_that_is_a_whole_object():
    assert is_complete_json_object(b' {"a": 1} ')
    for line in (b"", b"{", b'{"a": 1', b"[1]", b"1", b"null", b'{"a": 1} {'):
        assert not is_complete_json_object(line)


def test_what_was_torn_is_said_and_set_aside(tmp_path):
    new = session(id="one")
    created = []
    with SessionLog(tmp_path, "one", new, created.append) as log:
        log.append(user("first"))
        assert (log.recovered, log.stopped, created) == (None, None, ["one"])
    with log.path.open("ab") as file:
        file.write(b'{"torn')
    with SessionLog(tmp_path, "one", new, created.append) as log:
        assert log.recovered == "The last line was torn (6 bytes); it was set aside in one.torn."
        assert (tmp_path / "one.torn").read_bytes() == b'{"torn\n'
        assert [m.text for m in log.session.messages] == ["first"]
        assert created == ["one"]
        log.append(user("second"))
        log.revise(replace(log.session, model="other"))
    log.close()
    with SessionLog(tmp_path, "one", new) as log:
        assert ([m.text for m in log.session.messages], log.session.model) == (
            ["first", "second"],
            "other",
        )
        assert log.recovered is None
        (tmp_path / "one.jsonl").rename(tmp_path / "moved.jsonl")
        with pytest.raises(StoreError) as error:
            log.append(user("third"))
        assert str(error.value) == (
            "The file of session 'one' is not the one that was opened: it was removed. Nothing is lost: what the "
            f"session holds is in {tmp_path}/one.rescued.jsonl; `%%agent --session one.rescued` goes on there."
        )
        assert log.stopped == str(error.value)
        with pytest.raises(StoreError, match="it was removed"):
            log.append(user("fourth"))
    with SessionLog(tmp_path, "one.rescued", new) as log:
        assert [m.text for m in log.session.messages] == ["first", "second", "third"]
    with pytest.raises(
        StoreError, match=r"^Session 'one\.rescued' is closed; open it again to go on\.$"
    ):
        log.append(user())
