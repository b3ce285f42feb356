"""Keep: every reader takes the archive, nothing is copied twice, a broken-off copy continues, originals are only read."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from pathlib import Path

import pyarrow as pa
import pytest
from builders import session, user
from opencode_databases import older

import ctxkit as ck
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.formats import archive_and_search
from ctxkit.formats.archive_and_search import FIND_COLUMNS, KEEP_COLUMNS

GOLDEN = Path(__file__).parents[1] / "formats" / "golden"
PLACES = {
    "claude-code.jsonl": ".claude/projects/-w-shop/11111111-1111.jsonl",
    "codex.jsonl": ".codex/sessions/2026/01/02/rollout-x.jsonl",
    "gemini-cli.json": ".gemini/tmp/abc/chats/session-1.json",
    "pi.jsonl": ".pi/agent/sessions/--w--/s.jsonl",
    "copilot-cli.jsonl": ".copilot/session-state/y/events.jsonl",
    "aider.md": ".aider.chat.history.md",
}


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(p): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file() and p.name != ".lock"
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, place in PLACES.items():
        target = tmp_path / "home" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(GOLDEN / name, target)
    tasks = tmp_path / "home/.config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks"
    shutil.copytree(GOLDEN / "cline", tasks / "17")
    (tmp_path / "home/.local/share/opencode").mkdir(parents=True)
    older(
        tmp_path / "home/.local/share/opencode/opencode.db",
        json.loads((GOLDEN / "opencode.json").read_bytes()),
    ).close()
    return tmp_path / "home"


def test_every_reader_takes_the_archive(home: Path, tmp_path: Path):
    before = snapshot(home)
    told = ck.keep(tmp_path / "kept", home)
    assert snapshot(home) == before
    assert dict(told.dtypes.astype(str)) == KEEP_COLUMNS
    assert set(told["what"]) == {"new"}
    kept = ck.read_all(tmp_path / "kept", progress=False)
    assert kept.failed.empty
    found = {s.format: s for s in kept}
    for name in PLACES:
        wanted = ck.read(GOLDEN / name)
        assert found[wanted.format].log == wanted.log
    assert found["cline"].calls[0].message.usage is not None  # what is beside it was kept with it
    assert len(found["opencode"].calls) == 4
    assert len(kept) == len(PLACES) + 2


def test_what_is_kept_is_packed_and_private(home: Path, tmp_path: Path):
    (home / PLACES["pi.jsonl"]).write_bytes(
        (GOLDEN / "pi.jsonl").read_bytes() + b'{"type":"x"}\n' * 9_000
    )
    ck.keep(tmp_path / "kept", home, tools="pi")
    (file,) = (tmp_path / "kept").rglob("s.jsonl")
    assert file.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    assert file.stat().st_size < 10_000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700


def test_again_only_what_is_new_is_copied(home: Path, tmp_path: Path):
    ck.keep(tmp_path / "kept", home)
    before = snapshot(tmp_path / "kept")
    assert set(ck.keep(tmp_path / "kept", home)["what"]) == {"same"}
    assert snapshot(tmp_path / "kept") == before
    with (home / PLACES["pi.jsonl"]).open("ab") as file:
        file.write(b'{"type":"custom","id":"0000000a","parentId":"00000009"}\n')
    (home / PLACES["codex.jsonl"]).write_bytes(b"another\n")
    again = ck.keep(tmp_path / "kept", home).set_index("tool")["what"]
    assert (again["pi"], again["codex"], again["claude-code"]) == ("grown", "changed", "same")
    pi = [s for s in ck.read_all(tmp_path / "kept", progress=False) if s.format == "pi"]
    assert len(pi) == 1
    assert [s.format for s in ck.read_all(tmp_path / "kept", progress=False)].count(
        "codex"
    ) == 1  # the older stays


def test_what_the_tool_deletes_stays(home: Path, tmp_path: Path):
    ck.keep(tmp_path / "kept", home)
    shutil.rmtree(home / ".claude")
    ck.keep(tmp_path / "kept", home)
    assert "claude-code" in {s.format for s in ck.read_all(tmp_path / "kept", progress=False)}


def test_a_copy_that_was_broken_off_goes_on(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real, done = archive_and_search.LogCopyArchiveWriter.copy_original, []

    def killed(self, original):
        if len(done) == 3:
            (self.folder / "pi").mkdir()
            (self.folder / "pi/torn.part").write_bytes(b"half")
            raise KeyboardInterrupt
        done.append(original)
        return real(self, original)

    monkeypatch.setattr(archive_and_search.LogCopyArchiveWriter, "copy_original", killed)
    with pytest.raises(KeyboardInterrupt):
        ck.keep(tmp_path / "kept", home)
    monkeypatch.undo()
    with (tmp_path / "kept" / archive_and_search.INDEX_NAME).open("ab") as file:
        file.write(b'\n{"path": "/torn')
    told = ck.keep(tmp_path / "kept", home)
    assert told["what"].tolist().count("same") == 3
    assert len(ck.read_all(tmp_path / "kept", progress=False)) == len(PLACES) + 2


def test_a_torn_line_of_the_index_takes_no_other_with_it(home: Path, tmp_path: Path):
    ck.keep(tmp_path / "kept", home, tools="codex")
    index = tmp_path / "kept" / archive_and_search.INDEX_NAME
    index.write_bytes(index.read_bytes()[:-10])
    ck.keep(tmp_path / "kept", home, tools="pi")
    assert ck.keep(tmp_path / "kept", home, tools="pi")["what"].tolist() == ["same"]


@pytest.mark.parametrize("grown", [True, False])
def test_a_kill_between_a_copy_and_its_note_loses_and_doubles_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, grown: bool
):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    def kill() -> None:
        with monkeypatch.context() as m:
            m.setattr(archive_and_search.LogCopyArchiveWriter, "_append_entry", killed)
            with pytest.raises(KeyboardInterrupt):
                ck.keep(tmp_path / "kept", home, tools="pi")

    kill()
    ck.keep(tmp_path / "kept", home, tools="pi")
    file = home / PLACES["pi.jsonl"]
    older = file.read_bytes()
    line = b'{"type":"custom","id":"0000000a","parentId":"00000009"}\n'
    file.write_bytes(older + line if grown else b"\n".join(older.splitlines()[:-1]) + b"\n")
    kill()
    ck.keep(tmp_path / "kept", home, tools="pi")
    copied = (tmp_path / "kept").rglob("*.jsonl")
    found = [pa.CompressedInputStream(p.open("rb"), "zstd").read() for p in copied]
    assert sorted(found) == sorted([file.read_bytes()] if grown else [file.read_bytes(), older])
    marks = [p.stem.partition("~")[2] for p in (tmp_path / "kept").rglob("*~*.jsonl")]
    assert [len(mark) for mark in marks] == ([] if grown else [12])


def test_the_same_content_takes_its_room_once(home: Path, tmp_path: Path):
    other = home / ".pi/agent/sessions/--other--/t.jsonl"
    other.parent.mkdir()
    shutil.copyfile(home / PLACES["pi.jsonl"], other)
    told = ck.keep(tmp_path / "kept", home, tools=["pi"])
    assert 0 in told["packed_bytes"].tolist()
    (one, two) = (tmp_path / "kept").rglob("*.jsonl")
    assert one.samefile(two)


def test_a_copy_that_has_changed_lends_its_older_content_to_none(home: Path, tmp_path: Path):
    first = home / PLACES["pi.jsonl"]
    data = first.read_bytes()
    ck.keep(tmp_path / "kept", home, tools="pi")
    first.write_bytes(data + b'{"type":"custom","id":"0000000a","parentId":"00000009"}\n')
    ck.keep(tmp_path / "kept", home, tools="pi")
    first.with_name("t.jsonl").write_bytes(data)
    ck.keep(tmp_path / "kept", home, tools="pi")
    (copy,) = (tmp_path / "kept").rglob("t.jsonl")
    assert pa.decompress(copy.read_bytes(), len(data), "zstd", asbytes=True) == data


def test_a_large_copy_that_has_changed_behind_its_first_mebibyte_lends_it_to_none(
    home: Path, tmp_path: Path
):
    first = home / PLACES["pi.jsonl"]
    packed = bytes.fromhex("28b52ffd") + bytes(1 << 20)  # what zstd packed is stored unchanged
    first.write_bytes(packed)
    ck.keep(tmp_path / "kept", home, tools="pi")
    first.write_bytes(packed + b"more")
    ck.keep(tmp_path / "kept", home, tools="pi")
    first.with_name("t.jsonl").write_bytes(packed)
    ck.keep(tmp_path / "kept", home, tools="pi")
    (copy,) = (tmp_path / "kept").rglob("t.jsonl")
    assert copy.read_bytes() == packed


def test_files_of_folders_called_alike_do_not_take_each_others_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    kept, words = tmp_path / "kept", {"a": "first", "b": "second"}
    for grown in ("", "\nand more"):
        for name, word in words.items():
            place = tmp_path / name / "app"
            place.mkdir(parents=True, exist_ok=True)
            (place / ".aider.chat.history.md").write_text(f"# {word}{grown}")
            monkeypatch.chdir(place)
            assert ck.keep(kept, tools="aider")["what"].tolist() == ["grown" if grown else "new"]
    found = sorted(p for p in kept.rglob("*.md"))
    assert len(found) == 2
    said = {pa.CompressedInputStream(p.open("rb"), "zstd").read().decode() for p in found}
    assert said == {"# first\nand more", "# second\nand more"}


def test_what_is_packed_already_is_not_packed_again(home: Path, tmp_path: Path):
    data = (GOLDEN / "codex.jsonl").read_bytes()
    packed = pa.compress(data, codec="zstd", asbytes=True)
    (home / PLACES["codex.jsonl"]).rename(home / ".codex/sessions/2026/rollout-x.jsonl.zst")
    (home / ".codex/sessions/2026/rollout-x.jsonl.zst").write_bytes(packed)
    ck.keep(tmp_path / "kept", home, tools="codex")
    assert [s.format for s in ck.read_all(tmp_path / "kept", progress=False)] == ["codex"]


def test_links_and_pipes_are_left_alone(home: Path, tmp_path: Path):
    secret = tmp_path / "secret.jsonl"
    secret.write_bytes(b"secret\n")
    (home / ".pi/agent/sessions/--w--/link.jsonl").symlink_to(secret)
    os.mkfifo(home / ".pi/agent/sessions/--w--/pipe.jsonl")
    told = ck.keep(tmp_path / "kept", home, tools="pi")
    assert [Path(p).name for p in told["path"]] == ["s.jsonl"]
    assert not any(
        b"secret" in p.read_bytes() for p in (tmp_path / "kept").rglob("*") if p.is_file()
    )


def test_a_file_beyond_the_largest_size_is_not_kept(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = home / ".pi/agent/sessions/--w--/s.jsonl"
    monkeypatch.setattr(archive_and_search, "_MAX_FILE_BYTES", file.stat().st_size - 1)
    row = ck.keep(tmp_path / "kept", home, tools="pi").iloc[0]
    assert row["what"] == "failed"
    assert row["why"] == f"{file}: not kept: no plain file, or larger than 16 GB."
    monkeypatch.setattr(archive_and_search, "_MAX_FILE_BYTES", file.stat().st_size)
    assert ck.keep(tmp_path / "kept", home, tools="pi")["what"].tolist() == ["new"]


def test_a_database_that_cannot_be_read_is_named(home: Path, tmp_path: Path):
    file = home / ".local/share/opencode/opencode.db"
    file.write_bytes(file.read_bytes()[:1500])
    row = ck.keep(tmp_path / "kept", home, tools="opencode").iloc[0]
    assert row["what"] == "failed"
    assert "is torn" in row["why"]


def test_a_database_that_grew_is_kept_anew_by_session(home: Path, tmp_path: Path):
    ck.keep(tmp_path / "kept", home, tools="opencode")
    db = sqlite3.connect(home / ".local/share/opencode/opencode.db")
    said = json.dumps({"role": "user", "time": {"created": 1_772_359_300_000}})
    db.execute("INSERT INTO message VALUES ('msg_x', 'ses_golden', 1772359300000, 1, ?)", (said,))
    db.commit()
    db.close()
    assert ck.keep(tmp_path / "kept", home, tools="opencode")["what"].tolist() == ["changed"]
    (session,) = ck.read_all(tmp_path / "kept", progress=False)
    assert session.messages[-1].id == "msg_x"
    (copy,) = (tmp_path / "kept").rglob("*.jsonl")
    assert len(copy.stem) == 16  # of a hash


def test_a_session_that_a_database_no_longer_has_stays_and_the_others_are_there_once(
    home: Path, tmp_path: Path
):
    db = sqlite3.connect(home / ".local/share/opencode/opencode.db")
    db.execute("INSERT INTO session SELECT 'ses_first', project_id, parent_id, slug, directory, "
               "title, version, revert, agent, model, 1, 1 FROM session")  # fmt: skip
    db.commit()
    ck.keep(tmp_path / "kept", home, tools="opencode")
    db.execute("DELETE FROM session WHERE id = 'ses_first'")
    db.commit()
    db.close()
    assert ck.keep(tmp_path / "kept", home, tools="opencode")["what"].tolist() == ["same"]
    found = [s.id for s in ck.read_all(tmp_path / "kept", progress=False)]
    assert sorted(found) == ["ses_first", "ses_golden"]
    assert not list((tmp_path / "kept").rglob("*.part*"))


def test_mistakes_are_told_in_a_sentence(home: Path, tmp_path: Path):
    with pytest.raises(BadArguments, match="among the sessions"):
        ck.keep(home / ".claude/projects/kept", home)
    with pytest.raises(BadArguments, match="No tool is called 'cursor'"):
        ck.keep(tmp_path / "kept", home, tools="cursor")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadArguments, match="found a file"):
        ck.keep(tmp_path / "file", home)
    with pytest.raises(BadArguments, match="as a path"):
        ck.keep(3, home)


def test_two_at_once_do_not_mix(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive_and_search, "LOCK_TIMEOUT_SECONDS", 0.1)
    with (
        archive_and_search.LogCopyArchiveWriter(tmp_path / "kept"),
        pytest.raises(CtxkitError, match="Another keep"),
    ):
        ck.keep(tmp_path / "kept", home)


def test_an_archive_that_cannot_be_written_is_named_in_300_characters(tmp_path: Path):
    (tmp_path / "f").write_text("")
    folder = tmp_path / "f" / ("n" * 200) / ("m" * 200)
    with pytest.raises(CtxkitError) as raised:
        ck.keep(folder, tmp_path)
    assert str(raised.value).startswith(f"The archive could not be written: {tmp_path}")
    assert len(str(raised.value)) == len("The archive could not be written: ") + 300 + len(".")


def test_why_a_file_was_not_copied_is_said_in_300_characters(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for error, why in (
        (CtxkitError("w" * 400), "w" * 299 + "…"),
        (CtxkitError(""), "CtxkitError"),
        (PermissionError(13, "No", "a.jsonl"), "a.jsonl: No"),
    ):

        def refuse(*_, error=error):
            raise error

        monkeypatch.setattr(archive_and_search.LogCopyArchiveWriter, "copy_original", refuse)
        (row,) = ck.keep(tmp_path / "kept", home, tools="pi").to_dict("records")
        assert (row["what"], row["why"]) == ("failed", why)


# -- names that are no UTF-8, and links ---------------------------------------------------------------------------------


def test_files_whose_names_are_no_utf8_are_kept_like_others(home: Path, tmp_path: Path):
    data = (GOLDEN / "pi.jsonl").read_bytes()
    names = (
        b"--w--/caf\xe9.jsonl",
        b"--w--/caf\xe8.jsonl",
        b"--\xff--/s.jsonl",
        "--w--/café.jsonl".encode(),
    )
    odd = [home / ".pi/agent/sessions" / os.fsdecode(name) for name in names]
    for n, file in enumerate(odd):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data + b"\n" * n)
    told = ck.keep(tmp_path / "kept", home)
    assert set(told["what"]) == {"new"}
    assert told.query("tool == 'pi'")["kept"].nunique() == 5
    kept = list((tmp_path / "kept/pi").rglob("*.jsonl"))
    assert all(str(p).isprintable() for p in kept)  # no half characters
    said = {pa.CompressedInputStream(p.open("rb"), "zstd").read() for p in kept}
    assert said == {data + b"\n" * n for n in range(4)}
    assert set(ck.keep(tmp_path / "kept", home)["what"]) == {"same"}
    assert len(ck.read_all(tmp_path / "kept", progress=False)) == len(PLACES) + 2 + 4
    odd[0].write_bytes(data[:-9])
    assert ck.keep(tmp_path / "kept", home)["what"].tolist().count("changed") == 1


def to_folder(place: Path, outside: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        shutil.rmtree(place)
    place.symlink_to(outside, target_is_directory=True)


def to_file(place: Path, outside: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(outside / "file")


def hard(place: Path, outside: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.link(outside / "file", place)


COPY = "pi/agent-sessions/--w--/s.jsonl"
LINKED = {
    "tool": ("pi", to_folder), "place": ("pi/agent-sessions", to_folder), "folder": (str(Path(COPY).parent), to_folder),
    "copy": (COPY, to_file), "hard copy": (COPY, hard), "part": (f"{COPY}.part", to_file),
    "hard part": (f"{COPY}.part", hard), "name": (f"{COPY}.part2", to_file), "index": (archive_and_search.INDEX_NAME, to_file),
    "hard index": (archive_and_search.INDEX_NAME, hard), "lock": (".lock", to_file), "hard lock": (".lock", hard),
    "database": ("opencode/opencode/opencode.db", to_folder),
}  # fmt: skip
"""Where in an archive a link may stand, and how it is made."""


@pytest.mark.parametrize("grown", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("where", LINKED)
def test_nothing_is_written_outside_the_archive(
    home: Path, tmp_path: Path, where: str, *, first: bool, grown: bool
):
    outside, kept, (place, link) = tmp_path / "outside", tmp_path / "kept", LINKED[where]
    outside.mkdir()
    (outside / "file").write_bytes(b"\nnot yours\n")
    if not first:
        ck.keep(kept, home)
        data = (home / PLACES["pi.jsonl"]).read_bytes()
        more = b'{"type":"custom","id":"0000000a","parentId":"00000009"}\n'
        (home / PLACES["pi.jsonl"]).write_bytes(data + more if grown else data[:-9])
    link(kept / place, outside)
    before = snapshot(outside)
    if link is to_file and place in (archive_and_search.INDEX_NAME, ".lock"):
        with pytest.raises(CtxkitError, match="links are not followed"):
            ck.keep(kept, home)
        assert snapshot(outside) == before
        return
    told = ck.keep(kept, home)
    assert snapshot(outside) == before
    assert len(told) == len(ck.keep(tmp_path / "other", home))
    failed = told[told["what"] == "failed"]
    linked = link is to_folder or place == archive_and_search.INDEX_NAME
    assert bool(len(failed)) == linked
    assert all("links" in why for why in failed["why"])


# -- words across all -------------------------------------------------------------------------------------------------


def test_words_are_found_across_all_tools(home: Path, tmp_path: Path):
    ck.keep(tmp_path / "kept", home)
    frame = ck.find(tmp_path / "kept", "THERE IS NO log.txt")
    assert {c: str(t) for c, t in frame.dtypes.items()} == FIND_COLUMNS
    assert set(frame["format"]) == {
        "claude-code",
        "codex",
        "gemini-cli",
        "pi",
        "copilot-cli",
        "aider",
        "cline",
        "opencode",
    }
    assert set(frame["role"]) == {"assistant"}
    assert all("there is no log.txt" in t for t in frame["text"])
    first = frame.iloc[0]
    assert "there is no" in ck.read(first["path"]).path[first["position"]].text


def test_sessions_that_were_read_are_searched_too():
    session = ck.read(ck.samples.path("chat"))
    hits = ck.find(ck.samples.path("chat"), "the")
    assert len(hits) > 0
    for of in (session, [session]):
        assert ck.find(of, "the")["text"].tolist() == hits["text"].tolist()
    with pytest.raises(BadArguments):
        ck.find(5, "the")


def test_subagents_of_subagents_are_searched_too(tmp_path: Path):
    leaf = session(user("a needle"), id="leaf")
    told = session(user("go"), id="top", children=(session(id="mid", children=(leaf,)),))
    ck.write(told, tmp_path / "top.jsonl")
    assert ck.find(tmp_path, "needle")["session"].tolist() == ["leaf"]


def test_a_hit_has_200_characters_of_its_sessions_id_and_400_of_its_text():
    long = session(user(f"a {'w' * 450} b"), id="i" * 250)
    (hit,) = ck.find([long], "w" * 450).to_dict("records")
    assert (len(hit["session"]), len(hit["text"])) == (200, 400)


def test_arguments_of_calls_are_searched_and_rows_are_bounded(home: Path, tmp_path: Path):
    ck.keep(tmp_path / "kept", home, tools="pi")
    assert ck.find(tmp_path / "kept", '"path":"notes.txt"')["role"].tolist() == ["assistant"]
    some = ck.find(tmp_path / "kept", "t", most=2)
    assert (len(some), some.attrs["truncated"]) == (2, True)
    hits = ck.find(tmp_path / "kept", "t")
    exactly = ck.find(tmp_path / "kept", "t", most=len(hits))
    assert (len(exactly), exactly.attrs["truncated"]) == (len(hits), False)
    assert ck.find(tmp_path / "kept", "nowhere to be found").empty
    with pytest.raises(BadArguments, match="words to look for"):
        ck.find(tmp_path / "kept", " ")
    with pytest.raises(ck.ReadError, match="no such"):
        ck.find(tmp_path / "nowhere", "x")


def test_a_folder_that_is_not_there_is_said_with_its_path(tmp_path):
    with pytest.raises(ck.ReadError) as raised:
        ck.find(tmp_path / "nowhere", "x")
    assert (raised.value.why, raised.value.path) == (
        "there is no such folder.",
        str(tmp_path / "nowhere"),
    )
