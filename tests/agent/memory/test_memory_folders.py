"""Folders of a memory: what is removed for a budget, what the audit and the index say, and which entries are in scope."""

from __future__ import annotations

import json

import pytest

from ctxkit.agent import MemoryDigestLimits, MemoryStore
from ctxkit.agent.memory.entry_store import (
    STORE_BUDGETS,
    WorkingFolderEntryIds,
    find_surplus_entries,
)
from ctxkit.errors import BadArguments, StoreError
from ctxkit.policies import make_entry

GUID = "00000000-0000-4000-8000-00000000000"


def make(name, number, kind="project", body="Body."):
    return make_entry(name, "About.", kind, body, guid=f"{GUID}{number}")


@pytest.fixture
def store(tmp_path):
    return MemoryStore([tmp_path / "one", tmp_path / "two"], tmp_path / "base")


@pytest.fixture(autouse=True)
def _base(tmp_path):
    (tmp_path / "base").mkdir()


def find_surplus(entries, rows, **limits):
    kinds = {"fact": (9, 9_000), "note": (9, 9_000), "procedure": (9, 9_000), "episode": (9, 9_000)}
    budgets = MemoryDigestLimits(**{"items": 9, "chars": 9_000, "kinds": kinds, **limits})
    return [(e.name, why) for e, why in find_surplus_entries(entries, rows, "extract", budgets)]


def test_the_oldest_goes_first_where_there_is_too_much():
    entries = [make(name, i, body="x" * 100) for i, name in enumerate("abc")]
    size = len(entries[0].head) + 100
    times = ("2", "1", "3")
    rows = {e.guid: {"by": "extract", "time": t} for e, t in zip(entries, times, strict=True)}
    assert find_surplus(entries, rows) == []
    assert find_surplus(entries, rows, items=3, chars=3 * size) == []
    assert find_surplus(entries, rows, items=2) == [("b", "3 entries of all are more than 2")]
    assert find_surplus(entries, rows, chars=3 * size - 1) == [
        ("b", f"{3 * size:,} characters of all are more than {3 * size - 1:,}")
    ]
    assert [n for n, _ in find_surplus(entries, rows, items=0)] == ["b", "a", "c"]
    rows[entries[1].guid]["by"] = "user"
    assert [n for n, _ in find_surplus(entries, rows, items=1)] == ["a", "c"]
    assert find_surplus(entries, {}, items=0) == []  # nobody knows who wrote them


def test_entries_of_one_name_and_kind_are_one():
    entries = [make("Same", 1), make("same", 2), make("Same", 3, "user"), make("SAME", 4)]
    rows = {e.guid: {"by": "extract", "time": str(9 - i)} for i, e in enumerate(entries)}
    gone = find_surplus(entries, rows)
    assert {why for _, why in gone} == {"a newer one has its name"}
    assert [n for n, _ in gone] == ["SAME", "same"]


def read_audit(folder):
    path = folder / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_the_audit_of_an_entry(store, tmp_path):
    one = store.add(make("Tabs", 1), session="s1", by="m", why="end", messages=["u1"], none=None)
    store.add(make("TABS", 2, body="Other."))
    store.edit("tabs", by="user", body="Changed.", description="Of it.")
    store.forget("tabs", by="m")
    rows = read_audit(tmp_path / "one")
    assert {row.pop("time")[-6:] for row in rows} == {"+00:00"}
    shared = {"guid": one.guid, "type": "project"}
    assert rows == [
        {
            **shared,
            "name": "Tabs",
            "what": "added",
            "session": "s1",
            "by": "m",
            "why": "end",
            "messages": ["u1"],
        },
        {**shared, "name": "TABS", "what": "changed", "by": "user"},
        {
            **shared,
            "name": "TABS",
            "what": "changed",
            "by": "user",
            "fields": ["body", "description"],
        },
        {**shared, "name": "TABS", "what": "forgotten", "by": "m"},
    ]
    assert store.forgotten() == {one.guid.casefold(), "tabs"}
    assert store.entries() == []
    again = store.add(make("Tabs", 3))
    assert store.forgotten() == {one.guid.casefold()}
    entry, history = store.get_audit_rows("Tabs")
    assert (entry, [r["what"] for r in history]) == (again, ["added"])
    with (tmp_path / "one/audit.jsonl").open("a") as file:
        file.write('no JSON\n[1]\n{"guid": "x", "what": "added"}\n')
    assert store.newest_rows()["x"]["what"] == "added"


def test_what_is_consolidated_is_removed_with_its_reason(store, tmp_path):
    for i, name in enumerate("abc"):
        store.add(make(name, i), by="extract" if name != "b" else "user")
    removed = store.consolidate("extract", MemoryDigestLimits(items=1))
    assert {e.name for e, _ in removed} == {"a", "c"}
    assert [e.name for e in store.entries()] == ["b"]
    last = read_audit(tmp_path / "one")[-2:]
    assert [(r["what"], r["by"]) for r in last] == [("forgotten", "consolidation")] * 2
    assert {r["why"] for r in last} == {why for _, why in removed}
    assert store.consolidate("extract") == []


