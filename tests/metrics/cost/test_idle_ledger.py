"""The idle ledger: each choice is priced by the documented rules, an end is a pause without a return."""

from __future__ import annotations

from math import exp, inf, log
from statistics import NormalDist

import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import idle
from ctxkit.metrics.cost.pause_cost_by_choice import (
    Pause,
    PauseCostReport,
    PauseTokenPrices,
    average_cost_over_gaps,
    estimate_expected_cost,
    find_pauses,
    rank_choices_by_cost,
    smooth_gaps,
)

PRICES = PauseTokenPrices(
    read=1.0, write=10.0, hour_write=16.0, output=50.0, life=300.0, refreshes=10
)
PAUSE = Pause("s", 3, 600.0, 1_000, 0, 200, 2, 100, PRICES)


@pytest.mark.parametrize(
    ("choice", "gap", "usd"),
    [
        ("nothing", 299, 1_000),
        ("nothing", 301, 10_000),
        ("nothing", inf, 0),
        ("warm", 200, 1_000),
        ("warm", 600, 3_100),  # two refreshes and the read
        ("warm", 90_000, 20_500),  # ten refreshes in vain, and the write
        ("warm", inf, 10_500),
        ("compact", 200, 1_000),
        ("compact", 600, 1_000 + 100 + 2_000),
        ("compact", inf, 1_100),
        ("hour", 600, 600 + 1_000),
        ("hour", 4_000, 600 + 16_000),
        ("hour", inf, 600),
    ],
)
def test_each_choice_has_its_price(choice, gap, usd):
    assert PAUSE.cost(choice, gap) == usd


def test_what_stays_cached_is_read_and_an_hour_that_is_paid_is_no_choice():
    assert PAUSE._replace(still_cached=400).cost("nothing") == 6_400
    paid = PAUSE._replace(prices=PRICES._replace(hour_write=None))
    assert paid.cost("hour") is None
    assert rank_choices_by_cost({c: paid.cost(c) for c in ("nothing", "hour")}) == ("nothing",)


def talk(*gaps, model="claude-sonnet-4-5", prompt=50_000):
    time, log, read = 1_760_000_000.0, [], 0
    for gap in (0.0, *gaps):
        time += gap
        log += [
            user(time=time),
            assistant(
                usage=usage(0, read if gap < 300 else 0, prompt - (read if gap < 300 else 0)),
                time=time + 10,
            ),
        ]
        time, read = time + 10, prompt
        prompt += 2_000
    return session(*log, model=model)


def test_pauses_of_a_log_are_found_with_their_end():
    pauses = find_pauses(talk(30, 1_200, 60, 280))
    assert [round(p.gap) if p.gap < inf else None for p in pauses] == [1_200, 280, None]
    assert pauses[0].recorded_write == 54_000
    assert pauses[0].predict_write() == pytest.approx(52_000, rel=0.01)


def test_a_ledger_names_the_cheapest_choice_and_counts_returns():
    ledger = idle(talk(900, 900, 900))
    assert len(ledger.returns) == 3
    assert ledger.order[0] == "hour"  # all writing by 60 % dearer, against three whole prompts
    assert "came back after 3 of 4 pauses of about 300 s (the cache's life)" in ledger.answer
    assert ledger.choices_usd["nothing"] == pytest.approx(0.6, rel=0.3)


def test_short_pauses_need_nothing():
    assert "nothing to do" in idle(talk(20, 30)).answer


@pytest.mark.parametrize("model", ["nobody/free", None])
def test_logs_that_cannot_be_priced_are_refused_in_a_sentence(model):
    with pytest.raises(BadArguments, match="cannot be priced"):
        idle(talk(900, model=model))
    with pytest.raises(BadArguments, match="cannot be priced"):
        idle(session(user(), assistant()))


def test_a_compaction_ahead_is_billed_as_reading_the_cached_prompt():
    s = ck.read(ck.samples.path("billing"))
    after, ahead = (
        ck.replay(s, ck.presets.claude_code().but(trigger=ck.policies.triggers.Idle(280, ahead=a)))
        for a in (False, True)
    )
    assert len(ahead.edits) == len(after.edits) > 3
    assert {e.trigger for e in ahead.edits} == {"idle_ahead"}
    late, early = (ck.score(r)["summaries_usd"] for r in (after, ahead))
    assert 0 < early < 0.6 * late


def test_the_chart_has_a_line_for_each_choice():
    chart = ck.plots.idle(talk(900, 900))
    assert [t.name for t in chart.drawing.traces][:4] == list(
        ck.metrics.cost.pause_cost_by_choice.CHOICES.values()
    )
    assert len(chart.rows) == 4
    assert chart.drawing.plotly()["layout"]["yaxis"]["tickprefix"] == "$"
    assert "not drawn" not in chart.caption


