"""The report of a session: one file, nothing asked of a network, text of logs as text, no number made up."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from builders import assistant, result, session, step, summarised, tool_call, usage, user
from msgspec.structs import replace
from widgets.reports.hostile_logs import EVIL, hostile, intruders
from widgets.reports.page_reading import (
    PageTable,
    drop_scripts,
    list_texts,
    read_pairs,
    read_sections,
    read_table,
)

import ctxkit as ck
from ctxkit import export
from ctxkit.errors import BadArguments
from ctxkit.session import Edit, Fault
from ctxkit.widgets.reports.html_page import (
    PageSection,
    encode_script_json,
    render_chart,
    render_name_value_pairs,
    render_page,
    render_sentence_list,
    render_table,
)


def words(path) -> str:
    """The text of a page without its scripts, styles and tags."""
    html = re.sub(
        r"<(script|style)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    return re.sub(r"<[^>]+>", " ", html)


def body(path) -> str:
    """The page without plotly itself and without the data of charts."""
    return re.sub(
        r"<script>.*?</script>",
        "<script></script>",
        path.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )


@pytest.fixture
def story():
    a, b = user("find the queue"), assistant("it is fin-import-7", usage=usage(900, read=100))
    cut = summarised(
        [a, b], "Nothing yet.", tokens_before=1200, tokens_after=300, reason="too long"
    )
    return session(
        a, b, step(text="x" * 900), cut, assistant("done", usage=usage(400)), title="The queue"
    )


def test_the_page_has_its_title_its_figures_and_its_compaction(story, tmp_path):
    said = words(export(story, tmp_path / "r.html"))
    assert "The queue" in said
    assert "too long" in said
    assert "1,200" in said
    assert "Nothing yet." in said


def test_the_page_asks_nothing_of_a_network(story, tmp_path):
    html = body(export(story, tmp_path / "r.html"))
    assert not re.findall(r"""(?:src|href)\s*=|url\(|@import""", html)
    assert "default-src 'none'" in html


def test_plotly_is_in_the_page_once(story, tmp_path):
    html = export(story, tmp_path / "r.html").read_text(encoding="utf-8")
    assert 4_000_000 < len(html) < 7_000_000


def test_what_the_log_cannot_say_comes_first_and_is_no_zero(tmp_path):
    bare = session(user("hi"), assistant("ho"))
    said = words(export(bare, tmp_path / "r.html"))
    assert said.index("has no usage") < said.index("How the context grew")
    assert "has no times" in said
    assert "$0" not in said


def test_a_session_without_calls_is_a_page_too(tmp_path):
    assert "no compaction" in words(export(session(user("hi")), tmp_path / "r.html"))
    assert "no compaction" in words(export(session(), tmp_path / "empty.html"))


def test_text_of_a_log_stays_text(tmp_path):
    html = body(export(hostile(), tmp_path / "r.html"))
    assert intruders(html, scripts=html.count("<script></script>")) == []
    assert "window.evil=1" in html  # it is there, as text


def test_text_of_a_log_cannot_end_a_script(tmp_path):
    html = export(hostile(), tmp_path / "r.html").read_text(encoding="utf-8")
    for script in re.findall(r"<script>(Plotly\.newPlot.*?)</script>", html, flags=re.DOTALL):
        assert "<" not in script
        assert script.endswith(")")
    assert encode_script_json(EVIL.encode("utf-8", "replace").decode()).count("<") == 0


def test_a_report_is_written_over_but_only_to_html(story, tmp_path):
    assert export(story, tmp_path / "r.html") == export(story, str(tmp_path / "r.html"))
    log = tmp_path / "session.jsonl"
    log.write_text("{}")
    with pytest.raises(BadArguments, match=r"ends in \.html"):
        export(story, log)
    assert log.read_text() == "{}"


def test_a_page_is_whole_or_the_old_one_is_untouched(story, tmp_path, monkeypatch):
    import os

    path = tmp_path / "r.html"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: export(story, path), lambda: ck.plots.growth(story).write_html(path),
                  lambda: ck.budget(story).write_html(path)):  # fmt: skip
        with pytest.raises(BadArguments, match="No space left"):
            write()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    monkeypatch.undo()
    fresh = export(story, tmp_path / "new.html")
    assert fresh.stat().st_mode & 0o044 == 0o666 & ~os.umask(os.umask(0)) & 0o044


def test_the_ending_of_a_path_says_what_is_written_and_a_tilde_is_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, start in (
        ("a.htm", "<!doctype html>"),
        ("b.HTML", "<!doctype html>"),
        ("c.IPYNB", "{"),
    ):
        path = export(session(user("hi")), f"~/{name}")
        assert path == tmp_path / name
        assert path.read_text(encoding="utf-8").startswith(start)
    with pytest.raises(BadArguments) as refused:
        export(session(user("hi")), "~/d.pdf")
    assert str(refused.value) == (
        "A report is a page or a notebook: give a path that ends in .html or .ipynb, not 'd.pdf'."
    )


def test_what_cannot_be_written_is_said_in_one_sentence(story, tmp_path):
    with pytest.raises(BadArguments, match="Choose a folder that exists"):
        export(story, tmp_path / "no" / "r.html")
    with pytest.raises(BadArguments, match="a list of messages, not int"):
        export(5, tmp_path / "r.html")


# -- A compaction of several edits is one in reports and tables.


def test_edits_of_one_compaction_share_its_number(tmp_path):
    a, b = user("find it"), assistant("found")
    first = replace(summarised([a], "one"), id="pi-0.0", source="derived")
    second = replace(summarised([b], "two"), id="pi-0.1", source="derived")
    s = session(a, b, first, second, assistant("done"))
    page = export(s, tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count("What compaction 0 wrote") == 2
    assert "What compaction 1 wrote" not in page


# -- A page of a session that is written down here: every section and figure by hand.

MODEL = "claude-sonnet-4-5"
"""Dollars of a million tokens: 3 fresh, 0.30 read, 15 output."""


@pytest.fixture(scope="module")
def queue_log():
    asked = user("find <the> queue")
    found = assistant(
        "it is fin-import-7",
        tool_call("grep", pattern="q"),
        usage=usage(900, read=100),
        time=1.7e9,
        model=MODEL,
    )
    answer = result("E" * 9_000, found, is_error=True)
    grown = assistant("", usage=usage(100, read=3_000), time=1.7e9 + 1, model=MODEL)
    cut = summarised(
        [asked, found, answer], "<Nothing> yet.", tokens_before=1_200, tokens_after=300, reason="too long",
        usage=usage(1_000, output=100), model=MODEL,
    )  # fmt: skip
    ask = tool_call("edit", id="e", path="a.py")
    late = assistant(
        "so",
        replace(ask, raw="{path: a"),
        ask,
        thinking="hm",
        usage=usage(400),
        time=1.7e9 + 2,
        model=MODEL,
    )
    long = result("x" * 6_001, ask, is_error=True)
    last = assistant("done", usage=usage(5_000), time=1.7e9 + 3, model=MODEL)
    return session(
        asked, found, answer, grown, cut, user("go on"), late, long, last, title="The <queue>", product="pi",
        version="1.2", cwd="/home/x/shop", path_="C:\\logs\\one.jsonl", model=MODEL, format="pi",
        skipped={"zeta": 2, "alpha": 1_200}, faults=(Fault(3, "bad <json>"),),
    )  # fmt: skip


@pytest.fixture
def queue_page(queue_log, tmp_path):
    return export(queue_log, tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_report_shows_where_a_session_is_from_and_its_figures(queue_page):
    page = drop_scripts(queue_page)
    assert list_texts("title", page) == list_texts("h1", page) == ["The <queue>"]
    head = page.partition("</h1>")[2].partition("<section>")[0]
    assert list_texts("p", head) == [
        f"pi 1.2 · {MODEL} · shop · 2023-11-14 · session test · format pi · read from one.jsonl · ctxkit {ck.__version__}"
    ]
    assert read_pairs(head) == [
        ("calls", "4"),
        ("turns", "2"),
        ("compactions", "1"),
        ("largest prompt", "5,000, 2 % of 200.0k"),
        ("all prompts", "9,500"),
        ("read from cache", "33 %"),
        ("output", "40"),
        ("cost (derived)", "$0.03, of which compactions $0.0045"),
        ("failed tools", "2 of 3"),
    ]


def test_a_report_has_each_section_in_order(queue_page):
    sections = read_sections(queue_page)
    assert [*sections] == [
        *("What this report rests on", "How the context grew", "What filled it"),
        *("Largest contributors at the last call", "Compactions", "Turns"),
    ]
    assert re.findall(r'Plotly\.newPlot\("(\w+)"', queue_page) == ["growth", "composition"]
    for name, heading in (("growth", "How the context grew"), ("composition", "What filled it")):
        assert f'id="{name}"' in sections[heading]
    sentences = list_texts("li", sections["What this report rests on"])
    assert sentences[0].startswith("Prediction error: ")
    assert sentences[-8:] == [
        "Sizes of prompts are as the provider billed them.",
        "Cached and uncached input are recorded apart.",
        "Calls carry times.",
        "The messages carry their text.",
        "Costs are derived from usage and a table of prices.",
        "System prompts and tool schemas that a log leaves out are a remainder: what was billed less what is seen.",
        "The reader passed over records that hold no message: alpha (1,200), zeta (2).",
        "1 place could not be read (line 3: bad <json>).",
    ]
    compactions = sections["Compactions"]
    assert read_table(compactions) == PageTable(
        "",
        ["compaction", "before call", "why", "tokens before", "tokens after", "saved", "messages", "cost", "sizes"],
        [["0", "2", "too long", "1,200", "300", "75 %", "4 → 2", "$0.0045", "recorded"]],
        ["compaction", "before call", "tokens before", "tokens after", "saved", "messages", "cost"],
    )  # fmt: skip
    assert compactions.endswith(
        "<details><summary>What compaction 0 wrote (14 characters)</summary>"
        '<pre tabindex="0">&lt;Nothing&gt; yet.</pre></details>'
    )
    turns = read_table(sections["Turns"])
    assert turns == PageTable(
        "",
        ["turn", "request", "calls", "largest prompt", "input", "output", "cost", "compactions"],
        [
            ["0", "find <the> queue", "2", "3,100", "4,100", "20", "$0.0042", "1"],
            ["1", "go on", "2", "5,000", "5,400", "20", "$0.02", ""],
        ],
        [h for h in turns.heads if h != "request"],
    )


def test_a_report_folds_away_the_text_of_the_largest_messages(queue_page):
    sections = read_sections(queue_page)["Largest contributors at the last call"]
    assert list_texts("p", sections) == [
        "The prompt had 5,000 tokens (recorded), 2 % of a window of 200,000 (derived)."
    ]
    heads, bodies = list_texts("summary", sections), list_texts("pre", sections)
    assert sections.count("<details><summary>") == len(heads) == len(bodies) == 4
    # of 8 characters an o200k token, at most: 6,001 of one letter
    sizes = [int(h.split()[0].replace(",", "")) for h in heads]
    assert sizes == sorted(sizes, reverse=True)
    assert [h.split(" tokens ")[1].split(" ")[0] for h in heads] == [
        f"({n / 50:.1f}" for n in sizes
    ]
    assert heads[0].endswith(", failed")
    assert [h.endswith("failed") for h in heads] == [True, False, False, False]
    assert bodies[0] == "x" * 6_000 + "\n… the first 6,000 of 6,001 characters"
    replies = [b for b in bodies if "edit" in b]
    assert replies == ["hm\n\nso\n\nedit {path: a\n\nedit {'path': 'a.py'}"]


def test_a_large_message_says_what_it_was_before_and_what_shortened_it(tmp_path):
    found = assistant("", asked := tool_call("grep", pattern="q" * 200))
    long, short = (result("alpha beta " * n, found, is_error=True) for n in (500, 50))
    cut = Edit(kind="shortened", id="e", targets=(long.id,), inserted=(short,), method="prune")
    empty = summarised([], "")
    done = result("x", asked)
    page = export(session(found, long, cut, empty, done, assistant("y")), tmp_path / "r.html")
    sections = read_sections(page.read_text("utf-8"))
    assert "<details>" not in sections["Compactions"], "no summary was written"
    shown = sections["Largest contributors at the last call"]
    assert list_texts("p", shown)[0].endswith("tokens (estimated), of an unknown window.")
    heads = list_texts("summary", shown)
    assert [h.partition(" (")[0] for h in heads if h.split()[0] in ("101", "1")] == [
        "101 tokens",
        "1 token",
    ]
    (changed,) = (h for h in heads if "prune" in h)
    assert re.match(r"101 tokens \(of 1,001, prune\) \(\d\d\.\d %\) · grep q+…, failed$", changed)
    assert sum(" (of " in h for h in heads) == 1
    tiny = export(session(user("x")), tmp_path / "t.html").read_text("utf-8")
    assert "<p>The prompt had 1 token (estimated), of an unknown window.</p>" in tiny

    cut = replace(cut, method="m" * 200)
    page = export(session(found, long, cut, done, assistant("y")), tmp_path / "r.html")
    heads = list_texts(
        "summary", read_sections(page.read_text("utf-8"))["Largest contributors at the last call"]
    )
    assert [h for h in heads if "mm" in h] == ["101 tokens (of 1,001, " + "m" * 177 + "…"]


def test_a_report_of_a_long_session_has_the_first_rows_and_the_beginnings_of_its_texts(tmp_path):
    log = [
        e
        for i in range(201)
        for e in (user(f"t{i}"), assistant("y"), summarised([], "s" * 20_001 if i == 0 else "z"))
    ]
    page = export(session(*log), tmp_path / "r.html").read_text("utf-8")
    sections = read_sections(page)
    assert list_texts("caption", sections["Compactions"]) == ["The first 200 of 201 compactions."]
    assert list_texts("caption", sections["Turns"]) == ["The 200 largest of 201 turns."]
    texts = list_texts("summary", sections["Compactions"])
    assert (len(texts), texts[0], texts[-1]) == (
        200, "What compaction 0 wrote (20,001 characters)", "What compaction 199 wrote (1 character)",
    )  # fmt: skip
    assert list_texts("pre", sections["Compactions"])[0] == "s" * 19_999 + "…"
    named = session(
        user("x"),
        title="t" * 161,
        product="p" * 80,
        id="i" * 80,
        format="f",
        path_="/a/b/" + "c" * 80,
    )
    head = drop_scripts(export(named, tmp_path / "n.html").read_text("utf-8"))
    assert list_texts("h1", head) == ["t" * 159 + "…"]
    words = list_texts("p", head)[0].split(" · ")
    assert words[:4] == [
        "p" * 80,
        "session " + "i" * 71 + "…",
        "format f",
        "read from " + "c" * 69 + "…",
    ]


def first_list(x, tmp_path):
    page = export(x, tmp_path / "r.html").read_text(encoding="utf-8")
    return list_texts("li", read_sections(page)["What this report rests on"])


def test_the_sentences_on_a_log_say_what_it_lacks_before_what_it_has(tmp_path):
    no_cost = "A cost is missing: at least one call has no usage, or its model no known price."
    remainder = "System prompts and tool schemas that a log leaves out are a remainder: what was billed less what is seen."
    bare = session(user("hi"), reply := assistant("ho"))
    sentences = first_list(bare, tmp_path)
    assert sentences[-6:] == [
        "The log has no usage: sizes of prompts are estimated from the text.",
        "The log does not tell cached from uncached input, so what the cache saved cannot be shown.",
        "The log has no times: pauses, and what they cost in the cache, cannot be seen.",
        "The messages carry their text.",
        no_cost,
        remainder,
    ]
    assert sentences[0].startswith("Prediction error: unknown. ")
    torn = session(user("hi"), faults=(Fault(3, "bad <json>"),))
    assert first_list(torn, tmp_path)[-1] == "1 place could not be read (line 3: bad <json>)."
    billed = replace(reply, usage=replace(usage(1), cost_usd=0.5))
    assert "Costs are as the log recorded them." in first_list(
        session(user("hi"), billed), tmp_path
    )
    faults = tuple(Fault(i, f"why{i} " + "w" * 80) for i in range(1_000))
    skipped = {f"k{i:02}" + "s" * 60: 1 for i in range(31)}
    sentences = first_list(session(user("hi"), faults=faults, skipped=skipped), tmp_path)
    assert not any(s.startswith("Prediction error") for s in sentences)
    records = [f"k{i:02}" + "s" * 56 + "… (1)" for i in range(30)]
    assert (
        sentences[-2]
        == f"The reader passed over records that hold no message: {', '.join(records)}."
    )
    places = [f"line {i}: why{i} " + "w" * 74 + "…" for i in range(5)]
    assert sentences[-1] == f"1,000 places could not be read ({'; '.join(places)})."


def test_a_report_without_calls_has_no_charts_and_says_that_nothing_was_compacted(tmp_path):
    page = export(session(user("hi")), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "newPlot(" not in page
    assert len(page) < 50_000
    sections = read_sections(page)
    assert [*sections] == [
        *("What this report rests on", "Largest contributors to the next prompt", "Compactions")
    ]
    assert sections["Compactions"] == "<p>None: the log holds no compaction.</p>"


def test_a_page_has_each_section_that_is_not_empty_and_plotly_where_it_is_asked_for():
    sections = [
        PageSection("<b>", "<p>x</p>"),
        PageSection("Empty", ""),
        PageSection("c", "<p>y</p>"),
    ]
    page = render_page("t" * 250, "<p>head</p>", sections, plotly=False)
    assert page.endswith(
        f"<body><main><h1>{'t' * 199}…</h1><p>head</p><section><h2>&lt;b&gt;</h2><p>x</p></section>"
        "<section><h2>c</h2><p>y</p></section></main></body></html>\n"
    )
    assert page.startswith('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">')
    for meta in (
        'name="viewport" content="width=device-width,initial-scale=1"',
        'name="referrer" content="no-referrer"',
    ):
        assert f"<meta {meta}>" in page
    assert list_texts("title", page) == ["t" * 119 + "…"]
    style = list_texts("style", page)[0]
    assert "p.soft,caption,.soft{" in style
    assert ".annotation-text" in style, "texts of charts have the colour of the page"
    assert "beforeprint" in list_texts("script", page)[0]
    assert (
        len(render_page("t", "", [], plotly=True)) - len(render_page("t", "", [], plotly=False))
        > 4_000_000
    )


def test_tables_lists_and_pairs_escape_and_bound_their_texts():
    html = render_table(
        ["<a>", "n"], [["x" * 400, "<1>"], ["x" * 401, "2"]], numbers=frozenset({1}), caption="<c>"
    )
    assert html == (
        '<div class="wide"><table><caption>&lt;c&gt;</caption><thead><tr><th scope="col">&lt;a&gt;</th>'
        f'<th scope="col" class="n">n</th></tr></thead><tbody><tr><td>{"x" * 400}</td><td class="n">&lt;1&gt;</td></tr>'
        f'<tr><td>{"x" * 399}…</td><td class="n">2</td></tr></tbody></table></div>'
    )
    assert "caption" not in render_table(["a"], [["b"]])
    assert render_table(["a"], [], caption="c") == ""
    with pytest.raises(ValueError, match="zip"):
        render_table(["a"], [["b", "c"]])
    assert render_sentence_list(["<a>", "b"]) == "<ul><li>&lt;a&gt;</li><li>b</li></ul>"
    assert render_name_value_pairs([("<a>", "v" * 60), ("b", "v" * 61)]) == (
        f'<dl class="facts"><div><dt>&lt;a&gt;</dt><dd>{"v" * 60}</dd></div>'
        f"<div><dt>b</dt><dd>{'v' * 59}…</dd></div></dl>"
    )
    assert render_sentence_list([]) == render_name_value_pairs([]) == ""
    assert (
        encode_script_json(["</script>", "\u2028\u2029", 1])
        == '["\\u003c/script>", "\\u2028\\u2029", 1]'
    )
    with pytest.raises(ValueError, match="JSON"):
        encode_script_json(float("nan"))


def test_a_chart_of_a_page_has_its_picture_caption_and_no_title(queue_log):
    drawn = ck.plots.growth(queue_log)
    html = render_chart(drawn, "c-1")
    height = drawn.to_plotly()["layout"]["height"]
    assert html.startswith(
        f'<figure><div class="chart" style="height:{height}px" id="c-1" role="img" aria-label="'
    )
    assert f'aria-label="Context of The &lt;queue&gt;. {drawn.caption}"' in html
    assert (
        f"<noscript>{drawn.drawing.svg()}</noscript><figcaption>{drawn.caption}</figcaption></figure>"
        in html
    )
    script = re.findall(r'<script>Plotly\.newPlot\("c-1",(.*)\)</script>', html)[0]
    assert script.endswith(",{responsive:true,displaylogo:false}")
    decoder = json.JSONDecoder()
    data, end = decoder.raw_decode(script)
    layout, _ = decoder.raw_decode(script[end + 1 :])
    assert data == json.loads(json.dumps(drawn.to_plotly()["data"]))
    assert not {"title", "width"} & {*layout}
    assert (layout["height"], layout["autosize"]) == (height, True)
    long = dataclasses.replace(drawn, title="t", caption="c" * 700)
    html = render_chart(long, "c-2")
    assert list_texts("figcaption", html) == ["c" * 599 + "…"]
    assert f'aria-label="t. {"c" * 696}…"' in html
