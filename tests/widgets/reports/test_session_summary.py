"""The displays of sessions, of lists and of replays."""

from __future__ import annotations

import time

import msgspec
import pytest
from builders import assistant, session, step, summarised, usage, user
from widgets.reports.hostile_logs import EVIL, hostile, intruders
from widgets.reports.page_reading import list_texts

import ctxkit as ck
from ctxkit._internal import display_width
from ctxkit.formats import Sessions, samples
from ctxkit.session import Message, Text
from ctxkit.widgets import (
    describe_session_origin,
    get_session_facts,
    tabulate_compactions,
    tabulate_sessions,
    tabulate_turns,
)

SAMPLE = ck.samples.path("billing")


def text(x):
    return x._repr_mimebundle_()["text/plain"]


def html(x):
    return x._repr_mimebundle_()["text/html"]


def test_a_session_has_one_total_with_its_compactions():
    s = ck.read(SAMPLE)
    assert "$3.29, of which compactions $0.04" in " ".join(text(s).split())
    assert "$3.29, of which compactions $0.04" in html(s)
    assert "BILL-4127: the nightly export fails" in text(s).split("\n")[0]
    named = msgspec.structs.replace(s, id="4f2c-91")
    assert "4f2c-91" in html(named)  # when pointed at
    assert "4f2c-91" not in text(named)


def test_a_replay_costs_what_compare_says():
    s = ck.read(SAMPLE)
    found = ck.compare(s, ["pi"], loss=False, progress=False)
    cost = found["cost_usd"].iloc[1]
    assert f"${cost:,.2f}" in text(ck.replay(s, "pi"))


def test_a_replay_without_a_price_has_no_change_against_the_record():
    """The log recorded dollars of a model that has no known price: a replay has none."""
    spent = msgspec.structs.replace(usage(10), cost_usd=0.5)
    record = session(user(), step(), assistant(usage=spent, model="nobody-knows-it"))
    assert ("cost (recorded)", "$0.50") in get_session_facts(record)
    facts = get_session_facts(ck.replay(record, ck.presets.none()))
    assert [name for name, _ in facts] == [
        "calls", "turns", "compactions", "largest prompt", "all prompts", "read from cache",
        "output", "cost", "failed tools",
    ]  # fmt: skip
    assert dict(facts)["cost"] == "–"
    priced = [name for name, _ in get_session_facts(ck.replay(SAMPLE, "none"))]
    assert priced[-3:] == ["cost (derived)", "against the record", "failed tools"]


def test_the_page_and_the_notebook_say_the_same(tmp_path):
    page = ck.export(SAMPLE, tmp_path / "r.html").read_text()
    for figure in ("$3.29, of which compactions $0.04", "39.3k, 82 % of 48.0k", "40 of 326"):
        assert figure in page
        assert figure in html(ck.read(SAMPLE))


def test_a_fall_without_a_mark_is_told_apart_from_the_compactions():
    first, *talk = user("x"), *(assistant("y", usage=usage(n)) for n in (40_000, 12_000, 12_500))
    s = session(first, *talk, summarised([first]), assistant("z", usage=usage(6_000)))
    assert len(ck.frame(s, per="compaction")) == 2
    for shown in (text(s), html(s)):
        assert "1 compaction, 1 fall of the prompt without a mark." in shown
        assert "2 compactions" not in shown


@pytest.mark.parametrize(
    "bare",
    [
        session(),
        session(user()),
        session(user(), assistant()),
        session(user(), assistant(usage=usage(1))),
        session(user("x" * 10_000), title="t" * 10_000),
        session(u := user(), summarised([u])),
        hostile(),
    ],
    ids=["empty", "unanswered", "no usage", "no price", "long", "no call", "hostile"],
)
def test_every_session_has_a_face(bare):
    many = Sessions([bare, bare])
    many.failures.append((EVIL, None, EVIL))
    for x in (bare, many):
        assert max(map(display_width, text(x).split("\n"))) <= 80
        assert intruders(html(x)) == []
        assert not {"\x1b", "\u202e", "\x00"} & set(text(x))


