"""Outputs that are bounded, code that is run, files of a root, and the sentences of what is refused."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest
from builders import tool_call
from waiting import PATIENCE

from ctxkit.agent import (
    BackgroundTask,
    RootFolder,
    child_processes,
    make_python_tool,
    run_coroutine,
    run_tool,
)
from ctxkit.agent.tools import confined_root, file_search
from ctxkit.agent.tools import file_tools_and_pdf_office_text as file_tools
from ctxkit.agent.tools import python_shell_and_summary_tools as shell_tools
from ctxkit.errors import BadArguments, StoreError


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], ""),
        (["abc", "de"], "abcde"),
        (["abcdefghijklmn"], "abcdefghijklmn"),  # ten of the head and four of the tail
        (["abcdefghijklmno"], "abcdefghij\n[... 1 characters left out ...]\nlmno"),
        (["abcdefghij", "12", "34", "56"], "abcdefghij\n[... 2 characters left out ...]\n3456"),
        (["abcdefghij", *"123456789"], "abcdefghij\n[... 5 characters left out ...]\n6789"),
        (["abcdefgh", "ijklmnopqrstuvwxyz"], "abcdefghij\n[... 12 characters left out ...]\nwxyz"),
    ],
)
def test_the_head_and_the_tail_of_an_output(monkeypatch, pieces, expected):
    monkeypatch.setattr(shell_tools, "HEAD_CHARS", 10)
    monkeypatch.setattr(shell_tools, "TAIL_CHARS", 4)
    output = shell_tools.BoundedOutput()
    assert [output.write(p) for p in pieces] == [len(p) for p in pieces]
    assert output.text() == expected
    # what is held is bounded, too: twice the tail, or one piece
    assert sum(map(len, output._tail)) <= max(8, *map(len, pieces or [""]))


def test_streams_are_restored_behind_the_last_capture():
    before = sys.stdout, sys.stderr
    with shell_tools.capture_output() as outer:
        sys.stdout.write("one\n")
        with shell_tools.capture_output() as inner:
            sys.stdout.write("two\n")
            sys.stderr.write("error\n")
        sys.stdout.write("three\n")
        assert sys.stdout is not before[0]
        assert sys.stdout.encoding == before[0].encoding  # of the stream below
    assert (sys.stdout, sys.stderr) == before
    assert (outer.text(), inner.text()) == ("one\nthree\n", "two\nerror\n")


NULL_BYTE_ERROR = "SyntaxError" if sys.version_info >= (3, 11, 4) else "ValueError"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x + 1", "3\n"),
        ("print('a'); x", "a\n2\n"),
        ("x = 5", "(no output)"),
        ("None", "(no output)"),
        ("", "(no output)"),
        ("x +", '  File "<agent>", line 1\n    x +\n       ^\nSyntaxError: invalid syntax\n'),
        ("print('a'); 1 / 0", "a\nZeroDivisionError: division by zero\n"),
        ("raise SystemExit(3)", "SystemExit: 3\n"),
        ("\0", f"{NULL_BYTE_ERROR}: source code string cannot contain null bytes\n"),
    ],
)
def test_code_in_the_namespace(code, expected):
    namespace = {"x": 2}
    tool = make_python_tool(namespace)
    result = asyncio.run(run_tool(tool_call("python", code=code), {"python": tool}))
    assert result.text == expected
    assert namespace["x"] == (5 if "=" in code else 2)
    assert tool.needs == "kernel"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b" \n\n", ""),
        (b"starting\nready\n", "ready"),
        (b"one ERROR\nsecond error: x\nversion 1.2\n", "second error: x"),
        (b"x" * 300, "x" * 199 + "…"),
        (b"key sk-ant-api03-" + b"Ab3xY9" * 15, "key [redacted]"),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_the_line_that_explains_a_failure(output, line):
    assert child_processes.find_failure_line(output) == line


def test_the_state_of_a_task_in_the_background():
    async def wait_for(event):
        while not event.is_set():  # noqa: ASYNC110  an event of threads
            await asyncio.sleep(0.005)
        return "result"

    async def fail():
        raise ValueError("odd")

    ended, go = threading.Event(), threading.Event()
    task = BackgroundTask(wait_for(go), ended.set)
    assert (task.state, task.wait(0.01), task.wait(0)) == ("running", False, False)
    with pytest.raises(TimeoutError, match=r"^It still runs\.$"):
        task.result(0.01)
    assert not ended.is_set()
    go.set()
    assert task.result(PATIENCE) == "result"
    assert (task.state, task.wait(0), ended.is_set()) == ("done", True, True)
    failed = BackgroundTask(fail(), ended.clear)
    with pytest.raises(ValueError, match="odd"):
        failed.result(PATIENCE)
    assert (failed.state, ended.is_set()) == ("failed", False)
    stopped = BackgroundTask(wait_for(threading.Event()))
    stopped.stop()
    assert stopped.wait(PATIENCE)
    assert stopped.state == "stopped"
    stopped.stop()  # a second time does nothing
    with pytest.raises(asyncio.CancelledError):
        stopped.result()

    async def hold_on():
        try:
            await asyncio.sleep(60)
        finally:
            await wait_for(go)

    go.clear()
    slow = BackgroundTask(hold_on())
    slow.stop()
    assert slow.state == "stopping"
    go.set()
    assert slow.wait(PATIENCE)
    waiting = BackgroundTask(wait_for(go), start=False)
    assert (waiting.state, waiting.wait(0.01)) == ("running", False)
    waiting.begin()
    assert waiting.result(PATIENCE) == "result"
    assert run_coroutine(wait_for(go)) == "result"


def test_what_a_root_refuses(tmp_path):
    root = RootFolder(tmp_path / "root")
    (tmp_path / "root/sub").mkdir()
    (tmp_path / "outside").write_text("x")
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    cases = {
        lambda: root.resolve("../outside"): "The path '../outside' leads out of the root folder; give one relative to it.",
        lambda: root.resolve("link"): "The path 'link' leads out of the root folder; give one relative to it.",
        lambda: root.resolve("a\0"): "The path is not valid: it has a NUL character or is too long.",
        lambda: root.resolve("a" * 4_097): "The path is not valid: it has a NUL character or is too long.",
        lambda: root.read("."): "'.' is a folder, not a file.",
        lambda: root.write(".", b""): "'.' is a folder, not a file.",
        lambda: root.read("none"): "There is no file 'none'.",
        lambda: root.parts("none", there=True): "There is no file or folder 'none'.",
        lambda: root.write(".git/config", b""): "'.git/config' was not written: what is in .git runs by itself. "
                                                "The user can allow it by `--allow .git`.",
    }  # fmt: skip
    for refused, sentence in cases.items():
        with pytest.raises(StoreError) as error:
            refused()
        assert str(error.value) == sentence
    long = "./" * 150
    for refused in (lambda: root.read(long), lambda: root.write(long, b"")):
        with pytest.raises(StoreError) as error:
            refused()
        assert str(error.value) == f"{long[:200]!r} is a folder, not a file."
    assert root.resolve(" sub/../sub ") == tmp_path / "root/sub"
    assert root.resolve(str(tmp_path / "root")) == tmp_path / "root"
    assert (root.parts("."), root.parts("sub"), root.parts("a/b")) == ((), ("sub",), ("a", "b"))
    assert len(root.parts("a/" * 2_047 + "bb")) == 2_048
    assert (root.is_file(("sub",)), root.exists(("sub",)), root.exists(("none",))) == (
        False,
        True,
        False,
    )
    assert not root.is_file(("link",))
    assert root.relative_path(tmp_path / "root") == "."


def test_files_of_a_root_are_written_and_read(tmp_path):
    root = RootFolder(tmp_path)
    assert root.write("a/b.txt", b"one") == tmp_path / "a/b.txt"
    root.write("a/b.txt", b"two", append=True)
    assert root.read("a/b.txt") == b"onetwo"
    assert (root.read("a/b.txt", 4), root.read("a/b.txt", 6, whole=True)) == (b"onet", b"onetwo")
    with pytest.raises(
        StoreError, match=r"^'a/b\.txt' is larger than 5 bytes: it is not taken in part\.$"
    ):
        root.read("a/b.txt", 5, whole=True)
    old = os.umask(0)
    try:
        root.write("plain", b"")
        root.write("private", b"", private=True)
        root.write("appended", b"", append=True, private=True)
    finally:
        os.umask(old)
    modes = [(tmp_path / n).stat().st_mode & 0o777 for n in ("plain", "private", "appended")]
    assert modes == [0o644, 0o600, 0o600]


def test_protected_names_are_ends_of_paths(tmp_path):
    root = RootFolder(tmp_path, allow=[".github/workflows", "conftest.py"])
    for path in (".github/workflows/a.yml", ".github/x", "conftest.py", "agit/.gitx", "a.pthx"):
        root.write(path, b"")
    for path in (
        "sub/.GIT/x",
        ".github/actions/a",
        "a.pth",
        "SUB/b.PTH",
        ".ssh. /x",
        "sitecustomize.py",
    ):
        with pytest.raises(StoreError, match="runs by itself"):
            root.write(path, b"")
    with pytest.raises(
        BadArguments, match=r"^'\.gitx' is no protected name\..*\.git.* Those are: \.git, "
    ):
        RootFolder(tmp_path, allow=[".gitx"])
    assert ".npmrc" in confined_root.PROTECTED_NAMES


def test_another_folder_of_the_same_name_is_not_the_root(tmp_path):
    root = RootFolder(tmp_path / "root")
    root.write("a", b"x")
    (tmp_path / "root").rename(tmp_path / "old")
    (tmp_path / "root").mkdir()
    with pytest.raises(
        StoreError, match=r"root is another folder than before: open the session again\.$"
    ):
        root.read("a")


@pytest.mark.parametrize("program", ["rg", None])
def test_a_search_is_bounded_and_says_so(tmp_path, monkeypatch, program):
    found = file_search.shutil.which("rg")
    if program and not found:
        pytest.skip("needs ripgrep")
    monkeypatch.setattr(file_search.shutil, "which", lambda _: found if program else None)
    monkeypatch.setattr(file_search, "MAX_HITS", 3)
    root = RootFolder(tmp_path)
    for name, lines in (("a.py", 2), ("b.py", 1), ("c.txt", 1), (".git/d.py", 1), ("sub/e.py", 1)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("port 80\n" * lines)

    def search(pattern="port", path=".", files="*.py"):
        return file_search.search_files(root, pattern, path, files).splitlines()

    hits = ["a.py:1: port 80", "a.py:2: port 80", "b.py:1: port 80"]
    assert search() == [*hits, "[more than 3 hits: narrow the pattern]"]
    (tmp_path / "b.py").unlink()
    assert search() == [*hits[:2], "sub/e.py:1: port 80"]
    assert search(path="sub") == ["sub/e.py:1: port 80"]
    assert search(path="c.txt", files="*") == ["c.txt:1: port 80"]
    assert search("none") == ["(no hits)"]
    with pytest.raises(BadArguments, match=r"^The pattern is no regular expression: "):
        search("(")
    with pytest.raises(BadArguments, match=r"^A pattern has no NUL characters\.$"):
        search(files="*\0")


def test_the_files_of_a_folder_in_the_order_of_their_paths(tmp_path):
    root = RootFolder(tmp_path)
    for name in (
        "b/z.py",
        "b/a/x.py",
        "a.py",
        "c.txt",
        ".git/x.py",
        ".ctxkit/x.py",
        "d/.git/x.py",
        "d/e.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [f.path for f in file_search.FolderWalk(root, ".", "*.py")] == [
        "a.py",
        "b/z.py",
        "b/a/x.py",
        "d/e.py",
    ]
    assert [(f.path, f.name) for f in file_search.FolderWalk(root, "b", "*")] == [
        ("b/z.py", "z.py"),
        ("b/a/x.py", "x.py"),
    ]
    assert [f.path for f in file_search.FolderWalk(root, "c.txt", "*.py")] == [
        "c.txt"
    ]  # a file that is named is read
    walk = file_search.FolderWalk(root, ".", "*")
    assert walk.describe_unreadable() == ""
    walk.missed += ["a", "b", "c", "d"]
    assert walk.describe_unreadable() == "[not looked into: a, b, c and 1 more]"


def test_a_folder_that_is_gone_before_it_is_entered_is_named(tmp_path):
    (tmp_path / "gone").mkdir()
    walk = file_search.FolderWalk(RootFolder(tmp_path), "gone", "*")
    (tmp_path / "gone").rmdir()
    assert list(walk) == []
    assert walk.missed == ["gone"]


def test_names_are_abbreviated():
    assert [file_search.abbreviate_names(list("abcd")[:n]) for n in (0, 1, 3)] == [
        "",
        "a",
        "a, b, c",
    ]
    assert (
        file_search.abbreviate_names(["x" * 201] + ["y"] * 1_003)
        == f"{'x' * 200}, y, y and 1,001 more"
    )


@pytest.mark.parametrize(
    ("text", "piece", "expected"),
    [
        ("abc", "b", "once"),
        ("abc", "x", "0 times"),
        ("abc", "", "0 times"),
        ("abab", "ab", "2 times"),
        ("aaa", "aa", "2 times, in places that overlap"),
        ("a " * 1_000, "a", "1000 times"),
        ("a " * 1_001, "a", "more than 1000 times"),
    ],
)
def test_how_often_a_text_has_a_piece(text, piece, expected):
    assert file_tools.describe_occurrences(text, piece) == expected


@pytest.mark.parametrize(
    ("start", "end", "limit", "expected"),
    [
        (1, None, 99, "one\ntwo\nthree"),
        (2, 2, 99, "two\n"),
        (3, 9, 99, "three"),
        (1, 0, 99, ""),
        (1, None, 13, "one\ntwo\nthree"),
        (1, None, 12, "[cut after 12 bytes, in line 3; read on with start=3]\none\ntwo\nthre"),
        (1, None, 3, "[cut after 3 bytes, in line 1; which is longer than can be read]\none"),
        (2, None, 5, "[cut after 5 bytes, in line 3; read on with start=3]\ntwo\nt"),
        (0, None, 5, "[cut after 5 bytes, in line 2; read on with start=2]\none\nt"),
    ],
)
def test_lines_of_a_file(tmp_path, start, end, limit, expected):
    path = tmp_path / "a"
    path.write_text("one\ntwo\nthree")
    with path.open("rb") as file:
        assert file_tools.read_lines(file, "a", start, end, limit) == expected
    with (
        path.open("rb") as file,
        pytest.raises(BadArguments, match=r"^'a' has 3 lines; line 4 does not exist\.$"),
    ):
        file_tools.read_lines(file, "a", 4, None)
    with (
        path.open("rb") as file,
        pytest.raises(BadArguments, match=f"^'{'a' * 200}' has 3 lines"),
    ):
        file_tools.read_lines(file, "a" * 201, 4, None)
    path.write_text("")
    with path.open("rb") as file:
        assert file_tools.read_lines(file, "a", 1, None) == ""
