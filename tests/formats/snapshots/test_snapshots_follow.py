"""Following logs while another process writes them; two processes on one cache."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from snapshot_logs import MARKER, ROW, records, text

import ctxkit as ck
from ctxkit.errors import BadArguments

WRITER = """
import sys, time
path, rows = sys.argv[1], open(sys.argv[2]).read()
with open(path, "a", buffering=1) as f:
    for i in range(0, len(rows), 997):  # pieces that end anywhere
        f.write(rows[i : i + 997]); f.flush(); time.sleep(0.01)
"""
READER = """
import sys, ctxkit as ck
print(len(ck.read_snapshots(sys.argv[1])))
"""


def test_every_row_of_a_writing_process_comes_once(tmp_path):
    (tmp_path / "rows").write_text(text(records(150)))
    path = tmp_path / "ctx_snapshots_1.jsonl"
    with subprocess.Popen([sys.executable, "-c", WRITER, path, tmp_path / "rows"]) as process:
        follower = ck.snapshots.follow(path, poll=0.02)
        turns = []
        for new in follower:
            turns += new["turn"].to_list()
            if len(turns) == 150:
                follower.stop()
        assert process.wait(60) == 0
    assert turns == list(range(150))
    assert len(follower.new()) == 0


def test_it_ends_when_nothing_comes_or_when_told(tmp_path):
    assert list(ck.snapshots.follow(tmp_path / "not-there.jsonl", poll=0.01, idle=0.02)) == []
    follower = ck.snapshots.follow(tmp_path, poll=10)
    threading.Timer(0.05, follower.stop).start()
    assert list(follower) == []


def test_new_files_torn_lines_and_replaced_logs(tmp_path):
    follower = ck.snapshots.follow(tmp_path)
    assert len(follower.new()) == 0
    path = tmp_path / "ctx_snapshots_1.jsonl"
    path.write_text(ROW + "\n" + MARKER[:40])
    assert follower.new()["agent"].to_list() == ["Developer"]
    with path.open("a") as f:
        f.write(MARKER[40:] + "\nboom\n")
    new = follower.new()
    assert new["agent"].to_list() == ["system"]
    assert [f.line for f in new.attrs["faults"]] == [3]
    path.write_text(MARKER + "\n")
    assert follower.new()["agent"].to_list() == ["system"]
    assert len(follower.new()) == 0


def test_from_the_end(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(ROW + "\n")
    follower = ck.snapshots.follow(path, from_end=True)
    with path.open("a") as f:
        f.write(MARKER + "\n")
    assert follower.new()["agent"].to_list() == ["system"]
    with pytest.raises(BadArguments):
        ck.snapshots.follow(path, poll=0)


def test_processes_share_one_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "a.jsonl"
    path.write_text(text(records(3000)))
    many = [
        subprocess.Popen([sys.executable, "-c", READER, path], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [int(p.communicate(timeout=60)[0]) for p in many] == [3000] * 2
    pd.testing.assert_frame_equal(ck.read_snapshots(path), ck.read_snapshots(path, cache=False))


def test_threads_share_one_cache_of_a_growing_log(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "a.jsonl"
    lines = text(records(2000)).splitlines(keepends=True)
    path.write_text("")

    def read(_):
        df = ck.read_snapshots(path)
        return df["turn"].to_list() == list(range(len(df)))

    with ThreadPoolExecutor(4) as pool:
        for start in range(0, 2000, 250):
            with path.open("a") as f:
                f.writelines(lines[start : start + 250])
            assert all(pool.map(read, range(6)))
    assert len(ck.read_snapshots(path)) == 2000
