"""When to compact: the ceiling is the cheapest, waiting pays only for near pauses, and nothing is made up."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest
from builders import assistant, session, usage, user
from conftest import sample, sessions_folder
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from widgets.reports.hostile_logs import EVIL, intruders

import ctxkit as ck
from ctxkit import prices, read
from ctxkit.errors import BadArguments
from ctxkit.formats import samples
from ctxkit.metrics import when_to_compact

if TYPE_CHECKING:
    from pathlib import Path


SONNET = "claude-sonnet-4-5"


def grown(n=40, by=500, *, pause_every=None, model=SONNET, start=5_000, timed=True):
    """A session that grows by `by` tokens a call; every so many calls an hour passes and the cache is cold."""
    log, time = [], 0.0
    for i in range(n):
        cold = i == 0 or (pause_every is not None and i % pause_every == 0)
        time += 3_600.0 if cold else 10.0
        size = start + by * i
        spent = usage(0, read=0 if cold else size - by, write=size if cold else by)
        when_ = time if timed else None
        log += [user(time=when_), assistant(usage=spent, model=model, time=when_)]
    return session(*log)


def test_the_shipped_sample_has_an_answer():
    told = when_to_compact(read(samples.path("billing")))
    assert (told.window, told.window_source, told.model) == (48_000, "recorded", SONNET)
    assert (
        told.floor < told.best < next(c.tokens for c in told.trigger_costs if c.name == "recorded")
    )
    assert told.wait is not None
    assert "Trigger: compact at" in repr(told)


def test_the_first_words_are_the_answer_with_its_price_and_its_loss():
    told = when_to_compact(read(samples.path("research")))
    assert repr(told).startswith("Compact at 186,212 tokens, not 167,161: about $0.21 more on this")
    assert " ".join(repr(told).split("\n")[:2]) == told.answer
    assert "but 0 % of what is used again would be at stake, not 55 %" in told.answer
    assert "triggers.Above(186_212)" in told.setting
    assert all(len(line) <= 80 for line in told.to_text(why=True).splitlines())


@pytest.mark.parametrize("name", ["billing", "research"])
def test_the_record_loses_what_a_comparison_says_of_it_and_its_row_is_a_replay(name):
    log = read(samples.path(name))
    told, scored = when_to_compact(log), ck.score(log)
    assert told.record_loss == scored["needed_later_loss"]
    at_stake = scored["at_stake_items_n"] / scored["reused_items_n"]
    assert told.record_at_stake == pytest.approx(at_stake)
    said = f"{at_stake:.0%} was at stake and {told.record_loss:.0%} lost".replace("%", " %")
    assert said in " ".join(repr(told).split())


def test_a_session_without_compactions_has_no_loss_of_its_own():
    told = when_to_compact(read(samples.path("migration")))
    assert (told.record_loss, told.record_at_stake) == (None, None)
    assert "own compactions" not in repr(told)


@pytest.mark.parametrize(("window", "change"), [(44_000, "$0.92 less"), (180_000, "$0.08 more")])
def test_a_change_of_some_cents_is_named_by_its_direction(window, change):
    answer = when_to_compact(read(samples.path("research")), context_window=window)
    sign = {"less": 1, "more": -1}[change.split()[1]]
    assert 0 < sign * answer.saved_usd < 1
    assert f"about {change} on this session" in answer.answer


def test_the_saving_is_that_of_the_cost_model_over_all_calls():
    told = when_to_compact(read(samples.path("research")))
    usd = {c.name: c.usd for c in told.trigger_costs}
    assert told.saved_usd == pytest.approx(told.calls_n * (usd["recorded"] - usd["best"]))


@pytest.mark.parametrize(
    ("name", "window", "start"),
    [
        ("billing", 44_000, "Keep compacting at about 40,348 tokens"),
        ("chat", None, "Nothing to compact: the largest prompt had 12,414 tokens"),
        ("migration", None, "Compaction does not pay on this session"),
    ],
)
def test_where_nothing_is_to_be_changed_no_setting_is_named(name, window, start):
    told = when_to_compact(read(samples.path(name)), context_window=window)
    assert told.answer.startswith(start)
    assert "$" in told.answer
    assert told.setting == ""


def test_reservations_are_shown_where_they_are_asked_for():
    told = when_to_compact(read(samples.path("billing")))
    assert "One session carries this" not in repr(told)
    assert "One session carries this" in " ".join(told.to_text(why=True).split())
    assert "<details>" in told._repr_html_()


def test_another_window_gets_another_answer():
    """In its own window the sample must compact; in a large one it is left alone: it never gets so large."""
    sample = read(samples.path("billing"))
    small, own, large = (
        when_to_compact(sample, context_window=n) for n in (30_000, 48_000, 200_000)
    )
    assert own == replace(when_to_compact(sample), window_source="given")
    assert small.best == small.cheapest == own.cheapest < own.best
    assert max(c.message.usage.prompt_tokens for c in sample.calls) < 77_542 < large.best
    assert "window 200,000 (given)" in large.assumptions()
    for wrong in (0, -1, own.floor):
        with pytest.raises(BadArguments, match="does not lie in a window"):
            when_to_compact(sample, context_window=wrong)


@given(by=st.integers(50, 5_000), floor=st.integers(2_000, 60_000), summary=st.integers(100, 5_000))
def test_no_other_ceiling_is_cheaper(by, floor, summary):
    told = when_to_compact(grown(8, by), floor=floor, summary_tokens=summary)
    best = next(c for c in told.trigger_costs if c.name == "best")
    if told.best < told.window and best.calls > 1:  # no cycle is shorter than a call
        cheapest = min((c for c in told.trigger_costs if c.calls > 1), key=lambda c: c.usd)
        # whole requests against the continuous limit
        assert best.usd == pytest.approx(cheapest.usd, rel=0.02)


def test_waiting_pays_where_pauses_are_near_and_not_where_they_are_far():
    near, far = (
        when_to_compact(grown(40, pause_every=3), floor=8_000),
        when_to_compact(grown(60, pause_every=59), floor=8_000),
    )
    assert (near.wait, far.wait) == (True, False)
    assert near.calls_to_cold < far.calls_to_cold
    assert near.missed_share > far.missed_share
    assert near.best < far.best  # what is carried costs more where it is written again
    texts = [" ".join(told.to_text(why=True).split()) for told in (near, far)]
    assert [": wait for it." in text for text in texts] == [True, False]
    assert [": do not wait." in text for text in texts] == [False, True]


@pytest.mark.parametrize(
    ("summary", "by", "window", "bound"),
    [
        (20_000, 50, 200_000, "saved write"),
        (20_000, 500, 200_000, "saved write"),
        (1_000, 50, 200_000, "next compaction"),
        (1_000, 500, 200_000, "next compaction"),  # a call's growth costs more than its reads
        (20_000, 50, 13_200, "window"),
    ],
)
def test_waiting_pays_off_and_the_floor_cost_what_the_prices_say(summary, by, window, bound):
    """Sonnet: a read 0.30, a write 3.75, input 3, output 15 dollars a million tokens."""
    floor, log = 8_000, grown(20, by, pause_every=3)
    told = when_to_compact(log, floor=floor, summary_tokens=summary, context_window=window)
    behind, grown_by = floor - told.context_floor.fixed, told.best - floor
    assert behind > 0
    extra = 0.30 * grown_by - 3.75 * by
    bounds = {
        "saved write": 3.45 * behind / extra if extra > 0 else inf,
        "next compaction": grown_by / by,
        "window": (window - told.best) / by,
    }
    assert min(bounds, key=bounds.__getitem__) == bound
    assert told.wait_at_most == pytest.approx(bounds[bound])
    carry = 0.30 + told.missed_share * 3.45
    prices_of = told.read_price, told.write_price, told.carry_price
    assert [1e6 * p for p in prices_of] == pytest.approx([0.30, 3.75, carry])
    written = 3 * (grown_by + summary) + 15 * summary
    assert told.reset_usd * 1e6 == pytest.approx(written + 3.45 * behind)
    assert told.pays_after == pytest.approx((written + (3.75 - carry) * behind) / (carry * grown_by))  # fmt: skip
    assert told.floor_usd_per_1000_tokens * 1e3 == pytest.approx(carry + 3.45 * by / grown_by)


def test_each_sentence_says_its_own_figure():
    told = when_to_compact(grown(40, pause_every=3), floor=8_000)

    def says(**figures):
        return " ".join(replace(told, **figures).to_text(why=True).split())

    pause = "the next cold call is {} away on average, and waiting pays for up to {}: {}."
    assert pause.format("12 calls", "9.5 calls", "do not wait") in says(calls_to_cold=12.0, wait_at_most=9.5)  # fmt: skip
    assert pause.format("9.5 calls", "9.5 calls", "wait for it") in says(calls_to_cold=9.5, wait_at_most=9.5)  # fmt: skip
    assert pause.format("3.0 calls", "any number of calls", "wait for it") in says(calls_to_cold=3.0, wait_at_most=inf)  # fmt: skip
    assert "Trigger: compact at 9,999 tokens;" in says(best=9_999, low=9_000, high=10_500)
    assert "; 9,000 to 10,500 cost about the same, also in replays" in says(low=9_000, high=10_500)
    assert "cost about the same" not in says(low=9_000, high=9_000)
    assert f"compact at {told.window:,} tokens (the window)" in says(best=told.window)
    assert "the cache missed 12.3 %." in says(missed_share=0.123)
    assert "the cache missed nothing, as no cache split and no times are known." in says(missed_share=None)  # fmt: skip
    assert "costs $1.50, and $1.25 without any." in says(session_usd=1.5, uncompacted_usd=1.25)
    assert "without any." not in says(session_usd=1.25, uncompacted_usd=1.25)


def test_the_text_and_the_table_have_the_figures_in_their_places():
    told = when_to_compact(grown(40, pause_every=3), floor=8_000)
    best, window = (told.trigger_costs[i] for i in (0, -1))
    costs = (
        best._replace(name="best", tokens=9_000, calls=12.4, usd=0.01234, loss=0.2),
        best._replace(name="dollars alone", tokens=9_500, calls=20.0, usd=1.0, loss=0.75),
        window._replace(name="window", tokens=200_000, calls=100.6, usd=1.5, loss=None),
    )
    told = replace(
        told, title="t" * 50, calls_n=1_234, model="m", growth=499.6, floor=8_000, reset_usd=0.25,
        pays_after=3.44, best=9_000, low=9_000, high=9_000, cheapest=9_500, max_loss=0.25,
        floor_usd_per_1000_tokens=0.00126, trigger_costs=costs, notes=("A note.", "Another."),
        record_at_stake=0.5, record_loss=0.125, session="s1", window=200_000, window_source="given",
    )  # fmt: skip
    assert [h.name for h in told.table.heads] == ["trigger", "tokens", "calls between", "a call", "at stake"]  # fmt: skip
    assert [(h.number, h.hover) for h in told.table.heads] == [
        (False, "where the context is compacted"),
        (True, "of the prompt at which it is compacted"),
        (True, "from one compaction to the next"),
        (True, "average dollars of a call"),
        (True, "share of what is used again that is removed before its use"),
    ]
    assert [[cell.text for cell in row] for row in told.table.rows] == [
        ["best", "9,000", "12", "$0.0123", "20 %"],
        ["dollars alone", "9,500", "20", "$1.00", "75 %"],
        ["window", "200,000", "101", "$1.50", ""],
    ]
    assert [cell.value for cell in told.table.rows[0]] == [None, 9_000, 12.4, 0.01234, 0.2]
    assert [row[0].tone for row in told.table.rows] == ["good", "", ""]
    assert told.sentences()[:4] == (
        "A call adds 500 tokens; a compaction leaves 8,000 (given).",
        (
            "Trigger: compact at 9,000 tokens. In dollars alone 9,500, but there 75 % of what is used"
            " again would be at stake (the bound is 25 %: 5 points above the window's)."
        ),
        (
            "At stake is what a compaction removes before its use: its summary may state it. By the"
            " record's own compactions 50 % was at stake and 12 % lost; the rows below are replays with"
            " one floor."
        ),
        "There a compaction costs $0.25 and has paid for itself after 3.4 calls.",
    )
    floor = f"Floor: {told.context_floor.total:,} must stay ({told.context_floor})."
    assert told.reservations()[:2] == (floor, "1,000 tokens more kept cost $0.0013 a call.")
    assert told.assumptions().startswith("Prices of m; window 200,000 (given). Of what is carried")
    assert told.assumptions().endswith("One session carries this, s1: ask others, or advise for many. Note: A note. Note: Another.")  # fmt: skip
    assert f"{'t' * 39}…: 1,234 calls, m" in told.to_text().splitlines()
    unlost = replace(told, trigger_costs=(costs[2],), max_loss=None)
    assert not any("At stake is" in s for s in unlost.sentences())
    assert told.keep == 8_000 - told.context_floor.fixed
    assert list(told.to_dict()["trigger_costs"][0]) == list(costs[0])


def test_without_pauses_there_is_nothing_to_wait_for():
    told = when_to_compact(grown())
    assert (told.calls_to_cold, told.missed_share) == (inf, 0.0)
    assert "no cold call to wait for" in " ".join(repr(told).split())


def test_times_that_say_when_lines_were_copied_tell_of_no_pauses():
    log = [replace(e, time=1_000.0) for e in grown().log]
    told = when_to_compact(session(*log))
    assert (told.calls_to_cold, told.wait) == (None, None)
    assert "no times that can be used" in " ".join(repr(told).split())


@pytest.mark.parametrize(
    ("times", "is_usable"),
    [
        ((0, -10, -20, -30), False),
        ((0, 10, 5, 0), False),  # two of three steps
        ((0, 10, 5, 15), True),
        ((0, -10, 0), True),  # a half is not most
        ((0, None, -10, None, 5), True),  # of the known times
        ((None, None, None), False),
    ],
)
def test_times_that_mostly_run_backwards_tell_of_no_pauses(times, is_usable):
    log = [
        m
        for i, time in enumerate(times)
        for m in (user(), assistant(usage=usage(5_000 + 500 * i), model=SONNET, time=time))
    ]
    told = when_to_compact(session(*log))
    assert (told.calls_to_cold is not None) is is_usable
    assert ("no times that can be used" in " ".join(repr(told).split())) is not is_usable


def test_no_more_is_missed_than_was_carried():
    """The first call of each model carries nothing, so what it does not find was not missed."""
    log = list(grown(30).log)
    turned = (replace(e, model="gpt-5") if e.model else e for e in log[:10])
    told = when_to_compact(session(*turned, *log[10:]))
    assert told.missed_share == 0.0


def test_a_log_that_cannot_say_is_refused_in_a_sentence():
    with pytest.raises(BadArguments, match="has no usage"):
        when_to_compact(session(user(), assistant()))
    with pytest.raises(BadArguments, match="has no price"):
        when_to_compact(grown(model="nobody-knows-it"))
    with pytest.raises(BadArguments, match="do not grow"):
        when_to_compact(grown(5, 0))
    with pytest.raises(BadArguments, match="does not lie in a window"):
        when_to_compact(grown(), floor=300_000)
    with pytest.raises(BadArguments, match="0 tokens or more"):
        when_to_compact(grown(), summary_tokens=-1)


def test_a_summary_of_no_tokens_costs_none():
    least, some = (when_to_compact(grown(), floor=8_000, summary_tokens=n) for n in (0, 1_000))
    p, behind = (
        prices.price(SONNET),
        8_000 - least.context_floor.fixed,
    )  # the cache still has the front
    assert some.reset_usd - least.reset_usd > 0
    assert 0 < behind < 8_000
    assert least.reset_usd == pytest.approx(
        p.input * (least.best - 8_000) + (p.cache_write - p.cache_read) * behind
    )


def test_the_floor_is_measured_or_given_and_says_which():
    assert when_to_compact(grown(), floor=7_000).floor_source == "given"
    bare = when_to_compact(grown(start=5_000))
    assert (bare.floor, bare.floor_source) == (6_000, "its smallest prompt and a summary")


def test_names_of_a_log_stay_text():
    shown = when_to_compact(grown(model=SONNET))
    assert intruders(shown._repr_html_()) == []
    from msgspec.structs import replace

    assert intruders(replace(shown, model=EVIL, session=EVIL)._repr_html_()) == []


TAKEN = "; 20 % of what is used again would be at stake."
ANSWERS = {
    f"Compaction does not pay on this session: at best, at 9,000 tokens, it costs about $1.50 more{TAKEN}": {"recorded": None, "saved_usd": -1.5},
    f"Compact at 9,000 tokens: about $1.50 less on this session than without compaction{TAKEN}": {"recorded": None},
    f"Compact at 9,000 tokens, not 7,999: about $1.50 less on this session{TAKEN[:-1]}, not 10 %.": {"recorded": 7_999},
    f"Compact at 9,000 tokens, not 10,001: about $1.50 less on this session{TAKEN[:-1]}, not 10 %.": {"recorded": 10_001},
    "Compact at 9,000 tokens, not 7,999: about $1.50 more on this session, but 20 % of what is used again would be at stake, not 10 %.": {"recorded": 7_999, "saved_usd": -1.5},
    "Keep compacting at about 8,000 tokens: 8,000 to 10,000 cost about the same, $0.25 a compaction; 10 % of what is used again is at stake.": {"recorded": 8_000},
    "Keep compacting at about 10,000 tokens: 8,000 to 10,000 cost about the same, $0.25 a compaction; 10 % of what is used again is at stake.": {"recorded": 10_000},
    "Nothing to compact: the largest prompt had 9,000 tokens, and compacting is due from 9,000 on, at $0.25 a compaction.": {"recorded": None, "peak": 9_000},
}  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_answer_is_the_one_of_its_figures(answer):
    told = when_to_compact(grown(40, pause_every=3), floor=8_000)
    best = told.trigger_costs[0]._replace(name="best", loss=0.2)
    recorded = best._replace(name="recorded", loss=0.1)
    figures = {"best": 9_000, "low": 8_000, "high": 10_000, "peak": 9_001, "saved_usd": 1.5, "reset_usd": 0.25}  # fmt: skip
    told = replace(told, **figures | {"trigger_costs": (best, recorded)} | ANSWERS[answer])
    assert told.answer == answer
    pays = answer.startswith("Compact at")
    assert bool(told.setting) is pays


# -- When to compact, asked of real sessions: an answer within the window, or a sentence why not.


FOLDER = sessions_folder()
FILES = sorted(p for p in FOLDER.rglob("*.jsonl") if p.parent != FOLDER) if FOLDER else []


@pytest.mark.parametrize(
    "file", sample(FILES, 5) or [None], ids=lambda p: p and f"{p.parent.name}/{p.name}"
)
def test_a_real_session_has_an_answer_or_a_reason(file: Path, real: Path):
    for each in list(ck.read_all(file, progress=False))[:2]:
        try:
            told = when_to_compact(each)
        except BadArguments as error:
            assert str(error).endswith(".")  # noqa: PT017  either is an answer
            continue
        assert told.floor < told.best <= told.window
        assert all(c.usd > 0 for c in told.trigger_costs)
        assert repr(told)
