"""Misses are told apart, and the books close: prices are put to the right classes."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, user

import ctxkit as ck
from ctxkit.metrics import cache_misses, find_cache_misses, session_bill
from ctxkit.metrics.cost.replay_cost_model import bill_modelled_reads, closure_error
from ctxkit.policies import Clear, Rules, triggers
from ctxkit.session import Usage
from ctxkit.tokens import measure_sizes

MODEL = "claude-sonnet-4-5"


def reply(fresh: int, read: int, write: int, time: float, model: str = MODEL, output: int = 100):
    u = Usage(
        input_tokens=fresh, cache_read_tokens=read, cache_write_tokens=write, output_tokens=output
    )
    return assistant("ok", usage=u, time=time, latency=1.0, model=model)


def kinds(s):
    return [m and m.kind for m in find_cache_misses(s)]


def test_a_hit_a_pause_and_a_riddle():
    s = session(
        user(), reply(0, 0, 20_000, 0),
        user(), reply(0, 20_000, 1_000, 10),
        user(), reply(0, 0, 22_000, 400),
        user(), reply(0, 4_000, 19_000, 410),
        user(), reply(0, 22_900, 1_100, 420),
    )  # fmt: skip
    assert kinds(s) == ["cold_start", None, "ttl_expiry", "unexplained", None]
    assert [m.missed_tokens for m in find_cache_misses(s) if m] == [20_000, 21_000, 18_000]


def test_each_model_has_its_own_cache():
    s = session(
        user(),
        reply(0, 0, 20_000, 0),
        user(),
        reply(0, 0, 20_500, 5, "claude-haiku-4-5"),
        user(),
        reply(0, 20_000, 1_000, 9),
    )
    assert kinds(s) == ["cold_start", "prefix_change", None]


def test_an_hour_long_cache_outlives_five_minutes():
    def hour(read: int, write: int, time: float):
        u = Usage(
            input_tokens=0, cache_read_tokens=read, cache_write_1h_tokens=write, output_tokens=1
        )
        return assistant("ok", usage=u, time=time, latency=1.0, model=MODEL)

    s = session(
        user(), hour(0, 20_000, 0), user(), hour(0, 21_000, 400), user(), hour(0, 22_000, 5000)
    )
    assert kinds(s) == ["cold_start", "unexplained", "ttl_expiry"]


def test_a_compaction_is_the_reason_of_the_miss_after_it():
    a, b = user("x" * 8000), reply(0, 0, 20_000, 0)
    s = session(a, b, summarised([a, b]), user(), reply(0, 0, 9_000, 10))
    assert kinds(s) == ["cold_start", "compaction"]


def test_after_a_compaction_the_cache_is_expected_to_have_what_stands_before_the_summary():
    stays, a, b = user("x" * 8_000), reply(0, 0, 20_000, 0), user("y" * 8_000)
    c = reply(0, 20_000, 3_000, 10)
    s = session(stays, a, b, c, summarised([a, b, c]), user(), reply(0, 4_000, 19_000, 20))
    sizes = measure_sizes(s)
    shared = sizes.fixed + sizes.of(stays)
    miss = find_cache_misses(s)[2]
    assert (miss.call, miss.kind, miss.expected, miss.read_tokens) == (2, "compaction", shared, 4_000)  # fmt: skip
    assert miss.missed_tokens == shared - 4_000 > 0
    short = session(stays, a, b, c, summarised([a, b, c]), user(), reply(0, 0, 500, 20))
    assert find_cache_misses(short)[2].expected == 500  # no more than the prompt


def test_without_a_split_nothing_is_classified():
    s = session(
        user(),
        assistant(usage=Usage(input_tokens=10, output_tokens=1)),
        user(),
        assistant(usage=Usage(input_tokens=20)),
    )
    assert kinds(s) == [None, None]
    assert closure_error(s) is None


def test_the_ledger_is_disjoint_and_priced_by_class():
    s = session(user(), reply(10, 0, 20_000, 0), user(), reply(20, 20_000, 1_000, 5))
    p, ledger = ck.prices.price(MODEL), session_bill.bill_session(s)
    assert [line.prompt for line in ledger.charges] == [20_010, 21_020]
    assert ledger.input_usd == pytest.approx(
        30 * p.input + 20_000 * p.cache_read + 21_000 * p.cache_write
    )
    assert ledger.output_usd == pytest.approx(200 * p.output)
    assert ledger.list_price_usd == pytest.approx(ledger.input_usd + ledger.output_usd)


def test_an_unknown_model_has_no_price_and_is_counted():
    ledger = session_bill.bill_session(session(user(), reply(10, 0, 2_000, 0, "nobody-knows-9")))
    assert ledger.list_price_usd is None
    assert ledger.unpriced_n == 1


def test_fresh_and_written_tokens_are_not_told_apart_by_the_model():
    """Two logs with the same prompts, pauses and reads get the same dollars."""
    one = session(user(), reply(0, 0, 20_000, 0), user(), reply(0, 20_000, 1_000, 5))
    other = session(user(), reply(0, 0, 20_000, 0), user(), reply(400, 20_000, 600, 5))
    assert bill_modelled_reads(one).input_usd == pytest.approx(bill_modelled_reads(other).input_usd)


@pytest.mark.parametrize(
    ("name", "usd"),
    [("pi/before-compaction.jsonl", 37.90), ("claude-code/entire-7f78a542.jsonl", 13.13)],
)
def test_real_bills_close(real, name, usd):
    """Pi's session cost $37.90 on the input side."""
    s = ck.read(real / name)
    assert session_bill.bill_session(s).input_usd == pytest.approx(usd, abs=0.01)
    assert abs(closure_error(s)) < 0.005


