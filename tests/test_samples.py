"""The session that ships with the kit is what its script makes, and what the tour says of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.messages import Edit

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@pytest.fixture(scope="module")
def billing():
    return ck.read(ck.samples.path("billing"))


def test_it_is_what_the_script_makes(billing, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(NOTEBOOKS), *sys.path])
    from make_sample import make

    made = make()
    assert made.log == billing.log
    assert (made.tools, made.details, made.title) == (billing.tools, billing.details, billing.title)


def test_it_is_long_enough_and_small_enough(billing):
    assert len(billing.calls) >= 300
    assert len(billing.edits) == 2
    assert not billing.faults
    assert not billing.skipped
    assert ck.samples.path("billing").stat().st_size < 1_500_000


def test_its_prompts_are_what_its_messages_say(billing):
    from ctxkit.sizes import sizes

    calls, modelled, recorded = sizes(billing).reproduction
    assert len(calls) == len(billing.calls)
    assert abs(modelled / recorded - 1).max() < 0.01


def test_its_cache_forgets_after_five_minutes_and_at_a_compaction(billing):
    before = asked = None
    cut = False
    for entry in billing.path:
        if isinstance(entry, Edit):
            cut, asked = True, entry.time - 14.0
        elif entry.role == "assistant":
            usage, start = entry.usage, entry.time - entry.latency
            if before is not None and start - asked > 301:
                assert usage.cache_read_tokens == 0
            elif before is not None and start - asked < 299:
                kept = before.cache_read_tokens + before.cache_write_tokens
                assert (
                    (usage.cache_read_tokens < kept) if cut else (usage.cache_read_tokens == kept)
                )
            before, asked, cut = usage, start, False


def test_every_tool_call_has_its_result(billing):
    asked = [c.id for m in billing.messages for c in m.tool_calls]
    assert asked == [m.call_id for m in billing.messages if m.role == "tool"]
    assert sum(m.is_error for m in billing.messages) > 20


def test_its_facts_were_said_and_some_are_lost_by_the_second_summary(billing):
    shown = "\n".join(m.text for m in billing.messages)
    last = billing.edits[1].inserted[0].text
    facts = billing.details["facts"]
    assert all(re.search(pattern, shown) for _, pattern in facts)
    assert [fact for fact, pattern in facts if not re.search(pattern, last)] != []
    assert re.search(facts[0][1], last)


def test_a_sample_that_is_not_there_is_named():
    with pytest.raises(BadArguments, match="Did you mean 'billing'"):
        ck.samples.path("biling")