def test_a_list_tells_its_titles_and_what_failed(tmp_path):
    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "good.jsonl").write_bytes(SAMPLE.read_bytes())
    found = ck.read_all(tmp_path, progress=False)
    assert "1 session, 1 file could not be read" in text(found)
    assert "BILL-4127" in text(found)


def test_a_long_session_is_shown_at_once():
    turns = (m for i in range(3000) for m in (user(f"turn {i}"), assistant(usage=usage(100 + i))))
    s = session(*turns, model="claude-sonnet-4-5")
    start = time.thread_time()
    shown = s._repr_mimebundle_()
    assert time.thread_time() - start < 2.0
    assert "10 dearest of 3,000 turns" in shown["text/plain"]
    assert len(shown["text/html"]) < 400_000


def test_real_sessions_fit_a_terminal(real):
    for s in ck.read_all(real, progress=False)[::7]:
        assert max(map(display_width, text(s).split("\n"))) <= 80, s.id


def test_no_dollar_becomes_a_formula_in_a_notebook():
    sample = ck.read(ck.samples.path("billing"))
    shown = [
        sample._repr_mimebundle_()["text/html"],
        ck.read_all(ck.samples.path("billing"))._repr_mimebundle_()["text/html"],
        ck.spend(sample)._repr_html_(),
        ck.plots.savings(sample).to_html(),
        ck.metrics.when_to_compact(sample)._repr_html_(),
        ck.report(sample)._repr_mimebundle_()["text/html"],
        ck.compare(sample, ["pi"], progress=False)._repr_html_(),
    ]
    assert all("mathjax_ignore tex2jax_ignore" in html[:200] for html in shown)


# -- Tables of a session at a glance say what its frames say.


BILLING = ck.read(samples.path("billing"))


@pytest.mark.parametrize(
    "rules", [None, "fased:context_window=48000"], ids=["recorded", "replayed"]
)
def test_each_compaction_stands_in_the_turn_that_it_fell_in(rules):
    session = ck.replay(BILLING, rules) if rules else BILLING
    table = tabulate_turns(session, None)
    at = [h.name for h in table.heads].index("compactions")
    assert sum(row[at].value for row in table.rows) == len(session.edits) > 1
    places = [call.position for call in session.calls]
    turns = {row[0].value for row in table.rows if row[at].text}
    assert turns == {
        session.calls[max(sum(p < e for p in places) - 1, 0)].turn
        for e, entry in enumerate(session.path)
        if entry in session.edits
    }


# -- Figures and tables of sessions that are written down here.

MODEL = "claude-sonnet-4-5"
"""Dollars of a million tokens: 3 fresh, 15 output."""


def say(fresh, output=0, model=MODEL, **more):
    return assistant("y", usage=usage(fresh, output=output), model=model, **more)


def test_the_figures_of_a_session_are_in_order_and_a_replay_is_held_against_its_record():
    asked, first = user("x"), say(1_000_000, 10_000)
    s = session(
        asked, first, user("z"), assistant("w", usage=usage(500_000, read=500_000), model=MODEL)
    )
    facts = get_session_facts(s)
    assert facts == [
        ("calls", "2"),
        ("turns", "2"),
        ("compactions", "0"),
        ("largest prompt", "1.0M, 100 % of 1.0M"),
        ("all prompts", "2.0M"),
        ("read from cache", "25 %"),
        ("output", "10.0k"),
        ("cost (derived)", "$4.80"),
        ("failed tools", "0 of 0"),
    ]
    assert get_session_facts(s, ck.frame(s, per="session").iloc[0]) == facts
    whole, half = session(asked, say(600_000)), session(asked, say(300_000))
    unpriced, reply = session(asked, say(9, model="?")), say(9, model="?")
    logged, free = (
        session(
            asked,
            msgspec.structs.replace(
                reply, usage=msgspec.structs.replace(reply.usage, cost_usd=usd)
            ),
        )
        for usd in (0.5, 0.0)
    )
    for now, was, change in (
        (half, whole, "-50 %"),
        (unpriced, logged, None),
        (half, unpriced, None),
        (half, free, None),
    ):
        pairs = get_session_facts(msgspec.structs.replace(now, origin=was))
        assert dict(pairs).get("against the record") == change
        if change:
            assert [name for name, _ in pairs][-3:] == [
                "cost (derived)",
                "against the record",
                "failed tools",
            ]
    assert get_session_facts(session(asked)) == [
        *(
            ("calls", "0"),
            ("turns", "0"),
            ("compactions", "0"),
            ("largest prompt", "–"),
            ("all prompts", "–"),
        ),
        *(("read from cache", "–"), ("output", "–"), ("cost", "–"), ("failed tools", "0 of 0")),
    ]
    logged = dict(
        get_session_facts(
            session(asked, assistant(), details={"input_tokens": 12_345, "output_tokens": 678})
        )
    )
    assert logged["all prompts, by the log's total"] == "12.3k"
    assert logged["output, by the log's total"] == "678"


