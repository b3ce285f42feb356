"""Packed logs: zstd, gzip, a zip with one log inside; whole, cut, damaged, and bombs; large ones in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import random
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from log_damage import cut, flip

import ctxkit as ck
from ctxkit.errors import ReadError
from ctxkit.formats import Source, log_file_content, read_source

GOLDEN = Path(__file__).parent / "golden" / "codex.jsonl"


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


PACKED = {
    "zstd": zstd,
    "gzip": gzip.compress,
    "zip": lambda data: zipped({"rollout.jsonl": data}),
    "zip from a Mac": lambda data: zipped({"a/rollout.jsonl": data, "__MACOSX/a/._x": b"junk"}),
}


@pytest.mark.parametrize("how", PACKED)
def test_a_packed_rollout_reads_as_the_plain_one(how: str, tmp_path: Path):
    file = tmp_path / "rollout-2026-05-02T10-11-12-x.jsonl.zst"
    file.write_bytes(PACKED[how](GOLDEN.read_bytes()))
    assert ck.read(file).log == ck.read(GOLDEN).log
    assert len(ck.read_all(tmp_path, progress=False)) == 1


def test_paths_in_a_zip_are_never_followed(tmp_path: Path):
    (tmp_path / "in").mkdir()
    packed = zipped({"../../outside.jsonl": GOLDEN.read_bytes()})
    (tmp_path / "in" / "log.zip").write_bytes(packed)
    assert ck.read(tmp_path / "in" / "log.zip").calls
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["in", "log.zip"]


def test_several_logs_in_a_zip_are_not_taken_for_lines(tmp_path: Path):
    """not even where they are in it as they are"""
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "two.zip", "w", how) as archive:
            for name in ("a.jsonl", "b.jsonl"):
                archive.writestr(name, GOLDEN.read_bytes())
        with pytest.raises(ReadError, match=r"archive of several files.*unpack it"):
            ck.read(tmp_path / "two.zip")


@pytest.mark.parametrize("how", PACKED)
def test_a_bomb_is_refused_in_a_sentence(how: str):
    with pytest.raises(ReadError, match="refused as a bomb") as raised:
        read_source(Source("bomb", PACKED[how](b"\n" * 40_000_000)))
    assert str(raised.value.path) == "bomb"


def test_a_log_that_is_still_being_packed_is_read_as_far_as_it_is_whole(tmp_path: Path):
    noise = random.Random(7).randbytes(300_000).hex()
    data = (
        GOLDEN.read_bytes()
        + json.dumps({"type": "event_msg", "payload": {"noise": noise}}).encode()
    )
    session = read_source(Source("x", zstd(data)[:-100_000]))[0]
    assert len(session.calls) == len(ck.read(GOLDEN).calls)
    with pytest.raises(ReadError, match="cut short"):
        read_source(Source("x", zstd(GOLDEN.read_bytes())[:-40]))


def test_the_reason_of_damage_is_shown_as_far_as_80_characters():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:  # stored, so that a changed byte can be read
        archive.writestr("a" * 100, GOLDEN.read_bytes())
    data = out.getvalue().replace(b'"type"', b'"typo"', 1)
    with pytest.raises(ReadError) as e:
        read_source(Source("log.zip", data))
    reason = f"Bad CRC-32 for file '{'a' * 59}"  # 21 characters and 59
    assert str(e.value) == f"log.zip: the zip file is damaged ({reason})."


@pytest.mark.parametrize("how", PACKED)
def test_only_read_errors_come_out_of_damaged_ones(how: str):
    data, r = PACKED[how](GOLDEN.read_bytes()), random.Random(how)
    for _ in range(1_000):
        try:
            read_source(Source("damaged", r.choice((flip, cut))(data, r) or b"{}"))
        except ReadError as e:
            assert e.__cause__ is None, e.__cause__  # noqa: PT017  the cause is told
            assert e.path == "damaged", e  # noqa: PT017


# -- large logs -------------------------------------------------------------------------------------------------------


def rollout(path: Path, compactions: int, image: int) -> None:
    """A log whose bulk is one picture, repeated in the history that each compaction writes again."""
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    meta, talk = lines[0], [x for x in lines[1:] if b'"compacted"' not in x]
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * image}
    asked = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "see"}, picture],
    }
    with path.open("wb") as file:
        file.writelines([meta, *talk])
        file.write(json.dumps({"type": "response_item", "payload": asked}).encode() + b"\n")
        for n in range(compactions):
            said = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": f"summary {n}"}],
            }
            payload = {"message": f"summary {n}", "replacement_history": [asked, said]}
            file.write(json.dumps({"type": "compacted", "payload": payload}).encode() + b"\n")


def test_repeated_histories_are_read_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rollout(tmp_path / "small.jsonl", 60, 500_000)  # 30 MB, of which half a megabyte is said
    whole = ck.read(tmp_path / "small.jsonl")
    monkeypatch.setattr(log_file_content, "LARGE_FILE_BYTES", 1 << 20)
    tracemalloc.start()
    streamed = ck.read(tmp_path / "small.jsonl")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert streamed == whole
    assert len(streamed.edits) == 60
    assert most < 12 << 20
    (tmp_path / "small.jsonl.zst").write_bytes(zstd((tmp_path / "small.jsonl").read_bytes()))
    monkeypatch.setattr(
        log_file_content, "LARGE_FILE_BYTES", 16
    )  # 30 MB of repetitions pack to a few kilobytes
    assert ck.read(tmp_path / "small.jsonl.zst").log == whole.log


def test_a_large_packed_log_is_streamed_and_a_large_bomb_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Beyond the bytes that are read at once a packed log may grow as logs do, and no more."""
    rollout(tmp_path / "x.jsonl", 3, 100_000)
    monkeypatch.setattr(log_file_content, "LARGE_FILE_BYTES", 16)
    monkeypatch.setattr(log_file_content, "MAX_FILE_BYTES", 1 << 16)
    monkeypatch.setattr(log_file_content, "MAX_RATIO", 2)
    with pytest.raises(ReadError, match="grows beyond 65,536 bytes: refused as a bomb") as raised:
        packed(tmp_path / "x.jsonl")
    assert raised.value.path == str(tmp_path / "x.zst")
    monkeypatch.setattr(log_file_content, "MAX_RATIO", 400)
    assert packed(tmp_path / "x.jsonl").log == ck.read(tmp_path / "x.jsonl").log


