"""What a tool writes is whole or not there, keeps its mode, and never holds the mark of a key."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from conftest import ALL, SEED
from waiting import PATIENCE

from ctxkit._internal import REDACTION_MARK, SafeFolder, safe_files
from ctxkit.agent import RootFolder, make_file_tools
from ctxkit.errors import BadArguments, StoreError


@pytest.fixture(params=["nameless", "named", "without openat"])
def kit(tmp_path, request, monkeypatch):
    """The file tools on systems of three kinds: files may be nameless, may not, no `openat`."""
    if request.param != "nameless":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    if request.param == "without openat":
        monkeypatch.setattr(safe_files, "SUPPORTS_DIR_FD", False)
    return {t.name: t.run for t in make_file_tools(RootFolder(tmp_path / "root"))}


@pytest.fixture
def root(kit, tmp_path):
    return tmp_path / "root"


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_write_lands_as_it_was_asked(kit, root):
    assert kit["write_file"]("a/b/c.txt", "one\né") == "Wrote 6 bytes to a/b/c.txt."
    assert (root / "a/b/c.txt").read_text() == "one\né"
    kit["write_file"]("a/b/c.txt", "two")
    assert (root / "a/b/c.txt").read_text() == "two"
    assert names(root / "a/b") == ["c.txt"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_a_file_keeps_its_mode(kit, root, mode):
    kit["write_file"]("run.sh", "old end")
    (root / "run.sh").chmod(mode)
    kit["patch_file"]("run.sh", "end", "END")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == mode
    kit["write_file"]("run.sh", "new")
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == mode


def test_a_new_file_heeds_the_umask(kit, root):
    before = os.umask(0o027)
    try:
        kit["write_file"]("new.txt", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "new.txt").stat().st_mode) == 0o640


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write all")
def test_a_file_that_may_not_be_written_is_not_replaced(kit, root):
    kit["write_file"]("a.txt", "old")
    (root / "a.txt").chmod(0o444)
    with pytest.raises(StoreError, match="cannot be written"):
        kit["write_file"]("a.txt", "new")


def test_a_hard_link_keeps_the_old_content(kit, root, tmp_path):
    (tmp_path / "outside").write_text("precious")
    os.link(tmp_path / "outside", root / "a.txt")
    kit["write_file"]("a.txt", "new")
    assert ((root / "a.txt").read_text(), (tmp_path / "outside").read_text()) == ("new", "precious")


def test_nothing_is_added_through_a_hard_link(tmp_path):
    root = RootFolder(tmp_path / "root")
    (tmp_path / "outside").write_text("precious")
    os.link(tmp_path / "outside", root.folder / "notes.md")
    with pytest.raises(StoreError, match="hard links"):
        root.write("notes.md", b"more", append=True)
    assert (tmp_path / "outside").read_text() == "precious"
    root.write("own.md", b"a", append=True)
    root.write("own.md", b"b", append=True)
    assert root.read("own.md") == b"ab"


def test_a_full_disk_leaves_a_file_as_it_was(tmp_path):
    """The system refuses what is over a size, as a full disk does, in a process of its own."""
    code = """
        import os, resource, signal, sys
        from ctxkit.errors import StoreError
        from ctxkit.agent import RootFolder, make_file_tools as file_tools
        if sys.argv[2] == "named":
            del os.O_TMPFILE
        kit = {t.name: t.run for t in file_tools(RootFolder(sys.argv[1]))}
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
        calls = (("patch_file", "p.txt", "end", "END"), ("write_file", "p.txt", "x" * 20_000),
                 ("write_file", "new.txt", "x" * 20_000))
        for name, *arguments in calls:
            try:
                kit[name](*arguments)
            except StoreError as e:
                print(e)
    """
    for how in ("nameless", "named"):
        folder = tmp_path / how
        folder.mkdir()
        (folder / "p.txt").write_text("P" * 20_000 + "end")
        command = [sys.executable, "-c", textwrap.dedent(code), str(folder), how]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.count("cannot be written (File too large).") == 3, done
        assert (folder / "p.txt").read_text() == "P" * 20_000 + "end"
        assert names(folder) == ["p.txt"]


def test_what_a_killed_write_left_is_taken_away(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    old, young = tmp_path / ".a.txt.00000000.ctxkit-new", tmp_path / ".a.txt.00000001.ctxkit-new"
    other = tmp_path / ".b.txt.00000000.ctxkit-new"
    for left in (old, young, other):
        left.write_text("left")
    for left in (old, other):
        os.utime(left, (time.time() - 7200,) * 2)
    with SafeFolder(tmp_path) as folder:
        folder.write("a.txt", (b"whole",))
    assert {p.name for p in tmp_path.iterdir()} == {"a.txt", young.name, other.name}


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files have names at once here")
def test_a_killed_write_leaves_nothing(tmp_path):
    code = """
        import sys
        from ctxkit.agent import RootFolder
        root = RootFolder(sys.argv[1])
        print("begun", flush=True)
        while True:
            for c in b"ab":
                root.write("a.txt", bytes([c]) * 3_000_000)
    """
    (tmp_path / "a.txt").write_bytes(b"a" * 3_000_000)
    moments = random.Random(SEED)
    for after in (moments.uniform(0, 0.04) for _ in range(200 if ALL else 5)):
        command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"begun\n"
        time.sleep(after)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        data = (tmp_path / "a.txt").read_bytes()
        assert (len(data), len(set(data))) == (3_000_000, 1)
        assert set(names(tmp_path)) <= {"a.txt", ".a.txt.ctxkit-new"}  # in the moment of naming
    began = time.monotonic()
    RootFolder(tmp_path).write("a.txt", b"end")
    assert names(tmp_path) == ["a.txt"]
    assert time.monotonic() - began < PATIENCE


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files have names at once here")
@pytest.mark.parametrize("there", [True, False], ids=["old", "new"])
@pytest.mark.parametrize("old", [True, False], ids=["left long ago", "left now"])
def test_what_was_left_in_the_moment_of_naming_is_taken_away(tmp_path, there, old, monkeypatch):
    """At once where it is old; where it may be another writer's, after some seconds."""
    monkeypatch.setattr(safe_files, "_STALE_LINK_SECONDS", 0.05 if old else 0.5)
    if there:
        (tmp_path / "a.txt").write_text("old")
    (tmp_path / ".a.txt.ctxkit-new").write_text("left")
    slept: list[float] = []
    if old:
        time.sleep(0.1)
        clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=slept.append)
        monkeypatch.setattr(safe_files, "time", clock)
    RootFolder(tmp_path).write("a.txt", b"new")
    assert (tmp_path / "a.txt").read_text() == "new"
    if old or there:
        assert names(tmp_path) == ["a.txt"]
    assert len(slept) <= 1


