"""What goes of a memory that is over its budget: by kind and by age, never what a person wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkit.agent import MemoryDigestLimits, MemoryStore
from ctxkit.agent.memory.entry_store import find_surplus_entries
from ctxkit.policies import MEMORY_TYPES, get_entry_kind, make_entry

SMALL = MemoryDigestLimits(
    items=4, chars=400, kinds={"fact": (2, 300), "note": (2, 300), "procedure": (1, 90)}
)


def kept(*of):
    """Return entries and rows: name, type, who, when."""
    entries = [
        make_entry(name, "Said so.", kind, guid=f"g{i}") for i, (name, kind, _, _) in enumerate(of)
    ]
    rows = {f"g{i}": {"by": by, "time": time} for i, (_, _, by, time) in enumerate(of)}
    return entries, rows


def test_of_one_name_the_newest_stays_and_of_a_kind_the_newest():
    entries, rows = kept(
        ("a", "fact", "extract", "1"),
        ("A", "fact", "extract", "2"),
        ("b", "fact", "extract", "3"),
        ("c", "fact", "extract", "4"),
        ("d", "project", "user", "0"),
    )
    gone = [(e.name, why) for e, why in find_surplus_entries(entries, rows, "extract", SMALL)]
    assert gone == [("a", "a newer one has its name"), ("A", "3 entries of fact are more than 2")]


def test_what_a_person_wrote_stays_also_where_it_is_too_much():
    entries, rows = kept(*((f"n{i}", "fact", "user", str(i)) for i in range(9)))
    assert find_surplus_entries(entries, rows, "extract", SMALL) == []


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=2), st.sampled_from(MEMORY_TYPES),
                          st.sampled_from(["extract", "user"]), st.text("12", max_size=2))))  # fmt: skip
def test_what_is_left_of_what_was_found_fits(of):
    """Whatever was found by itself is within the budgets afterwards, or nothing of it is left."""
    entries, rows = kept(*of)
    gone = [e for e, _ in find_surplus_entries(entries, rows, "extract", SMALL)]
    assert all(rows[e.guid]["by"] == "extract" for e in gone)
    left = [e for e in entries if e not in gone]
    found = [e for e in left if rows[e.guid]["by"] == "extract"]
    for kind, (items, _) in SMALL.kinds.items():
        of_kind = [e for e in left if get_entry_kind(e) == kind]
        assert len(of_kind) <= items or not any(get_entry_kind(e) == kind for e in found)
    assert len(left) <= SMALL.items or not found


def test_it_is_asked_for_by_hand(tmp_path):
    held = MemoryStore([tmp_path / "home"], tmp_path)
    for n in range(4):
        held.add(make_entry(f"n{n}", "Said so.", "fact"), by="extract")
    gone = held.consolidate("extract", SMALL)
    assert [e.name for e, _ in gone] == ["n0", "n1"] or len(gone) == 2
    assert len(held.entries()) == 2


@pytest.mark.parametrize(
    ("items", "chars", "kinds", "reasons"),
    [
        (4, 120, {}, []),
        (3, 120, {}, ["4 entries of all are more than 3"]),
        (4, 119, {}, ["120 characters of all are more than 119"]),
        (4, 120, {"episode": (0, 30)}, ["1 entries of episode are more than 0"]),
        (4, 120, {"episode": (1, 29)}, ["30 characters of episode are more than 29"]),
        (3, 29, {"note": (0, 30)}, [
            "4 entries of all are more than 3",
            "1 entries of note are more than 0",  # the kind's own limit is named before that of all
            "60 characters of all are more than 29",
            "30 characters of all are more than 29"]),
    ],
)  # fmt: skip
def test_a_budget_is_what_may_stay_and_episodes_go_first(items, chars, kinds, reasons):
    types = ["fact", "procedure", "project", "episode"]
    entries = [make_entry("n", "Said.", t, "x" * (30 - len(f"[{t}] n: Said."))) for t in types]
    assert [get_entry_kind(e) for e in entries] == ["fact", "procedure", "note", "episode"]
    rows = {e.guid.casefold(): {"by": "extract", "time": "1"} for e in entries}
    budgets = {get_entry_kind(e): (1, 30) for e in entries} | kinds
    limits = MemoryDigestLimits(items=items, chars=chars, kinds=budgets)
    gone = find_surplus_entries(entries, rows, "extract", limits)
    assert [why for _, why in gone] == reasons
    assert [e.type for e, _ in gone] == types[::-1][: len(gone)]


def test_a_kind_without_a_budget_holds_nothing_of_what_was_found():
    entries, rows = kept(("a", "episode", "extract", "1"), ("b", "episode", "user", "2"))
    gone = find_surplus_entries(entries, rows, "extract", MemoryDigestLimits(kinds={}))
    assert [(e.name, why) for e, why in gone] == [("a", "2 entries of episode are more than 0")]
