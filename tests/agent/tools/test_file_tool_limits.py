"""What the tools say of files is true: cut, too many, too deep, too late or unreadable is said."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from conftest import ALL
from waiting import PATIENCE

from ctxkit.agent import RootFolder, make_file_tools
from ctxkit.agent.tools import file_search, file_tools_and_pdf_office_text
from ctxkit.errors import BadArguments, StoreError


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture(params=["ripgrep", "python"])
def kit(root, request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(file_search.shutil, "which", lambda _: None)
    elif not shutil.which("rg"):
        pytest.skip("ripgrep is not installed")
    return {t.name: t.run for t in make_file_tools(RootFolder(root))}


# -- read_file -------------------------------------------------------------------------------------


def test_a_file_over_the_limit_is_read_in_parts_and_says_so(kit, root):
    line = b"0123456789abcdef\n"
    count = 12_000_000 // len(line)
    (root / "big.txt").write_bytes(line * count + b"the end")
    first = kit["read_file"]("big.txt")
    said, _, text = first.partition("\n")
    assert said.startswith(
        "[cut after 10,000,000 bytes, in line 588,236; read on with start=588236]"
    )
    assert len(text) == 10_000_000
    rest = kit["read_file"]("big.txt", start=588_236)
    assert rest.endswith("the end")
    whole = text[: text.rindex("\n") + 1] + rest
    assert whole.encode() == line * count + b"the end"
    assert kit["read_file"]("big.txt", start=count + 1) == "the end"
    with pytest.raises(BadArguments, match=f"has {count + 1:,} lines"):
        kit["read_file"]("big.txt", start=count + 2)


def test_a_line_over_the_limit_is_said(kit, root):
    (root / "one.txt").write_bytes(b"first\n" + b"x" * 10_500_000 + b"\nlast")
    said = kit["read_file"]("one.txt", start=2)
    assert said.startswith(
        "[cut after 10,000,000 bytes, in line 2; which is longer than can be read]"
    )
    assert kit["read_file"]("one.txt", start=3) == "last"
    assert kit["read_file"]("one.txt", end=1) == "first\n"


@pytest.mark.parametrize(
    ("text", "lines"), [("a", 1), ("a\n", 1), ("a\nb", 2), ("a\n\n", 2), ("a\x0cb\u2028c\rd\n", 1)]
)
def test_lines_are_counted_as_editors_do(kit, root, text, lines):
    (root / "a.txt").write_bytes(text.encode())
    assert kit["read_file"]("a.txt") == text
    assert kit["read_file"]("a.txt", start=lines) == text.split("\n")[lines - 1] + "\n" * (
        lines <= text.count("\n")
    )
    with pytest.raises(BadArguments, match=f"has {lines} lines; line {lines + 1} does not exist"):
        kit["read_file"]("a.txt", start=lines + 1)


def test_an_empty_file_is_empty(kit, root):
    (root / "a.txt").touch()
    assert kit["read_file"]("a.txt") == ""
    with pytest.raises(BadArguments, match="has 0 lines"):
        kit["read_file"]("a.txt", start=2)


# -- patch_file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "old", "said"),
    [
        ("xaaax", "aa", "2 times, in places that overlap"),
        ("abab ab", "ab", "3 times;"),
        ("ababa", "aba", "2 times, in places that overlap"),
        ("a" * 5000, "a", "more than 1000 times;"),
        ("a", "b", "0 times"),
        ("a", "", "0 times"),
    ],
)
def test_a_patch_says_how_often_the_text_is_there(kit, root, text, old, said):
    (root / "a.txt").write_text(text)
    with pytest.raises(BadArguments, match=f"holds the old text {said}"):
        kit["patch_file"]("a.txt", old, "new")
    assert (root / "a.txt").read_text() == text
    assert file_tools_and_pdf_office_text.describe_occurrences("xaxx", "xa") == "once"


# -- search and list_files -------------------------------------------------------------------------


def test_a_hit_behind_two_megabytes_is_found(kit, root):
    (root / "big.log").write_bytes(b"filler line\n" * 400_000 + b"the needle\n")
    assert kit["search"]("needle") == "big.log:400001: the needle"


def test_a_long_line_is_found_and_shown_in_part(kit, root):
    (root / "min.js").write_text("a needle " + "x" * 3_000_000 + "\nneedle 2\n")
    first, second = kit["search"]("needle").splitlines()
    assert first == "min.js:1: a needle " + "x" * 391
    assert second == "min.js:2: needle 2"


@pytest.fixture
def abyss():
    """A folder whose content Python's own clean-up could not reach."""
    folder = tempfile.mkdtemp(prefix="ctxkit-deep-")
    yield Path(folder)
    subprocess.run(["rm", "-rf", "--", folder], check=True)


