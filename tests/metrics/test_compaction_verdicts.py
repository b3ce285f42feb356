"""One value and one verdict for a compaction, recorded or replayed; each column by hand."""

from __future__ import annotations

import msgspec
import pytest
from builders import assistant, session, summarised, user

import ctxkit as ck
from ctxkit.metrics import PromptAndSharedPrefixSizes, ReplayCostModel, compaction_formulas, thrash
from ctxkit.metrics import compaction_savings_and_payback as sizes_module
from ctxkit.metrics.compaction_savings_and_payback import (
    SPIRAL_LENGTH,
    CombinedCompactionBeforeCall,
    count_requests_to_break_even,
    is_thrashing,
    judge_compactions,
    make_compaction_columns,
)
from ctxkit.policies import Rules, triggers
from ctxkit.session import Usage

MODEL = "claude-sonnet-4-5"


def talk(
    n: int = 40, by: int = 2_000, *, pauses: tuple[int, ...] = (), text: str = "word " * 2_000
):
    """A session that grows by `by` tokens a call; before some calls an hour passes."""
    log, time = [], 0.0
    for i in range(n):
        cold, now = i == 0 or i in pauses, 10_000 + by * i
        time += 3_600.0 if i in pauses else 10.0
        used = Usage(
            input_tokens=0,
            cache_read_tokens=0 if cold else now - by,
            cache_write_tokens=now if cold else by,
            output_tokens=100,
        )
        log += [
            user(text, time=time),
            assistant("ok", usage=used, model=MODEL, time=time, latency=0.0),
        ]
    return session(*log)


def sheet(**more) -> ReplayCostModel:
    return ReplayCostModel.of(talk(**more))


changed = msgspec.structs.replace
CUT = CombinedCompactionBeforeCall(10, 30_000, 10_000, 20, 4, 500)


def pays(cut, of):
    return count_requests_to_break_even(cut, of, of.summaries_usd(cut.summaries))


@pytest.mark.parametrize(
    ("run", "unpaid", "told"),
    [
        (SPIRAL_LENGTH - 1, (), False),
        (SPIRAL_LENGTH, (), True),
        (0, (True,), False),  # one says nothing
        (0, (True, False), False),  # half is not most
        (0, (True, True, False), True),
    ],
)
def test_cuts_thrash_where_three_made_no_progress_or_most_did_not_pay(run, unpaid, told):
    assert is_thrashing(run, unpaid) is told


def test_what_it_saved_is_a_share_of_tokens_and_of_messages():
    assert (CUT.savings, CUT.message_savings) == (pytest.approx(2 / 3), 0.8)


def test_how_soon_it_was_full_again():
    prompts = [30_000] * 10 + [10_000 + 1_000 * i for i in range(30)]
    (one, two) = judge_compactions(
        [CUT, changed(CUT, call=30)], PromptAndSharedPrefixSizes(prompts), sheet(), [0.0, 0.0]
    )
    assert (one.interval, one.refill_3, one.refill_10, one.rebound_calls) == (20, 0.15, 0.5, 13)
    assert (two.interval, two.not_paid_back, two.refill_10, two.rebound_calls) == (
        None,
        None,
        None,
        0,
    )
    assert one.pays_after == two.pays_after


def test_a_warm_one_pays_back_its_summary_and_the_writing_of_what_is_left():
    p, written = ck.prices.price(MODEL), (sizes_module.WrittenSummary(10, 20_500, 30_000, 500),)
    cost = 20_500 * p.input + 500 * p.output
    expected = (cost + (p.cache_write - p.cache_read) * 10_000) / (p.cache_read * 20_000)
    assert pays(changed(CUT, summaries=written), sheet()) == pytest.approx(expected)
    known = (changed(written[0], usd=0.0),)
    assert pays(changed(CUT, summaries=known), sheet()) == pytest.approx(11.5 / 2)


def test_on_a_cold_call_nothing_is_written_that_would_not_be_written_anyway():
    assert pays(CUT, sheet(pauses=(10,))) == 0.0
    assert pays(CUT, sheet(pauses=(11,))) == pytest.approx(11.5 / 2)
    cuts = [CUT, changed(CUT, call=12)]
    prompts = PromptAndSharedPrefixSizes([20_000] * 40)
    assert [
        make_compaction_columns(cuts, prompts, sheet(pauses=p), [0.0, 0.0])["not_paid_back_n"]
        for p in ((), (10,))
    ] == [1, 0]


def test_what_stays_at_the_front_is_not_written_again():
    front = changed(CUT, unchanged_front_tokens=8_000)
    assert pays(front, sheet()) == pytest.approx(11.5 * 2_000 / 20_000)
    assert pays(changed(front, previous_prompt=29_000), sheet()) == pytest.approx(11.5 / 20)
    assert pays(front, sheet(pauses=(10,))) == 0.0
    at_the_end = changed(CUT, unchanged_front_tokens=10_000)
    assert pays(at_the_end, sheet()) == 0.0


