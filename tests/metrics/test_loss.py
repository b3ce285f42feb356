"""Items are found without quadratic work; what a cut took, what could be fetched again and what was needed is told apart."""

from __future__ import annotations

import msgspec
import pandas as pd
import pytest
from builders import assistant, call, result, session, step, summarised, tool_call, user
from hypothesis import given
from hypothesis import strategies as st

import ctxkit as ck
from ctxkit.metrics import LosableItem, expand_path_endings, extract_items, loss_tables, losses
from ctxkit.metrics.loss_analysis import OracleBound
from ctxkit.session import Message, Text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "see src/app/main.py, and ../lib/b.ts:",
            {("path", "src/app/main.py"), ("path", "../lib/b.ts")},
        ),
        ("https://a.example/x/y.html.", {("url", "https://a.example/x/y.html")}),
        ("commit fd7f20f and PROJ-12", {("id", "fd7f20f"), ("id", "proj-12")}),
        ("took 128 ms, 50.5KB", {("number", "128ms"), ("number", "50.5KB")}),
        ("error TS2304: Cannot find name 'x'.", {("error", "error TS2304: Cannot find name 'x'.")}),
        ("e.g. this.foo is a word, 1.5 and/or", set()),
    ],
)
def test_items_of_a_text(text, expected):
    assert {tuple(i) for i in extract_items(Message(role="tool", parts=(Text(text),)))} == expected


def test_constraints_are_the_users_and_commands_the_calls():
    assert {i.family for i in extract_items(user("Never touch the database. Thanks."))} == {
        "constraint"
    }
    assert {
        i.family for i in extract_items(assistant("I will use SQLite instead of files here."))
    } == {"decision"}
    assert LosableItem("command", "git log -3") in extract_items(
        call("bash", command="git  log -3")
    )