def test_the_origin_of_a_session_names_what_its_log_names():
    day = assistant("y", time=1.7e9, model="of-a-reply")
    named = {
        "product": "pi",
        "version": "1.2",
        "model": "m-1",
        "cwd": "/home/x/shop",
        "format": "pi-v3",
    }
    for s, words in (
        (session(day, **named), ["pi 1.2", "m-1", "shop", "2023-11-14"]),
        (session(day, format="pi-v3"), ["pi-v3", "of-a-reply", "2023-11-14"]),
        (
            session(day, details={"replay": {"rules": "r" * 80}}),
            ["a replay under " + "r" * 64 + "…", "native", "of-a-reply", "2023-11-14"],
        ),
        (session(details={"replay": "x"}), ["native"]),
        (session(details={"replay": {}}), ["native"]),
    ):
        assert describe_session_origin(s) == words


def test_a_table_of_turns_takes_the_dearest_ones_in_order_of_time():
    log = [
        e
        for i, n in enumerate((50_000, 9_000, 80_000, 70_000))
        for e in (user(f"turn {i}" + "w" * 140), say(n, 20))
    ]
    table = tabulate_turns(session(*log), 2)
    assert table.caption == "The 2 dearest of 4 turns."
    assert [h.name for h in table.heads if not h.number] == ["request"]
    assert [h.name for h in table.heads if h.spare] == ["largest prompt", "input", "output"]
    assert table.plain() == [
        ("2", "turn 2" + "w" * 133 + "…", "1", "80,000", "80,000", "20", "$0.24", ""),
        ("3", "turn 3" + "w" * 133 + "…", "1", "70,000", "70,000", "20", "$0.21", ""),
    ]
    assert [cell.value for cell in table.rows[0]] == [
        2,
        None,
        1,
        80_000,
        80_000,
        20,
        pytest.approx(0.2403),
        0,
    ]
    assert (table.rows[0][1].hover, table.rows[0][6].hover) == ("turn 2" + "w" * 140, "derived")
    for rows in (4, None):
        whole = tabulate_turns(session(*log), rows)
        assert (whole.caption, len(whole.rows)) == ("", 4)
    assert tabulate_turns(session(*log)) == tabulate_turns(session(*log), None)
    unpriced = session(*(e for n in (5, 900, 7, 800) for e in (user(), say(n, model="?"))))
    table = tabulate_turns(unpriced, 3)
    assert (table.caption, [row[0].text for row in table.rows]) == (
        "The 3 largest of 4 turns.",
        ["1", "2", "3"],
    )
    between = session(user(), say(9), asked := user(), say(9), summarised([asked]), user(), say(9))
    assert [row[-1].text for row in tabulate_turns(between).rows] == ["", "1", ""]
    early = session(asked := user("x"), summarised([asked]), say(9))
    assert [row[-1].text for row in tabulate_turns(early).rows] == ["1"], "an edit before all calls"


def attempt(outcome, why):
    details = {"outcome": outcome, "trigger": "tokens", "tokens": 12_000, "messages": 3}
    return Message(
        role="system", kind="compaction_attempt", visible=False, parts=(Text(why),), details=details
    )


