"""Compactions that change nothing: their event, their row, their bill, and the wait before the next one."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from agent.models.fake_provider_server import FORMATS, Play, wire
from agent.test_failed_summaries import Asked, long, settings_of
from builders import assistant, session, user
from stand_in_models import COUNT, Says, agent, live, run, said

import ctxkit as ck
from ctxkit import presets
from ctxkit.agent import ProviderModel
from ctxkit.agent.model_summaries_and_backoff import (
    SummaryBackoff,
    UnsuccessfulCompaction,
    make_unsuccessful_compaction_message,
)
from ctxkit.errors import ModelError
from ctxkit.policies import AntiThrash, Count, Rules, Summary
from ctxkit.presets import preset
from ctxkit.session import Usage

pytestmark = pytest.mark.filterwarnings("default")  # LiteLLM leaves connections to be collected
LONG = "word " * 8_000
EVERY_TURN = presets.fuseraft(trigger_turn_count=3, keep_recent_turns=1).but(counter=COUNT)


def ends(events):
    return [e.payload for e in events if e.kind == "compaction_end"]


def attempts(session):
    frame = ck.frame(session, per="compaction")
    return frame[frame["compaction"].isna()]


async def writes_too_much(*_):
    return said(LONG, usage=Usage(input_tokens=900, output_tokens=100, cost_usd=0.25))


def test_a_summary_that_is_not_shorter_is_refused_aloud_under_every_preset():
    refusing = set()
    for name in presets.names():
        for settings in settings_of(name):
            events, model = [], Asked(writes_too_much)
            rules = preset(name, **settings).but(
                counter=COUNT, window=1_500, assumed=True, reserve=200
            )
            one = agent(at=long(), model=Says(), rules=rules, heard=events, summary_model=model)
            one.model.notice = ""
            run(one.turn("Go on."))
            kinds = [e.kind for e in events]
            assert kinds.count("compaction_start") == kinds.count("compaction_end"), name
            refused = [e for e in ends(events) if e["outcome"] == "refused"]
            table = attempts(one.session)
            assert len(table) == sum("messages" not in e for e in ends(events))
            changes = table[["affected_messages_n", "token_savings", "message_savings"]]
            assert (changes == 0).all(axis=None)
            if model.n:
                assert ends(events), name
            for event in refused:
                refusing.add(name)
                assert "after it the prompt would have " in event["reason"]
                assert event["tokens_before"] == event["tokens_after"]
                assert "error" not in event
    assert refusing >= {"fuseraft", "ai", "fased", "pi", "openclaw", "lcm", "claude_code"}


def talk(rules, model, turns=22, by_hand_after=None):
    """Talk for some turns, compact by hand after one of them; return how often each asked `model`."""
    events = []
    one = agent(
        *[said(f"reply {n}") for n in range(turns)], rules=rules, heard=events, summary_model=model
    )
    one.model.notice = ""
    asked_before = []
    for n in range(turns):
        before = model.n if model else 0
        run(one.turn(f"question {n} " + "more " * 90))
        if n == by_hand_after:
            run(one.compact())
        asked_before.append((model.n if model else 0) - before)
    return one, events, asked_before


def test_a_refused_summary_is_asked_for_more_and_more_rarely():
    one, events, asked = talk(EVERY_TURN, Asked(writes_too_much))
    tries = [n for n, asked_n in enumerate(asked) if asked_n]
    assert [b - a for a, b in pairwise(tries)] == [3, 5, 9]
    assert [e["retry_after_calls"] for e in ends(events)] == [2, 4, 8, 16]
    rows = attempts(one.session)
    assert rows["kind"].tolist() == ["refused"] * 4
    assert rows["model"].tolist() == ["test/bad"] * 4
    assert rows["cost_usd"].tolist() == [0.25] * 4
    assert rows["error"].str.contains("after it the prompt would have").all()
    assert [e["cost_usd"] for e in ends(events)] == [0.25] * 4


def test_a_summary_that_is_too_late_is_not_asked_for_at_each_call():
    async def hangs(*_):
        raise ModelError("The summary took longer than 2 s.")

    rules = Rules(Summary(keep_turns=1), Count(n=6), counter=COUNT)
    _, events, asked = talk(rules, Asked(hangs), turns=30)
    failed = [e for e in ends(events) if e["outcome"] == "failed"]
    assert failed
    assert "longer than 2 s" in failed[0]["error"]
    assert sum(map(bool, asked)) == len(failed) == 4


def test_a_wait_is_over_after_a_summary_that_was_used():
    answers = iter([LONG, "Short.", LONG, *["Short."] * 20])

    async def answer(*_):
        return said(next(answers))

    _, events, _ = talk(EVERY_TURN, Asked(answer), turns=16)
    waits = [e.get("retry_after_calls") for e in ends(events)]
    assert waits[:3] == [2, None, 2]


def test_a_summary_by_hand_that_was_used_ends_the_wait():
    answers = iter([LONG, LONG, *["Short."] * 20])

    async def answer(*_):
        return said(next(answers))

    _, events, asked = talk(EVERY_TURN, Asked(answer), turns=10, by_hand_after=6)
    waits = [e.get("retry_after_calls") for e in ends(events)]
    assert waits[:3] == [2, 4, None]
    assert asked == [0, 0, 0, 1, 0, 0, 2, 0, 0, 1]


def test_another_kernel_waits_as_long(tmp_path):
    """and one with another model asks at once"""

    def ask(name, n):
        model = Asked(writes_too_much)
        model.name = name
        with live(tmp_path, *[said("It is.")] * n, rules=EVERY_TURN, summary_model=model) as one:
            one.agent.model.notice = ""
            for k in range(n):
                run(one.turn(f"question {k}"))
        return model.n

    assert ask("test/bad", 4) == 1
    assert ask("test/bad", 1) == 0
    assert ask("test/other", 1) == 1


def test_another_kernel_counts_on_where_the_first_one_stopped(tmp_path):
    waits = []
    for first, n in ((1, 9), (10, 12)):
        with live(tmp_path, *[said("It is.")] * n, rules=EVERY_TURN, summary_model=Asked(writes_too_much)) as one:  # fmt: skip
            events = []
            one.listen(events.append)
            one.agent.model.notice = ""
            for call in range(first, first + n):
                asked_before = len(ends(events))
                run(one.turn(f"question {call}"))
                waits += [(call, e["retry_after_calls"]) for e in ends(events)[asked_before:]]
    assert waits == [(4, 2), (7, 4), (12, 8), (21, 16)]


@pytest.mark.parametrize(
    ("trigger", "calls_later", "waits"),
    [
        ("turns", 0, [True, True, False]),
        ("turns", 1, [True, False]),
        ("overflow", 0, [True, False]),
    ],
)
def test_the_reply_of_the_call_of_an_attempt_is_none_of_the_wait(trigger, calls_later, waits):
    """After an overflow the attempt comes behind that reply, so the next reply counts."""
    settings = ("fuseraft", "test/bad")
    attempt = make_unsuccessful_compaction_message(
        UnsuccessfulCompaction("failed", "No answer.", trigger, 900, 3),
        settings=settings,
        model=None,
        usage=None,
        retry_after=2,
    )
    replies = [assistant("It is.") for _ in range(1 + calls_later)]
    backoff = SummaryBackoff(session(user(), attempt, *replies), settings)
    assert [backoff.skip_call() for _ in waits] == waits


def test_a_guard_that_holds_back_says_so_once():
    rules = EVERY_TURN.but(guards=AntiThrash(min_savings=0.99, window=1))
    one, events, asked = talk(rules, Asked(lambda *_: _short()), turns=12)
    assert sum(asked) == 1
    assert [e["outcome"] for e in ends(events)] == ["compacted", "skipped"]
    assert "anti-thrash: 1 of 1 below 99%" in ends(events)[1]["reason"]
    assert attempts(one.session)["kind"].tolist() == ["skipped"]


def test_a_free_refusal_is_said_once():
    rules = EVERY_TURN.but(summariser=lambda passage: "word " * 900)
    rules.summariser.needs_model = False
    one, events, _ = talk(rules, None, turns=9)
    assert [e["outcome"] for e in ends(events)] == ["refused"]
    assert attempts(one.session)["kind"].tolist() == ["refused"]


def test_a_free_refusal_is_reported_again_after_a_compaction():
    lengths = iter([900, 900, 1, *[900] * 9])
    rules = EVERY_TURN.but(summariser=lambda passage: "word " * next(lengths))
    rules.summariser.needs_model = False
    _, events, _ = talk(rules, None, turns=10)
    assert [e["outcome"] for e in ends(events)] == ["refused", "compacted", "refused"]


def test_a_refused_compaction_by_hand_names_the_last_refusal():
    """Both the policy and its fallback are refused: the reason has the sizes of the fallback's."""
    one = agent(said("one " * 9), said("two " * 9), heard=(events := []))
    run(one.turn("first"))
    run(one.turn("second"))
    before = one.compactor.context.tokens
    reasons = []
    for more in ({}, {"fallback": _summary_of(8_000)}):
        assert run(one.compact(_summary_of(4_000), **more)) == ()
        reasons.append(ends(events)[-1]["reason"])
    sizes = [re.fullmatch(r"not smaller: after it the prompt would have ([\d,]+) tokens, before it "
                          r"([\d,]+) \(both as counted here\)", r).groups() for r in reasons]  # fmt: skip
    after, was = [[int(n.replace(",", "")) for n in column] for column in zip(*sizes, strict=True)]
    assert was == [before] * 2
    assert after[1] - after[0] == 1_000  # 4,000 characters more
    assert [e["outcome"] for e in ends(events)] == ["refused"] * 2