@given(st.text(alphabet="a/.-~+1, must:", max_size=8).filter(bool))
def test_a_megabyte_of_anything_is_searched_in_a_bounded_way(word):
    text = word * (20_000 // len(word))
    found = extract_items(Message(role="user", parts=(Text(text),)))
    assert all(len(i.text) <= 2000 for i in found)


def test_a_longer_path_says_its_endings():
    assert {n.text for n in expand_path_endings([LosableItem("path", "/home/me/a/b.py")])} == {
        *("/home/me/a/b.py", "home/me/a/b.py", "me/a/b.py", "a/b.py")
    }


def cut_session(summary: str = "So far: src/kept.py was made."):
    old = [user("Look at src/kept.py and src/gone.py and src/idle.py"), assistant("I see.")]
    return session(
        *old, summarised(old, summary), user("go on"), assistant("", tool_call("edit", path="src/gone.py")),
        result("done"), assistant("and src/kept.py"),
    )  # fmt: skip


def test_retained_lost_and_needed_later():
    fates = {
        item.text: fate for item, fate in loss_tables.analyse_loss(cut_session()).fates().items()
    }
    assert fates == {"src/kept.py": "retained", "src/gone.py": "lost", "src/idle.py": "lost"}
    opened = losses(cut_session()).dropna(subset="needed_call")
    assert opened[["item", "needed_call"]].to_numpy().tolist() == [["src/gone.py", 1]]
    told = loss_tables.compute_loss_columns(cut_session())
    assert (
        told["items_n"],
        told["reused_items_n"],
        told["needed_later_n"],
        told["needed_lost_n"],
    ) == (3, 2, 2, 1)
    assert (
        told["needed_later_loss"],
        told["next_interval_loss"],
        told["needed_later_unrecoverable"],
    ) == (
        0.5,
        0.5,
        0.5,
    )
    assert told["retained"] + told["lost"] == pytest.approx(1)


def test_a_loss_can_be_opened():
    s = cut_session()
    row = losses(s).query("item == 'src/gone.py'").iloc[0]
    assert (
        row["fate"],
        row["message"],
        row["compaction"],
        row["needed_call"],
        row["calls_until_needed"],
    ) == (
        "lost",
        s.log[0].id,
        0,
        1,
        0,
    )


@pytest.mark.parametrize("key", ["path", "filePath", "absolute_path"])
def test_a_file_that_is_named_can_be_read_again(key):
    asked, read = step("read_file", "see lib/deep/inner.py", **{key: "src/a/top.py"})
    s = session(
        user("go"),
        asked,
        read,
        summarised([asked, read], "src/a/top.py was read"),
        user("on"),
        assistant(),
    )
    fates = {item.text: fate for item, fate in loss_tables.analyse_loss(s).fates().items()}
    assert fates == {"src/a/top.py": "retained", "lib/deep/inner.py": "recoverable"}


def test_what_a_kept_message_says_is_retained():
    old, kept = user("a/b.py"), user("again a/b.py")
    found = loss_tables.analyse_loss(session(old, kept, summarised([old], "nothing"), assistant()))
    assert list(found.fates().values()) == ["retained"]


def test_the_bound_never_keeps_more_than_was_needed():
    assert 0 <= OracleBound(loss_tables.analyse_loss(cut_session())).missing(0) <= 2


def long_session(*cuts: int):
    """Ten files named one by one and all again at the end, with a cut that keeps nothing after each of some steps."""
    log, shown = [], []
    for i in range(10):
        shown += [user(f"see lib/f{i}.py"), assistant(f"lib/f{i}.py is fine")]
        log += shown[-2:]
        if i in cuts:
            log.append(summarised(shown, "nothing"))
            shown = []
    return session(*log, user("all?"), *(assistant(f"again lib/f{i}.py") for i in range(10)))


def test_an_item_counts_once_however_often_it_is_cut_away_and_however_late_it_is_needed():
    often, once = (
        loss_tables.analyse_loss(long_session(*range(10))),
        loss_tables.analyse_loss(long_session(9)),
    )
    assert [len(x.needed_lost_items.item) for x in (often, once)] == [10, 10]
    assert (
        loss_tables.loss_by_family(long_session(*range(10)))
        .groupby("compaction")["needed_after_n"]
        .sum()
        .tolist()
        == [1] * 10
    )
    assert (
        loss_tables.compute_loss_columns(long_session(*range(10)))["needed_later_loss"]
        == loss_tables.compute_loss_columns(long_session(9))["needed_later_loss"]
        == 1
    )
    assert loss_tables.compute_loss_columns(long_session(4))["needed_later_loss"] == 0.5


@given(st.sets(st.integers(0, 9)), st.integers(0, 9))
def test_one_more_cut_never_looks_better(cuts, more):
    few, many = (
        loss_tables.compute_loss_columns(long_session(*sorted(c))) for c in (cuts, cuts | {more})
    )
    assert few["reused_items_n"] == many["reused_items_n"]
    assert few["needed_later_loss"] <= many["needed_later_loss"]


def test_a_need_is_charged_to_the_last_cut_that_took_the_item_before_it():
    a, b, c = user("lib/a.py"), assistant("go"), user("lib/a.py once more")
    on = [
        summarised([a, b]),
        user("well"),
        assistant("hm"),
        c,
        assistant("on"),
        summarised([c]),
        user("?"),
    ]
    s = session(a, b, *on, assistant("lib/a.py it was"))
    opened = losses(s)
    assert opened["compaction"].tolist() == [0, 1]
    assert opened["needed_call"].isna().tolist() == [True, False]
    assert (
        loss_tables.compute_loss_columns(s)["needed_lost_n"],
        loss_tables.compute_loss_columns(s)["calls_to_first_use"],
    ) == (
        1,
        0.0,
    )


def test_what_the_very_next_call_is_told_again_was_never_out_of_sight():
    a, b = user("lib/a.py"), assistant("go")
    s = session(
        a, b, summarised([a, b], "nothing"), user("lib/a.py once more"), assistant("lib/a.py it is")
    )
    assert (
        loss_tables.compute_loss_columns(s)["retained"],
        loss_tables.compute_loss_columns(s)["needed_later_n"],
        loss_tables.compute_loss_columns(s)["needed_lost_n"],
    ) == (
        1,
        1,
        0,
    )


def test_what_is_opened_is_what_is_counted(real):
    s = ck.replay(
        ck.read(real / "pi/before-compaction.jsonl"), ck.presets.pi(context_window=60_000)
    )
    opened = losses(s)
    missed = opened[opened["needed_call"].notna()]
    told = loss_tables.compute_loss_columns(s)
    assert (
        missed.groupby(["family", "item"]).ngroups
        == told["needed_lost_n"]
        <= told["needed_later_n"]
    )
    assert loss_tables.loss_by_family(s)["needed_after_n"].sum() == len(missed)
    assert told["regret"] <= told["needed_later_loss"] <= 1


def test_no_cut_loses_nothing_and_no_text_says_nothing():
    assert (
        loss_tables.compute_loss_columns(session(user("a/b.py"), assistant()))["needed_later_loss"]
        == 0
    )
    assert loss_tables.compute_loss_columns(session(Message(role="assistant", id="x"))) == {}


def test_families_add_up():
    s = cut_session()
    frame = loss_tables.loss_by_family(s)
    assert frame["items_n"].sum() == loss_tables.compute_loss_columns(s)["items_n"]
    assert set(frame["family"]) >= {"path", "command", "constraint"}


def test_a_pruned_replay_is_told_by_its_run():
    filler = [
        m
        for i in range(4)
        for m in step("bash", f"see out/file{i}.log " + "so " * 300, command=f"run {i}")
    ]
    s = session(
        user("go"),
        *filler,
        assistant("out/file0.log was bad, out/file3.log was good"),
        user(),
        assistant(),
    )
    found = ck.compare(s, [ck.presets.swe_agent_mask(n=1)])
    row = found.iloc[1]
    assert (row["reused_items_n"], row["needed_later_n"], row["needed_later_loss"]) == (2, 1, 0.5)
    again = ck.replay(s, ck.presets.swe_agent_mask(n=1))
    assert ck.score(again)["needed_later_loss"] == 0.5
    assert (
        ck.score(msgspec.structs.replace(again, id="as from a file"))["needed_later_loss"] is pd.NA
    )


def test_pis_table_comes_out_again(real):
    """122 and 193 paths removed, 54 and 116 still shown, 69 and 30 used again before the next cut, 31 and 4 lost.

    Differences of one to two: a path counts as used in a reply's text too, and a shown path says its own endings, where
    the table's count looked for the letters anywhere and in tool arguments only. Without the bound of the next cut, 34
    and 3 were cut away and used: three more that the second cut's window had, each charged to the cut that took it.
    """
    s = ck.read(real / "pi/before-compaction.jsonl")
    paths = loss_tables.loss_by_family(s).query("family == 'path'").set_index("compaction")
    assert paths["items_n"].tolist() == [122, 193]
    assert (paths["items_n"] * paths["retained"]).tolist() == pytest.approx([54, 115])
    assert paths["needed_n"].tolist() == [70, 31]
    assert paths["needed_lost_n"].tolist() == [31, 6]
    assert paths["needed_after_n"].tolist() == [34, 3]
