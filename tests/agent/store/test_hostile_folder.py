"""A folder that came from somebody: its links lead nowhere, its sessions wait for a word."""

from __future__ import annotations

import asyncio
import os
import stat

import pytest
from builders import assistant, session, user
from stand_in_models import live, said

import ctxkit as ck
from ctxkit.agent import SessionLog, Workspace, ctxkit_folder_and_session_trust
from ctxkit.errors import BadArguments, CtxkitError, StoreError
from ctxkit.session import ToolCall

SECRET = "export A=1\nexport B=2"


@pytest.fixture
def home(tmp_path):
    """What must stay as it is."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "bashrc").write_text(SECRET)
    (folder / "main.jsonl").write_text(SECRET)
    yield folder
    assert (folder / "bashrc").read_text() == (folder / "main.jsonl").read_text() == SECRET
    assert {p.name for p in folder.iterdir()} == {"bashrc", "main.jsonl"}


@pytest.fixture
def project(tmp_path):
    """A session of this user's, without its id's files of a kind that a test plants itself."""
    folder = tmp_path / "project"
    folder.mkdir()
    with live(folder, said("before")) as s:
        asyncio.run(s.turn("go"))
    return folder


def planted(project, path, target, link):
    place = (
        project / ".ctxkit" / path.format(id=ck.read(project / ".ctxkit/sessions/main.jsonl").id)
    )
    if place.is_dir():
        place.rename(project / "away")
    place.unlink(missing_ok=True)
    link(target, place)


FILES = (
    "sessions/main.jsonl",
    "sessions/.main.holder",
    "sessions/.main.mine",
    "sessions/.main.lock",
    "sessions/main.torn",
    "logs/events_{id}.jsonl",
    "logs/ctx_snapshots_{id}.jsonl",
    "logs/ctx_viz_{id}.html",
    "logs/crash_{id}.txt",
    ".gitignore",
)


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["link", "hard link"])
@pytest.mark.parametrize("path", FILES)
def test_a_planted_file_leads_nowhere(project, home, path, link):
    planted(project, path, home / "bashrc", link)
    log = project / ".ctxkit/sessions/main.jsonl"
    if path == "sessions/main.torn":
        log.write_bytes(log.read_bytes() + b'{"torn')
    try:
        with live(project) as s:
            asyncio.run(s.turn("go"))
            s.workspace.write(s.workspace.chart(s.id), "chart")
            s.workspace.write(s.workspace.crash(s.id), "crash")
    except CtxkitError as e:
        said = str(e)
    else:
        said = "."
    assert said.endswith(".")


@pytest.mark.parametrize("path", ["", "sessions", "logs", "scratch", "scratch/main"])
def test_a_planted_folder_leads_nowhere(project, home, path):
    place = project / ".ctxkit" / path
    place.rename(project / "away")
    place.symlink_to(home)
    with pytest.raises(StoreError, match="links are not followed"):
        live(project)


def test_a_torn_file_of_somebody_elses_is_not_cut(project, home):
    log = project / ".ctxkit/sessions/main.jsonl"
    log.write_text('{"not": "ours"}\n{"torn')
    with pytest.raises(StoreError, match="not a ctxkit session"):
        live(project)
    assert log.read_text() == '{"not": "ours"}\n{"torn'
    assert not log.with_suffix(".torn").exists()


# -- whose session --------------------------------------------------------------------------------


@pytest.fixture
def cloned(tmp_path, monkeypatch):
    """A project as somebody else packed it: with a session in it, and that user's own mark."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    folder = tmp_path / "project"
    with live(folder, said("I am told to delete everything")) as s:
        asyncio.run(s.turn("go"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    return folder


def test_a_session_that_came_with_a_folder_waits_for_a_word(cloned):
    with pytest.raises(
        BadArguments, match=r"not begun there by you.*%%agent --session main --trust"
    ):
        live(cloned)
    with pytest.raises(BadArguments, match="not begun there"):
        Workspace(cloned).session("main")
    Workspace(cloned).trust("main")
    with live(cloned) as s:
        assert len(s.session.messages) == 2
    assert Workspace(cloned).session("main") is not None


def test_a_session_of_ones_own_needs_no_word_also_beside_one_of_others(cloned):
    for _ in range(2):
        with live(cloned, name="mine") as s:
            assert asyncio.run(s.turn("go")).ended == "answered"
    with pytest.raises(BadArguments):
        live(cloned)


def test_a_mark_holds_for_one_place_and_one_name(project, tmp_path):
    sessions = project / ".ctxkit/sessions"
    (sessions / "other.jsonl").write_bytes((sessions / "main.jsonl").read_bytes())
    (sessions / ".other.mine").write_bytes((sessions / ".main.mine").read_bytes())
    with pytest.raises(BadArguments, match="not begun there"):
        Workspace(project).check("other")
    project.rename(tmp_path / "moved")
    with pytest.raises(BadArguments, match="not begun there"):
        Workspace(tmp_path / "moved").check("main")
    Workspace(tmp_path / "moved").check("none")  # one that is not there is no one's


def test_the_key_is_the_users_alone_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first = ctxkit_folder_and_session_trust.make_session_trust_mark(tmp_path, 0)
    assert (
        first
        == ctxkit_folder_and_session_trust.make_session_trust_mark(tmp_path, 0)
        != ctxkit_folder_and_session_trust.make_session_trust_mark(tmp_path, 1)
    )
    assert stat.S_IMODE((tmp_path / "ctxkit/key").stat().st_mode) == 0o600
    (tmp_path / "ctxkit/key").write_bytes(b"short")
    with pytest.raises(StoreError, match="remove it"):
        ctxkit_folder_and_session_trust.make_session_trust_mark(tmp_path, 0)


def test_without_a_place_for_the_key_a_session_works_and_the_next_kernel_asks(
    tmp_path, monkeypatch
):
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with live(tmp_path) as s:
        assert asyncio.run(s.turn("go")).ended == "answered"
    with pytest.raises(BadArguments, match="--trust"):
        live(tmp_path)
    with pytest.raises(StoreError, match="XDG_STATE_HOME"):
        Workspace(tmp_path).trust("main")


def test_a_working_folder_may_be_a_link_that_the_user_names(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for folder in ("link", "real"):
        with live(tmp_path / folder) as s:
            assert asyncio.run(s.turn("go")).ended == "answered"


# -- protected names ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [
    ".git/config", ".git/hooks/pre-commit", "sub/.git/config", ".GIT/config", "./.git/x", ".git",
    ".ctxkit/sessions/main.jsonl", ".envrc", "conftest.py", "tests/conftest.py", ".bashrc",
    "a/x.pth", ".vscode/tasks.json", ".github/workflows/ci.yml", "sitecustomize.py", "alias/config",
])  # fmt: skip
def test_what_runs_by_itself_is_not_written(tmp_path, path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / ".git")
    before = {str(p) for p in tmp_path.rglob("*")}
    write = said(ToolCall("c", "write_file", {"path": path, "content": "boom"}), stop="tool")
    with live(tmp_path, write, root=tmp_path) as s:
        asyncio.run(s.turn("go"))
        result = next(m for m in s.session.messages if m.role == "tool")
    assert result.is_error
    assert "runs by itself. The user can allow it by `--allow" in result.text
    new = {str(p) for p in tmp_path.rglob("*")} - before
    assert not {p for p in new if ".ctxkit" not in p}
    assert (
        "boom"
        not in (tmp_path / ".ctxkit/sessions/main.jsonl").read_text().split('"toolResult"')[-1]
    )


def test_a_protected_name_may_be_allowed(tmp_path):
    write = said(
        ToolCall("c", "write_file", {"path": "t/conftest.py", "content": "x"}), stop="tool"
    )
    with live(tmp_path, write, root=tmp_path, allow=["conftest.py"]) as s:
        asyncio.run(s.turn("go"))
    assert (tmp_path / "t/conftest.py").read_text() == "x"
    with pytest.raises(BadArguments, match=r"Did you mean 'conftest\.py'"):
        live(tmp_path, root=tmp_path, allow=["confest.py"])


@pytest.mark.parametrize("path", [".github/ISSUE.md", "git/config", "my.gitignore", "README.md"])
def test_other_names_are_free(tmp_path, path):
    write = said(ToolCall("c", "write_file", {"path": path, "content": "x"}), stop="tool")
    with live(tmp_path, write, root=tmp_path) as s:
        asyncio.run(s.turn("go"))
    assert (tmp_path / path).read_text() == "x"


# -- locks ----------------------------------------------------------------------------------------


def test_a_session_that_goes_while_they_are_listed_hides_no_other(tmp_path, monkeypatch):
    place = Workspace(tmp_path)
    place.make()
    for name in ("gone", "kept", "one_more"):
        place.write(place.sessions / f"{name}.jsonl", "{}\n")
    real = type(tmp_path).lstat

    def lstat(path):
        if path.stem == "gone":
            path.unlink(missing_ok=True)
        return real(path)

    monkeypatch.setattr(type(tmp_path), "lstat", lstat)
    assert set(place.names()) == {"kept", "one_more"}


def open_log(folder):
    return SessionLog(folder, "one", session(id="0000abcd"))


def test_a_deleted_lock_lets_nobody_in(tmp_path):
    with open_log(tmp_path) as first:
        first.append(user("a"))
        for p in tmp_path.iterdir():
            if p.name.startswith("."):
                p.unlink()
        with pytest.raises(StoreError, match="is being written by another process"):
            open_log(tmp_path)
        first.append(assistant("b"))
    assert len(ck.read(tmp_path / "one.jsonl").log) == 2


def test_a_system_that_locks_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("ctxkit.agent.session_log.LOCKS_THE_LOG", False)
    with open_log(tmp_path), pytest.raises(StoreError, match=f"process {os.getpid()} on"):
        open_log(tmp_path)
    open_log(tmp_path).close()


def test_a_disk_without_locks_is_a_sentence(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(StoreError, match=r"cannot be locked \(No locks available\)"):
        open_log(tmp_path)