def test_a_table_of_compactions_says_why_each_was_due_and_what_came_of_it():
    a, b, c, d = (user(f"ask {i}") for i in range(4))
    sizes = {"tokens_before": 40_000, "tokens_after": 10_000}
    held = summarised(
        [a],
        reason="r" * 161,
        method="llm",
        trigger="auto",
        usage=usage(1_000, output=100),
        model=MODEL,
        **sizes,
    )
    failed = summarised(
        [b],
        reason="too long",
        method="llm",
        details={"error": "litellm.Timeout: no <answer>."},
        **sizes,
    )
    bare = summarised([c], trigger="manual")
    log = [a, say(40_000), held, b, say(12_000), failed, c, say(11_500), bare, d, say(11_000)]
    table = tabulate_compactions(session(*log))
    why_failed = "Timeout: no <answer>"
    assert table.caption == (
        f"3 compactions. The last summary failed ({why_failed}): a note stands in the place of what it took."
    )
    assert [h.name for h in table.heads if not h.number] == ["why", "sizes"]
    assert [h.name for h in table.heads if h.spare] == ["messages", "sizes"]
    assert table.plain()[0][:8] == (
        "0",
        "1",
        "r" * 159 + "…",
        "40.0k",
        "10.0k",
        "75 %",
        "2 → 2",
        "$0.0045",
    )
    assert [cell.value for cell in table.rows[0]][:8] == [
        0,
        1,
        None,
        40_000,
        10_000,
        0.75,
        2,
        pytest.approx(0.0045),
    ]
    assert [cell.hover for cell in table.rows[0]] == [
        "",
        "",
        "llm",
        "40,000 tokens",
        "10,000 tokens",
        "",
        "",
        "derived",
        "",
    ]
    assert table.rows[1][2][:3] == (
        f"failed: {why_failed}.", None, f"llm: too long; the summary failed: {why_failed}.",
    )  # fmt: skip
    assert (table.rows[2][2].text, table.rows[2][2].hover) == ("manual", "")
    for rows, caption in ((3, "3 compactions. "), (2, "The first 2 of 3 compactions. ")):
        shown = tabulate_compactions(session(*log), rows)
        assert shown.caption.startswith(caption)
        assert len(shown.rows) == rows
    plain = session(a, say(9), summarised([a]), say(9), summarised([]), say(9))
    assert tabulate_compactions(plain).caption == ""
    assert tabulate_compactions(plain, 1).caption == "The first 1 of 2 compactions."
    assert tabulate_compactions(plain).rows[0][2].text == "not said"
    tried = session(
        a, say(9), attempt("refused", "by a <hook>."), attempt("failed", "w" * 250), b, say(9)
    )
    table = tabulate_compactions(tried)
    assert table.caption == (
        f"0 compactions, 2 attempts without an effect. The last failed ({'w' * 239}…): the history is as it was."
    )
    assert table.plain()[0] == (
        "–",
        "1",
        "refused: by a <hook>.",
        "12.0k",
        "12.0k",
        "0 %",
        "3 → 3",
        "–",
        "estimated",
    )
    assert table.rows[0][2].hover == "tokens; the history is as it was"
    assert table.rows[1][2].text == "failed: " + "w" * 159 + "…"


