"""The page of a report and of a bill shows each figure of its frame, in its place and as large as it is."""

from __future__ import annotations

import re
from html import unescape

import pytest
from builders import assistant, result, session, tool_call, usage, user
from metrics.hand_computed_sessions import MODEL, make_priced_session
from msgspec.structs import replace

import ctxkit as ck
from ctxkit.session import Edit, Message, Usage
from ctxkit.tokens import estimated_counter


def read_tables(page: str) -> dict[str, list[list[str]]]:
    """Return the cells of each table by its caption, without markup."""
    tables = {}
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        caption = re.search(r"<caption[^>]*>(.*?)</caption>", table)[1]
        rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
        tables[caption] = [[unescape(re.sub(r"<[^>]*>", "", c)) for c in row] for row in cells]
    return tables


def make_shortened():
    """Return a session whose first result was cut from 400 characters to 40."""
    read, again = (tool_call("read_file", id=f"c{n}", path="a.txt") for n in (1, 2))
    usages = [Usage(input_tokens=n, output_tokens=5) for n in (700, 900, 1_000)]
    old = result("long text " * 40, read, id="r1")
    short = result("long text " * 4, read, id="r1~1")
    return session(
        user("Look & see.", id="u"), assistant("", read, usage=usages[0], model=MODEL), old,
        assistant("", again, usage=usages[1], model=MODEL), result("short", again, id="r2"),
        Edit(kind="shortened", id="e", targets=("r1",), inserted=(short,)),
        assistant("Done.", usage=usages[2], model=MODEL), model=MODEL, title="A <b>page</b>",
    )  # fmt: skip


@pytest.mark.parametrize("made", [make_priced_session, make_shortened])
def test_a_report_is_a_table_of_groups_and_their_parts(made):
    report = ck.report(made())
    page = report.to_html()
    tables = read_tables(page)
    heads, *rows = tables["What fills the window"]
    is_shortened = made is make_shortened
    assert heads == ["part", "tokens", "share", "", "messages", *["unshortened"] * is_shortened]
    wanted = []
    for group, tokens in report.groups().items():
        parts = [p for p in report.parts if p.group == group]
        raw = sum(p.raw_tokens for p in parts)
        n = sum(p.messages_n for p in parts)
        share = f"{100 * tokens / report.prompt_tokens:.1f} %"
        wanted.append([group, f"{tokens:,}", share, "", str(n or ""), f"{raw:,}" * (raw != tokens)])
        for p in parts:
            raw = f"{p.raw_tokens:,}" * (p.raw_tokens != p.tokens)
            wanted += [[f"\u2003{p.name}", f"{p.tokens:,}", "", "", str(p.messages_n or ""), raw]] if p.name else []  # fmt: skip
    assert rows == [row[: len(heads)] for row in wanted]
    assert any(row[-1] for row in rows) or not is_shortened
    bars = re.findall(r"(?<!max-)width:(\d+)px", page)
    assert bars == [f"{160 * t / report.prompt_tokens:.0f}" for t in report.groups().values()]
    gauge = re.search(r"width:([\d.]+)%", page)[1]
    assert float(gauge) == pytest.approx(100 * report.prompt_tokens / report.limit, abs=0.051)
    assert tables["The largest messages"][0] == ["tokens", "message", "name"]
    largest = [[row[0], row[2]] for row in tables["The largest messages"][1:]]
    assert largest == [[f"{c.tokens:,}", c.name] for c in report.contributors]


def test_a_report_says_how_its_sizes_came_about():
    priced = ck.report(make_priced_session())
    assert f"{priced.residue:,} tokens are in no log." in priced.to_html()
    assert f"the plain count is off by {100 * priced.count_error:+.0f} %" in priced.to_text()
    bare = ck.report(session(user("hi"), assistant("ok")))
    assert f"all sizes are counts by {bare.counter}." in bare.to_html()
    log = user("u" * 4_000), assistant(usage=usage(2_000)), user(), assistant(usage=usage(60))
    scaled = ck.report(session(*log), counter=estimated_counter())
    assert scaled.excess > scaled.residue > 0
    more = f"{scaled.excess:,} tokens more are shown than were recorded"
    assert f"{more}: the parts are scaled down." in scaled.to_text()
    empty = ck.report(session(Message(role="assistant", id="a0")))
    assert "Nothing is known of what filled the window" in empty.to_html()


def test_the_texts_of_a_log_are_cut_in_a_report():
    report = ck.report(make_priced_session(), 2)
    largest = replace(report.contributors[0], name="c" * 500, preview="p" * 500)
    part = replace(report.parts[0], name="n" * 500)
    long = replace(
        report, session="i" * 500, title="t" * 500, model="m" * 500, notes=("o" * 500,),
        contributors=(largest,), parts=(part, *report.parts[1:]),
    )  # fmt: skip

    def find_runs(text: str) -> list[tuple[str, int]]:
        return [(run[1], len(run[0])) for run in re.finditer(r"([a-z])\1{20,}", text)]

    assert find_runs(long.to_text()) == [("t", 59), ("m", 59), ("o", 399), ("n", 59), ("c", 79)]
    assert find_runs(long.to_html()) == [("i", 119), ("t", 59), ("m", 59), ("o", 399), ("n", 79), ("p", 199), ("c", 119)]  # fmt: skip


def test_a_report_of_an_unknown_window_has_no_gauge():
    report = ck.report(session(user("hi"), assistant("ok", usage=Usage(input_tokens=9))))
    assert report.limit is None
    assert "of an unknown window" in report.to_html()
    assert not re.search(r"width:[\d.]+%", report.to_html())


