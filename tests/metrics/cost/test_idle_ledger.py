"""The idle ledger: each choice is priced by the documented rules, an end is a pause without a return."""

from __future__ import annotations

from math import inf

import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import idle
from ctxkit.metrics.cost.idle_ledger import Pause, PausePrices, find_pauses, rank_choices

PRICES = PausePrices(read=1.0, write=10.0, hour_write=16.0, output=50.0, life=300.0, refreshes=10)
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
    assert rank_choices({c: paid.cost(c) for c in ("nothing", "hour")}) == ("nothing",)


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
    assert ledger.order[0] in {"warm", "compact"}
    assert "75 % of all ended with a return" in ledger.answer
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
        ck.metrics.cost.idle_ledger.CHOICES.values()
    )
    assert len(chart.rows) == 4