@pytest.mark.parametrize("how", ["zstd", "gzip"])
def test_lines_of_a_large_packed_log_come_one_by_one(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(log_file_content, "LARGE_FILE_BYTES", 16)
    (tmp_path / "x").write_bytes(PACKED[how](b'{"a": 1}\n{"a": 2}\n\n{"a": 4}'))
    source = Source(tmp_path / "x")
    assert source.is_large
    assert list(source.stream()) == [(1, {"a": 1}), (2, {"a": 2}), (4, {"a": 4})]


def packed(path: Path) -> ck.Session:
    path.with_suffix(".zst").write_bytes(zstd(path.read_bytes()))
    return ck.read(path.with_suffix(".zst"))


MEASURE = """
import sys
import ctxkit as ck
session = ck.read(sys.argv[1])
inserted = sum(len(e.inserted) for e in session.edits)
held = [x.split()[1] for x in open("/proc/self/status") if x.startswith("VmHWM")]
print(len(session.calls), len(session.edits), inserted, int(held[0]) >> 10)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only there the peak of a process is told")
def test_three_hundred_megabytes_take_the_memory_of_what_they_say(tmp_path: Path):
    """A talk of one megabyte that each of 300 compactions writes again, with a summary of its own."""

    def line(kind: str, payload: dict) -> bytes:
        return json.dumps({"type": kind, "payload": payload}).encode() + b"\n"

    def said(role: str, words: str) -> dict:
        part = {"type": "input_text" if role == "user" else "output_text", "text": words}
        return {"type": "message", "role": role, "content": [part]}

    talk = [said("assistant" if n % 2 else "user", f"{n} " + "word " * 1000) for n in range(200)]
    again = json.dumps(talk)[:-1].encode()
    log = tmp_path / "rollout.jsonl"
    with log.open("wb") as file:
        file.write(line("session_meta", {"id": "s", "timestamp": "2026-03-01T10:00:00Z"}))
        file.writelines(line("response_item", each) for each in talk)
        for n in range(300):
            summary = json.dumps(said("user", f"summary {n} " + "of it " * 300)).encode()
            file.write(b'{"type": "compacted", "payload": {"message": "summary %d", ' % n)
            file.write(b'"replacement_history": %b, %b]}}\n' % (again, summary))
            file.write(line("response_item", said("user", f"go on {n}")))
            file.write(line("response_item", said("assistant", f"went on {n}")))
    assert log.stat().st_size > 300_000_000
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(log)], capture_output=True, text=True, check=True
    )
    calls, edits, summaries, peak = map(int, done.stdout.split())
    assert (calls, edits, summaries) == (400, 300, 300)
    assert peak < 72, f"{peak} MB"


def test_faults_of_a_large_log_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "rollout.jsonl"
    file.write_bytes(GOLDEN.read_bytes() + b"// a comment\n[1]\n" + b'{"type": "fu')
    whole = ck.read(file)
    monkeypatch.setattr(log_file_content, "LARGE_FILE_BYTES", 16)
    assert ck.read(file) == whole
    assert len(whole.faults) == 3


def test_a_large_document_of_many_lines_is_no_log_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "talk.json"
    file.write_text(
        json.dumps(
            [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], indent=1
        )
    )
    monkeypatch.setattr(log_file_content, "LARGE_FILE_BYTES", 16)
    assert [m.text for m in ck.read(file).messages] == ["q", "a"]
