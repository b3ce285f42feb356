"""No path leads out of the root, whatever it looks like and another process does meanwhile."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import time

import pytest
from conftest import ALL

from ctxkit.agent import RootFolder, make_file_tools
from ctxkit.errors import CtxkitError

OUTSIDE = "TOPSECRET"
AT_CWD, EXCHANGE = -100, 2


@pytest.fixture
def place(tmp_path):
    """A root, and beside it a folder that nothing may reach."""
    (tmp_path / "root/d").mkdir(parents=True)
    (tmp_path / "root/d/f.txt").write_text("inside")
    (tmp_path / "out/deep").mkdir(parents=True)
    for name in ("f.txt", "deep/f.txt", "unlike.txt"):
        (tmp_path / "out" / name).write_text(OUTSIDE)
    yield tmp_path
    subprocess.run(["rm", "-rf", "--", tmp_path], check=True)  # deeper than Python's own reaches


def tools(place):
    return {t.name: t.run for t in make_file_tools(RootFolder(place / "root"))}


def outside(place):
    return {
        str(p.relative_to(place)): p.read_text() for p in sorted((place / "out").rglob("*.txt"))
    }


def swap(one, other, end):
    """Exchange a folder and a link, again and again, in one step each time."""
    libc = ctypes.CDLL(None, use_errno=True)
    while time.monotonic() < end:
        if libc.renameat2(AT_CWD, os.fsencode(one), AT_CWD, os.fsencode(other), EXCHANGE):
            os._exit(1)


@pytest.fixture
def swapped(place):
    """Another process that swaps the folder `d` and a link that leads out, as fast as it can."""
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("this system does not exchange names in one step")
    (place / "root/l").symlink_to(place / "out")
    ends = time.monotonic() + (400 if ALL else 30)
    context = multiprocessing.get_context("fork")
    other = context.Process(
        target=swap, args=(place / "root/d", place / "root/l", ends), daemon=True
    )
    other.start()
    yield other
    other.terminate()
    other.join()


def attempts(kit, n):
    for i in range(n):
        yield kit["read_file"], {"path": "d/f.txt"}
        yield kit["read_file"], {"path": "d/deep/f.txt"}
        yield kit["write_file"], {"path": f"d/w{i % 50}.txt", "content": "PWN"}
        yield kit["write_file"], {"path": f"d/new{i % 50}/w.txt", "content": "PWN"}
        yield kit["patch_file"], {"path": "d/f.txt", "old": OUTSIDE, "new": "PWN"}
        yield kit["list_files"], {"path": "d"}
        if i % 100 == 0:
            for path in (".", "d"):
                yield kit["search"], {"pattern": "TOP", "path": path}


def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(place, swapped):
    """600 attempts in the suite, 18,000 where everything is taken; once 1 in 1,000 led out."""
    kit, before, done = tools(place), outside(place), [0, 0]
    for call, arguments in attempts(kit, 3_000 if ALL else 100):
        if not swapped.is_alive():
            break
        try:
            said = call(**arguments)
            done[0] += 1
        except CtxkitError:
            done[1] += 1
            continue
        assert OUTSIDE not in said, arguments
        assert "unlike" not in said, arguments
    assert outside(place) == before
    assert all(done), done  # both sides of the swap were met


# -- paths ----------------------------------------------------------------------------------------

PATHS = [
    "", ".", "..", "/", "//", "///etc/passwd", "/etc/passwd", "../out/f.txt", "d/../../out/f.txt",
    "d/../..", "./../out", "..\\out\\f.txt", "d\\..\\..\\out", "C:\\Windows", "\\\\host\\share",
    "~", "~root", "~/.bashrc", "$HOME/x", "${HOME}", "%2e%2e/out", "..%2fout", "..%00/",
    "d/f.txt\0", "\0", "\0/etc", "d\0/../..", "x" * 255, "x" * 256, "x" * 4096, "x" * 5000,
    "a/" * 2047, "a/" * 3000, "../" * 1000 + "etc/passwd", "d/" + "../" * 100 + "out/f.txt", " ",
    "\n", "\t../out", "d/f.txt ", " d/f.txt", "d/f.txt/", "d/f.txt/.", "d/f.txt/..", "d/f.txt/x",
    "d//f.txt", "d/./f.txt", "./d/f.txt", "d/", "d/.", "d/..", ".../out", "....//out",
    "/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/self/environ", "/dev/zero",
    "/dev/stdin", "/dev/null", "/dev/fd/0", "link.txt", "door", "door/f.txt", "door/new.txt",
    "door/deep/f.txt", "chain", "chain/f.txt", "loop", "loop/x", "dangling", "dangling/x", "inner",
    "inner/f.txt", "pipe", "pipe/x", "zero", "d/up/out/f.txt", "\ud800", "d/\udcff.txt", "é",
    "e\u0301", "\u202e", "CON", "nul.txt", "-rf", "--help", "*", "?", "[a]", "{a,b}", "f:g",
    "d/f.txt:stream", "|ls", ";ls", "`ls`", "$(ls)", "file:///etc/passwd", "http://x/",
    "\u2215etc",
]  # fmt: skip
CALLS = {
    "read_file": {},
    "write_file": {"content": "PWN"},
    "patch_file": {"old": OUTSIDE, "new": "PWN"},
    "list_files": {},
    "search": {"pattern": "TOP|root:"},
}


def test_no_path_leads_out_and_each_is_a_result_or_a_sentence(place):
    """85 paths and more through each of five tools."""
    root = place / "root"
    links = {"link.txt": place / "out/f.txt", "door": place / "out", "chain": "door",
             "loop": "loop", "dangling": "nowhere", "inner": "d", "zero": "/dev/zero",
             "d/up": place}  # fmt: skip
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    before, tried = outside(place), 0
    for path in PATHS:
        for name, more in CALLS.items():
            tried, started = tried + 1, time.monotonic()
            try:
                said = tools(place)[name](path=path, **more)
            except CtxkitError as e:
                told = str(e)
                said = "" if len(told) < 700 and told.endswith(".") else OUTSIDE
            assert time.monotonic() - started < 20, (name, path[:80])  # as for a pipe
            assert OUTSIDE not in said, (name, path[:80])
            assert "root:x:" not in said, (name, path[:80])
    assert tried == 5 * len(PATHS)
    assert outside(place) == before
    assert {p.name for p in place.iterdir()} == {"root", "out"}
