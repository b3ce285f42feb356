"""Summaries that a log does not price are estimated for the record as a replay's are billed."""

from __future__ import annotations

import pytest
from builders import assistant, session, summarised, usage, user

import ctxkit as ck
from ctxkit.session import Usage

MODEL = "claude-opus-4-5"
P = ck.prices.price(MODEL)


def made(**edit):
    old = [user("go"), assistant("yes", usage=usage(80_000), model=MODEL)]
    cut = summarised(old, "w" * 400, tokens_before=80_010, tokens_after=30_000, **edit)
    return session(*old, cut, user(), assistant(usage=usage(30_000), model=MODEL), model=MODEL)


def test_an_unpriced_summary_sends_what_it_summarises():
    """400 characters are 100 tokens, and twice that at most as the bill of its prompt scales them."""
    row = ck.frame(made(), per="compaction").iloc[0]
    assert row["summary_tokens"] == 200
    assert row["cost_usd"] == pytest.approx((80_010 - 30_000 + 200) * P.input + 200 * P.output)
    assert row["cost_source"] == "estimated"
    total = ck.frame(made(), per="session").iloc[0]
    assert (total["summaries_usd"], total["summaries_source"]) == (row["cost_usd"], "estimated")


def test_the_score_of_the_record_holds_it():
    s, usd = made(), ck.frame(made(), per="compaction")["cost_usd"].iloc[0]
    row = ck.score(s, loss=False)
    assert row["summaries_usd"] == pytest.approx(usd)
    assert row["cost_usd"] == pytest.approx(row["input_usd"] + row["output_usd"] + usd)
    assert row["cost_source"] == "estimated"
    read = ck.score(s, loss=False, reuse=True)["summaries_usd"]
    assert read == pytest.approx(80_010 * P.cache_read + 200 * P.output)


def test_a_priced_summary_stays_as_it_is():
    row = ck.frame(
        made(usage=Usage(input_tokens=10, output_tokens=1, cost_usd=0.25)), per="compaction"
    ).iloc[0]
    assert (row["cost_usd"], row["cost_source"]) == (0.25, "recorded")


def test_without_a_summary_nothing_was_written_and_without_a_price_nothing_is_known():
    plain = session(user(), assistant(usage=usage(), model=MODEL))
    assert ck.score(plain, loss=False)["summaries_usd"] == 0.0
    old = [user(), assistant("yes", usage=usage(80_000), model="nobody-knows")]
    free = session(
        *old, summarised(old), user(), assistant(usage=usage(30_000), model="nobody-knows")
    )
    assert ck.frame(free, per="session")["summaries_usd"].isna().all()


def test_a_text_that_no_model_wrote_costs_nothing():
    row = ck.frame(made(method="digest"), per="compaction").iloc[0]
    assert row[["cost_usd", "cost_source"]].isna().all()


def test_the_two_summaries_of_a_real_log(real):
    s = ck.read(real / "claude-code/entire-7f78a542.jsonl")
    rows = ck.frame(s, per="compaction")
    for before, after, words, usd in rows[
        ["tokens_before", "tokens_after", "summary_tokens", "cost_usd"]
    ].to_numpy():
        assert usd == pytest.approx((before - after + words) * P.input + words * P.output)
    assert ck.score(s, loss=False)["summaries_usd"] == pytest.approx(rows["cost_usd"].sum())


@pytest.mark.parametrize("name", ["claude_code", "codex"])
def test_what_stands_beside_a_summary_is_no_output(name):
    from ctxkit.engine import run_replay
    from ctxkit.metrics import (
        get_replay_compactions,
        get_rules_run_compactions,
    )

    rules = (
        ck.presets.claude_code(context_window=60_000)
        if name == "claude_code"
        else ck.presets.codex()
    )
    session = ck.read(ck.samples.path())
    again, done = ck.replay(session, rules), run_replay(session, rules)
    cuts = get_replay_compactions(again)
    assert cuts == get_rules_run_compactions(done)
    edits = [e for e in again.edits if e.kind == "summarised"]
    count, p = done.log.counter, ck.prices.price(session.model)
    for cut, edit in zip(cuts, edits, strict=True):
        sizes = {m.role: 0 for m in edit.inserted}
        for m in edit.inserted:
            sizes[m.role] += count.message(m)
        share = sizes["summary"] / sum(sizes.values())
        assert share < 0.9
        assert cut.summaries[0].summary / cut.inserted_tokens == pytest.approx(share, rel=0.02)
    usd = sum(w.source * p.input + w.summary * p.output for c in cuts for w in c.summaries)
    assert ck.score(again, loss=False)["summaries_usd"] == pytest.approx(usd)
