"""Bytes as they come: marks, encodings, halves of characters, depth, size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from ctxkit.errors import ReadError
from ctxkit.formats import Source, log_file_content

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("data", [b'\xef\xbb\xbf{"a": "\xc3\xa4"}', '{"a": "ä"}'.encode("utf-16")])
def test_marks_at_the_beginning_are_understood(data: bytes) -> None:
    assert Source("x", data).document == {"a": "ä"}


def test_half_a_character_and_bytes_that_are_no_utf8_cost_only_themselves() -> None:
    found = Source("x", b'{"a": "\\ud83d!"}\n{"a": "\xff!"}\n{"a": NaN}\n{"a": "\\ud83d\\ude00"}')
    assert [r["a"] for _, r in found.records] == ["\ufffd!", "\ufffd!", None, "😀"]
    assert [(f.line, f.why[:9]) for f in found.faults] == [(2, "not UTF-8")]
    assert [f.line for f in Source("x", b'{"a": "\xff!"}').faults] == [1]


def test_lines_that_are_no_objects_are_counted() -> None:
    found = Source("x", b'{"a": 1}\n// words\n\n[1]\n{"a": \n' + b"[" * 100_000)
    assert [line for line, _ in found.records] == [1]
    assert [(f.line, f.why[:16]) for f in found.faults] == [
        (2, "a comment, not J"),
        (4, "expected a JSON "),
        (5, "not JSON: Input "),
        (6, "nested too deepl"),
    ]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b'{"a": 1}\n{"a": 2}', [1, 2]),
        (b'{"a": 1}\n\n \r\n{"a": 2}\n', [1, 4]),
        (b'\n{"a": 1}\n{"a": 2}\n', [2, 3]),
        (b'{"a": 1}{"a": 2}\n{"a": 3}\n', [2]),
        (b'{"a":\n 1}\n{"a": 2}\n', [3]),
    ],
)
def test_records_bear_the_number_of_their_line(
    data: bytes, lines: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file_content, "LARGE_FILE_BYTES", 0)
    (tmp_path / "log.jsonl").write_bytes(data)
    found = Source("x", data)
    decoded, _ = found.decode_records(msgspec.json.Decoder(dict))
    streamed = list(Source(tmp_path / "log.jsonl").stream())
    for records in (found.records, decoded, streamed):
        assert [line for line, _ in records] == lines


def test_a_document_is_its_own_only_record() -> None:
    found = Source("x", b'{\n "a": {\n  "b": 1\n }\n}\n')
    assert found.records == [(1, {"a": {"b": 1}})]
    assert found.head[0] is found.document


def test_lines_are_no_document() -> None:
    assert Source("x", b'{"a": 1}\n{"a": 2}').document is None


def test_what_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file_content, "MAX_FILE_BYTES", 10)
    (tmp_path / "x").write_bytes(b"x" * 11)
    for path, why in (
        (tmp_path / "x", "the file has 11 bytes; at most 10 are read."),
        (tmp_path, "expected a file, found a folder or device; ctxkit.read_all takes folders."),
        (tmp_path / "gone", "there is no such file."),
    ):
        with pytest.raises(ReadError) as raised:
            Source(path).data  # noqa: B018
        assert (raised.value.why, raised.value.path) == (why, str(path))


def test_the_first_bytes_of_a_large_file_say_whether_it_is_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database may be larger than what is read whole, and a file below that limit is read whole."""
    monkeypatch.setattr(log_file_content, "_SMALL_FILE_BYTES", 20)
    (tmp_path / "x").write_bytes(b"SQLite format 3\0" + b"x" * 30)
    assert len(Source(tmp_path / "x").data) == 46
    monkeypatch.setattr(log_file_content, "MAX_FILE_BYTES", 46)
    assert len(Source(tmp_path / "x").data) == 46
    monkeypatch.setattr(log_file_content, "MAX_FILE_BYTES", 45)
    assert Source(tmp_path / "x").is_database


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (PermissionError(13, "no"), "the file may not be read: check its permissions."),
        (OSError(5, "Input/output error"), "the file could not be opened (Input/output error)."),
        (ValueError("null byte"), "the file could not be opened (ValueError)."),
    ],
)
def test_a_file_that_cannot_be_opened_is_named_with_the_reason(
    error: Exception, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(tmp_path), "open", fail)
    (path := tmp_path / "x").touch()
    with pytest.raises(ReadError) as raised:
        Source(path).data  # noqa: B018
    assert (raised.value.why, raised.value.path) == (why, str(path))
