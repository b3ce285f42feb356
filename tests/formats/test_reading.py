"""Finding the reader, folders, globs, what fails and why."""

from __future__ import annotations

import gc
import sys
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest
from builders import session, user
from source_builders import document, source

import ctxkit as ck
from ctxkit.errors import BadArguments, ReadError, UnknownFormat
from ctxkit.formats import Source, get_reader, read_source, reading
from ctxkit.formats import registry as room

if TYPE_CHECKING:
    from pathlib import Path

PI = source(
    {"type": "session", "version": 3, "id": "s"}, {"role": "user", "content": "hi", "timestamp": 1}
).data
CHATS = source(
    {"messages": [{"role": "user", "content": "a"}]},
    {"messages": [{"role": "user", "content": "b"}]},
).data


def put(folder: Path, name: str, data: bytes = PI) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    assert ck.read(put(tmp_path, "anything.txt")).format == "pi"


def test_a_session_says_where_it_came_from(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl")
    assert ck.read(str(path)).path_ == str(path)


def test_several_sessions_in_a_file_are_named_and_counted(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"found 2 sessions: ctxkit\.read_all"):
        ck.read(put(tmp_path, "a.jsonl", CHATS))
    assert len(ck.read_all(tmp_path / "a.jsonl")) == 2


@pytest.mark.parametrize("format", reading.format_names())
def test_a_forced_format_does_not_invent_a_session(format: str, tmp_path: Path) -> None:
    path = put(
        tmp_path, "a.json", b'{"name": "x", "version": "1.0.0", "dependencies": {"left-pad": "1"}}'
    )
    with pytest.raises(ReadError):
        ck.read(path, format=format)


def test_a_folder_that_holds_one_session_reads_as_one(tmp_path: Path) -> None:
    put(tmp_path, "deep/er/a.jsonl")
    assert ck.read(tmp_path).id == "s"


@pytest.mark.parametrize(
    ("format", "said"), [("gemnii", "Did you mean 'gemini"), ("clade-code", "'claude-code'")]
)
def test_an_unknown_format_asks_what_was_meant(format: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match=said):
        ck.read(tmp_path, format=format)
    with pytest.raises(UnknownFormat, match=said):
        ck.read_all(tmp_path, format=format)


def test_formats_have_other_names_too() -> None:
    assert reading.get_reader("Claude_Code").NAME == "claude-code"
    assert reading.get_reader("openai-messages").NAME == "openai"
    assert len(set(reading.format_names())) == len(reading.format_names())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"  \n", "the file is empty"),
        (b"\x7fELF\0\0", "binary"),
        (b"some words", "text, not JSON"),
        (b'{"a": 1}', "a JSON object with 'a'"),
        (b"[1, 2]", "a JSON list"),
        (b'{"a": 1}\n{"a": 2}', "lines of JSON objects with 'a'"),
    ],
)
def test_what_is_no_session_says_what_it_looks_like(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat, match=said):
        ck.read(put(tmp_path, "x.jsonl", data))


def test_missing_forbidden_and_strange_places_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="no such file"):
        ck.read(tmp_path / "none.jsonl")
    with pytest.raises(ReadError, match="null characters"):
        ck.read("a\0b")
    with pytest.raises(BadArguments, match="expected a path"):
        ck.read(7)  # type: ignore[arg-type]
    with pytest.raises(ReadError, match="holds no session"):
        ck.read(tmp_path)
    with pytest.raises(ReadError, match="an empty text"):
        ck.read(" ")


def test_an_error_names_the_file_before_the_reason(tmp_path: Path) -> None:
    two = tmp_path / "two"
    two.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        ck.write(ck.read([{"role": "user", "content": name}]), two / name)
    empty = tmp_path / "empty"
    empty.mkdir()
    chat = put(tmp_path, "chat.json", b'[{"role": "user", "content": "a"}]')
    for path, format_name, reason in (
        (tmp_path / "none.jsonl", None, "there is no such file"),
        (empty, None, "the folder holds no session"),
        (two, None, "expected one session, found 2"),
        (chat, "swe-agent", "expected a swe-agent session, found "),
    ):
        with pytest.raises(ReadError) as caught:
            ck.read(path, format=format_name)
        assert caught.value.path == str(path)
        assert str(caught.value).startswith(f"{path}: {reason}")
        assert str(path) not in caught.value.why


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"messages": [{"ro', "JSON that is cut short"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{}", "an empty JSON object"),
        (b"PK\3\4 and no more", "an archive of several files"),
        (b"\1\0\2", "binary"),
        (b"42", "text, not JSON objects"),
    ],
)
def test_a_file_that_nobody_knows_is_described(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(UnknownFormat, match=said):
        ck.read(put(tmp_path, "x.json", data))


def test_a_folder_gives_what_it_can_and_says_what_failed(tmp_path: Path) -> None:
    put(tmp_path, "a/1.jsonl")
    put(tmp_path, "b/2.jsonl")
    put(tmp_path, "b/broken.jsonl", b'{"no": "session"}')
    put(tmp_path, "README.md", b"# Words")
    put(tmp_path, "picture.png", b"\x89PNG\0\0")
    put(tmp_path, "node_modules/x.jsonl")
    out = ck.read_all(tmp_path)
    assert [s.path_[-9:] for s in out] == ["a/1.jsonl", "b/2.jsonl"]
    assert out.failed.columns.tolist() == ["file", "line", "why"]
    assert out.failed["file"].tolist() == [str(tmp_path / "b" / "broken.jsonl")]
    assert out.passed_over == [str(tmp_path / "README.md")]
    assert repr(out) == "<2 sessions, 1 failed: see .failed>"


def test_a_file_that_the_user_names_must_be_a_session(tmp_path: Path) -> None:
    out = ck.read_all([put(tmp_path, "README.md", b"# Words"), put(tmp_path, "a.jsonl")])
    assert (len(out), len(out.failures)) == (1, 1)


def test_globs_and_lists_do_not_read_a_file_twice(tmp_path: Path) -> None:
    put(tmp_path, "a/1.jsonl")
    put(tmp_path, "a/2.jsonl")
    assert len(ck.read_all(str(tmp_path / "**" / "*.jsonl"))) == 2
    assert len(ck.read_all([tmp_path, tmp_path / "a", str(tmp_path / "a" / "*.jsonl")])) == 2
    assert ck.read_all(str(tmp_path / "*.none")).failures[0][2] == "no file matches."


def test_links_do_not_lead_in_circles(tmp_path: Path) -> None:
    put(tmp_path, "a/1.jsonl")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "none.jsonl").symlink_to(tmp_path / "nowhere")
    out = ck.read_all(tmp_path)
    assert len(out) == 1
    assert [why for _, _, why in out.failures] == ["there is no such file."]


