"""A replay in whole numbers is the engine's own: the same marks, sums, cuts and questions, and never a guess."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import pytest
from builders import assistant, session, user
from conftest import sample
from contracts import messages
from histories import CHARS
from hypothesis import given, settings
from hypothesis import strategies as st
from talks_by_chance import Fours, by_chance

import ctxkit as ck
from ctxkit.engine import Run, advance, log_of, run
from ctxkit.engine.leaps import DONE, Leapt
from ctxkit.history import Log
from ctxkit.metrics.quick import hidden
from ctxkit.metrics.size import spots_of
from ctxkit.policies import catalogue
from ctxkit.policies import triggers as t
from ctxkit.policies.rules import Rules
from ctxkit.policies.safeguard import Safeguard
from ctxkit.policies.structured import PiSummary
from ctxkit.policies.summarisers import Fixed, Share
from ctxkit.policies.summary import Summary
from ctxkit.policies.window import Window
from ctxkit.presets import langchain_summary, openclaw

POLICIES = {
    "summary": lambda keep, size: Summary(keep_tokens=keep, summariser=Fixed(size)),
    "share": lambda keep, size: Summary(keep_share=min(keep / 1500, 1.0) or 0.1, summariser=Fixed(size)),
    "messages": lambda keep, size: Summary(keep_messages=keep // 40 + 1, summariser=Fixed(size)),
    "turns": lambda keep, size: Summary(keep_turns=keep // 200 + 1, split_turns=False, summariser=Fixed(size)),
    "grows": lambda keep, size: Summary(keep_tokens=keep, summariser=Fixed(size), must_shrink=False, limit=900),
    "pi": lambda keep, size: PiSummary(keep_tokens=keep, summariser=Fixed(size), limit=400),
    "safeguard": lambda keep, size: Safeguard(keep_tokens=keep, summariser=Fixed(size)),
    "openclaw": lambda keep, size: openclaw(keep_recent_tokens=keep + 1, summariser=Fixed(size)).policy,
    "langchain": lambda keep, size: (
        langchain_summary(trigger=("tokens", 1), keep=("tokens", keep + 1), summariser=Fixed(size)).policy
    ),
    "fraction": lambda keep, size: (
        langchain_summary(
            trigger=("tokens", 1), keep=("fraction", min((keep + 1) / 1500, 1.0)), summariser=Fixed(size)
        ).policy
    ),
    "newest": lambda keep, size: (
        langchain_summary(trigger=("tokens", 1), keep=("messages", keep // 40 + 1), summariser=Fixed(size)).policy
    ),
    "window": lambda keep, size: Window(keep_tokens=keep + 1),
}
DUE = {
    "above": t.Above,
    "at": lambda at: t.Above(at + 0.5, or_equal=True),
    "share": lambda at: t.Share(min(at / 1500, 1.0) or 0.1) | t.Overflow(recorded=True),
    "budget": lambda at: t.Share(min(at / 1500, 1.0) or 0.1, of="budget", or_equal=True) | t.CutShort(),
    "window": lambda at: t.Overflow() | t.Never(),
    "always": lambda at: t.Always(),
}


def same(log: Log, rules: Rules, limit: int | None = None) -> bool:
    """Assert that a replay is the engine's own, call by call; say whether it leapt."""
    done, plain = run(log, rules, limit), advance(Run(log, rules, limit), rules, log.calls)
    assert done.billed.marks == plain.billed.marks
    assert (done.total, done.fresh, done.peak) == (plain.total, plain.fresh, plain.peak)
    assert done.prompts.tolist() == plain.prompts.tolist()
    assert done.fresh_tokens.tolist() == plain.fresh_tokens.tolist()
    spots, unseen = spots_of(done), hidden(done)
    assert not isinstance(done, Leapt) or not DONE & vars(done).keys()
    assert (spots, unseen) == (spots_of(plain), hidden(plain))
    assert [c.edits for c in done.cuts] == [c.edits for c in plain.cuts]
    assert done.history.messages == plain.history.messages
    assert (done.events, done.held, done.warned) == (plain.events, plain.held, plain.warned)
    assert (spots_of(done), hidden(done)) == (spots, unseen)
    return isinstance(done, Leapt)


@pytest.mark.parametrize("due", DUE)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_leap_is_the_same_run_on_arbitrary_logs(policy, due):
    leapt = []

    @settings(max_examples=40)
    @given(messages(), st.integers(0, 900), st.integers(2, 700), st.integers(0, 500), st.integers(0, 90))
    def check(rows, keep, more, size, fixed):
        log = Log.of(rows, CHARS, fixed=fixed)
        rules = Rules(POLICIES[policy](keep, size + 1), DUE[due](keep + more), window=1500, assumed=True)
        leapt.append(same(log, rules))

    check()
    assert any(leapt)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(100, 3000), st.integers(2, 2000))
def test_a_leap_is_the_same_run_on_long_sessions(policy, seed, keep, more):
    rules = Rules(POLICIES[policy](keep, 120), t.Above(keep + more), window=30_000, assumed=True, counter=Fours())
    same(log_of(by_chance(seed), rules), rules)