def test_without_a_summary_it_is_the_formula_of_an_edit():
    """``N > (w - r) S / (r x)``, where ``S`` comes after the change and ``x`` went."""
    p = ck.prices.price(MODEL)
    shares = {"write_share": p.cache_write / p.input, "read_share": p.cache_read / p.input}
    wanted = compaction_formulas.reads_until_mutation_pays(20_000, 2_000, **shares)
    assert pays(changed(CUT, unchanged_front_tokens=8_000), sheet()) == pytest.approx(wanted)


@pytest.mark.parametrize("found", [0, 12_000, 30_000])
@pytest.mark.parametrize("front", [0, 7_000])
def test_paid_back_is_when_the_bills_with_and_without_it_are_equal(found, front):
    read, write, cost, before, after = 0.1, 1.25, 4_000.0, 30_000, 10_000
    n = compaction_formulas.requests_until_reset_pays(
        before,
        after,
        cost_usd=cost,
        read_price=read,
        write_price=write,
        cached_tokens=found,
        front=front,
    )
    there = min(front, found)
    without = read * found + write * (before - found) + read * before * (n - 1)
    with_it = cost + write * (after - there) + read * there + read * after * (n - 1)
    assert max(with_it, without if n == 0 else 0) == pytest.approx(without)


@pytest.mark.parametrize(
    ("policy", "above"),
    [("clear:keep_last=5", 18_000), ("summary:keep_tokens=8000", 25_000)],
    ids=["clear", "summarise"],
)
def test_unpaid_is_what_the_bill_says_where_it_is_left_to_the_next_one(policy, above):
    """A compaction is unpaid where the same session without it costs less; cents aside."""
    s, usd = ck.read(ck.samples.path()), []
    rules = Rules(policy=policy, trigger=triggers.Above(above))
    told = thrash(ck.replay(s, rules)).outcomes
    looked = told[:9:2] if len(told) > 9 else told[:-1]
    for left in (None, *looked):
        calls = tuple(c.call for c in told if c is not left)
        row = ck.score(ck.replay(s, rules.but(trigger=triggers.AtCalls(calls))), loss=False)
        usd.append(row["cost_usd"])
    cheaper_without = [usd[0] - without for without in usd[1:]]
    sure = [
        (c.not_paid_back, d > 0)
        for c, d in zip(looked, cheaper_without, strict=True)
        if abs(d) > 1e-3
    ]
    assert len(sure) >= 3
    assert all(unpaid is dearer for unpaid, dearer in sure), sure


def test_the_thrash_of_a_replay_and_the_columns_of_its_run_are_one():
    s = ck.read(ck.samples.path())
    again = ck.replay(s, ck.presets.semantic_kernel())
    told, row = thrash(again), ck.sweep(s, ck.presets.semantic_kernel(), progress=False).iloc[0]
    assert len(told.outcomes) == row["compactions_n"] > 1
    for name in (
        "not_paid_back_n",
        "paid_back_share",
        "refilled_share",
        "rebound_calls",
        "no_progress_streak",
        "is_thrashing",
    ):
        assert getattr(told, name) == pytest.approx(row[name]), name


def test_a_record_pays_for_its_summaries_by_the_rule_of_a_replay():
    old = [
        user("word " * 9_000),
        assistant(
            "ok",
            usage=Usage(input_tokens=20_000, cache_read_tokens=0, output_tokens=9),
            model=MODEL,
        ),
    ]
    rest = [
        user("on"),
        assistant(
            "ok",
            usage=Usage(input_tokens=11_200, cache_read_tokens=0, output_tokens=9),
            model=MODEL,
        ),
    ]
    row, p = (
        ck.score(session(*old, summarised(old, "so far " * 100), *rest, model=MODEL)),
        ck.prices.price(MODEL),
    )
    (cut,) = thrash(session(*old, summarised(old, "so far " * 100), *rest, model=MODEL)).outcomes
    (written,) = cut.summaries
    assert row["summaries_usd"] == pytest.approx(
        written.source * p.input + written.summary * p.output, rel=0.02
    )  # by the recorded prompts here, by anchored sizes there
    assert row["cost_usd"] == pytest.approx(
        row["input_usd"] + row["output_usd"] + row["summaries_usd"]
    )


def test_what_is_asked_again_counts_where_its_result_alone_was_cleared_and_ids_are_used_twice():
    from builders import result, tool_call

    first, other = tool_call("read_file", path="a.py"), tool_call("bash", command="ls")
    other = type(other)(id=first.id, name=other.name, arguments=other.arguments)
    old = [user(), assistant("", first), result("A", first), assistant("on")]
    cleared = ck.session.messages.Edit(
        kind="shortened",
        id="e",
        targets=(old[2].id,),
        inserted=(user("[gone]"),),
        source="recorded",
    )
    again = [user(), assistant("", tool_call("read_file", path="a.py")), assistant("", other)]
    (cut,) = thrash(session(*old, cleared, *again, assistant("done"))).outcomes
    assert (cut.reread_rate, cut.reorientation) == (0.5, None)