def test_the_chart_says_how_many_pauses_are_too_long_for_it():
    chart = ck.plots.idle(talk(900, 5_500, 80_000))
    assert "3 pauses (2 longer than 90 minutes not drawn)." in chart.caption
    (drawn,) = (t for t in chart.drawing.traces if t.name == "your pauses")
    assert list(drawn.x) == [15.0]


@pytest.mark.parametrize(
    ("choice", "gap", "usd"),
    [
        ("nothing", 300, 10_000),  # at its life the cache is gone
        ("warm", 269.9, 1_000),
        ("warm", 270, 1_050 + 1_000),  # refreshed at nine tenths of the life
        ("warm", 2_999, 10 * 1_050 + 1_000),
        ("warm", 3_000, 10 * 1_050 + 10_000),  # 300 seconds after the tenth and last refresh
        ("compact", 269.9, 1_000),
        ("compact", 270, 1_000 + 100 + 2_000),
        ("hour", 3_599, 600 + 1_000),
        ("hour", 3_600, 600 + 16_000),
    ],
)
def test_a_choice_changes_its_price_at_the_life_of_the_cache(choice, gap, usd):
    assert PAUSE.cost(choice, gap) == pytest.approx(usd)


def test_no_choice_bills_more_than_the_prefix():
    small = PAUSE._replace(prefix=150)
    assert small.cost("compact", 600) == 150 + 100 + 1_500  # it would leave 200 of 150 tokens
    assert small._replace(still_cached=400).cost("nothing", 600) == 150
    assert small._replace(still_cached=400).predict_write() == 0
    assert PAUSE._replace(still_cached=400).predict_write() == 600


def test_a_pause_has_the_sizes_and_prices_of_its_calls():
    first, second, end = find_pauses(talk(1_200, 60, 2_000))
    assert (first.call, first.prefix, first.still_cached) == (0, 50_010, 0)
    assert (first.recorded_write, first.growth_tokens) == (52_000, 52_000 - 50_010)
    assert (first.summary, first.compacted_tokens) == (4_000, 54_000)
    assert first.written_tokens_since_previous_pause == 50_000
    # written since: the 52,000 less the 50,010 that were sent again, then 54,000 less 52,000 read
    assert (second.call, second.written_tokens_since_previous_pause) == (
        2,
        52_000 - 50_010 + 2_000,
    )
    assert (end.call, end.gap, end.prefix, end.recorded_write) == (3, inf, 56_000, None)
    prices = first.prices
    assert (prices.read, prices.write, prices.output) == pytest.approx((0.3e-6, 3.75e-6, 15e-6))
    assert (prices.hour_write, prices.life) == (pytest.approx(6e-6), 300.0)
    assert prices.refreshes == 13  # 12.5 reads cost what a write does


def test_a_longer_life_costs_what_the_spend_report_says_it_does():
    billing = ck.read(ck.samples.path("billing"))
    usd = idle(billing).choices_usd
    what_ifs = {w.name: w.usd for w in ck.spend(billing).what_ifs}
    assert usd["hour"] - usd["nothing"] == pytest.approx(what_ifs["cache for an hour"], abs=0.01)


def test_a_pause_is_one_from_nine_tenths_of_the_life_on():
    assert [p.gap for p in find_pauses(talk(269))] == [inf]
    assert [p.gap for p in find_pauses(talk(270))] == [270.0, inf]


def test_gaps_are_spread_around_their_lengths_where_three_came_back():
    assert smooth_gaps([600.0, 900.0, inf, 100.0], 270.0) == [600.0, 900.0, inf, 100.0]
    spread = smooth_gaps([600.0, 900.0, 1_350.0, inf], 270.0)
    assert len(spread) == 4 * 7
    assert spread.count(inf) == 7
    middle = log(1.5) * 3**-0.2  # the deviation of three equal steps is one step
    assert min(spread) == pytest.approx(600 * exp(middle * NormalDist().inv_cdf(0.5 / 7)))
    assert min(smooth_gaps([270.0, 2_700.0, 27_000.0], 270.0)) >= 270.0  # mirrored at the shortest


def test_an_expected_cost_is_the_mean_over_pauses_that_were_long_enough():
    assert (
        average_cost_over_gaps(PAUSE, "nothing", [100.0, 270.0, 300.0, inf])
        == (1_000 + 10_000 + 0) / 3
    )
    assert average_cost_over_gaps(PAUSE, "nothing", [100.0]) is None
    assert estimate_expected_cost(PAUSE, "nothing", [270.0, 300.0]) == (1_000 + 10_000) / 2
    paid = PAUSE._replace(prices=PRICES._replace(hour_write=None))
    assert average_cost_over_gaps(paid, "hour", [300.0]) is None


