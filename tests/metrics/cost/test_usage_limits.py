"""Five hours and weeks of a subscription, by session and cause: sums, spans and what is left out."""

from __future__ import annotations

import msgspec
import pytest
from builders import assistant, session, usage, user
from widgets.reports.hostile_logs import EVIL, SECRET, list_leaks

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics.cost.dollars_per_subscription_span import SPANS, _find_fullest, list_call_costs

SONNET = "claude-sonnet-4-5"
HOUR = 3_600.0


def work(name, *hours, tokens=10_000, output=10):
    log = [user(f"Work on {name}", time=hours[0] * HOUR)]
    log += [assistant("ok", usage=usage(tokens, output=output), model=SONNET, time=h * HOUR + 1) for h in hours]  # fmt: skip
    return msgspec.structs.replace(session(*log), id=name, title=name)


def test_the_causes_add_up_to_the_price_of_the_calls():
    s = ck.read(ck.samples.path("billing"))
    uses, left_out = list_call_costs(s)
    assert left_out == 0
    whole = sum(
        ck.prices.price(c.message.model, at=c.message.time).cost_usd(c.message.usage)
        for c in s.calls
    )
    assert sum(u.usd for u in uses) == pytest.approx(whole)
    assert min(v for u in uses for v in u.usd_by_cause.values()) >= 0
    assert any(c.startswith("sent again") for u in uses for c in u.usd_by_cause)
    september = 1_790_000_000.0  # a million tokens read cost $0.20 then, and half of it later
    read = assistant(
        usage=usage(0, read=1_000_000, output=0), model="claude-sonnet-5-5", time=september
    )
    ((dated,), _) = list_call_costs(session(user(), read))
    assert dated.usd == pytest.approx(0.2)


def test_the_fullest_span_is_that_of_brute_force():
    sessions = [work("a", 0, 1, 2, 9, 9.5, 13), work("b", 3, 13.2, 40, tokens=25_000)]
    report = ck.metrics.limits(sessions)
    calls = sorted((c for s in sessions for c in list_call_costs(s)[0]), key=lambda c: c.time)
    for name, seconds in SPANS.items():
        spans = [
            sum(c.usd for c in calls if end.time - seconds < c.time <= end.time) for end in calls
        ]
        assert report.fullest[name].usd == pytest.approx(max(spans))
        assert report.last[name].usd == pytest.approx(spans[-1])
        assert sum(c.usd for c in _find_fullest(calls, seconds)) == pytest.approx(max(spans))
    assert report.last["five hours"].by_session.keys() == {"b"}


def test_shares_are_by_session_the_largest_first():
    report = ck.metrics.limits([work("small", 0), work("large", 1, tokens=30_000)])
    span = report.fullest["five hours"]
    assert list(span.by_session) == ["large", "small"]
    heads = [column.name for column in report.table.heads]
    assert len(set(heads)) == len(heads), "no two columns have one head"
    assert "75 % by “large”" in report.answer or "by “large”" in report.answer
    assert span.usd == pytest.approx(sum(span.by_session.values()))
    assert span.usd == pytest.approx(sum(span.by_cause.values()))


def test_subagents_count_with_their_session():
    child = work("child", 0.5)
    whole = msgspec.structs.replace(work("parent", 0), children=(child,))
    span = ck.metrics.limits(whole).fullest["week"]
    assert (span.calls_n, list(span.by_session)) == (2, ["parent"])


def test_calls_without_a_time_or_a_price_are_counted_as_left_out():
    odd = session(user("x"), assistant("y", usage=usage(5), model="nobody-knows", time=3.0))
    timeless = session(user("x"), assistant("y", usage=usage(5), model=SONNET))
    report = ck.metrics.limits([work("a", 0), odd, timeless])
    assert report.left_out == 2
    assert "2 calls without usage, a time or a price" in " ".join(str(report).split())
    with pytest.raises(BadArguments, match="has usage, a time and a price"):
        ck.metrics.limits([odd, timeless])


def test_it_says_what_no_log_knows_in_80_columns():
    text = ck.metrics.limits(ck.samples.path("billing")).to_text()
    assert "Not in any log: the plan's limit" in text
    assert max(map(len, text.splitlines())) <= 80


def test_titles_are_redacted_and_stay_text():
    for tokens in (5_000, 20_000):  # the largest session is named in the answer, too
        report = ck.metrics.limits([work(f"key {SECRET}", 0), work(EVIL, 1, tokens=tokens)])
        shown = str(report) + report._repr_html_() + report.answer
        assert SECRET not in shown
        assert list_leaks(str(report)) == []
        assert list_leaks(report._repr_html_(), html=True) == []


