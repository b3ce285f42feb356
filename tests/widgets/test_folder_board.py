"""A board: rows, sums, filters, what is kept."""

from __future__ import annotations

import os
import shutil

import msgspec
import pytest
from widgets.reports.hostile_logs import EVIL, intruders

import ctxkit as ck
from ctxkit._internal import FileCache
from ctxkit.widgets import Board, FileBoardRows
from ctxkit.widgets.folder_board_rows import GROUPINGS, make_board_row, make_row_cells

SAMPLE = ck.samples.path("billing")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "logs"
    place.mkdir()
    data = SAMPLE.read_bytes()
    for i in range(3):
        (place / f"{i}.jsonl").write_bytes(data)
    (place / "bad.jsonl").write_text("{")
    return place


def test_rows_say_what_the_frames_say(folder):
    made = ck.board(folder, seconds=None)
    assert (len(made), made.failed_n, made.waiting_n) == (3, 1, 0)
    row = made.rows[0]
    assert row.usd == pytest.approx(ck.score(SAMPLE, loss=False)["cost_usd"])
    assert (row.peak, row.compactions_n, row.project, row.misses_n) == (
        39313,
        2,
        "billing",
        10,
    )  # eight pauses and two compactions
    lines = made.to_text().splitlines()
    assert lines[2].split() == ["#", "session", "day", "calls", "cost", "peak", "compactions"]
    assert lines[3].startswith("0  BILL-4127: the nightly expor…")
    assert lines[-2].split()[:3] == ["project", "sessions", "cost"]
    assert made.open(0).id == row.id


def test_sums_by_every_way_hold_all_rows(folder):
    made = ck.board(folder, seconds=None)
    whole = sum(r.usd for r in made.rows)
    for way in GROUPINGS:
        cells = made.by(way).rows
        assert sum(r[1].value for r in cells) == 3
        assert sum(r[2].value for r in cells) == pytest.approx(whole)
        # each of the three sessions has 2 compactions, 10 misses and 40 failed tools
        assert [c.text for c in cells[0]][3:] == ["39.3k", "6", "30", "0", "120"]
    with pytest.raises(ck.BadArguments, match="Did you mean"):
        made.by("modle")


def test_a_row_has_a_text_and_a_value_to_sort_by_in_each_column():
    row = make_board_row(ck.read(SAMPLE), "logs/a.jsonl")
    cells = make_row_cells(1_234, row)
    assert [c.text for c in cells] == [
        "1,234", "BILL-4127: the nightly export fails", "2026-03-12", "343", "$3.29", "39.3k", "",
        "2", "10", "40", "billing", "sample", "claude-sonnet-4-5",
    ]  # fmt: skip
    assert [c.value for c in cells] == [
        1_234.0, None, row.started, 343.0, row.usd, 39_313.0, None, 2.0, 10.0, 40.0,
        None, None, None,
    ]  # fmt: skip
    assert cells[1].hover == f"id {row.id} · logs/a.jsonl"
    bare = msgspec.structs.replace(
        row, started=None, usd=None, peak=None, spark=(), compactions_n=4, is_thrashing=True,
        misses_n=None, errors_n=None, project=None, model=None,
    )  # fmt: skip
    cells = make_row_cells(0, bare)
    assert [c.text for c in cells][2:] == [
        "–", "343", "–", "–", "", "4 thrashes", "–", "–", "", "sample", "",
    ]  # fmt: skip
    assert [c.value for c in cells][2:10] == [None, 343.0, None, None, None, 4.0, None, None]


def test_sums_leave_out_what_a_session_cannot_say():
    known = make_board_row(ck.read(SAMPLE))
    bare = msgspec.structs.replace(
        known, usd=None, peak=None, compactions_n=None, misses_n=None, is_thrashing=None,
        errors_n=None,
    )  # fmt: skip
    for rows, texts in (
        ([bare, known], ["2", "$3.29", "39.3k", "2", "10", "0", "40"]),
        ([bare, bare], ["2", "–", "–", "–", "–", "–", "–"]),
    ):
        [sums] = Board(rows).by("tool").rows
        assert [c.text for c in sums][1:] == texts
    assert Board([bare, known, bare]).head == "3 sessions, $3.29 (2 without a price)"
    assert Board([bare, bare]).head == "2 sessions"


def test_rows_are_found_by_words_and_columns(folder):
    made = ck.board(folder, seconds=None)
    assert len(made.where("nightly EXPORT")) == 3
    assert len(made.where(project="billing")) == 3
    assert len(made.where("nightly", project="other")) == 0


