"""Pi's public session gives the figures that were published about it."""

from __future__ import annotations

import pytest

import ctxkit as ck
from ctxkit.metrics.money import recorded
from ctxkit.metrics.thrash import thrash
from ctxkit.prices import price


@pytest.fixture(scope="module")
def pi(real):
    return ck.read(real / "pi/before-compaction.jsonl")


def test_calls_and_tokens_by_class(pi):
    ledger = recorded(pi)
    assert (len(ledger.lines), sum(line.prompt for line in ledger.lines)) == (471, 56_382_684)
    assert [ledger.sum(n) for n in ("read", "write", "fresh", "output")] == [
        54_693_675,
        1_685_320,
        3_689,
        187_895,
    ]


def test_dollars_by_class(pi):
    ledger, p = recorded(pi), price("claude-opus-4-5")
    assert ledger.input_usd + ledger.output_usd == pytest.approx(42.60, abs=0.005)
    parts = (
        ledger.sum("read") * p.cache_read,
        ledger.sum("write") * p.cache_write,
        ledger.output_usd,
    )
    assert parts == pytest.approx((27.35, 10.53, 4.70), abs=0.005)


def test_busts_and_what_they_wrote(pi):
    """Reads below a tenth of a prompt above 20,000 tokens: 13, for $7.83, 18 % of the cost."""
    ledger, p = recorded(pi), price("claude-opus-4-5")
    busts = [
        line for line in ledger.lines if line.prompt > 20_000 and line.read < 0.1 * line.prompt
    ]
    wrote = sum(line.write for line in busts) * p.cache_write
    assert (
        len(busts),
        round(wrote, 2),
        round(wrote / (ledger.input_usd + ledger.output_usd), 2),
    ) == (13, 7.83, 0.18)


def test_what_its_compactions_saved(pi):
    assert [len(e.inserted[0].text) for e in pi.edits] == [4_291, 3_649]
    assert [c.savings for c in thrash(pi).cuts] == pytest.approx([0.853, 0.845], abs=0.002)
