"""The displays of sessions, of lists and of replays."""

from __future__ import annotations

import time

import msgspec
import pytest
from builders import assistant, session, step, summarised, usage, user
from widgets.reports.hostile_logs import EVIL, hostile, intruders

import ctxkit as ck
from ctxkit._internal import display_width
from ctxkit.formats import Sessions, samples
from ctxkit.widgets import get_session_facts, tabulate_turns

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