def test_a_table_of_sessions_has_ten_rows_and_says_how_many_more_there_are():
    first = session(
        user("x"), say(90_000, model="m-1"), say(80_000, model="m-2"), id="s-1", title="T <1>", cwd="/a/shop",
        path_="/logs/a.jsonl", product="p" * 41, started=1.7e9,
    )  # fmt: skip
    priced = session(
        a := user("y"), say(1_000_000), summarised([a], usage=usage(1_000), model=MODEL), say(0)
    )
    many = [first, priced, *[session()] * 10]
    table = tabulate_sessions(many, 10)
    assert [h.name for h in table.heads if not h.number] == ["session", "date", "program", "model"]
    assert [h.name for h in table.heads if h.spare] == ["program", "model", "calls"]
    assert (len(table.rows), table.legend, table.caption) == (10, "and 2 more sessions", "")
    assert table.plain()[0] == (
        "T <1>",
        "2023-11-14",
        "p" * 39 + "…",
        "m-1",
        "1",
        "2",
        "90.0k",
        "0",
        "–",
    )
    assert table.plain()[1] == ("y", "–", "native", MODEL, "1", "2", "1.0M", "1", "$3.00")
    assert table.rows[0][0].hover == "T <1> in shop · id s-1 · /logs/a.jsonl"
    assert table.rows[1][0].hover == "y · id test"
    assert [c.value for c in table.rows[0]] == [None, 1.7e9, None, None, 1, 2, 90_000, 0, None]
    assert (table.rows[0][3].hover, table.rows[0][6].hover) == ("m-1, m-2", "90,000 tokens")
    assert (table.rows[0][8].hover, table.rows[1][8].hover) == (
        "–",
        "$3.00, of which compactions $0.0032",
    )
    for count, legend in ((10, ""), (11, "and 1 more session")):
        assert tabulate_sessions(many[:count], 10).legend == legend
    named = tabulate_sessions(many, 2, names=["n1", "n2", "n3"])
    assert [row[0].text for row in named.rows] == ["n1", "n2"]
    with pytest.raises(ValueError, match="zip"):
        tabulate_sessions(many, 2, names=["n1"])


def test_a_display_shows_ten_rows_in_a_terminal_and_more_on_a_page():
    asked = user("x")
    log = [e for i in range(201) for e in (user(f"t{i}"), say(100), summarised([asked]))]
    s = session(
        asked, say(10), *log, path_="/logs/a.jsonl", id="s-1", title="T <1>", notes=("n" * 500,)
    )
    plain, page = text(s), html(s)
    lines = plain.split("\n")
    assert lines[:2] == ["T <1>", f"native · {MODEL}"]
    note = plain.partition("Note: ")[2].partition("\n\n")[0]
    assert note.replace("\n", "").strip() == "n" * 399 + "…"
    places = [
        lines.index(c) for c in ("The 10 dearest of 202 turns.", "The first 10 of 201 compactions.")
    ]
    assert places == sorted(places)
    assert [lines[i + 12 : i + 13] for i in places] == [[""], []]
    assert (
        '<strong style="font-size:125%" title="id s-1 · /logs/a.jsonl">T &lt;1&gt;</strong>' in page
    )
    assert "<caption" in page
    assert list_texts("caption", page) == [
        "The 200 dearest of 202 turns.",
        "The first 200 of 201 compactions.",
    ]
    assert page.count("<tr>") == 2 * 201
    assert page.count("max-height:420px") == 2
    assert list_texts("summary", page) == ["compactions"]
    assert (
        page.index("202 turns")
        < page.index("<details>")
        < page.index("201 compactions")
        < page.index("</details>")
    )
    assert "<button" not in page
    for name, value in get_session_facts(s):
        assert f'font-size:85%">{name}</div><div style="font-size:115%">{value}</div>' in page
    assert f">native · {MODEL}</div>" in page
    assert f"<small>Note: {'n' * 399}…</small>" in page
    bare = html(session(id="s-2"))
    assert 'title="id s-2"' in bare
    assert "<details>" not in bare


def test_the_display_of_a_list_shows_ten_sessions_in_a_terminal_and_a_hundred_on_a_page():
    many = Sessions([session(title=f"T{i}") for i in range(101)])
    lines = text(many).split("\n")
    assert lines[0] == "101 sessions"
    assert lines[1].split()[:2] == ["session", "date"]
    assert [lines[2].split()[0], lines[11].split()[0], *lines[12:]] == [
        "T0",
        "T9",
        "and 91 more sessions",
    ]
    page = html(many)
    assert page.count("<tr>") == 101
    assert "<strong>101 sessions</strong>" in page
    assert "and 1 more session<" in page
    assert "max-height:420px" in page
    assert "<button" not in page
    assert text(Sessions()) == "0 sessions"
    many.failures += [("a", None, "b"), ("c", None, "d")]
    assert (
        text(many).split("\n")[0]
        == "101 sessions, 2 files could not be read: .failed says which and why"
    )