def test_only_what_changed_is_read_again(folder, cache, monkeypatch):
    ck.board(folder, seconds=None)
    (folder / "1.jsonl").write_bytes(SAMPLE.read_bytes() + b"\n")
    seen = []
    from ctxkit.widgets import folder_board

    real = folder_board.read_board_rows
    monkeypatch.setattr(
        folder_board, "read_board_rows", lambda stamp: seen.append(stamp.path) or real(stamp)
    )
    assert len(ck.board(folder, seconds=None)) == 3
    assert [p.rsplit("/", 1)[-1] for p in seen] == ["1.jsonl"]
    (cache / "board.jsonl").write_bytes(b"broken")
    assert len(ck.board(folder, seconds=None)) == 3
    assert len(seen) == 5  # what is broken is done without


def test_a_look_ends_and_goes_on(folder):
    made = ck.board(folder, seconds=-1.0)
    assert (len(made), made.waiting_n) == (0, 4)
    assert "go_on" in made.head
    assert len(made.go_on()) == 3


def test_a_part_of_a_board_goes_on_with_what_it_asked_for(folder):
    made = ck.board(folder, seconds=-1.0)
    assert len(made.where(project="other").go_on(-1.0).go_on()) == 0
    assert len(made.where("nightly").where(project="billing").go_on()) == 3


def test_what_another_kit_kept_is_read_again(folder, cache, monkeypatch):
    ck.board(folder, seconds=None)
    monkeypatch.setattr("ctxkit.widgets.folder_board.get_version", lambda: "0.0")
    assert ck.board(folder, seconds=-1.0).waiting_n == 4


def test_what_is_kept_is_for_its_user_only(folder, cache):
    ck.board(folder, seconds=None)
    assert (cache / "board.jsonl").stat().st_mode & 0o077 == 0
    assert [p.name for p in cache.iterdir()] == ["board.jsonl"]


def test_a_cache_that_cannot_be_written_is_done_without(folder, tmp_path):
    (tmp_path / "file").write_text("")
    kept = FileCache(tmp_path / "file" / "below" / "x", FileBoardRows, 1, "0")
    kept.put(FileBoardRows(path="a", modified=0.0, size=0, rows=()))
    kept.write()


def test_a_name_that_is_no_text_is_no_hindrance(folder, cache):
    try:
        shutil.copy(SAMPLE, os.fsencode(folder) + b"/x\xff.jsonl")
    except OSError:
        pytest.skip("names are text here")
    assert len(ck.board(folder, seconds=None)) == 4
    assert ck.board(folder, seconds=-1.0).waiting_n == 1  # the others were kept


def test_what_was_read_last_is_kept_longest(tmp_path, monkeypatch):
    monkeypatch.setattr("ctxkit._internal.disk_cache_by_file._MAX_ENTRIES", 2)
    kept = FileCache(tmp_path / "x.jsonl", FileBoardRows, 1, "0")
    for name in ("a", "b", "c", "a"):
        kept.put(FileBoardRows(path=name, modified=0.0, size=0, rows=()))
    kept.write()
    assert [e.path for e in FileCache(kept.path, FileBoardRows, 1, "0").all()] == ["c", "a"]


def test_hostile_sessions_are_only_text(tmp_path):
    from widgets.reports.hostile_logs import hostile

    made = Board([make_board_row(hostile())])
    found = [
        w
        for w in intruders(made._repr_html_())
        if not w.startswith(("onclick=const h=", "oninput=const w="))
    ]
    assert found == []
    assert EVIL not in made.to_text()


def test_no_file_is_said(tmp_path):
    with pytest.raises(ck.BadArguments, match="no file"):
        ck.board(tmp_path / "nowhere")


def test_subagents_are_counted_apart_as_the_list_does(tmp_path):
    session = ck.read(SAMPLE)
    place = tmp_path / "logs"
    place.mkdir()
    ck.write(session, place / "main.jsonl")
    child = msgspec.structs.replace(session, id="child", parent=session.id, agent="helper")
    ck.write(child, place / "child.jsonl")
    continued = msgspec.structs.replace(session, id="continued", parent=session.id)
    ck.write(continued, place / "continued.jsonl")
    made = ck.board(place, seconds=None)
    assert len(made) == 3
    assert made.head.startswith("2 sessions and 1 subagent, $")
    assert sum(row[1].value for row in made.by("project").rows) == 2
