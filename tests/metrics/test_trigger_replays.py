"""When to compact, against brute force: ceilings said to cost about the same do so when they are replayed."""

from __future__ import annotations

import re
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from builders import assistant, result, session, tool_call, usage, user
from conftest import sample, sessions_folder
from msgspec.structs import replace

import ctxkit as ck
from ctxkit._internal import format_usd
from ctxkit.errors import BadArguments
from ctxkit.metrics import threshold_replays, when_to_compact
from ctxkit.metrics.threshold_replays import ReplayCostByThreshold
from ctxkit.policies import FixedSizeSummariser, Rules, Summary, triggers

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = sessions_folder()
FILES = sorted(p for p in FOLDER.rglob("*.jsonl") if p.parent != FOLDER) if FOLDER else []
SUMMARY = 1_000


def working(n, *, first=20_000, by=1_000, hour=False, model="claude-sonnet-4-5"):
    """A session that grows by `by` tokens a call, all of its prompts found in the cache."""
    log = [user("Mend it.")]
    for i in range(n):
        read = first + by * (i - 1) if i else 0
        spent = usage(0, read=read, write=first + by * i - read)
        if hour:
            spent = replace(
                spent, cache_write_tokens=0, cache_write_1h_tokens=spent.cache_write_tokens
            )
        asked = assistant("", tool_call(path=f"f{i}"), usage=spent, model=model, time=10.0 * i)
        log += [asked, result("word " * (by - 50), asked)]
    return session(*log)


def replayed(s, told, sizes):
    """Dollars of `compare` for compactions at some sizes down to what `when` calls the floor."""
    kept = told.floor - min(told.context_floor.fixed, told.floor) - SUMMARY
    policy = Summary(keep_tokens=max(kept, 1), summariser=FixedSizeSummariser(SUMMARY))
    rules = [
        Rules(name=str(n), policy=policy, trigger=triggers.Above(n)) for n in dict.fromkeys(sizes)
    ]
    return ck.compare(s, ["none", *rules], loss=False)["cost_usd"].astype(float)


