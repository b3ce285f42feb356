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


def work(name, *hours, tokens=10_000):
    log = [user(f"Work on {name}", time=hours[0] * HOUR)]
    log += [assistant("ok", usage=usage(tokens), model=SONNET, time=h * HOUR + 1) for h in hours]
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