def _summary_of(chars):
    return Summary(keep_turns=1, summariser=lambda _: "x" * chars)


async def _short():
    return said("Short.")


def test_an_attempt_is_sent_to_no_model_and_is_no_compaction(tmp_path):
    """on a real wire, and read back from the log"""
    with (
        wire("chat", Play("It is so.", usage="counted")) as up,
        wire("chat", Play("x" * 5_000)) as notes,
    ):

        def ask(server):
            return ProviderModel(FORMATS["chat"][0], context_window=50_000,
                            options={"api_base": server.url, "api_key": "none"})  # fmt: skip

        with live(tmp_path, rules=EVERY_TURN, summary_model=ask(notes)) as one:
            one.agent.model = ask(up)
            one.agent.use_rules(EVERY_TURN)
            for n in range(5):
                run(one.turn(f"question {n}"))
            session = one.session
        assert len(notes.asked) == 1
        sent = [[m["role"] for m in body["messages"]] for body in up.asked]
        assert sent[-1] == ["user", "assistant"] * 4 + ["user"]
    again = ck.read(one.log.path)
    for s in (session, again):
        assert attempts(s)["kind"].tolist() == ["refused"]
        assert ck.frame(s, per="session")["compactions_n"].tolist() == [0]
        assert ck.frame(s, per="session")["messages_n"].tolist() == [10]
        assert s.edits == ()


class _SummaryThatIsDiscarded(Summary):
    def __call__(self, history, budget):
        super().__call__(history, budget)
        return history


def test_a_summary_that_a_policy_discards_is_billed():
    async def answer(*_):
        return said("Short.", usage=Usage(input_tokens=900, output_tokens=100, cost_usd=0.25))

    rules = Rules(_SummaryThatIsDiscarded(keep_turns=1), Count(n=3), counter=COUNT)
    one = agent(said("one"), said("two"), rules=rules, summary_model=Asked(answer))
    one.model.notice = ""
    run(one.turn("first"))
    spent = run(one.turn("second")).spent
    assert one.session.edits == ()
    assert (one.writer.n, spent.calls) == (1, 1)
    assert (spent.fresh, spent.output) == (900 + 10, 100 + 1)
