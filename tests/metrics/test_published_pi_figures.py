"""Pi's public session gives the figures that were published about it, and the formulas give theirs."""

from __future__ import annotations

import pytest
from builders import assistant, session, usage, user

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.metrics import compaction_formulas, session_bill, thrash


@pytest.fixture(scope="module")
def pi(real):
    return ck.read(real / "pi/before-compaction.jsonl")


def sum_estimated_output(pi) -> int:
    """Return the output of aborted replies that the log leaves out, and that is estimated."""
    aborted = [m for m in pi.messages if m.details.get("output_source") == "estimated"]
    return sum(m.usage.output_tokens - m.details["recorded_output_tokens"] for m in aborted)


def test_calls_and_tokens_by_class(pi):
    ledger = session_bill.bill_session(pi)
    assert (len(ledger.charges), sum(line.prompt for line in ledger.charges)) == (471, 56_382_684)
    assert [ledger.sum(n) for n in ("read", "write", "fresh")] == [54_693_675, 1_685_320, 3_689]
    assert ledger.sum("output") - sum_estimated_output(pi) == 187_895
    assert sum_estimated_output(pi) == 843


def test_dollars_by_class(pi):
    ledger, p = session_bill.bill_session(pi), ck.prices.price("claude-opus-4-5")
    output_usd = ledger.output_usd - sum_estimated_output(pi) * p.output
    assert ledger.calls_usd == pytest.approx(42.60, abs=0.005)
    assert ledger.input_usd + output_usd == pytest.approx(42.60, abs=0.005)
    parts = (
        ledger.sum("read") * p.cache_read,
        ledger.sum("write") * p.cache_write,
        output_usd,
    )
    assert parts == pytest.approx((27.35, 10.53, 4.70), abs=0.005)


def test_busts_and_what_they_wrote(pi):
    """Reads below a tenth of a prompt above 20,000 tokens: 13, for $7.83, 18 % of the cost."""
    ledger, p = session_bill.bill_session(pi), ck.prices.price("claude-opus-4-5")
    busts = [
        line for line in ledger.charges if line.prompt > 20_000 and line.read < 0.1 * line.prompt
    ]
    wrote = sum(line.write for line in busts) * p.cache_write
    assert (
        len(busts),
        round(wrote, 2),
        round(wrote / (ledger.input_usd + ledger.output_usd), 2),
    ) == (13, 7.83, 0.18)


def test_what_its_compactions_saved(pi):
    assert [len(e.inserted[0].text) for e in pi.edits] == [4_291, 3_649]
    assert [c.savings for c in thrash(pi).outcomes] == pytest.approx([0.853, 0.845], abs=0.002)


def test_the_room_of_a_cycle():
    assert compaction_formulas.compute_headroom_share(100_000, 25_000) == 0.75
    assert compaction_formulas.compute_headroom_share(100_000, 110_000) == pytest.approx(-0.1)
    with pytest.raises(BadArguments, match="above 0"):
        compaction_formulas.compute_headroom_share(0, 1)


def test_the_append_only_twin_grows_by_the_reply_and_300_where_the_prompt_fell():
    assert compaction_formulas.estimate_append_only_prompts(
        [100, 150, 40, 60], [10, 20, 30, 40]
    ) == [
        100,
        150,
        470,
        490,
    ]
    assert compaction_formulas.estimate_append_only_prompts([], []) == []
    with pytest.raises(BadArguments, match="do not match"):
        compaction_formulas.estimate_append_only_prompts([1], [])


def test_amplification_is_one_where_nothing_was_taken_away(pi):
    grown = [m for n in (100, 200, 300) for m in (user(), assistant(usage=usage(n)))]
    assert compaction_formulas.get_append_only_token_multiple(session(*grown)) == 1.0
    assert compaction_formulas.get_append_only_token_multiple(pi) == pytest.approx(2.29, abs=0.01)
    assert compaction_formulas.get_append_only_token_multiple(session(user(), assistant())) is None
