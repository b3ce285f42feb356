"""The sessions that ship with the kit are what their script makes, and what the course says of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.session import Edit

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="module")
def billing():
    return ck.read(ck.samples.path("billing"))


@pytest.fixture(scope="module")
def shelf():
    return {name: ck.read(ck.samples.path(name)) for name in ck.samples.names()}


@pytest.mark.parametrize("name", ck.samples.names())
def test_it_is_what_the_script_makes(name, shelf, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(NOTEBOOKS), *sys.path])
    from make_sample import make

    made, kept = make(name), shelf[name]
    assert made.log == kept.log
    assert (made.tools, made.details, made.title) == (kept.tools, kept.details, kept.title)


def test_they_are_six_and_small(shelf):
    assert len(shelf) == len(ck.samples.paths()) == 6
    assert sum(p.stat().st_size for p in ck.samples.paths()) < 1_200_000
    assert not [s.id for s in shelf.values() if s.faults or s.skipped or not s.has_cache]


def _shares(report):
    return {name: tokens / report.prompt_tokens for name, tokens in report.groups().items()}


def test_they_differ_in_kind(shelf):
    parts = {n: _shares(ck.report(s)) for n, s in shelf.items()}
    table = ck.frame(list(shelf.values()), per="session").set_index("session")
    assert parts["inbox"]["not in the log"] > 0.8
    assert parts["chat"]["assistant text"] > 0.8
    assert table.loc["chat", "tool_calls_n"] == 0
    assert table.loc["research", "peak_tokens"] > 160_000
    assert table["compactions_n"].to_dict() == {
        **dict.fromkeys(shelf, 0),
        "billing": 2,
        "research": 1,
    }
    assert table["model"].nunique() == 3


def test_it_is_long_enough_and_small_enough(billing):
    assert len(billing.calls) >= 300
    assert len(billing.edits) == 2
    assert not billing.faults
    assert not billing.skipped
    assert ck.samples.path("billing").stat().st_size < 1_500_000


def test_its_prompts_are_what_its_messages_say(billing):
    from ctxkit.tokens import measure_sizes

    sizes = measure_sizes(billing)
    assert all(
        abs(modelled / recorded - 1) < 0.01
        for modelled, recorded in zip(sizes.modelled, sizes.recorded, strict=True)
    )


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