@pytest.mark.parametrize("first", [True, False])
def test_many_writers_of_one_file_all_succeed_and_it_is_whole(kit, root, first):
    if not first:
        kit["write_file"]("a.txt", "old")
    texts = [c * 200_000 for c in "abcdefgh"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: [kit["write_file"]("a.txt", text) for _ in range(20)], texts))
    assert (root / "a.txt").read_text() in texts
    assert names(root) == ["a.txt"]


# -- the mark of a key ------------------------------------------------------------------------


def test_a_mark_is_not_written_in_the_place_of_a_key(kit, root):
    kit["write_file"]("a.env", "KEY=sk-0123456789abcdef\nport=1\n")
    for call in (
        lambda: kit["write_file"]("a.env", f"KEY={REDACTION_MARK}\nport=2\n"),
        lambda: kit["write_file"]("new.env", f"KEY={REDACTION_MARK}\n"),
        lambda: kit["patch_file"]("a.env", "port=1", f"port={REDACTION_MARK}"),
    ):
        with pytest.raises(BadArguments, match=r"Nothing was written .* stands for a key"):
            call()
    with pytest.raises(BadArguments, match=r"0 times.* stands for a key"):
        kit["patch_file"]("a.env", f"KEY={REDACTION_MARK}", "KEY=x")
    assert (root / "a.env").read_text() == "KEY=sk-0123456789abcdef\nport=1\n"
    assert not (root / "new.env").exists()


def test_a_file_that_is_about_the_mark_may_keep_it(kit, root):
    (root / "redaction.py").write_text(f'MARK = "{REDACTION_MARK}"\n')
    kit["patch_file"]("redaction.py", "MARK =", "SIGN =")
    kit["write_file"]("redaction.py", f'NAME = "{REDACTION_MARK}"\n')
    with pytest.raises(BadArguments):
        kit["write_file"]("redaction.py", f'NAME = "{REDACTION_MARK}"\nkey = "{REDACTION_MARK}"\n')
    assert (root / "redaction.py").read_text() == f'NAME = "{REDACTION_MARK}"\n'
