"""Where the money went: parts add up to the bill, and the sentences say what the tables say."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from builders import assistant, call, result, session, step, summarised, usage, user
from hypothesis import given
from hypothesis import strategies as st
from widgets.reports.hostile_logs import hostile, intruders

import ctxkit as ck
from ctxkit._internal import choose_text_colour, display_width
from ctxkit.metrics import session_bill
from ctxkit.metrics.cost.spend_by_turn_tool_file import SPLITS, Spend
from ctxkit.session import ToolSchema, Usage

MODEL = "claude-sonnet-4-5"
SAMPLE = ck.samples.path("billing")


def adds_up(spent: Spend) -> None:
    for way in SPLITS:
        assert sum(p.usd for p in spent.by(way)) == pytest.approx(
            spent.total_usd or 0.0, abs=1e-9
        ), way


@given(st.lists(st.tuples(*[st.integers(0, 5000)] * 4), min_size=1, max_size=12))
def test_every_split_adds_up_to_the_bill(sizes):
    asked = [call("Read", path=f"f{i % 3}") for i in range(len(sizes))]
    log = [
        m
        for a, s in zip(asked, sizes, strict=True)
        for m in (assistant("", *a.tool_calls, usage=usage(*s)), result("x" * s[0], a))
    ]
    spent = ck.spend(session(user(), *log, model=MODEL))
    adds_up(spent)
    assert spent.bill.calls_usd == pytest.approx(
        sum(c.fresh_usd + c.read_usd + c.write_usd + c.output_usd for c in spent.bill.charges)
    )


def test_the_bill_is_that_of_compare():
    s = ck.read(SAMPLE)
    found = ck.compare(s, ["pi", "swe_agent_mask"], loss=False, progress=False)
    for name, replay in found.replays.items():
        spent = ck.spend(replay)
        assert spent.total_usd == pytest.approx(found.loc[name, "cost_usd"])
        adds_up(spent)


def test_a_replay_of_writes_that_live_an_hour_is_billed_as_compare_does():
    log = []
    for i in range(30):
        used = Usage(cache_read_tokens=2_000 * i, cache_write_1h_tokens=2_000, output_tokens=9)
        log += [user("word " * 2_000), assistant("ok", usage=used)]
    found = ck.compare(session(*log, model=MODEL), ["none"], loss=False, progress=False)
    spent = ck.spend(found.replays["none"])
    assert spent.total_usd == pytest.approx(found.loc["none", "cost_usd"])
    adds_up(spent)


def test_real_sessions_add_up_with_their_subagents(real):
    seen = 0
    for s in ck.read_all(real, progress=False):
        spent = ck.spend(s)
        unpriced = spent.bill.unpriced_n or spent.bill.unpriced_summaries_n
        if spent.total_usd is not None and not unpriced:
            adds_up(spent)
            seen += 1
            own = ck.score(s, loss=False)["cost_usd"]
            if spent.bill.unpriced_summaries_n:  # sealed: what it cost is not known
                assert pd.isna(own)
                continue
            assert spent.cost_usd == pytest.approx(own)
    assert seen > 5


def test_what_was_sent_again_after_a_pause_is_said():
    told = ck.spend(SAMPLE)
    after = {p.name: p for p in told.by("cache")}["sent again after a pause"]
    share = f"{100 * after.usd / told.total_usd:.0f} % of the money (${after.usd:.2f})"
    assert any(s.startswith(share) and "8 pauses (7 min to 20.1 h)" in s for s in told.sentences)


def test_names_in_the_treemap_have_the_ink_that_their_box_needs():
    page = ck.spend(SAMPLE)._repr_html_()
    boxes = re.findall(r'fill="(#\w{6})"/><text [^>]*style="fill:(#\w{6})', page)
    assert len(boxes) > 4
    assert all(ink == choose_text_colour(fill) for fill, ink in boxes)


def test_repeats_and_idle_tools_are_found():
    first, again = call("Read", path="a.py"), call("Read", path="a.py")
    log = [
        user(), assistant("", *first.tool_calls, usage=usage(1000)), result("x" * 4000, first),
        assistant("", *again.tool_calls, usage=usage(3000)), result("x" * 4000, again),
        assistant(usage=usage(5000)),
    ]  # fmt: skip
    tools = (ToolSchema(name="Read", chars=400), ToolSchema(name="Grow", chars=4000))
    spent = ck.spend(session(*log, model=MODEL, tools=tools))
    (repeat,) = spent.repeated_results
    assert (repeat.name, repeat.times) == ("Read a.py", 2)
    assert repeat.usd == pytest.approx(repeat.tokens * 3 / 1_000_000)  # sent once, not cached
    assert [u.name for u in spent.unused_tools] == ["Grow"]
    assert [s for s in spent.sentences if "fetched" in s or "never" in s] == [
        (
            "1 file or result was fetched more than once: the repeats cost 22 % of the money ($0.0059);"
            " most of all Read a.py (2 times, $0.0059)."
        ),
        "1 tool was never called (Grow): about 29 % of the money ($0.0081).",
    ]


def test_servers_are_told_from_names_of_tools():
    a, b = call("mcp__github__search"), call("Read", path="a")
    log = [
        user(),
        assistant("", *a.tool_calls, usage=usage(10)),
        result("x" * 900, a),
        assistant("", *b.tool_calls, usage=usage(400)),
    ]
    names = {p.name for p in ck.spend(session(*log, model=MODEL)).by("server")}
    assert names == {"github", "no MCP server"}


def test_what_ifs_are_ordered_and_signed():
    told = ck.spend(SAMPLE).what_ifs
    assert [w.usd for w in told] == sorted(w.usd for w in told)
    assert {"another model", "cache for an hour"} <= {w.name for w in told}
    smaller = ck.spend(SAMPLE).in_window(40_000)
    assert "40,000" in smaller.sentence


@pytest.mark.parametrize(
    "bare",
    [
        session(),
        session(user(), assistant()),
        session(user(), assistant(usage=usage(9))),
        hostile(),
    ],
)
def test_without_prices_it_says_so(bare):
    spent = ck.spend(bare)
    assert "No dollars are known" in spent.to_text()
    assert intruders(spent._repr_html_()) == []
    assert max(map(display_width, spent.to_text().split("\n"))) <= 80


def test_a_hostile_bill_is_only_text():
    import msgspec

    s = hostile()
    log = tuple(
        msgspec.structs.replace(m, model=MODEL) if getattr(m, "role", "") == "assistant" else m
        for m in s.log
    )
    spent = ck.spend(msgspec.structs.replace(s, log=log))
    assert spent.total_usd
    assert intruders(spent._repr_html_()) == []


def test_a_way_that_is_none_is_named():
    with pytest.raises(ck.BadArguments, match="Did you mean"):
        ck.spend(SAMPLE).by("tol")


def test_unpriced_summaries_are_told():
    log = [user(), assistant(usage=usage(9), model=MODEL)]
    cut = summarised(log, "So far: much.", usage=usage(9), model="nobody-knows")
    s = session(*log, cut, user(), assistant(usage=usage(9), model=MODEL))
    assert session_bill.bill_session(s).unpriced_summaries_n == 1
    assert any("1 summary without a price is in no sum" in told for told in ck.spend(s).sentences)


def test_unpriced_calls_are_told():
    s = session(
        user(),
        assistant(usage=usage(9), model=MODEL),
        assistant(usage=usage(9), model="nobody-knows"),
    )
    assert session_bill.bill_session(s).unpriced_n == 1
    assert any("1 call without a price" in told for told in ck.spend(s).sentences)


@pytest.mark.parametrize(
    ("model", "hour"),
    [
        ("claude-opus-5-5", False),
        ("claude-opus-5-5", True),
        ("claude-fable-5-1", False),
        ("claude-haiku-5-5", False),
        ("gpt-6-sol", False),
    ],
)
def test_a_miss_that_reads_nothing_costs_the_write_less_the_models_read(model, hour):
    """By hand: 120,000 tokens, of which 110,000 were cached, are sent again after nine hours."""

    def reply(prompt, read, time):
        new = prompt - read
        writes = (0, 0) if model.startswith("gpt") else (0, new) if hour else (new, 0)
        used = Usage(
            input_tokens=new - sum(writes),
            cache_read_tokens=read,
            cache_write_tokens=writes[0],
            cache_write_1h_tokens=writes[1],
            output_tokens=0,
        )
        return assistant("ok", usage=used, model=model, time=time)

    start = 1_795_000_000.0
    log = [
        *(user("a"), reply(110_000, 0, start)),
        *(user("b", time=start + 32_390.0), reply(120_000, 0, start + 32_400.0)),
    ]
    (found,) = (m for m in ck.spend(session(*log, model=model)).resent_tokens if m.miss.call == 1)
    prices = ck.prices.price(model).at(120_000)
    assert found.miss.missed_tokens == 110_000
    assert found.sent_usd == pytest.approx(110_000 * prices.write(hour=hour))
    assert found.usd == pytest.approx(110_000 * (prices.write(hour=hour) - prices.read))


def test_each_split_has_a_table_with_its_own_title_and_a_rest():
    log = [m for n in range(4) for m in step(f"tool_{n}", "x" * 400)]
    spent = ck.spend(session(user(), *log, assistant(usage=usage(5_000, output=100)), model=MODEL))
    for way, title in SPLITS.items():
        heads = spent.table(way).heads
        assert [h.name for h in heads] == [title, "share", "dollars", "", "times"]
        assert [h.number for h in heads] == [False, True, True, False, True]
        assert [h.spare for h in heads] == [False, False, False, True, True]
        assert [h.hover for h in heads] == ["what it was paid for", "of the whole bill", "", "the share as a bar", "calls, or results that were sent"]  # fmt: skip
    parts = spent.by("tool")
    assert len(parts) > 3
    rows = [[cell.text for cell in row] for row in spent.table("tool", 2).rows]
    rest_n = sum(p.n for p in parts[2:])
    assert [row[0] for row in rows] == [*(p.name for p in parts[:2]), f"{len(parts) - 2} more"]
    assert spent.table("tool", 2).rows[2][2].value == pytest.approx(sum(p.usd for p in parts[2:]))
    assert rows[2][4] == str(rest_n)
    assert len(spent.table("tool", len(parts)).rows) == len(parts)


def test_parts_of_a_bill_without_prices_have_no_share_and_no_bar():
    spent = ck.spend(session(user(), assistant(usage=usage(9))))
    rows = spent.table("tool").rows
    assert rows
    for row in rows:
        assert (row[1].text, row[1].value) == ("–", 0.0)
        assert "width:0px" in row[3].html
    assert spent.frame("tool")["share"].isna().all()


@pytest.fixture(scope="module")
def with_subagent() -> ck.Session:
    """A session of $0.015, of which $0.0015 are output, and of a subagent that costs $0.003."""
    helper = session(
        user("Help."),
        assistant(usage=usage(1_000, output=0), model=MODEL),
        id="c", agent="helper", title="Child",
    )  # fmt: skip
    return session(
        user("Ask."), assistant(usage=usage(2_000, output=100), model=MODEL),
        user("More."), assistant(usage=usage(2_500, output=0), model=MODEL),
        id="p", title="Parent", children=(helper,),
    )  # fmt: skip


def list_parts(spent, way: str) -> list[tuple[str, float, int]]:
    return [(p.name, round(p.usd, 6), p.n) for p in spent.by(way)]


def test_a_subagent_is_a_part_of_each_split(with_subagent):
    spent = ck.spend(with_subagent)
    assert (spent.total_usd, spent.cost_usd) == (pytest.approx(0.018), pytest.approx(0.015))
    assert [(child.id, round(usd, 6)) for child, usd in spent.children] == [("c", 0.003)]
    for way in SPLITS:
        parts = {p.name: p for p in spent.by(way)}
        assert sum(p.usd for p in parts.values()) == pytest.approx(0.018)
        assert [p.usd for p in parts.values()] == sorted((p.usd for p in parts.values()), reverse=True)  # fmt: skip
        if way != "subagent":
            assert parts["subagents"].usd == pytest.approx(0.003)
            assert (parts["subagents"].n, parts["subagents"].hover) == (1, "in sessions of their own")  # fmt: skip
    assert list_parts(spent, "subagent") == [("Parent itself", 0.015, 2), ("Child", 0.003, 1)]
    assert list_parts(spent, "agent") == [("main", 0.015, 2), ("subagents", 0.003, 1)]
    assert list_parts(spent, "model") == [(MODEL, 0.015, 2), ("subagents", 0.003, 1)]
    assert spent.sentences[0] == (
        "$0.02 in 2 calls and 1 subagent (derived): 8 % for output; most for system prompt and"
        " tools (not in the log) (58 %) and subagents (17 %)."
    )
    again = "sending again what the cache had held, after 1 miss without a cause"
    assert spent.answer == f"$0.02 for 2 calls: 33 % of it ($0.0060) for {again}."
    assert spent.sentences[1] == (
        f"33 % of the money ($0.0060) went to {again}: $0.0054 above reading it."
    )
    titles = re.findall(r"<details( open)?><summary>(.*?)</summary>", spent._repr_html_())
    assert titles[:-1] == [
        (" open" * (way in ("cache", "tool")), title) for way, title in SPLITS.items()
    ]
    assert titles[-1] == (" open", "what would have changed the cost")
    heads = [line.split("  ")[0] for line in spent.to_text().splitlines() if "  share" in line]
    assert heads == [SPLITS[way] for way in ("cache", "tool", "turn", "file")]


def test_a_row_of_a_split_has_its_share_as_text_value_and_bar(with_subagent):
    rows = ck.spend(with_subagent).table("agent").rows
    assert [[cell.text for cell in row] for row in rows] == [
        ["main", "83 %", "$0.01", "", "2"],
        ["subagents", "17 %", "$0.0030", "", "1"],
    ]
    assert [row[0].hover for row in rows] == ["main", "in sessions of their own"]
    for row, usd, n in zip(rows, (0.015, 0.003), (2, 1), strict=True):
        assert [cell.value for cell in row] == [None, pytest.approx(usd / 0.018), pytest.approx(usd), None, n]  # fmt: skip
        assert f"width:{140 * usd / 0.018:.0f}px" in row[3].html
    (unsent,) = (row for row in ck.spend(with_subagent).table("tool").rows if "replies" in row[0].text)  # fmt: skip
    assert unsent[4].text == ""  # no call and no result


def test_a_bill_of_several_sessions_names_each_and_counts_a_subagent_once(with_subagent):
    (helper,) = with_subagent.children
    other = session(
        user("Else."), assistant(usage=usage(500, output=0), model=MODEL), id="o", title="Other"
    )
    spent = ck.spend([with_subagent, helper, other])
    assert list_parts(spent, "session") == [("Parent", 0.018, 2), ("Other", 0.0015, 1)]
    assert list_parts(spent, "turn") == [
        ("Parent, 1: More.", 0.0075, 1),
        ("Parent, 0: Ask.", 0.0075, 1),
        ("Parent, subagents", 0.003, 1),
        ("Other, 0: Else.", 0.0015, 1),
    ]
    assert list_parts(spent, "agent") == [("main", 0.0165, 3), ("subagents", 0.003, 1)]
    assert list_parts(spent, "project") == [("unknown", 0.0195, 3)]
    assert spent.sentences == [
        "$0.02 in 2 sessions, summaries and subagents included.",
        "$0.0030 of it are those of subagents.",
    ]
    page = spent._repr_html_()
    assert re.findall("<li>(.*?)</li>", page) == spent.sentences
    assert re.findall(r"<details( open)?><summary>(.*?)</summary>", page) == [
        (" open" * (way == "session"), title) for way, title in spent.ways.items()
    ]
    heads = [line.split("  ")[0] for line in str(spent).splitlines() if "  share" in line]
    assert heads == [spent.ways[way] for way in ("session", "cache", "tool")]


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ([user()], "the session has no calls."),
        ([user(), assistant(usage=usage(9))], "its model has no price."),
        ([user(), assistant()], "the log has no usage: a report counts its texts."),
    ],
)
def test_a_bill_without_dollars_says_what_is_missing(log, reason):
    assert ck.spend(session(*log)).answer == f"No dollars are known: {reason}"


def test_calls_that_are_not_billed_are_counted_beside_the_others():
    billed = assistant(usage=usage(2_000, output=100), model=MODEL)
    for calls_n in (2, 3):
        others = [user(), assistant()] * (calls_n - 1)
        spent = ck.spend(session(user(), billed, *others))
        calls = f"1 of {calls_n} calls"
        assert spent.answer == f"$0.0075 for {calls}; nothing of it was sent or fetched twice."
        assert spent.sentences[0].startswith(f"$0.0075 in {calls} (derived): 20 % for output;")


def test_a_display_has_the_largest_parts_and_one_row_for_the_rest():
    replies = [call(f"tool_{n}") for n in range(70)]
    log = [m for reply in replies for m in (reply, result("x" * 400, reply))]
    spent = ck.spend(session(user(), *log, assistant(usage=usage(9_000)), model=MODEL))
    names = [p.name for p in spent.by("tool")]
    rows = [row[0].text for row in spent.table("tool").rows]
    assert rows == [*names[:60], f"{len(names) - 60} more"]

    def read_rows(text: str, title: str) -> list[str]:
        """The first words of the rows below a title."""
        lines = text.split(title, 1)[1].splitlines()[1:]
        return [line.split("  ")[0] for line in lines[: [*lines, ""].index("")]]

    assert read_rows(str(spent), "by tool") == [*names[:6], f"{len(names) - 6} more"]
    cheap = [
        session(user(), assistant(usage=usage(1_000 + n), model=MODEL), id=f"{n}", title=f"S{n}")
        for n in range(13)
    ]
    titles = [f"S{n}" for n in range(12, 2, -1)]
    assert read_rows(str(ck.spend(cheap)), "by session") == [*titles, "3 more"]


@pytest.mark.parametrize("unused_n", [1, 4])
def test_tools_that_were_never_called_are_named_up_to_three(unused_n):
    reply = call("Read")
    tools = (ToolSchema(name="Read", chars=400), *(ToolSchema(name=f"T{n}", chars=4_000 + 100 * n) for n in range(unused_n)))  # fmt: skip
    log = [user(), assistant("", *reply.tool_calls, usage=usage(9_000)), result("x", reply)]
    spent = ck.spend(session(*log, model=MODEL, tools=tools))
    # those with the longest schemas, which cost most, first
    assert [u.name for u in spent.unused_tools] == ["T3", "T2", "T1", "T0"][-unused_n:]
    named = {1: "1 tool was never called (T0)", 4: "4 tools were never called (T3, T2, T1)"}
    assert sum(s.startswith(f"{named[unused_n]}: about ") for s in spent.sentences) == 1