def test_the_books_of_every_real_session_with_a_split_close(real):
    checked = 0
    for s in ck.read_all(real, progress=False):
        for each in (s, *s.children):
            error = closure_error(each)
            if error is not None:
                checked += 1
                assert abs(error) < 0.03, (each.path_, error)
    assert checked >= 15


def test_the_compactions_of_a_log_are_looked_at_in_one_walk(monkeypatch):
    log = [u := user(), a := reply(0, 0, 20_000, 0)]
    for i in range(1, 9):
        log += [summarised([u, a]), u := user(), a := reply(0, 0, 9_000, 10.0 * i)]
    walks, fold = [], ck.session.session._iter_views

    def walked(*args, **more):
        walks.append(args)
        return fold(*args, **more)

    s = session(*log)
    monkeypatch.setattr("ctxkit.session.session._iter_views", walked)
    found = [m.expected for m in find_cache_misses(s) if m is not None and m.kind == "compaction"]
    assert found == [9_000] * 8  # all of it: the fixed part stays
    assert len(walks) < 8


def test_the_misses_of_pis_session_are_those_of_the_table(real):
    """13 busts; two of them are its compactions. Counted by hand: reads of 0 on prompts above 20,000."""
    s = ck.read(real / "pi/before-compaction.jsonl")
    found = [m for m in find_cache_misses(s) if m is not None and m.kind != "cold_start"]
    assert len(found) == 13
    assert [m.call for m in found if m.kind == "compaction"] == [174, 303]


def test_misses_whose_cause_the_log_shows_are_counted_by_tokens():
    s = session(
        user(), reply(0, 0, 20_000, 0),
        user(), reply(0, 0, 22_000, 400),
        user(), reply(0, 2_000, 22_000, 410),
    )  # fmt: skip
    assert cache_misses.measure_explained_share(find_cache_misses(s)) == pytest.approx(
        20_000 / 40_000
    )
    assert (
        cache_misses.measure_explained_share(
            find_cache_misses(session(user(), reply(0, 0, 20_000, 0)))
        )
        is None
    )


@pytest.mark.parametrize("last_bills", [(500, 100), (100, 500)])
def test_after_a_compaction_of_pruned_prompts_the_system_prompt_is_expected_in_the_cache(
    last_bills,
):
    """Bills of other tokens than counted change the fixed part; the smaller one was cached."""
    rules = Rules(
        lambda history, _: history.summarise(history.safe(4), "Short."),
        triggers.AtCalls((3,)),
        pruning=Clear(keep_last=1),
        counter="chars/4",
    )
    context, usage = ck.Context(rules, model=MODEL), None
    messages = [
        {"role": "system", "content": "s" * 40_000},
        {"role": "user", "content": "Look at each file."},
    ]
    for call, extra in enumerate((0, *last_bills, 0)):
        sent = context.fit(messages, usage=usage)
        tokens = sum(len(m["content"] or "") // 4 for m in sent) + 3_000 + extra
        usage = Usage(cache_read_tokens=0, cache_write_tokens=tokens, output_tokens=5)
        question = {"name": "read", "arguments": "{}"}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{call}", "type": "function", "function": question}],
            },
            {"role": "tool", "tool_call_id": f"c{call}", "content": "x" * 1_200},
        ]
    context.fit(messages, usage=usage)
    fixed = [context.session.sent(call)[0].tokens for call in (2, 3)]
    assert 300 < abs(fixed[0] - fixed[1]) < 500
    miss = find_cache_misses(context.session)[3]
    assert (miss.kind, miss.expected) == ("compaction", min(fixed) + 10_000)