def deep(root, levels):
    """Make a file in a folder so deep that no path of the system's reaches it whole."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    with os.fdopen(os.open("f.txt", os.O_WRONLY | os.O_CREAT, dir_fd=here), "w") as file:
        file.write("the needle\n")
    os.close(here)


@pytest.mark.parametrize("ripgrep", [True, False])
def test_a_deep_folder_is_searched_or_named(abyss, monkeypatch, ripgrep):
    if not ripgrep:
        monkeypatch.setattr(file_search.shutil, "which", lambda _: None)
    elif not shutil.which("rg"):
        pytest.skip("ripgrep is not installed")
    kit = {t.name: t.run for t in make_file_tools(RootFolder(abyss))}
    (abyss / "a.txt").write_text("needle\n")
    deep(abyss, 1500)
    hits = kit["search"]("needle")
    assert hits.startswith("a.txt:1: needle\n")
    if ripgrep:  # it goes by whole paths, which end at 4,096 characters
        assert "[not looked at: " in hits
    else:
        assert hits.endswith("deep/f.txt:1: the needle")
    assert kit["list_files"]().endswith("/f.txt")


def test_what_may_not_be_read_is_not_no_hits(kit, root, monkeypatch):
    if os.geteuid() == 0:
        pytest.skip("the superuser may read anything")
    (root / "shut").mkdir(mode=0)
    assert "shut" in kit["search"]("x")


def test_a_folder_that_fails_is_named(root, monkeypatch):
    """The superuser may enter anything: a folder fails by a stand-in here."""
    from ctxkit._internal import SafeFolder

    entries = SafeFolder.entries

    def failing(self):
        if self.path.name == "shut":
            raise PermissionError(13, "Permission denied")
        return entries(self)

    for name in ("open", "shut"):
        (root / name).mkdir()
        (root / name / "f.txt").write_text("needle")
    monkeypatch.setattr(SafeFolder, "entries", failing)
    monkeypatch.setattr(file_search.shutil, "which", lambda _: None)
    kit = {t.name: t.run for t in make_file_tools(RootFolder(root))}
    assert kit["search"]("needle") == "open/f.txt:1: needle\n[not looked into: shut]"
    assert kit["search"]("none") == "(no hits in what was looked at)\n[not looked into: shut]"
    assert kit["list_files"]() == "open/f.txt\n[not looked into: shut]"


def test_a_walk_that_breaks_is_not_no_hits(root, monkeypatch):
    from ctxkit.agent.tools import file_search

    (root / "a.txt").write_text("needle")
    monkeypatch.setattr(
        file_search.FolderWalk, "__iter__", lambda _: (_ for _ in ()).throw(RecursionError("deep"))
    )
    monkeypatch.setattr(file_search.shutil, "which", lambda _: None)
    said = {t.name: t.run for t in make_file_tools(RootFolder(root))}["search"]("needle")
    assert (
        said == "(no hits in what was looked at)\n"
        "[the search broke off at the first file (RecursionError)]"
    )


@pytest.mark.parametrize("files", [60_000 if ALL else 3_000])
def test_many_small_files_give_what_there_is_when_time_is_up(kit, root, monkeypatch, files):
    for i in range(files // 1000):
        (root / f"{i:03}").mkdir()
        for j in range(1000):
            (root / f"{i:03}" / f"{j:03}.txt").write_text("text\n" if j % 100 else "needle\n")
    began = time.monotonic()
    whole = kit["search"]("needle").splitlines()
    assert (len(whole), whole[0]) == (min(files // 100, 201), "000/000.txt:1: needle")
    monkeypatch.setattr(file_search, "SEARCH_SECONDS", 0.2)
    (root / "zzz.txt").write_text("needle in the last file")
    said = kit["search"]("in the last file")
    assert "in the last file" in said.splitlines()[0] or "[stopped after 0.2 seconds; " in said
    assert time.monotonic() - began < file_search.SEARCH_SECONDS + PATIENCE


def test_hits_found_before_the_time_was_up_are_given(root, monkeypatch):
    monkeypatch.setattr(file_search.shutil, "which", lambda _: None)
    monkeypatch.setattr(file_search, "SEARCH_SECONDS", 1.5)
    (root / "a.txt").write_text("aaa\n")
    (root / "b.txt").write_text("a" * 60 + "!\n")
    kit = {t.name: t.run for t in make_file_tools(RootFolder(root))}
    hit, note = kit["search"](r"^(a+)+$").splitlines()
    assert hit == "a.txt:1: aaa"
    assert "it was at b.txt, and did not look at what comes after" in note


@pytest.mark.parametrize(
    "name", ["with space.txt", "colon:7:x.txt", "-dash.txt", "é.txt", "q?*[a].txt", ".hidden"]
)
def test_odd_names_of_files_are_searched(kit, root, name):
    (root / name).write_text("one\nneedle\n")
    assert kit["search"]("needle") == f"{name}:2: needle"
    assert kit["search"]("needle", path=name) == f"{name}:2: needle"


def test_what_belongs_to_programs_is_passed_over(kit, root):
    for folder in (".git", ".ctxkit", "src/.git"):
        (root / folder).mkdir(parents=True)
        (root / folder / "f.txt").write_text("needle")
    (root / "src/f.txt").write_text("needle")
    assert kit["search"]("needle") == "src/f.txt:1: needle"
    assert kit["list_files"]() == "src/f.txt"


def test_binary_files_are_passed_over(kit, root):
    (root / "a.bin").write_bytes(b"\0\1needle\n")
    (root / "a.txt").write_bytes(b"needle\xff\n")
    assert kit["search"]("needle") == "a.txt:1: needle\ufffd"


def test_a_path_that_is_not_there_is_said(kit):
    for name in ("search", "list_files"):
        more = {"pattern": "x"}
        with pytest.raises(StoreError, match="There is no file or folder 'none'"):
            kit[name](path="none", **more)


def test_a_hit_of_ripgrep_that_is_not_there_is_left_out(root):
    """What ripgrep read by another way is not shown: only lines that are below the root."""
    (root / "a.txt").write_text("one\ntwo\n")
    places = [
        ("a.txt", 1, b"one"),
        ("a.txt", 2, b"TOPSECRET"),
        ("b.txt", 1, b"x"),
        ("../x", 1, b"x"),
    ]
    assert file_search._confirm_hits(RootFolder(root), places) == (["a.txt:1: one"], 3)


def test_a_cut_is_said_also_where_the_text_is_kept_apart(root):
    from ctxkit.agent import ArtifactStore, Workspace

    (root / "big.txt").write_bytes(b"0123456789abcdef\n" * 700_000)
    tools = RootFolder(root)
    text = {t.name: t.run for t in make_file_tools(tools)}["read_file"]("big.txt")
    stub = ArtifactStore(Workspace(root), lambda: ["s"]).store_result("read_file", text)
    said = "[cut after 10,000,000 bytes, in line 588,236; read on with start=588236]"
    assert f"It begins: {said}" in stub


def test_a_thread_that_feeds_a_search_does_not_keep_the_program_from_ending():
    feeding, end = threading.Event(), threading.Event()

    def wait_for_texts():
        feeding.set()
        end.wait(PATIENCE)
        yield {"name": "a", "first": 1, "text": "x"}

    before = set(threading.enumerate())
    process = file_search.start_search_worker("x", 1, wait_for_texts())
    assert feeding.wait(PATIENCE)
    assert [t.daemon for t in set(threading.enumerate()) - before] == [True]
    end.set()
    out, _ = process.communicate(timeout=PATIENCE)
    assert out.splitlines()[-1] == b"a:1: x"