def test_each_call_is_split_into_replies_reads_what_was_new_and_what_was_sent_again():
    from metrics.cost.test_bill_splits import OUTPUT, READ, WRITE, make_session

    uses, left_out = list_call_costs(make_session())
    first, second, _, last = ({n: usd * 1e6 for n, usd in u.usd_by_cause.items()} for u in uses)
    assert left_out == 0
    assert first == pytest.approx({"replies": 100 * OUTPUT, "reading the cache": 0, "first sent, nothing cached": 1_000 * WRITE, "new in the prompt": 0})  # fmt: skip
    assert second == pytest.approx({"replies": 50 * OUTPUT, "reading the cache": 1_000 * READ, "new in the prompt": 1_000 * WRITE})  # fmt: skip
    assert last == pytest.approx({"replies": 10 * OUTPUT, "reading the cache": 0, "sent again, no cause found": 2_500 * WRITE, "new in the prompt": 300 * WRITE})  # fmt: skip
    assert [u.time for u in uses] == [10.0, 20.0, 30.0, 4_000.0]
    assert {u.session for u in uses} == {"T"}


def test_a_span_is_open_at_its_beginning():
    report = ck.metrics.limits(work("a", 0, 5, 10.0001))
    assert report.last["five hours"].calls_n == 1
    assert report.fullest["five hours"].calls_n == 1
    apart = ck.metrics.limits(work("a", 0, 5))
    assert apart.last["five hours"].calls_n == apart.fullest["five hours"].calls_n == 1
    near = ck.metrics.limits(work("a", 0, 4.9999))
    assert near.last["five hours"].calls_n == near.fullest["five hours"].calls_n == 2
    assert (near.last["week"].start, near.last["week"].end) == (1.0, 4.9999 * HOUR + 1)


def test_the_table_has_the_shares_of_each_session_and_cause_in_each_span():
    """$0.09 and $0.06 of new tokens within four hours; four days later $0.03 of a reply and $0.03."""
    sessions = [
        work("b", 0, tokens=30_000, output=0),
        work("c", 4, tokens=20_000, output=0),
        work("a", 100, output=2_000),
    ]
    report = ck.metrics.limits([*sessions, session(user(), assistant())])
    assert [[cell.text for cell in row] for row in report.table.rows] == [
        ["all, in dollars", "$0.06", "$0.15", "$0.21", "$0.21"],
        ["“a”", "100 %", "", "29 %", "29 %"],
        ["“b”", "", "60 %", "43 %", "43 %"],
        ["“c”", "", "40 %", "29 %", "29 %"],
        ["first sent, nothing cached", "50 %", "100 %", "86 %", "86 %"],
        ["replies", "50 %", "0 %", "14 %", "14 %"],
        ["reading the cache", "0 %", "0 %", "0 %", "0 %"],
        ["new in the prompt", "0 %", "0 %", "0 %", "0 %"],
    ]
    values = [row[2].value for row in report.table.rows]
    assert values == [pytest.approx(0.15), None, *map(pytest.approx, (0.6, 0.4, 1.0, 0.0, 0.0, 0.0))]  # fmt: skip
    assert [(h.name, h.hover) for h in report.table.heads] == [
        ("used by", "session, or what was paid for"),
        ("5 h: last", "the five hours up to the newest call"),
        ("5 h: fullest", "the five hours that used most"),
        ("week: last", "the week up to the newest call"),
        ("week: fullest", "the week that used most"),
    ]
    assert report.answer == (
        "The fullest five hours, from 1970-01-01 00:00 UTC, used $0.15 at list prices: 60 % by “b”,"
        " 100 % for first sent, nothing cached."
    )
    plain = report.to_dict()
    assert plain["left_out"] == 1
    last, fullest = (plain[name]["five hours"] for name in ("last", "fullest"))
    assert (last["start"], last["end"], last["calls_n"]) == (100 * HOUR + 1, 100 * HOUR + 1, 1)
    assert (fullest["start"], fullest["end"], fullest["calls_n"]) == (1.0, 4 * HOUR + 1, 2)
    assert fullest["by_session"] == pytest.approx({"b": 0.09, "c": 0.06})
    page = report._repr_html_()
    assert (
        page.index("<strong>The fullest") < page.index("<table") < page.index("<p>Not in any log")
    )
    assert page.endswith("<p>1 call without usage, a time or a price left out.</p></div>")


def test_the_four_largest_sessions_of_each_span_have_a_row():
    sessions = [work(name, n / 10, tokens=10_000 - n) for n, name in enumerate("abcdef")]
    report = ck.metrics.limits([*sessions, work("late", 50, tokens=10)])
    names = [row[0].text for row in report.table.rows]
    assert names[1:6] == ["“late”", "“a”", "“b”", "“c”", "“d”"]
    assert not {"“e”", "“f”"} & set(names)
    (row,) = (row for row in ck.metrics.limits(work("t" * 50, 0)).table.rows if "tt" in row[0].text)
    assert row[0].text == f"“{'t' * 27}…”"