def test_a_notebook_is_offered_the_text_and_the_page_of_each_display():
    priced = make_priced_session()
    report, one, two = ck.report(priced), ck.spend(priced), ck.spend([priced, make_shortened()])
    for shown, page in (
        (report, report.to_html()),
        (one, one._repr_html_()),
        (two, two._repr_html_()),
    ):
        assert shown._repr_mimebundle_() == {"text/plain": shown.to_text(), "text/html": page}
        assert repr(shown) == shown.to_text()
        assert page.startswith("<div ")


# -- the map of a bill


def read_tiles(page: str) -> list[tuple[str, float, float, float, float]]:
    """Return name, left, top, width and height of each tile, the gap of a pixel included."""
    tile = r'<title>(.*?)</title><rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"'
    return [
        (unescape(name), float(x), float(y), float(w) + 1, float(h) + 1)
        for name, x, y, w, h in re.findall(tile, page)
    ]


def make_bill(*sizes: int):
    """Return a session with a result of so many words of each of as many tools."""
    log = [user("Begin.")]
    prompt = 1_000
    for n, size in enumerate(sizes):
        call = tool_call(f"tool_{n}", id=f"c{n}")
        bill = Usage(input_tokens=prompt, cache_read_tokens=0, output_tokens=10)
        log += [assistant("", call, usage=bill, model=MODEL), result("word " * size, call)]
        prompt += size
    bill = Usage(input_tokens=prompt, cache_read_tokens=0, output_tokens=10)
    return session(*log, assistant("Done.", usage=bill, model=MODEL), model=MODEL)


@pytest.mark.parametrize("sizes", [(5_000,), (9_000, 3_000), (8_000, 7_000, 2_000, 1_500, 900)])
def test_each_tile_is_as_large_as_its_dollars_and_none_lies_on_another(sizes):
    spent = ck.spend(make_bill(*sizes))
    tiles = read_tiles(spent._repr_html_())
    total = spent.total_usd
    shown = [p for p in spent.by("tool") if p.usd > 0.004 * total]
    assert [name.split(":")[0] for name, *_ in tiles] == [p.name.split(":")[0] for p in shown]
    whole = sum(p.usd for p in shown)
    for part, (name, x, y, w, h) in zip(shown, tiles, strict=True):
        assert name.endswith(f"{round(100 * part.usd / total)} %")
        assert w * h / (720 * 150) == pytest.approx(part.usd / whole, abs=0.01)
        assert 0 <= x <= x + w <= 720.2
        assert 0 <= y <= y + h <= 150.2
    for i, (_, x, y, w, h) in enumerate(tiles):
        for _, x2, y2, w2, h2 in tiles[i + 1 :]:
            across = min(x + w, x2 + w2) - max(x, x2)
            down = min(y + h, y2 + h2) - max(y, y2)
            assert across < 0.2 or down < 0.2


def test_a_bill_of_several_sessions_adds_the_parts_of_each():
    sessions = [make_bill(5_000), make_bill(2_000, 1_000)]
    both, each = ck.spend(sessions), [ck.spend(s) for s in sessions]
    assert both.total_usd == pytest.approx(sum(s.total_usd for s in each))
    assert both.cost_usd == pytest.approx(sum(s.cost_usd for s in each))
    for way in ("cache", "tool", "format", "day", "project"):
        parts = both.by(way)
        assert sum(p.usd for p in parts) == pytest.approx(both.total_usd)
        assert [p.usd for p in parts] == sorted((p.usd for p in parts), reverse=True)
    by_tool = {p.name: p for p in both.by("tool")}
    first, second = ({p.name: p for p in s.by("tool")} for s in each)
    assert by_tool["tool_0"].usd == pytest.approx(first["tool_0"].usd + second["tool_0"].usd)
    assert by_tool["tool_0"].n == first["tool_0"].n + second["tool_0"].n
    assert [(p.name, p.n) for p in both.by("format")] == [("native", 5)]
    assert [(p.name, p.n) for p in both.by("day")] == [("unknown", 5)]
    assert [p.n for p in both.by("session")] == [2, 3] or [p.n for p in both.by("session")] == [
        3,
        2,
    ]
    assert len(both.by("turn")) == 2
    assert both.sentences == [f"${both.total_usd:.2f} in 2 sessions, summaries and subagents included."]  # fmt: skip


def test_sessions_without_a_price_are_counted_beside_the_others():
    bare = session(user(), assistant("ok", usage=Usage(input_tokens=9), model="nobody"))
    partly = session(*make_bill(5_000).log, *bare.log)
    both = ck.spend([bare, make_bill(5_000), partly])
    assert both.cost_usd is None
    assert both.sentences[1:] == [
        "1 session without a price add nothing to it.",
        "1 session with calls or summaries without a price count as far as there is one.",
    ]
    nothing = ck.spend([bare, bare])
    assert nothing.total_usd is None
    assert nothing.sentences == ["No dollars are known of 2 sessions."]
    assert "ctxkit-spend" in nothing._repr_html_()


def test_tiles_of_about_one_size_are_at_most_three_times_as_long_as_wide():
    tiles = read_tiles(ck.spend(make_bill(*[3_000] * 20))._repr_html_())
    assert len(tiles) > 20
    assert max(max(w / h, h / w) for _, _, _, w, h in tiles) < 3
