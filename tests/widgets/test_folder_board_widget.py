"""The display of a board: what it answers, how it reads on and follows a folder that grows."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
from waiting import wait_until
from widgets.reports.hostile_logs import hostile, intruders

import ctxkit as ck
from ctxkit.widgets import Board, make_board_row

SAMPLE = ck.samples.path("billing")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXKIT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "logs"
    place.mkdir()
    lines = SAMPLE.read_bytes().splitlines(keepends=True)
    for i, n in enumerate((len(lines), 120, 40)):
        (place / f"{i}.jsonl").write_bytes(b"".join(lines[:n]))
    return place


def test_rows_are_filtered_sorted_and_summed(folder):
    view = ck.board(folder, seconds=None).view()
    first = view.data["first"]
    assert (first["total"], first["of"], len(first["rows"])) == (3, 3, 3)
    by_cost = view._answer_rows({"sort": "usd", "down": True})["rows"]
    costs = [float(r["cells"][4].strip("$")) for r in by_cost]
    assert costs == sorted(costs, reverse=True)
    assert [r["cells"] for r in view._answer_rows({"sort": "usd", "down": False})["rows"]] == [
        r["cells"] for r in by_cost[::-1]
    ]
    assert view._answer_rows({"words": "nightly EXPORT", "project": "billing"})["total"] == 3
    assert view._answer_rows({"project": "other"})["total"] == 0
    asked = view._answer_or_error({"kind": "rows", "key": "k", "sort": "usd", "down": True})
    assert (asked["key"], asked["rows"]) == ("k", by_cost)
    rest = view._answer_or_error({"kind": "rows", "key": "k", "from": 2})
    assert [len(rest["rows"]), rest["total"], rest.get("sums")] == [1, 3, None]
    sums = view._answer_rows({"by": "project"})["sums"]
    assert sums[0][0] == "project"
    assert sums[1][:2] == ["billing", "3"]
    for asked in ({}, {"kind": "rows", "sort": "id", "by": 5, "from": "x"}, {"kind": "open", "at": 99},
                  {"kind": "inner", "m": {}}, {"kind": "open", "at": "0"}):  # fmt: skip
        view._on_browser_request(None, asked, [])


def test_its_heads_have_names_and_say_what_they_sort_by(folder):
    heads = ck.board(folder, seconds=None).view().data["heads"]
    assert [(name, field) for name, _, _, field in heads] == [
        ("#", ""), ("session", ""), ("day", "started"), ("calls", "calls_n"), ("cost", "usd"),
        ("peak", "peak"), ("prompts", ""), ("compactions", "compactions_n"),
        ("misses", "misses_n"), ("errors", "errors_n"), ("project", ""), ("tool", ""),
        ("model", ""),
    ]  # fmt: skip


def test_only_a_kernel_gets_the_widget(folder, monkeypatch):
    board = ck.board(folder, seconds=None)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    outside = board._repr_mimebundle_()
    assert outside == {"text/plain": board.to_text(), "text/html": board.to_html()}
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    widget = SimpleNamespace(_repr_mimebundle_=lambda: {"text/html": "the widget"})
    monkeypatch.setattr(Board, "view", lambda _: widget)
    assert board._repr_mimebundle_() == {"text/html": "the widget"}


def test_a_click_reads_the_session_and_its_reader_answers(folder):
    view = ck.board(folder, seconds=None).view()
    said = []
    view.send = lambda content, **_: said.append(content)
    row = view._answer_rows({"sort": "calls_n", "down": True})["rows"][0]
    told = view._answer_or_error({"kind": "open", "at": row["at"], "key": "k"})
    assert told["state"]["data"]["calls"] == 343
    inner = view._answer_or_error(
        {"kind": "inner", "m": {"kind": "text", "call": 342, "row": 0, "key": "t"}}
    )
    assert "You are a coding agent" in inner["m"]["text"]
    view.reader.send({"kind": "measured"})
    assert said == [{"kind": "inner", "m": {"kind": "measured"}}]
    (folder / "0.jsonl").unlink()
    assert "error" in view._answer_or_error({"kind": "open", "at": row["at"]})


def test_what_waits_is_read_behind(folder):
    view = ck.board(folder, seconds=-1.0).view()
    wait_until(lambda: view.data["first"]["total"] == 3)
    assert view.board.waiting_n == 0
    view.close()


def test_a_folder_that_grows_is_followed(folder, monkeypatch):
    monkeypatch.setattr("ctxkit.widgets.folder_board._PAUSE", 0.05)
    monkeypatch.setattr("ctxkit.widgets.folder_board._SHARE", 0)
    threads = set(threading.enumerate())
    view = ck.board(folder, seconds=None, follow=True).view()
    started = {*threading.enumerate()} - threads
    before = {r["at"]: r["cells"][1] for r in view.data["first"]["rows"]}
    (folder / "new.jsonl").write_bytes(SAMPLE.read_bytes())
    wait_until(lambda: view.data["first"]["total"] == 4)
    after = {r["at"]: r["cells"][1] for r in view.data["first"]["rows"]}
    assert before.items() <= after.items()  # a number means the same row as before
    view.stop()
    assert [t.daemon for t in started] == [True]  # a program that ends does not wait for it


def test_hostile_sessions_are_only_text():
    view = Board([make_board_row(hostile())]).view()
    assert not {"\x1b", "\u202e", "\n"} & set(str(view.data))
    assert intruders(view.page(plotly=False).html.partition("<script")[0]) == []


def test_the_still_picture_has_nothing_that_only_a_script_can_do():
    board = ck.board(SAMPLE, seconds=None)
    still = board.view().to_html()
    assert "<input" not in still
    assert "<button" not in still
    assert still.count("<tr") == board.to_html().count("<tr")
    assert "<input" in board.to_html(), "an exported page runs its script"


def test_a_machine_without_sessions_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("ctxkit.formats.log_discovery.iter_session_files", lambda: iter(()))
    with pytest.raises(ck.BadArguments, match="give a folder"):
        ck.board()
