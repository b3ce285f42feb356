"""Live triggers go by the last bill and a count of what came since; a replay can do so, too."""

from __future__ import annotations

import pytest
from stand_in_models import COUNT, ECHO, Says, agent, run, said

import ctxkit as ck
from ctxkit.policies import Above, Rules, Summary
from ctxkit.session import Session, ToolCall, Usage

RULES = Rules(policy=Summary(keep_messages=3), trigger=Above(5000), counter=COUNT)


@pytest.fixture(autouse=True)
def extractive(monkeypatch):
    monkeypatch.setattr(Says, "notice", "scripted")  # no model writes its summaries


def steps(factor, n=12):
    """Return replies billed at a multiple of what was said so far."""
    for i in range(n):
        call = ToolCall(id=f"c{i}", name="echo", arguments={"x": "abc " * 100})
        yield said(call, usage=Usage(input_tokens=int(factor * 300 * (i + 1)), output_tokens=9))


def live(factor):
    one = agent(*steps(factor), rules=RULES, tools=[ECHO])
    run(one.turn("go"))
    return one


def test_a_trigger_believes_the_provider():
    plain, dear = live(1.0), live(4.0)
    assert not plain.session.edits
    found = ck.frame(dear.session, per="compaction")["call"]
    assert found.iloc[0] == 4  # after the bill of 4,800 and what came since
    context = dear.compactor.context
    assert context.next_prompt_tokens < 5000


def test_a_bill_that_cannot_be_is_not_believed():
    one = live(0.01)
    told = sum(i.tokens for i in one.session.sent(-1))
    assert told > 1000


def test_a_replay_can_go_by_what_was_known():
    record = live(4.0).session
    talk = Session(id="t", log=record.messages)
    late = ck.replay(talk, RULES, last_usage=True)
    soon = ck.replay(talk, RULES)
    calls = [ck.frame(s, per="compaction")["call"].iloc[0] for s in (soon, late)]
    assert calls[0] <= calls[1] == 4