@pytest.mark.parametrize("n", [150, 200, 260, 700])  # at 200 the best ceiling ends the range
def test_ceilings_said_to_cost_about_the_same_do_so_in_replays(n):
    s = working(n)
    told = when_to_compact(s, floor=30_000, summary_tokens=SUMMARY)
    sizes = [told.low + (told.high - told.low) * k // 37 for k in range(38)]
    usd = replayed(s, told, [told.best, *sizes])
    assert told.session_usd == pytest.approx(usd[str(told.best)])
    assert told.uncompacted_usd == pytest.approx(usd["none"])
    near = usd[[str(n) for n in sizes]]
    assert near.max() <= 1.05 * near.min() * 1.001
    assert ("about the same" in unwrap(told)) == (told.low < told.high)


def unwrap(told) -> str:
    """Return the display without its line breaks, which may be within a phrase."""
    return " ".join(repr(told).split())


@pytest.mark.parametrize("file", sample(FILES, 5) or [None], ids=lambda p: p and p.name)
def test_so_it_is_for_real_sessions(file: Path, real: Path):
    s = next(iter(ck.read_all(file, progress=False)))
    try:
        told = when_to_compact(s, summary_tokens=SUMMARY)
    except BadArguments:
        pytest.skip("no usage, no price or no growth")
    usd = replayed(s, told, [told.low, told.best, told.high])
    near = usd[[str(n) for n in (told.low, told.best, told.high)]]
    assert near.max() <= 1.05 * near.min() * 1.001
    assert ("goes on" in unwrap(told)) == (usd[str(told.best)] > usd["none"] * (1 + 1e-9))


def test_a_session_that_is_cheaper_without_a_compaction_is_told_so():
    """The rates are of an endless session: just past the ceiling a real one ends, and has not paid."""
    told = when_to_compact(working(60), floor=30_000)
    short = when_to_compact(working((told.best - 20_000) // 1_000 + 3), floor=30_000)
    assert short.session_usd > short.uncompacted_usd
    assert f"{format_usd(short.uncompacted_usd)} without any" in unwrap(short)
    endless = when_to_compact(working(900), floor=30_000)
    assert endless.session_usd < endless.uncompacted_usd
    assert "without any" not in unwrap(endless)


def test_writes_that_live_an_hour_have_their_own_price():
    brief, hour = (when_to_compact(working(60, hour=h), floor=30_000) for h in (False, True))
    p = ck.prices.price("claude-sonnet-4-5")
    assert (brief.write_price, hour.write_price) == (p.cache_write, p.cache_write_1h)
    assert brief.best < hour.best


def test_prompts_of_another_tier_have_its_prices(monkeypatch):
    """Where carried tokens cost ten times as much above a size, the cheapest ceiling is that size."""
    tiers = (ck.prices.PriceTier(50_000, input=3e-5, cache_read=3e-6, cache_write=3.75e-5),)
    plain = ck.prices.Price(input=3e-6, output=1.5e-5, cache_read=3e-7, cache_write=3.75e-6)
    own = {"plain-model": plain, "tiered-model": replace(plain, tiers=tiers)}
    monkeypatch.setattr("ctxkit.tokens.prices._registered", own)
    common = {"floor": 30_000, "context_window": 200_000, "summary_tokens": 5_000}
    one, tiered = (
        when_to_compact(working(60, model=m), **common) for m in ("plain-model", "tiered-model")
    )
    assert tiered.cheapest == 50_000 < one.cheapest
    assert tiered.read_price == 3e-7
    high = {c.tokens: c.usd for c in tiered.trigger_costs}
    assert all(a < b for a, b in pairwise(v for n, v in sorted(high.items()) if n >= 50_000))


@pytest.mark.parametrize(
    ("calls", "replays"), [(200, 100), (2_000, 100), (20_000, 10), (2_000_000, 10), (8_000, 25)]
)
def test_a_longer_session_is_replayed_at_fewer_triggers(calls, replays, monkeypatch):
    """Up to 100 a side, and no more than 200,000 calls of all together, but ten of the longest."""
    sizes = []
    monkeypatch.setattr(ReplayCostByThreshold, "bill", lambda _, size: sizes.append(size) or 1.0)
    tried = ReplayCostByThreshold(SimpleNamespace(calls=range(calls)), None, 1, 1)
    assert tried.find_alike(50_000, 10_000, 90_000, 1.0) == (10_000, 90_000)
    assert len(sizes) == 1 + 2 * replays
    assert {10_000, 90_000} <= set(sizes)


def test_replays_show_their_progress_after_a_second(monkeypatch, capsys):
    at_once = partial(threshold_replays.make_progress_bar, delay=0)
    monkeypatch.setattr(threshold_replays, "make_progress_bar", at_once)
    when_to_compact(working(60), floor=30_000, progress=False)
    assert capsys.readouterr().err == ""
    when_to_compact(working(60), floor=30_000)
    assert re.search(r"when: +\d+%.*replay", capsys.readouterr().err)


class Priced(ReplayCostByThreshold):
    """Replays whose dollars are given by size, of a session with so many calls."""

    def __init__(self, usd, calls=10):
        self._session, self.usd, self.asked = SimpleNamespace(calls=range(calls)), usd, []

    def bill(self, size):
        self.asked.append(size)
        return self.usd(size)


def test_a_range_ends_where_the_dearest_costs_a_twentieth_more_than_the_cheapest(monkeypatch):
    bars = []

    class Bar(SimpleNamespace):
        def __enter__(self):
            bars.append(self)
            return self

        def __exit__(self, *_):
            pass

        def update(self):
            self.n += 1

    def make_bar(**options):
        return Bar(n=0, **options)

    monkeypatch.setattr(threshold_replays, "make_progress_bar", make_bar)
    rising = Priced(lambda size: 100 + abs(size - 100) / 10)
    assert rising.find_alike(100, 50, 200, 10) == (50, 150)
    assert rising.asked == [100, 90, 80, 70, 60, 50, 110, 120, 130, 140, 150, 160]
    assert (bars[0].n, bars[0].total, bars[0].disable) == (11, 11, True)  # full where it ends early
    # what is cheaper than the best narrows the range on the other side
    falling = Priced(lambda size: 100 + (size - 100) / 10)
    assert falling.find_alike(100, 50, 200, 10) == (60, 100)
    assert falling.find_alike(100, 100, 130, 10, progress=True) == (100, 130)
    assert bars[-1].disable is False
    assert Priced(lambda _: None).find_alike(100, 50, 200, 10) == (100, 100)


@pytest.mark.parametrize(("calls", "replays"), [(1, 100), (3_000, 66), (10**6, 10)])
def test_a_long_session_is_replayed_at_fewer_sizes(calls, replays):
    priced = Priced(lambda _: 1.0, calls)
    assert priced.find_alike(1_000, 1_000, 11_000, 1) == (1_000, 11_000)
    sizes = priced.asked[1:]
    assert len(sizes) == replays
    assert sizes[-1] == 11_000
    assert max(b - a for a, b in pairwise(sizes)) <= round(10_000 / replays) + 1