def test_the_index_names_each_entry(store, tmp_path):
    store.add(make("b [1]", 1))
    store.add(make("a", 2))
    folder = tmp_path / "one"
    assert (folder / "MEMORY.md").read_text() == (
        f"# Memory Index\n\n- [b [1)](memory_{GUID}1.md) — About.\n- [a](memory_{GUID}2.md) — About.\n"
    )
    # a person may give a file another name; it keeps it
    (folder / f"memory_{GUID}2.md").rename(folder / "own.md")
    store.edit("a", body="Changed.")
    assert not (folder / f"memory_{GUID}2.md").exists()
    assert "Changed." in (folder / "own.md").read_text()
    store.forget("a")
    assert not (folder / "own.md").exists()
    assert (folder / "MEMORY.md").read_text().count("- [") == 1


def test_files_that_are_no_entries_are_counted(store, tmp_path):
    store.add(make("a", 1))
    folder = tmp_path / "one"
    assert store.faults() == []
    (folder / "odd.md").write_text("no entry")
    (folder / ".hidden.md").write_text("no entry")
    (folder / "other.txt").write_text("no entry")
    assert store.faults() == [
        f"1 file is not used of {folder}: no entries of memory, too large, or too many."
    ]
    (folder / "copy.md").write_bytes((folder / f"memory_{GUID}1.md").read_bytes())
    assert store.faults() == [
        f"2 files are not used of {folder}: no entries of memory, too large, or too many."
    ]
    assert [e.name for e in store.entries()] == ["a"]


def test_entries_in_scope_go_first(store, tmp_path):
    other = MemoryStore([tmp_path / "one", tmp_path / "two"], tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    here = store.add(make("Tabs", 1))
    there = other.add(make("Tabs", 2), home=1)
    assert [e.guid for e in store.entries()] == [here.guid]
    assert [e.guid for e in other.entries()] == [there.guid]
    assert {e.guid for e in store.entries(everywhere=True)} == {here.guid, there.guid}
    assert (store.find_entry("tabs")[1], other.find_entry("tabs")[1]) == (here, there)
    outside = MemoryStore([tmp_path / "one", tmp_path / "two"], tmp_path / "third")
    (tmp_path / "third").mkdir()
    assert len(outside.entries()) == 2  # a folder without a scope sees all
    with pytest.raises(
        BadArguments, match=r"^Several entries have that name: choose one by its guid"
    ):
        outside.find_entry("tabs")
    with pytest.raises(BadArguments, match=r"^Nothing is remembered as 'Ports'\.$"):
        store.find_entry("Ports")
    (tmp_path / "third/.fuseraft").mkdir()
    assert outside.entries() == []  # fuseraft's folder is a scope, too


def test_another_entry_keeps_its_name(store):
    store.add(make("Tabs", 1))
    store.add(make("Ports", 2))
    with pytest.raises(
        BadArguments, match=r"^Another entry is called 'tabs': choose another name, or forget"
    ):
        store.edit("Ports", name="tabs")
    assert store.edit("Ports", name="PORTS").name == "PORTS"
    assert store.edit("Ports", body="x").body == "x"


def test_the_lists_of_a_working_folder(tmp_path):
    base = tmp_path / "base"
    ids = WorkingFolderEntryIds(base)
    assert ids.guids() is None
    assert WorkingFolderEntryIds(base / "none").guids() is None
    for guid in ("g1", "g2", "g1"):
        ids.note("s1", guid)
    path = base / ".ctxkit/memory/sessions/s1/memory_refs.json"
    assert json.loads(path.read_text()) == ["g1", "g2"]
    assert path.read_text().startswith('[\n  "g1"')
    (base / ".fuseraft").mkdir()
    (base / ".fuseraft/memory_refs.json").write_text('["g3", 5]')
    assert ids.guids() == {"g1", "g2", "g3"}
    for data in ('{"g4": 1}', "no JSON"):
        (base / ".fuseraft/memory_refs.json").write_text(data)
        assert ids.guids() == {"g1", "g2"}
    for name in ("", "a/b", "x" * 65):
        with pytest.raises(BadArguments, match="is no id of a session"):
            ids.note(name, "g")
    ids.note("x" * 64, "g4")
    assert "g4" in ids.guids()


def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    store = MemoryStore([tmp_path / "link"], tmp_path / "base")
    with pytest.raises(
        StoreError, match=r"link cannot be used \(.*; links are not followed there\)\.$"
    ):
        store.add(make("a", 1))
    assert store.faults() == [
        f"1 file is not used of {tmp_path / 'link'}: no entries of memory, too large, or too many."
    ]
    assert MemoryStore([tmp_path / "none"], tmp_path).entries() == []
    assert [*(tmp_path / "base").iterdir()] == []


def test_a_store_holds_ten_times_as_much_as_a_digest():
    digest = MemoryDigestLimits()
    assert (STORE_BUDGETS.items, STORE_BUDGETS.chars) == (10 * digest.items, 10 * digest.chars)
    assert STORE_BUDGETS.kinds == {k: (10 * n, 10 * c) for k, (n, c) in digest.kinds.items()}


def test_a_memory_is_the_owners_alone(store, tmp_path):
    store.add(make("a", 1))
    assert {
        p.stat().st_mode & 0o077 for p in (tmp_path / "one", *(tmp_path / "one").iterdir())
    } == {0}
