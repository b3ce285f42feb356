"""Writing snapshot logs: byte for byte, a line at a time, and there and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snapshot_logs import MARKER, ROW

import ctxkit as ck
from ctxkit.errors import BadArguments, StoreError
from ctxkit.formats import write_snapshots
from ctxkit.formats.snapshots.token_log_writer import encode_snapshot, format_dotnet_time


def writer(path, **more):
    return ck.snapshots.SnapshotWriter(
        path, "77d6be00", now=lambda: datetime(2026, 9, 19, tzinfo=UTC), **more
    )


def test_lines_are_byte_exact(tmp_path):
    with writer(tmp_path / "a" / "b.jsonl", warn_at=60000, cutover_at=100000) as w:
        w.turn("developer", 2, 54960, 9)
        w.turn("Developer", 3, 41250, 1830, "2026-09-19T00:26:34.0091413Z")
        w.marker(4, pd.Timestamp("2026-09-19T00:26:35.117002Z"))
    assert (tmp_path / "a" / "b.jsonl").read_text().splitlines()[1:] == [ROW, MARKER]


def test_there_and_back_is_the_same_file(tmp_path):
    content = (
        ROW
        + "\n"
        + MARKER
        + "\n"
        + ROW.replace(',"warn_at":60000', "").replace("Developer", "D\\u00E9v")
        + "\n"
    )
    (tmp_path / "a.jsonl").write_text(content)
    write_snapshots(ck.read_snapshots(tmp_path / "a.jsonl", cache=False), tmp_path / "b.jsonl")
    assert (tmp_path / "b.jsonl").read_text() == content


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a+b", r"a\u002Bb"),
        ("<&>'\"`", r"\u003C\u0026\u003E\u0027\u0022\u0060"),
        ("é→", r"\u00E9\u2192"),
        ("😀", r"\uD83D\uDE00"),
        ("\\ / \t\n\x01\x7f", r"\\ / \t\n\u0001\u007F"),
        ("\ud800", r"\uFFFD"),
    ],
)
def test_text_is_escaped_as_dotnet_does(text, written):
    out = encode_snapshot({**json.loads(ROW), "agent": text})
    assert f'"agent":"{written}"' in out


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_comes_back(name):
    assert json.loads(encode_snapshot({**json.loads(ROW), "agent": name}))["agent"] == name


def test_times_are_utc_with_seven_digits():
    assert (
        format_dotnet_time(
            datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
        )
        == "2026-01-02T01:04:05.6789010+00:00"
    )
    assert format_dotnet_time("2026-01-02T03:04:05.1234567") == "2026-01-02T03:04:05.1234567+00:00"


def test_fields_are_checked():
    for record in ({**json.loads(ROW), "modle": 1}, {"agent": "x"}):
        with pytest.raises(BadArguments):
            encode_snapshot(record)
    assert "compaction" not in encode_snapshot({**json.loads(ROW), "compaction_occurred": False})


def test_each_line_is_there_at_once_and_turns_without_usage_are_not(tmp_path):
    w = writer(tmp_path / "a.jsonl")
    w.turn(None, 0, 5, 1)
    assert json.loads((tmp_path / "a.jsonl").read_text())["agent"] == "Unknown"
    w.turn("Dev", 1, 0, 0)
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 1
    w.close()


def test_a_torn_line_is_ended_before_new_ones(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(ROW + "\n" + ROW[:50])
    with writer(path) as w:
        w.turn("Dev", 4, 10, 1)
    df = ck.read_snapshots(path, cache=False)
    assert df["agent"].to_list() == ["Developer", "Dev"]
    assert [f.line for f in df.attrs["faults"]] == [2]


def test_what_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        writer(tmp_path / "file" / "a.jsonl")
    with pytest.raises(BadArguments):
        write_snapshots(pd.DataFrame({"agent": ["x"]}), tmp_path / "a.jsonl")


@pytest.mark.parametrize("other", ["[1]", "nothing", "[" * 100_000])
def test_lines_of_another_kind_are_taken_back_when_the_log_is_brought_to_its_turns(tmp_path, other):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{other}\n")
    row = {"agent": "Developer", "turn": 1, "turn_input_tokens": 10, "turn_output_tokens": 2}
    row |= {"cumulative_input_tokens": 10, "ts": None, "compaction_occurred": False}
    with writer(path) as w:
        w.replace_turns(pd.DataFrame([{**row, "warn_at": None, "cutover_at": None}]))
    (found,) = path.read_text().splitlines()
    assert json.loads(found)["turn_input_tokens"] == 10


def test_a_log_that_cannot_be_brought_to_its_turns_stays_as_it_was(tmp_path):
    """The disk is full once: what was taken back stands again."""
    row = {"agent": "Developer", "turn_input_tokens": 10, "turn_output_tokens": 2, "ts": None}
    row |= {"compaction_occurred": False, "warn_at": None, "cutover_at": None}
    row["ts"] = pd.Timestamp("2026-01-01", tz="UTC")
    first, second = [{**row, "turn": n, "cumulative_input_tokens": 10 * n} for n in (1, 2)]
    with writer(tmp_path / "a.jsonl") as w:
        w.replace_turns(pd.DataFrame([first, second]))
        before = (tmp_path / "a.jsonl").read_bytes()
        w._file = Full(w._file)
        with pytest.raises(OSError, match="full"):
            w.replace_turns(pd.DataFrame([first, {**second, "turn_input_tokens": 11}]))
        assert (tmp_path / "a.jsonl").read_bytes() == before
        w.replace_turns(pd.DataFrame([first]))
    assert (tmp_path / "a.jsonl").read_bytes() == before.splitlines(keepends=True)[0]


class Full:
    """A file on a disk that is full at the first write."""

    def __init__(self, file):
        self._file, self._writes = file, 0

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        self._writes += 1
        if self._writes == 1:
            raise OSError(28, "the disk is full")
        return self._file.write(data)
