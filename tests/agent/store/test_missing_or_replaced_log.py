"""The log is the file that was opened, or the session stops, says so, and loses nothing."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal

import pytest
from builders import assistant, session, user
from stand_in_models import live, said

import ctxkit as ck
from ctxkit.agent import SessionLog, Workspace, check_session_name
from ctxkit.errors import BadArguments, StoreError


def open_log(folder):
    return SessionLog(folder, "one", session(id="0000abcd"))


def saved_by_an_editor(path):
    shutil.copy(path, path.with_suffix(".swp"))
    path.with_suffix(".swp").replace(path)


def cut_in_place(path):
    os.truncate(path, path.stat().st_size // 2)


def emptied(path):
    path.write_bytes(b"")


def added_to(path):
    with path.open("a") as file:
        file.write("{}\n")


def removed(path):
    path.unlink()


def folder_removed(path):
    shutil.rmtree(path.parent)


def replaced_by_a_link(path):
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


CHANGES = (
    saved_by_an_editor,
    cut_in_place,
    emptied,
    added_to,
    removed,
    folder_removed,
    replaced_by_a_link,
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_a_session_holds_is_kept_beside_a_file_that_changed(tmp_path, change):
    log = open_log(tmp_path / "sessions")
    log.append(user("first"))
    log.append(assistant("second"))
    change(log.path)
    there = log.path.read_bytes() if log.path.is_file() else None
    with pytest.raises(
        StoreError, match=r"is not the one that was opened: .* goes on there"
    ) as stopped:
        log.append(user("third"))
    rescued = ck.read(tmp_path / "sessions/one.rescued.jsonl")
    assert [m.text for m in rescued.messages] == ["first", "second", "third"]
    assert rescued.log == log.session.log
    with pytest.raises(StoreError) as again:
        log.move(0)
    assert str(again.value) == str(stopped.value)
    log.close()
    assert there == (
        log.path.read_bytes() if log.path.is_file() else None
    )  # nobody's file was written to


def test_a_second_rescue_does_not_replace_the_first(tmp_path):
    for text in ("a", "b"):
        log = open_log(tmp_path)
        log.append(user(text))
        log.path.unlink()
        with pytest.raises(StoreError, match=r"rescued(-2)?.jsonl"):
            log.append(user("more"))
        log.close()
    texts = [ck.read(tmp_path / f"one.rescued{n}.jsonl").messages[0].text for n in ("", "-2")]
    assert texts == ["a", "b"]


def test_a_rescue_of_a_long_name_has_a_name_that_a_session_may_have(tmp_path):
    log = SessionLog(tmp_path, "x" * 64, session(id="0000abcd"))
    log.append(user("a"))
    log.path.unlink()
    with pytest.raises(StoreError, match=r"rescued\.jsonl"):
        log.append(user("more"))
    log.close()
    assert [p.name for p in tmp_path.glob("*.jsonl")] == [f"{'x' * 48}.rescued.jsonl"]


def test_a_file_that_was_cut_after_the_last_write_is_noticed_at_the_end(tmp_path):
    log = open_log(tmp_path)
    log.append(user("a"))
    saved_by_an_editor(log.path)
    with pytest.raises(StoreError, match="replaced or cut"):
        log.close()
    assert [m.text for m in ck.read(tmp_path / "one.rescued.jsonl").messages] == ["a"]
    open_log(tmp_path).close()  # the right to write was given back


def test_a_session_that_was_thrown_away_stays_away(tmp_path):
    log = open_log(tmp_path / "sessions")
    log.append(user("a"))
    shutil.rmtree(tmp_path / "sessions")
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_moves_takes_its_session_along(tmp_path):
    with open_log(tmp_path / "before") as log:
        log.append(user("a"))
        (tmp_path / "before").rename(tmp_path / "after")
        log.append(assistant("b"))
    assert len(ck.read(tmp_path / "after/one.jsonl").log) == 2


def test_a_turn_says_that_its_file_is_gone(tmp_path):
    with live(tmp_path, *[said(f"reply {i}") for i in range(9)]) as s:
        asyncio.run(s.turn("a"))
        saved_by_an_editor(s.log.path)
        with pytest.raises(
            StoreError, match="not the one that was opened: another file took its place"
        ):
            asyncio.run(s.turn("b"))
    with live(tmp_path, name="main.rescued") as again:
        assert [m.text for m in again.session.messages] == ["a", "reply 0", "b"]
        assert asyncio.run(again.turn("c")).ended == "answered"


def test_what_cannot_be_rescued_is_said(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    log.path.unlink()
    monkeypatch.setattr(
        "ctxkit._internal.safe_files.SafeFolder.write",
        lambda *_: (_ for _ in ()).throw(OSError(28, "No space")),
    )
    with pytest.raises(
        StoreError, match=r"could not be written beside it \(No space\): keep it by `ck.write"
    ):
        log.append(user("a"))
    assert len(log.session.log) == 1
    log.close()


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path):
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_log(tmp_path) as log:
        log.append(user("a"))
        size = log.path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            with pytest.raises(StoreError, match="nothing was lost"):
                log.append(user("b" * 1000))
            assert log.path.stat().st_size == size
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        log.append(user("c"))
    assert [m.text for m in ck.read(tmp_path / "one.jsonl").messages] == ["a", "c"]


# -- the end of a file -----------------------------------------------------------------------------


def test_a_whole_last_line_without_its_newline_is_an_entry(tmp_path):
    with open_log(tmp_path) as log:
        log.append(user("a"), assistant("precious"))
        written = log.session
    log.path.write_bytes(log.path.read_bytes().rstrip(b"\n"))
    with open_log(tmp_path) as again:
        assert (again.session, again.recovered) == (written, None)
        again.append(user("more"))
    assert [m.text for m in ck.read(log.path).messages] == ["a", "precious", "more"]
    assert not log.path.with_suffix(".torn").exists()


def test_a_second_torn_line_is_added_to_the_first(tmp_path):
    open_log(tmp_path).close()
    for torn in (b'{"first', b'{"second' + b"x" * 200_000):
        with (tmp_path / "one.jsonl").open("ab") as file:
            file.write(torn)
        with open_log(tmp_path) as log:
            assert "was torn" in log.recovered
    assert (tmp_path / "one.torn").read_bytes() == b'{"first\n{"second' + b"x" * 200_000 + b"\n"


# -- names and paths -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a\n", "\na", "CON", "con", "nul.txt", "COM1", "lpt9", "a.", ".", "..", "a\0"]
)
def test_an_odd_name_is_a_sentence(tmp_path, name):
    with pytest.raises(BadArguments, match="no name for a session"):
        SessionLog(tmp_path, name, session())
    with pytest.raises(BadArguments, match="no name for a session"):
        Workspace(tmp_path).session(name)


@pytest.mark.parametrize(
    "name", ["main", "a", "console", "a.b-c_d", "9", "main.rescued-2", "x" * 64]
)
def test_an_ordinary_name_is_one(name):
    assert check_session_name(name) == name


@pytest.mark.parametrize(
    "what", ["folder", "write", "write_html", "discover", "sweep", "snapshots"]
)
def test_a_nul_in_a_path_is_a_sentence(tmp_path, what):
    path = "a\0b"
    with open_log(tmp_path) as log:
        s = log.append(user("a"), assistant("b"))
    call = {
        "folder": lambda: SessionLog(path, "one", session()),
        "write": lambda: ck.write(s, path),
        "write_html": lambda: ck.plots.growth(s).write_html(path),
        "discover": lambda: ck.discover(path),
        "sweep": lambda: ck.sweep([s], ["pi"], out=path),
        "snapshots": lambda: ck.snapshots.SnapshotWriter(path),
    }[what]
    with pytest.raises((BadArguments, StoreError)) as e:
        call()
    assert str(e.value).endswith((".", ")."))


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda p: p.symlink_to("/dev/null"), lambda p: p.mkdir()]
)
def test_only_a_file_is_replaced_by_a_session(tmp_path, make):
    make(tmp_path / "x")
    before = os.lstat(tmp_path / "x")
    with pytest.raises(StoreError, match="could not be written"):
        ck.write(session(), tmp_path / "x")
    assert os.lstat(tmp_path / "x").st_ino == before.st_ino
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_link_that_the_user_names_is_written_through(tmp_path):
    (tmp_path / "latest").symlink_to(tmp_path / "s.jsonl")
    ck.write(session(id="0000abcd"), tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    assert ck.read(tmp_path / "s.jsonl").id == "0000abcd"