PRESETS = {
    "pi": {"keep_recent_tokens": 8000},
    "fased": {"keep_recent_tokens": 8000},
    "openclaw": {"keep_recent_tokens": 8000},
    "langchain_summary": {"trigger": ("tokens", 30_000), "keep": ("tokens", 8000)},
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_leap_is_the_same_run_on_real_sessions(name, real):
    leapt = []
    made = getattr(ck.presets, name)(context_window=60_000, summariser="fixed", **PRESETS[name])
    rules = made.but(assumed=True)  # the fixed part of some is larger
    for path in sample(sorted((real / "pi").glob("*.jsonl")) + sorted((real / "claude-code").glob("*.jsonl")), 6):
        talk = ck.read(path)
        for each in (talk, *talk.children):
            log = log_of(each, rules)
            leapt.append(same(log, rules))
    assert any(leapt)


def test_what_leaps_is_known():
    """Whoever adds a leap adds it to the contract above."""
    taught = {type(make(100, 10)) for make in POLICIES.values()}
    found = {type(member) for member in map(_member, catalogue.MEMBERS) if "leap" in vars(type(member))}
    assert found <= taught


def _member(name):
    return catalogue.policy(name)


@dataclass(frozen=True, kw_only=True, repr=False)
class Late(Summary):
    """A summary that cuts elsewhere; it inherits a leap that knows nothing of it."""

    def cut(self, history, room):
        return history.safe(max(super().cut(history, room) - 2, 0))


@dataclass(frozen=True)
class Seldom(t.Above):
    """A trigger that is due elsewhere; it inherits a level that knows nothing of it."""

    def first(self, outlook, start, stop):
        return super().first(outlook, start + (start % 2), stop) if start + (start % 2) < stop else stop


def talk_of(n: int) -> Log:
    rows = [user("do it " * 40)]
    for k in range(n):
        rows += [assistant(f"step {k} " * 30)]
    return Log.of(rows, CHARS)


@pytest.mark.parametrize(
    "rules",
    [
        Rules(Late(keep_tokens=200, summariser=Fixed(20)), t.Above(600)),
        Rules(Summary(keep_tokens=200, summariser=Fixed(20)), Seldom(600)),
        Rules(Summary(keep_tokens=200, summariser=Share(0.2)), t.Above(600)),
        Rules(Summary(keep_tokens=200, split_turns=False, summariser=Fixed(20)), t.Above(600)),
        Rules(PiSummary(keep_tokens=200, quirks=True, summariser=Fixed(20)), t.Above(600)),
        Rules(Summary(keep_tokens=200, summariser=Fixed(20)), t.Above(600) | t.Turns(3)),
        Rules(Summary(keep_tokens=200, summariser=Fixed(20)), t.Above(600), warnings=(lambda h, room: h.tokens > 300,)),
        Rules(Summary(keep_tokens=200, summariser=Fixed(20)), t.Above(600), auto=False),
        Rules(Summary(keep_tokens=200, summariser=Fixed(20)), lambda h, room: h.tokens > 600),
    ],
)
def test_what_does_not_say_itself_in_numbers_is_run_step_by_step(rules):
    assert not same(talk_of(60), rules)


def test_a_fixed_part_that_shrinks_is_run_step_by_step():
    rules = Rules(Summary(keep_tokens=200, summariser=Fixed(20)), t.Above(600))
    log = Log(CHARS)
    for k in range(30):
        log.open(fixed=500 if k < 9 else 100)
        log.append(assistant(f"step {k} " * 30))
    assert not same(log, rules)


def test_what_was_done_is_worked_out_once_and_as_it_was_then():
    log = talk_of(40)
    rules = Rules(Summary(keep_tokens=200, summariser=Fixed(20)), t.Above(600))
    done, plain = run(log, rules), advance(Run(log, rules), rules, log.calls)
    for k in range(20):
        log.append(assistant(f"later {k} " * 30))
    assert [c.call for c in done.cuts] == [c.call for c in plain.cuts]
    assert done.cuts is done.cuts
    advance(done, rules, log.calls)
    assert done.billed.marks == run(log, rules).billed.marks
    assert [c.call for c in done.cuts] == [c.call for c in run(log, rules).cuts]


def test_a_run_goes_on_from_a_leapt_one_with_its_warnings():
    """What was warned of before is not said again until the next compaction."""
    log = talk_of(20)
    rules = Rules(Summary(keep_tokens=200, summariser=Fixed(20)), t.Above(9000), warnings=(t.Above(300),))
    done, plain = run(log, rules), advance(Run(log, rules), rules, log.calls)
    assert isinstance(done, Leapt)
    assert done.warned == plain.warned != []
    for k in range(5):
        log.append(assistant(f"later {k} " * 30))
    for past in (run(log, rules), done, plain):
        later = Run(log, rules)
        later.resume(past)
        assert advance(later, rules, log.calls).warned == []


def test_a_leapt_run_has_nothing_that_a_run_has_not():
    done = run(talk_of(40), Rules(Summary(keep_tokens=200, summariser=Fixed(20)), t.Above(600)))
    with pytest.raises(AttributeError, match="no attribute 'cost'"):
        _ = done.cost
    assert copy.copy(done).total == done.total


def test_a_replayed_session_holds_the_edits_of_a_leapt_run():
    talk = session(user("go " * 50), *(assistant(f"step {k} " * 60) for k in range(40)), id="talk")
    rules = Rules(Summary(keep_tokens=200, summariser=Fixed(20)), t.Above(900), counter="chars/4")
    made = ck.replay(talk, rules)
    assert made.edits
    assert pickle.loads(pickle.dumps(made.messages)) == made.messages
