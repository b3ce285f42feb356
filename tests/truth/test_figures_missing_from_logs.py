"""What a log cannot say is missing with a reason: no zero, and no crash."""

from __future__ import annotations

import pandas as pd
import pytest
from builders import assistant, session, summarised, usage, user

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import (
    audits,
    drift,
    loss_tables,
    losses,
    meaning,
    tabulate_compaction_consequences,
    thrash,
    when_to_compact,
)
from ctxkit.session import Message

SONNET = "claude-sonnet-4-5"
LOSS = (
    "needed_later_loss",
    "weighted_loss",
    "summary_recall",
    "at_stake_items_n",
    "reused_items_n",
    "next_interval_loss",
)
LOSS += ("regret", "items_n", "stale_values_n", "user_rules_restated_n")


def made(n=30, *, times=True, usages=True, text=True, models=(SONNET,), step=10.0, named=True):
    """Names said and named again five calls later, and a cut after each ten calls."""
    log, shown, size = [], [], 20_000
    for i in range(n):
        at = 1_000 + step * i if times else None
        spent = (
            usage(0, read=size - 1_500 if i else 0, write=1_500 if i else size) if usages else None
        )
        said = f"src/f{max(i - 5, 0)}.py it is" if named else "on"
        more = {"usage": spent, "model": models[i % len(models)], "time": at}
        shown += [user(f"see src/f{i}.py", time=at), assistant(said, **more)]
        log += shown[-2:]
        size += 1_500
        if i % 10 == 9 and i < n - 1:
            log.append(summarised(shown[:-2], "See src/f1.py.", time=at))
            shown, size = shown[-2:], 12_000
    return session(*[e if text or not isinstance(e, Message) else _bare(e) for e in log])


def _bare(m: Message) -> Message:
    return Message(role=m.role, id=m.id, usage=m.usage, model=m.model, time=m.time)


CASES = {
    "no times": made(times=False),
    "clocks backwards": made(step=-10.0),
    "two models": made(models=(SONNET, "gpt-5")),
    "no usage": made(usages=False),
    "no text": made(text=False),
    "one call": session(user("see src/a.py"), assistant("src/a.py", usage=usage(), model=SONNET)),
    "no call": session(user("see src/a.py")),
    "nothing named": made(named=False),
}


@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_asked_without_a_crash(name):
    s = CASES[name]
    table = ck.compare(s, ["pi", "none", "swe_agent_mask"], progress=False)
    assert table["error"].isna().all()
    for frame in (
        loss_tables.loss_by_family,
        losses,
        audits,
        drift,
        meaning,
        tabulate_compaction_consequences,
    ):
        assert isinstance(frame(s), pd.DataFrame)
    thrash(s)
    ck.plots.loss(s).to_text()


@pytest.mark.parametrize("name", ["no text"])
def test_without_text_no_figure_of_loss_is_a_zero(name):
    row = ck.score(CASES[name])
    assert all(row[c] is pd.NA for c in LOSS)
    assert "no text" in row["loss_note"]


def test_where_nothing_is_named_again_loss_is_missing_with_a_reason():
    row = ck.score(CASES["nothing named"])
    assert row["items_n"] > 0 == row["reused_items_n"]
    assert all(
        row[c] is pd.NA
        for c in ("needed_later_loss", "weighted_loss", "next_interval_loss", "regret")
    )
    assert "named again" in row["loss_note"]


@pytest.mark.parametrize("name", ["no times", "clocks backwards", "no usage", "two models"])
def test_loss_needs_no_clock_no_usage_and_no_single_model(name):
    row, plain = ck.score(CASES[name]), ck.score(made())
    assert row["needed_lost_n"] > 0
    assert all(row[c] == plain[c] for c in LOSS if c != "regret")
    assert row["loss_note"] is pd.NA


@pytest.mark.parametrize("name", ["no times", "clocks backwards"])
def test_without_a_clock_no_minutes_and_no_pauses_are_told(name):
    cuts = thrash(CASES[name]).outcomes
    assert len(cuts) == 2
    assert {c.minutes for c in cuts} | {c.rebound_minutes for c in cuts} == {None}
    told = when_to_compact(CASES[name])
    assert (told.calls_to_cold, told.wait) == (None, None)
    assert "no times that can be used" in repr(told)
    assert when_to_compact(made()).calls_to_cold is not None
    assert thrash(made()).outcomes[0].minutes == pytest.approx(100 / 60)


@pytest.mark.parametrize("name", ["no usage", "one call", "no call"])
def test_when_to_compact_is_refused_with_a_reason(name):
    with pytest.raises(BadArguments, match=r"has no usage|do not grow"):
        when_to_compact(CASES[name])


def test_without_text_the_bound_of_loss_is_missing_and_what_must_stay_says_so():
    told = when_to_compact(CASES["no text"])
    assert (told.max_loss, told.context_floor.needed) == (None, None)
    assert all(c.loss is None for c in told.trigger_costs)


def test_without_prices_whether_cuts_paid_is_missing():
    assert ck.score(made())["not_paid_back_n"] is not pd.NA
    assert ck.score(made(models=("nobody-knows-it",)))["not_paid_back_n"] is pd.NA
