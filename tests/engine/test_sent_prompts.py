"""What went out at a call: it adds up to the prompt, names nothing that was not sent, and says who changed it."""

from __future__ import annotations

import numpy as np
import pytest
from builders import assistant, step, user
from builders import session as make_session
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from late_result_messages import late_talk
from random_sessions import Fours, by_chance
from scheduled_prunings import PARTS

import ctxkit as ck
from ctxkit.engine import make_log_from_session, run_rules
from ctxkit.policies import Chain, Clear, MessageLog, Rules, apply_policy, triggers


def summary(history, _budget):
    return history.summarise(history.safe(history.back(600)), 80, "full")


@pytest.mark.parametrize("name", PARTS)
def test_it_adds_up_and_is_what_the_call_gives(name):
    @settings(max_examples=examples(3))
    @given(st.integers(0, 10**6), st.booleans())
    def check(seed, compacted):
        log = MessageLog.of(late_talk(seed, 20), Fours())
        policy = (summary, triggers.Above(4000)) if compacted else (None, None)
        done = run_rules(
            log, Rules(*policy, pruning=Chain(PARTS[name]), counter=Fours(), window=9000)
        )
        cuts = [(c.call, c.new) for c in done.compactions]
        for call in range(log.calls):
            history = next((h for c, h in reversed(cuts) if c <= call), done.history.start(log))
            view = history.at(call)
            for part in PARTS[name]:
                view = apply_policy(part, view, done.budget)
            items = done.sent(call)
            assert sum(i.tokens for i in items) == done.prompts[call] == view.tokens
            assert [i.message.parts for i in items] == [m.parts for m in view.messages]
            for item in items:
                said = item.row >= 0 and log.messages[item.row].parts == item.message.parts
                assert (item.changed_by is None) == said

    check()


def test_a_part_that_is_asked_call_by_call_is_named_too():
    def loud(history, _budget):
        return history.shorten(np.flatnonzero(history.role("tool"))[:-1], "!", "loud")

    log = make_log_from_session(by_chance(3, 20), Rules(counter=Fours()))
    done = run_rules(log, Rules(pruning=Chain((Clear(keep_last=4), loud)), counter=Fours()))
    items = done.sent(log.calls - 1)
    assert {i.changed_by for i in items} == {None, "loud"}
    assert sum(i.tokens for i in items) == done.prompts[-1]
    assert all(i.tokens < i.raw_tokens for i in items if i.changed_by)


def test_what_no_message_holds_stands_first():
    log = make_log_from_session(
        by_chance(3, 5),
        Rules(counter=Fours()),
        tokens=[10] * len(by_chance(3, 5).messages),
        fixed=700,
    )
    first, *rest = run_rules(log, Rules(counter=Fours())).sent(2)
    assert (first.message.kind, first.tokens, first.changed_by) == ("fixed", 700, None)
    assert all(i.message.kind != "fixed" for i in rest)


def test_a_record_and_a_replay_are_asked_alike(real):
    talk = ck.read(real / "pi" / "before-compaction.jsonl")
    again = ck.replay(talk, ck.presets.ai())
    for session in (talk, again):
        for call in (0, 40, -1):
            items = session.sent(call)
            usage = session.call(call).message.usage
            if session is again:
                assert sum(i.tokens for i in items) == usage.prompt_tokens
            assert items[-1].message.role in ("user", "tool", "summary")
    assert any(i.changed_by for i in again.sent(-1))
    assert talk.sent(-1) == talk.sent(len(talk.calls) - 1)


@pytest.mark.parametrize(
    ("processor", "masked"),
    [
        ({"name": "swe_agent_mask", "n": 1}, [True, True, False]),
        ({"name": "swe_agent_mask"}, [True, True, True]),
        ({"name": "none"}, [False, False, False]),
    ],
)
def test_a_record_shows_what_its_history_processor_masked(processor, masked):
    steps = [step(text=f"{n}" * 400) for n in range(3)]
    log = make_session(user(), *steps, assistant(), details={"history_processor": processor})
    results = [item for item in log.sent(3) if item.message.role == "tool"]
    assert [item.pruned for item in results] == masked
    assert ["Old environment output" in item.message.text for item in results] == masked