def test_choices_of_one_price_keep_their_order():
    costs = {"hour": 1.0, "compact": 1.0, "nothing": 2.0, "warm": None}
    assert rank_choices_by_cost(costs) == ("compact", "hour", "nothing")


def test_a_ledger_sums_pauses_and_counts_what_was_spent_in_vain():
    end = PAUSE._replace(gap=inf)
    ledger = PauseCostReport((PAUSE, end))
    assert ledger.choices_usd == {
        "nothing": 10_000,
        "warm": 13_600,
        "compact": 4_200,
        "hour": 2_200,
    }
    assert ledger.order == ("hour", "compact", "nothing", "warm")
    assert [(h.name, h.hover, h.number, h.firm) for h in ledger.table.heads] == [
        ("choice", "what is done at a pause", False, True),
        ("all pauses", "dollars of all pauses and ends", True, False),
        ("a pause", "dollars of one, with the chance of coming back", True, False),
        ("in vain", "of it, spent where nobody came back", True, False),
    ]
    rows = [[cell.text for cell in row] for row in ledger.table.rows]
    assert rows[0] == ["pay for the one-hour cache", "$2,200.00", "$1,100.00", "$600.00"]
    assert [row[3] for row in rows] == ["$600.00", "$1,100.00", "$0.00", "$10,500.00"]
    paid = PAUSE._replace(prices=PRICES._replace(hour_write=None))
    assert PauseCostReport((paid,)).choices_usd["hour"] is None
    assert PauseCostReport((PAUSE, paid)).choices_usd["hour"] == 600 + 1_000 + 10_000
    assert "would have cost $2,200.00." in ledger.answer


def test_the_text_of_a_ledger_has_its_answer_its_table_and_the_last_twelve_pauses():
    end = PAUSE._replace(gap=inf)
    ledger = PauseCostReport((PAUSE, end))
    line = (
        "After call 3, 10 min, 1,000 tokens: nothing $10,000.00, warm $3,100.00, compact $3,100.00,"
        " hour $1,600.00."
    )
    plain = [ledger.answer, "", *ledger.table.to_text().splitlines(), ""]
    assert ledger.to_text().splitlines() == [*plain, ledger.note]
    assert ledger.to_text(why=True).splitlines() == [*plain, line, "", ledger.note]  # no end
    many = PauseCostReport(tuple(PAUSE._replace(call=n) for n in range(14)))
    calls = [line.split()[2] for line in many.to_text(why=True).splitlines() if "After call" in line]  # fmt: skip
    assert calls == [f"{n}," for n in range(2, 14)]  # the last twelve
    page = ledger._repr_html_()
    assert page.index("<p>The user came back") < page.index("<table") < page.index("By list prices")  # fmt: skip
    only_ends = PauseCostReport((end,))
    assert only_ends.answer.startswith("No pause came near the life of the cache")
    slower = PAUSE._replace(prices=PRICES._replace(life=3_600.0))
    mixed = PauseCostReport((PAUSE, slower)).answer
    assert mixed.startswith("The user came back after 2 of 2 pauses of about 300 s or 3,600 s (the")
    free = PAUSE._replace(gap=100.0)
    assert PauseCostReport((free,)).answer.endswith(
        "doing nothing cost $1,000.00, and no other choice costs less."
    )


def test_what_stays_cached_is_the_median_of_what_was_read_after_pauses_that_outlived_it():
    log, time, prompt = [], 1_760_000_000.0, 50_000
    for gap, read in (
        (0, 0),
        (1_000, 6_000),
        (60, 50_000),
        (1_000, 8_000),
        (280, 50_000),
        (1_000, 20_000),
    ):
        time += gap
        log += [user(time=time), assistant(usage=usage(0, read, prompt - read), time=time + 10)]
        time, prompt = time + 10, prompt + 1_000
    pauses = find_pauses(session(*log, model="claude-sonnet-4-5"))
    assert [p.gap for p in pauses] == [1_000, 1_000, 280, 1_000, inf]
    assert [p.still_cached for p in pauses] == [0, 6_000, 7_000, 7_000, 8_000]


@pytest.mark.parametrize(("prompt", "written"), [(40_000, 0), (50_010, 0), (52_010, 2_000)])
def test_what_an_expired_cache_sent_again_is_not_written_since_the_pause(prompt, written):
    """The cached prompt of 50,000 tokens and its reply of 10 are sent again after twenty minutes."""
    log = session(
        user(time=0.0),
        assistant(usage=usage(0, 0, 50_000), time=1.0),
        user(time=1_201.0),
        assistant(usage=usage(0, 0, prompt), time=1_202.0),
        user(time=1_490.0),
        assistant(usage=usage(0, prompt, 0), time=1_491.0),
        model="claude-sonnet-4-5",
    )
    found = [pause.written_tokens_since_previous_pause for pause in find_pauses(log)]
    assert found == [50_000, written, 0]
