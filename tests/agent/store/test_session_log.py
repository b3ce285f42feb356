"""A session on disk loses nothing that was acknowledged, has one writer, and comes back as it was."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from builders import assistant, session, step, summarised, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.agent import MAX_CHECKPOINTS, SessionLog, get_checkpoint, list_checkpoints
from ctxkit.errors import BadArguments, StoreError

FRESH = session(id="0000abcd", model="scripted/tour", started=1_800_000_000.0)


def open_log(folder, name="one"):
    return SessionLog(folder, name, FRESH)


def test_what_is_appended_is_there_again(tmp_path):
    a, b = user("a"), assistant("b")
    with open_log(tmp_path) as log:
        log.append(a)
        log.append(b, summarised([a, b]))
        written = log.session
    with open_log(tmp_path) as again:
        assert again.session == written
        assert again.recovered is None
    assert ck.read(tmp_path / "one.jsonl") == written


def test_the_file_is_the_owners_alone(tmp_path):
    with open_log(tmp_path) as log:
        log.append(user())
        modes = {oct(p.stat().st_mode & 0o077) for p in tmp_path.iterdir()}
    assert modes == {"0o0"}


def test_a_branch_survives_with_both_ends(tmp_path):
    a, b, c = user("a"), assistant("b"), user("c")
    with open_log(tmp_path) as log:
        log.append(a, b, c)
        log.move(b.id)
        log.append(user("other"))
        written = log.session
    with open_log(tmp_path) as again:
        assert again.session == written
        assert [m.text for m in again.session.messages] == ["a", "b", "other"]
        assert [m.text for m in again.move(c.id).messages] == ["a", "b", "c"]
    assert [m.text for m in ck.read(tmp_path / "one.jsonl").messages] == ["a", "b", "c"]


@given(cut=st.integers(1, 400))
def test_a_torn_end_is_set_aside_and_reported(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("torn")
    a, b = user("first"), assistant("second")
    with open_log(folder) as log:
        log.append(a)
        whole = log.path.stat().st_size
        log.append(b)
        size = log.path.stat().st_size
    os.truncate(log.path, max(size - cut, whole))
    with open_log(folder) as again:
        torn = size - cut > whole
        assert [m.text for m in again.session.messages][:1] == ["first"]
        assert (again.recovered is not None) <= torn
        again.append(user("third"))
        assert again.session.messages[-1].text == "third"
    assert not ck.read(log.path).faults


def test_a_second_writer_is_told_who_holds_it(tmp_path):
    script = f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from builders import session
        from ctxkit.agent import SessionLog
        log = SessionLog({str(tmp_path)!r}, "one", session(id="0000abcd"))
        print("held", flush=True); sys.stdin.read()
    """
    other = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match=rf"process {other.pid} on "):
            open_log(tmp_path)
    finally:
        other.communicate()
    open_log(tmp_path).close()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a\0b", "sp ace"])
def test_a_name_is_a_name(tmp_path, name):
    with pytest.raises(BadArguments):
        open_log(tmp_path, name)


def test_another_programs_file_is_refused(tmp_path):
    (tmp_path / "one.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(StoreError):
        open_log(tmp_path)
    (tmp_path / "one.jsonl").unlink()
    open_log(tmp_path).close()


def test_a_closed_log_cannot_be_written(tmp_path):
    log = open_log(tmp_path)
    log.close()
    with pytest.raises(StoreError, match="closed"):
        log.append(user())


def test_tool_traffic_and_usage_come_back_equal(tmp_path):
    with open_log(tmp_path) as log:
        for i in range(20):
            log.append(user(f"{i}"), *step(text="x" * i, path=f"f{i}"), assistant("ok"))
        written = log.session
    with open_log(tmp_path) as again:
        assert again.session == written


def test_a_compaction_is_a_line_of_the_sessions_own_file(tmp_path):
    """D1: The summary stands in the session's JSONL file, with what it replaced above it."""
    a, b, c = user("first"), assistant("second"), user("third")
    with open_log(tmp_path) as log:
        log.append(a, b, summarised([a, b], "So far: two words."), c)
        path = log.path
    assert path.suffix == ".jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (place,) = [n for n, line in enumerate(lines) if line["type"] == "compaction"]
    assert lines[place]["summary"] == "So far: two words."
    above = json.dumps(lines[:place])
    assert [word in above for word in ("first", "second", "third")] == [True, True, False]
    (edit,) = ck.read(path).edits
    assert edit.inserted[0].text == "So far: two words."
    with open_log(tmp_path) as again:
        assert [m.text for m in again.session.view()] == ["So far: two words.", "third"]


# -- Checkpoints of a session: pointers, the newest of them, by number.


def test_the_newest_are_offered_under_their_numbers():
    """D28: However many compactions there were, 25 places are offered, and each keeps its number."""
    log = [m for _ in range(MAX_CHECKPOINTS + 5) for m in (user(), assistant(), summarised([]))]
    found = list_checkpoints(session(*log))
    assert [c.number for c in found] == list(range(5, MAX_CHECKPOINTS + 5))
    assert get_checkpoint(session(*log), MAX_CHECKPOINTS + 4).entry == len(log) - 2


ORPHAN = """
import os, sys, time
import ctxkit as ck
from ctxkit.agent import SessionLog
log = SessionLog(sys.argv[1], "one", ck.Session(id="0000abcd"))
if not os.fork():  # shares the open file, and thereby the lock
    time.sleep(float(sys.argv[2]))
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_lock_that_outlives_its_holder_is_waited_for(tmp_path, monkeypatch):
    def leave_lock(seconds: float) -> None:
        subprocess.run([sys.executable, "-c", ORPHAN, str(tmp_path), str(seconds)], check=True)

    leave_lock(0.4)
    open_log(tmp_path).close()
    leave_lock(3)
    monkeypatch.setattr("ctxkit.agent.session_log.ORPHANED_LOCK_SECONDS", 0.1)
    with pytest.raises(StoreError, match="is being written by process"):
        open_log(tmp_path)


def test_a_lock_whose_holder_runs_is_not_waited_for(tmp_path, monkeypatch):
    def sleep(_seconds):
        raise AssertionError("it waits")

    monkeypatch.setattr("ctxkit.agent.session_log.time.sleep", sleep)
    for pid in (os.getpid(), 1, 0, -1, 10**30):
        with open_log(tmp_path):
            (tmp_path / ".one.holder").write_text(
                json.dumps({"pid": pid, "host": socket.gethostname()})
            )
            with pytest.raises(StoreError, match="is being written by"):
                open_log(tmp_path)
    with open_log(tmp_path):
        (tmp_path / ".one.holder").write_text(json.dumps({"pid": 2**22 - 1, "host": "another"}))
        with pytest.raises(StoreError, match=f"process {2**22 - 1} on another"):
            open_log(tmp_path)