def test_a_reader_of_another_package_is_asked_and_a_broken_one_is_named(
    monkeypatch: Any, tmp_path: Path
) -> None:
    reader = type(sys)("their_reader")
    reader.NAME, reader.sniff = "theirs", lambda s: s.data == b"theirs"
    reader.read = lambda s: [session(user("hello"))]
    monkeypatch.setitem(sys.modules, "their_reader", reader)
    points = [
        EntryPoint("theirs", "their_reader", room.ENTRY_POINT_GROUP),
        EntryPoint("bad", "no_such", room.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    room._load_foreign_readers.cache_clear()
    try:
        with pytest.warns(
            UserWarning, match="The reader 'bad' could not be loaded: ModuleNotFoundError"
        ):
            assert ck.read(put(tmp_path, "x", b"theirs")).messages[0].text == "hello"
    finally:
        room._load_foreign_readers.cache_clear()


def made_reader(name: str, word: str) -> Any:
    reader = type(sys)("made_reader")
    reader.NAME, reader.sniff = name, lambda s: s.data.startswith(b"mine")
    reader.read = lambda s: [session(user(word))]
    return reader


def test_a_reader_of_ones_own_is_asked_first_and_may_be_registered_again(
    monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(room, "_USER_READERS", {})
    path = put(tmp_path, "x", b"mine: {}")
    with pytest.raises(UnknownFormat):
        ck.read(path)
    for word in ("first form", "second form"):
        ck.formats.register(made_reader("mine", word))
        assert ck.read(path).messages[0].text == word
        assert ck.read(path, format="mine").messages[0].text == word
    assert ck.formats.format_names().count("mine") == 1


def test_the_collector_waits_while_a_log_is_read(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(room, "_USER_READERS", {})
    reader, waits = made_reader("mine", "hello"), list[bool]()
    read = reader.read
    reader.read = lambda s: [waits.append(not gc.isenabled()), *read(s)][1:]
    ck.formats.register(reader)
    path = put(tmp_path, "x", b"mine: {}")
    ck.read(path)
    ck.read_all(path)
    assert waits == [True, True]
    assert gc.isenabled()


def test_what_is_no_reader_or_bears_a_taken_name_is_not_registered(monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "_USER_READERS", {})
    with pytest.raises(BadArguments, match="NAME"):
        ck.formats.register(object())
    with pytest.raises(BadArguments, match="'pi' is there already"):
        ck.formats.register(made_reader("pi", "no"))
    assert "mine" not in ck.formats.format_names()


def test_a_reader_that_breaks_gives_a_read_error(monkeypatch: Any) -> None:
    class Broken:
        NAME = "broken"

        def sniff(self, source: Any) -> bool:
            raise KeyError

        def read(self, source: Any) -> Any:
            return {}["x"]

    monkeypatch.setattr(room, "iter_readers", lambda: iter([Broken()]))
    with pytest.raises(UnknownFormat):
        reading.detect_reader(document({}))
    with pytest.raises(ReadError, match=r"damaged broken session: .*KeyError"):
        reading.read_source(document({}), Broken())


def test_reading_loads_no_frame_library() -> None:
    import subprocess

    code = "import sys, ctxkit as ck; ck.read_all('/nowhere'); print([m for m in ('pandas', 'IPython') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_a_file_of_two_sessions_is_refused_with_its_path(tmp_path: Path) -> None:
    event = '{"ts":"2026-01-01T00:00:00Z","session":"%s","event_type":"user_input","payload":{}}\n'
    (path := tmp_path / "events.jsonl").write_text(event % "a" + event % "b")
    with pytest.raises(ReadError) as raised:
        ck.read(path, format="fuseraft-events")
    assert raised.value.path == str(path)
    assert raised.value.why == (
        "expected one session, found 2 sessions: ctxkit.read_all reads them all."
    )


def test_the_error_of_a_reader_is_named_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    error = LookupError("a secret of the file")

    def fail(_: Source) -> None:
        raise error

    reader = get_reader("hermes")
    monkeypatch.setattr(reader, "read", fail)
    with pytest.raises(ReadError) as raised:
        read_source(Source("x.json", b"{}"), reader)
    assert raised.value.why == "damaged hermes session: a record could not be read (LookupError)."
    assert (raised.value.path, raised.value.__cause__) == ("x.json", error)
