"""The contract of the engine: jumping = call by call = live = plain lists, to the token, and never a look ahead."""

from __future__ import annotations

import numpy as np
import pytest
from builders import assistant, call, result, session, step, system, user
from hypothesis import given, settings
from hypothesis import strategies as st
from talks_by_chance import Fours, by_chance, size

from ctxkit.engine import Cut, Run, advance, log_of, run
from ctxkit.errors import BadArguments, ModelError, UnsoundHistory
from ctxkit.history import History, Log
from ctxkit.policies import guards as g
from ctxkit.policies import triggers as t
from ctxkit.policies.outlooks import Sampled, Straight
from ctxkit.policies.rules import Rules


def pi(keep):
    return lambda h, room: h.summarise(h.safe(h.back(keep)), 120, "pi")


def window(budget):
    return lambda h, room: h.drop(h.safe(h.fitting(budget)), "window")


def clear(n, text="[gone]"):
    def policy(h, room):
        tools = np.flatnonzero(h.role("tool"))
        return h.shorten(tools[: max(0, len(tools) - n)], text, "clear")

    return policy


def tail(n):
    def policy(h, room):
        keep = np.zeros(len(h), bool)
        keep[-n:] = True
        return h.keep(keep, "tail")

    return policy


FAMILIES = {
    "pi": lambda a, b: dict(policy=pi(b), trigger=t.Above(a)),
    "window": lambda a, b: dict(policy=window(a), trigger=t.Above(a)),
    "spent": lambda a, b: dict(policy=pi(b), trigger=t.Spent(a * 5)),
    "replies": lambda a, b: dict(policy=pi(b), trigger=t.Count(3 + b % 9, ("assistant",)) | t.Above(a)),
    "people": lambda a, b: dict(policy=pi(b), trigger=t.Count(9 + b % 20, ("user", "assistant"))),
    "messages": lambda a, b: dict(policy=tail(5 + b % 9), trigger=t.Count(20 + b % 30)),
    "turns": lambda a, b: dict(policy=window(a // 2), trigger=t.Turns(1 + b % 4)),
    "idle": lambda a, b: dict(policy=pi(b), trigger=t.Idle(300) & t.Above(a // 3)),
    "clear": lambda a, b: dict(policy=clear(1 + b % 5), trigger=t.Above(a)),
    "share": lambda a, b: dict(policy=pi(b), trigger=t.Share(0.5, or_equal=True), window=2 * a),
    "turn_spent": lambda a, b: dict(policy=pi(b), trigger=t.TurnSpent(a * 2)),
    "not": lambda a, b: dict(policy=pi(b), trigger=~t.Idle(300) & t.Above(a)),
    "plain trigger": lambda a, b: dict(policy=pi(b), trigger=lambda h, room: h.tokens > a),
    "plain rule": lambda a, b: dict(policy=lambda h, room: pi(b)(h, room) if h.tokens > a else h),
    "grace": lambda a, b: dict(policy=window(a), trigger=t.Above(a), guards=(g.Grace(calls=b % 5), g.Grace(turns=1))),
    "thrash": lambda a, b: dict(policy=window(a), trigger=t.Above(a), guards=g.AntiThrash(0.2, 3)),
    "thrash by messages": lambda a, b: dict(policy=pi(b), trigger=t.Above(a), guards=g.AntiThrash(0.9, 2, "messages")),
    "attempts": lambda a, b: dict(policy=window(a), trigger=t.Above(a), guards=(g.Attempts(1), g.Attempts(9, "run"))),
    "hysteresis": lambda a, b: dict(policy=window(a), trigger=t.Above(a), guards=g.Hysteresis(share=0.3)),
    "cold": lambda a, b: dict(policy=pi(b), trigger=t.Above(a), guards=(g.UntilCold(3 * a), g.MinProgress(0.3), g.Smaller())),
    "cooldown": lambda a, b: dict(policy=pi(b), trigger=t.Above(a), guards=g.Cooldown(200)),
    "warned": lambda a, b: dict(policy=pi(b), trigger=t.Spent(a * 5), warnings=(t.Spent(a * 3), t.Above(a))),
}
PRUNINGS = {"none": None, "tools": clear(2), "tail": tail(9)}


def rules_of(family, pruning, a, b):
    return Rules(pruning=PRUNINGS[pruning], counter=Fours(), **FAMILIES[family](a, b))


def log_by_chance(seed, calls=60, **more):
    return log_of(by_chance(seed, calls, **more), Rules(counter=Fours()), tokens=None)


def same(a: Run, b: Run):
    assert a.prompts.tolist() == b.prompts.tolist()
    assert a.fresh_tokens.tolist() == b.fresh_tokens.tolist()
    assert (a.total, a.fresh, a.peak) == (b.total, b.fresh, b.peak)
    assert a.edits == b.edits
    assert a.held == b.held
    assert a.warned == b.warned
    assert a.events == b.events


def live(log, rules):
    done = Run(log, rules)
    for call_ in range(1, log.calls + 1):
        advance(done, rules, call_)
    return done


def fold(log, rules):
    """What the words mean: at every call the plain questions are asked, and the views are compared."""
    done = Run(log, rules)
    h, last = done.history, None
    sizes, fresh, cuts = [], [], []
    for u in range(log.calls):
        h = h.at(u)
        make = lambda x: rules.pruning(x, done.room) if rules.pruning else x
        sent = lambda a, b: sizes[a:b]
        view = Straight(h, done.room, sent) if not rules.pruning else Sampled(h, done.room, rules.pruning, done.clock, (u, u + 1), warm=False, sent=sent)
        first = getattr(rules.trigger, "first", None)
        due = first(view, u, u + 1) == u if first else rules.trigger(h, done.room)
        past = type("P", (), {"cuts": done.cuts, "log": log, "begin": 0})()
        if due and all(guard.first(past, view, u, u + 1) == u for guard in rules.guards):
            new = rules.policy(h, done.room)
            if new is not h and not any(guard.refuses(past, h, new) for guard in rules.guards):
                done.cuts.append(Cut(u, h, new, ""))
                cuts.append((u, [(e.kind, e.targets) for e in new.edits]))
                h = new
        now = make(h)
        p = sum(size(m) for m in now.messages) + log.fixed
        shared = 0 if last is None else shared_tokens(last, now.messages) + log.fixed
        sizes.append(p)
        fresh.append(p if done.clock.cold[u] else p - shared)
        last = now.messages
    return sizes, fresh, cuts


def shared_tokens(a, b):
    total = 0
    for x, y in zip(a, b):
        if x.parts != y.parts or x.id != y.id:
            break
        total += size(y)
    return total


@pytest.mark.parametrize("pruning", PRUNINGS)
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), a=st.integers(1500, 9000), b=st.integers(100, 1400))
def test_jump_is_live_is_fold(family, pruning, seed, a, b):
    rules = rules_of(family, pruning, a, b)
    log = log_by_chance(seed, 30)
    jump = run(log, rules)
    same(jump, live(log, rules))
    sizes, fresh, cuts = fold(log, rules)
    assert jump.prompts.tolist() == sizes
    assert [(c.call, [(e.kind, e.targets) for e in c.edits]) for c in jump.cuts] == cuts
    assert jump.fresh_tokens.tolist() == fresh
