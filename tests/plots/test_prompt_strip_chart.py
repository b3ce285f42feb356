"""The strip of a prompt: its blocks add up to the prompt, and to what was read, written and fresh."""

from __future__ import annotations

import re
from functools import cache

import pytest
from builders import assistant, session, user

import ctxkit as ck
from ctxkit.errors import BadArguments
from ctxkit.plots import get_prompt_strip

BILLING = ck.read(ck.samples.path())


@cache
def replay_billing(rules):
    return ck.replay(BILLING, rules)


@pytest.mark.parametrize("call", [0, 7, 150, 176, 274, -1])
@pytest.mark.parametrize("rules", [None, "clear:keep_last=5", "swe_agent_mask"])
def test_blocks_add_up_to_what_was_billed(call, rules):
    data = get_prompt_strip(BILLING if rules is None else replay_billing(rules), call)
    spans = data.split_by_billing()
    assert sum(s.tokens for s in spans) == sum(b.tokens for b in data.blocks) <= data.tokens
    assert data.tokens - sum(s.tokens for s in spans) < 0.01 * data.tokens
    starts = [s.start for s in spans]
    assert starts == sorted(starts)
    assert [s.kind for s in spans] == sorted(s.kind for s in spans)
    for kind, billed in enumerate((data.read, data.written, data.fresh)):
        assert sum(s.tokens for s in spans if s.kind == kind) <= billed
    if rules is None:
        used = BILLING.call(call).message.usage
        assert (data.read, data.written) == (used.cache_read_tokens, used.cache_write_tokens)


def test_what_no_message_holds_stands_first():
    data = get_prompt_strip(ck.samples.path("inbox"), 3)
    assert (data.blocks[0].start, data.blocks[0].tokens) == (0, 60_000)
    assert "no message" in data.blocks[0].name


def test_the_chart_has_a_static_twin_and_dollars():
    chart = ck.plots.strip(BILLING, 274)
    assert chart.rows[1] == ("written", "32,484", "100 %", "$0.12")
    traces = chart.to_plotly()["data"]
    assert {t["name"] for t in traces} <= {"read", "written", "fresh"}
    assert sum(sum(t["x"]) for t in traces) == 32_488
    assert chart.to_html().count("<rect") == sum(len(t["x"]) for t in traces)
    assert not re.search("<script|onload", chart.to_html())


def test_without_a_cache_in_the_record_nothing_is_drawn():
    plain = session(user("q"), assistant("a"))
    with pytest.raises(BadArguments, match="read from the cache"):
        ck.plots.strip(plain, 0)
    with pytest.raises(BadArguments):
        ck.plots.strip(BILLING, 9_999)
