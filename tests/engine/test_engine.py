# ruff: noqa: C408  settings read best as keywords
"""The contract of the engine: jumping = call by call = live = plain lists, to the token, and never a look ahead."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from builders import assistant, session, step, system, user
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_contract import kinds, made_of
from random_sessions import Fours, by_chance, size

from ctxkit.engine import Compaction, RulesRun, advance_run, make_log_from_session, run_rules
from ctxkit.engine.pruned_prompt_forecast import PrunedPromptForecast
from ctxkit.errors import BadArguments, ModelError, UnsoundHistory
from ctxkit.policies import (
    BaseTrigger,
    LastUsageOverBudget,
    MessageLog,
    Rules,
    UnprunedForecast,
    rules_modifiers,
)
from ctxkit.policies import guards as g
from ctxkit.policies import triggers as t
from ctxkit.presets import GuardBypassedByTrigger, OneHourCacheWriteTrigger, RearmBelowCeiling
from ctxkit.session import Usage


def pi(keep):
    return lambda h, context_budget: h.summarise(h.safe(h.back(keep)), 120, "pi")


def window(budget):
    return lambda h, context_budget: h.drop(h.safe(h.fitting(budget)), "window")


def clear(n, text="[gone]"):
    def policy(h, context_budget):
        tools = np.flatnonzero(h.role("tool"))
        return h.shorten(tools[: max(0, len(tools) - n)], text, "clear")

    return policy


def tail(n):
    def policy(h, context_budget):
        keep = np.zeros(len(h), bool)
        keep[-n:] = True
        return h.keep(keep, "tail")

    return policy


FAMILIES = {
    "pi": lambda a, b: dict(policy=pi(b), trigger=t.Above(a)),
    "window": lambda a, b: dict(policy=window(a), trigger=t.Above(a)),
    "spent": lambda a, b: dict(policy=pi(b), trigger=t.TokensSpent(a * 5)),
    "replies": lambda a, b: dict(
        policy=pi(b), trigger=t.Count(3 + b % 9, ("assistant",)) | t.Above(a)
    ),
    "people": lambda a, b: dict(policy=pi(b), trigger=t.Count(9 + b % 20, ("user", "assistant"))),
    "twice": lambda a, b: dict(
        policy=lambda h, context_budget: clear(2)(
            window(a // 2)(h, context_budget), context_budget
        ),
        trigger=t.Above(a),
    ),
    "messages": lambda a, b: dict(policy=tail(5 + b % 9), trigger=t.Count(20 + b % 30)),
    "turns": lambda a, b: dict(policy=window(a // 2), trigger=t.Turns(1 + b % 4)),
    "idle": lambda a, b: dict(policy=pi(b), trigger=t.Idle(300) & t.Above(a // 3)),
    "clear": lambda a, b: dict(policy=clear(1 + b % 5), trigger=t.Above(a)),
    "share": lambda a, b: dict(policy=pi(b), trigger=t.Share(0.5, or_equal=True), window=2 * a),
    "turn_spent": lambda a, b: dict(policy=pi(b), trigger=t.TurnTokensSpent(a * 2)),
    "not": lambda a, b: dict(policy=pi(b), trigger=~t.Idle(300) & t.Above(a)),
    "plain trigger": lambda a, b: dict(
        policy=pi(b), trigger=lambda h, context_budget: h.tokens > a
    ),
    "plain rule": lambda a, b: dict(
        policy=lambda h, context_budget: pi(b)(h, context_budget) if h.tokens > a else h
    ),
    "grace": lambda a, b: dict(
        policy=window(a),
        trigger=t.Above(a),
        guards=(g.GraceAfterCompaction(calls=b % 5), g.GraceAfterCompaction(turns=1)),
    ),
    "thrash": lambda a, b: dict(policy=window(a), trigger=t.Above(a), guards=g.AntiThrash(0.2, 3)),
    "thrash by messages": lambda a, b: dict(
        policy=pi(b), trigger=t.Above(a), guards=g.AntiThrash(0.9, 2, "messages")
    ),
    "attempts": lambda a, b: dict(
        policy=window(a),
        trigger=t.Above(a),
        guards=(g.CompactionCountLimit(1), g.CompactionCountLimit(9, "run")),
    ),
    "hysteresis": lambda a, b: dict(
        policy=window(a), trigger=t.Above(a), guards=g.MinGrowthSinceCompaction(share=0.3)
    ),
    "cold": lambda a, b: dict(
        policy=pi(b),
        trigger=t.Above(a),
        guards=(g.UntilCold(3 * a), g.MinProgress(0.3), g.Smaller()),
    ),
    "cooldown": lambda a, b: dict(policy=pi(b), trigger=t.Above(a), guards=g.Cooldown(200)),
    "by hand": lambda a, b: dict(
        policy=pi(b), trigger=t.AtCalls((3, b % 50, 40)), guards=g.BaseGuard()
    ),
    "failed": lambda a, b: dict(
        policy=pi(b), trigger=t.Overflow(recorded=True) | t.ReplyCutShort() | t.Recorded()
    ),
    "overflow": lambda a, b: dict(
        policy=pi(b), trigger=t.Overflow() & t.Always() | t.Never(), window=a
    ),
    "last total": lambda a, b: dict(policy=pi(b), trigger=LastUsageOverBudget(), window=a),
    "task ends": lambda a, b: dict(
        policy=pi(b), trigger=rules_modifiers.TaskBoundaryTrigger(0.4), window=a
    ),
    "armed": lambda a, b: dict(
        policy=window(a), trigger=t.Above(a), guards=RearmBelowCeiling(a / 2, 2 * a)
    ),
    "one hour": lambda a, b: dict(policy=pi(b), trigger=t.Above(a) & OneHourCacheWriteTrigger()),
    "except": lambda a, b: dict(
        policy=window(a),
        trigger=t.Above(a),
        guards=GuardBypassedByTrigger(
            g.GraceAfterCompaction(calls=4), t.as_trigger(lambda h, context_budget: h.call % 3 == 0)
        ),
    ),
    "warned": lambda a, b: dict(
        policy=pi(b),
        trigger=t.TokensSpent(a * 5),
        warnings=(t.TokensSpent(a * 3), t.Above(a), t.MessageCapWarning(9 + b % 20)),
    ),
}
PRUNINGS = {"none": None, "tools": clear(2), "tail": tail(9)}


def test_every_trigger_and_guard_is_held_to_the_contract():
    """a new one must be in a family, where live, replay and the plain questions are compared"""
    rules = [Rules(**make(9000, 300)) for make in FAMILIES.values()]
    held = {kind for r in rules for kind in made_of((r.trigger, r.guards, r.warnings))}
    assert kinds(BaseTrigger, "policies", "presets") - {t.CompositeTrigger} <= held
    assert kinds(g.BaseGuard, "policies", "presets") | {g.BaseGuard} <= held


def rules_of(family, pruning, a, b):
    return Rules(pruning=PRUNINGS[pruning], counter=Fours(), **FAMILIES[family](a, b))


def log_by_chance(seed, calls=60, **more):
    log = make_log_from_session(by_chance(seed, calls, **more), Rules(counter=Fours()), tokens=None)
    # One reply reports that its prompt was cached for an hour. It is put in here, as sizes are
    # anchored on the usage of a session.
    billed = Usage(input_tokens=0, cache_write_tokens=9, cache_write_1h_tokens=9, output_tokens=1)
    at = seed % (calls // 2)
    log.replies[at] = msgspec.structs.replace(log.replies[at], usage=billed)
    return log


def same(a: RulesRun, b: RulesRun):
    assert a.prompts.tolist() == b.prompts.tolist()
    assert a.fresh_tokens.tolist() == b.fresh_tokens.tolist()
    assert (a.total, a.fresh, a.peak) == (b.total, b.fresh, b.peak)
    assert a.edits == b.edits
    assert a.blocked == b.blocked
    assert a.warned == b.warned
    assert a.events == b.events


def live(log, rules):
    done = RulesRun(log, rules)
    for call_ in range(1, log.calls + 1):
        advance_run(done, rules, call_)
        assert (
            done.peak <= done.total
        )  # the sums are asked for at each call, and continue from those before
    return done


def fold(log, rules):
    """What the words mean: at every call the plain questions are asked, and the views are compared."""
    done = RulesRun(log, rules)
    h, before = done.history, []
    sizes, fresh, cuts = [], [], []
    for u in range(log.calls):
        h = h.at(u)
        make = lambda x: rules.pruning(x, done.budget) if rules.pruning else x
        sent = lambda a, b: sizes[a:b]
        view = (
            UnprunedForecast(h, done.budget, sent)
            if not rules.pruning
            else PrunedPromptForecast(h, done.budget, rules.pruning, done.clock, u, sent=sent)
        )
        first = getattr(rules.trigger, "first", None)
        due = first(view, u, u + 1) == u if first else rules.trigger(h, done.budget)
        past = type("P", (), {"compactions": done.compactions, "log": log, "begin": 0})()
        if due and all(guard.first(past, view, u, u + 1) == u for guard in rules.guards):
            new = rules.policy(h, done.budget)
            if new is not h and not any(guard.refuses(past, h, new) for guard in rules.guards):
                # under a pruning, guards go by what the call was sent, not by the whole conversation
                sent_sizes = tuple(sum(map(size, make(x).messages)) + log.fixed for x in (h, new))
                pruned_sizes = sent_sizes if rules.pruning else None
                done.compactions.append(Compaction(u, h, new, "", pruned_sizes=pruned_sizes))
                cuts.append((u, [(e.kind, e.targets) for e in new.edits]))
                h = new
        now = make(h)
        p = sum(size(m) for m in now.messages) + log.fixed
        alive = [
            x
            for c, x in enumerate(before)
            if not log.sent[u] - log.end_times[c] >= rules.cache_life
        ]
        shared = max((shared_tokens(x, now.messages) + log.fixed for x in alive), default=0)
        sizes.append(p)
        fresh.append(p if done.clock.cold[u] else p - shared)
        before.append(now.messages)
    return sizes, fresh, cuts


def shared_tokens(a, b):
    total = 0
    for x, y in zip(a, b, strict=False):
        if x.parts != y.parts or x.id.split("~")[0] != y.id.split("~")[0]:
            break
        total += size(y)
    return total


@pytest.mark.parametrize("pruning", PRUNINGS)
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=examples(4))
@given(seed=st.integers(0, 10**6), a=st.integers(1500, 9000), b=st.integers(100, 1400))
def test_jump_is_live_is_fold(family, pruning, seed, a, b):
    rules = rules_of(family, pruning, a, b)
    log = log_by_chance(seed, 30)
    jump = run_rules(log, rules)
    same(jump, live(log, rules))
    sizes, fresh, cuts = fold(log, rules)
    assert jump.prompts.tolist() == sizes
    assert [(c.call, [(e.kind, e.targets) for e in c.edits]) for c in jump.compactions] == cuts
    assert jump.fresh_tokens.tolist() == fresh
    assert (jump.total, jump.fresh, jump.peak) == (sum(sizes), sum(fresh), max(sizes))


# -- an oracle of plain lists: nothing of the kit but the messages -----------------------------------------------------------


def tool_groups(shown):
    """Positions of each reply with its results."""
    groups, of = {}, {}
    for p, (m, _) in enumerate(shown):
        for c in getattr(m, "tool_calls", ()) if m else ():
            of[c.id] = p
        groups.setdefault(of.get(m.call_id, p) if m and m.role == "tool" else p, []).append(p)
    return groups


def cut_positions(shown):
    """Positions before which a cut parts no call from its result."""
    spans = [(g[0], g[-1]) for g in tool_groups(shown).values()]
    return [p for p in range(len(shown)) if not any(a < p <= b for a, b in spans)]


def stays(shown):
    keep = set()
    for group in tool_groups(shown).values():
        if any(
            shown[p][0] is not None and (shown[p][0].role == "system" or shown[p][0].pinned)
            for p in group
        ):
            keep.update(group)
    return keep


def cut_before(shown, p, new):
    firm = stays(shown)
    gone = [i for i in range(p) if i not in firm]
    if not gone:
        return shown
    head = [shown[i] for i in range(p) if i in firm and i < gone[0]]
    return head + new + [shown[i] for i in range(p) if i in firm and i > gone[0]] + shown[p:]


def oracle_pi(limit, keep):
    def policy(shown):
        total, at = 0, None
        for i in range(len(shown) - 1, -1, -1):
            total += shown[i][1]
            if total >= keep:
                at = i
                break
        later = [p for p in cut_positions(shown) if at is not None and p >= at]
        return cut_before(shown, later[0], [(None, 120)]) if later else shown

    return lambda shown: sum(n for _, n in shown) > limit, policy


def oracle_window(limit):
    def policy(shown):
        firm = stays(shown)
        for p in range(len(shown) + 1):
            if sum(n for i, (_, n) in enumerate(shown) if i >= p or i in firm) <= limit:
                break
        later = [q for q in cut_positions(shown) if q >= p]
        return cut_before(shown, later[0], []) if later and p else shown

    return lambda shown: sum(n for _, n in shown) > limit, policy


def oracle_clear(limit, n):
    def policy(shown):
        firm = stays(shown)
        tools = [i for i, (m, _) in enumerate(shown) if m is not None and m.role == "tool"]
        old = [i for i in tools[: max(0, len(tools) - n)] if i not in firm and shown[i][1] > 2]
        return [(m, 2 if i in old else k) for i, (m, k) in enumerate(shown)] if old else shown

    return lambda shown: sum(k for _, k in shown) > limit, policy


def oracle_replies(n, keep):
    return (
        lambda shown: sum(m is not None and m.role == "assistant" for m, _ in shown) >= n,
        oracle_pi(0, keep)[1],
    )


def oracle(session_, due, policy):
    shown, sizes, cuts = [], [], []
    for m in session_.messages:
        if m.role == "assistant":
            if due(shown):
                new = policy(shown)
                if new is not shown:
                    cuts.append(len(sizes))
                    shown = new
            sizes.append(sum(n for _, n in shown))
        shown = [*shown, (m, size(m))]
    return sizes, cuts


ORACLES = {
    "pi": lambda a, b: (oracle_pi(a, b), dict(policy=pi(b), trigger=t.Above(a))),
    "window": lambda a, b: (oracle_window(a), dict(policy=window(a), trigger=t.Above(a))),
    "clear": lambda a, b: (oracle_clear(a, 2), dict(policy=clear(2), trigger=t.Above(a))),
    "replies": lambda a, b: (
        oracle_replies(9, b),
        dict(policy=pi(b), trigger=t.Count(9, ("assistant",))),
    ),
}


@pytest.mark.parametrize("family", ORACLES)
@settings(max_examples=examples(12))
@given(seed=st.integers(0, 10**6), a=st.integers(1500, 9000), b=st.integers(100, 1400))
def test_plain_lists_give_the_same(family, seed, a, b):
    (due, policy), parts = ORACLES[family](a, b)
    talk = by_chance(seed, 50)
    sizes, cuts = oracle(talk, due, policy)
    done = run_rules(
        make_log_from_session(talk, Rules(counter=Fours())), Rules(counter=Fours(), **parts)
    )
    assert done.prompts.tolist() == sizes
    assert [c.call for c in done.compactions] == cuts


# -- no look ahead -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pruning", ["none", "tools"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_log_cut_off_at_a_call_gives_the_same_run(family, pruning):
    rules, talk = rules_of(family, pruning, 4000, 700), by_chance(11, 45, agents=("main", "helper"))
    whole = make_log_from_session(talk, rules)
    for upto in range(5, 45, 11):
        position = talk.calls[upto].position
        part = session(*talk.log[: position + 1])
        done, cut_off = (
            advance_run(RulesRun(whole, rules), rules, upto + 1),
            run_rules(make_log_from_session(part, rules), rules),
        )
        assert done.prompts.tolist() == cut_off.prompts.tolist()
        assert done.edits == cut_off.edits
        assert done.blocked == cut_off.blocked


def test_a_log_that_grows_gives_the_same_run():
    rules, talk = rules_of("pi", "tools", 4000, 700), by_chance(3, 60)
    log = MessageLog(Fours())
    done = RulesRun(log, rules)
    for message in talk.messages:
        if message.role == "assistant":
            log.open(message.time, message.agent)
            advance_run(done, rules, log.calls)
        log.append(message)
    again = run_rules(MessageLog.of(talk.messages, Fours()), rules)
    assert done.prompts.tolist() == again.prompts.tolist()
    assert done.edits == again.edits


# -- what is asked of the parts ----------------------------------------------------------------------------------------------


def talk_of(n, text="x" * 400):
    return session(system(), user(), *(step("read_file", text) for _ in range(n)), assistant())


def test_cumulative_input_is_counted_agent_by_agent():
    talk = session(user("u" * 40), *(assistant("a" * 40, agent=a) for a in "AABAABB"))
    log = make_log_from_session(talk, Rules(counter=Fours()))
    of = lambda trigger: [
        w[0]
        for w in run_rules(log, Rules(pi(10), t.Never(), warnings=trigger, counter=Fours())).warned
    ]
    assert of(t.TokensSpent(30)) == [2]  # A was sent 10 + 20
    assert of(t.TokensSpent(30, agent="B")) == [3]  # B was sent 30
    assert of(t.TokensSpent(31, agent="B")) == [6]  # 30 + 60


def test_a_policy_that_does_nothing_is_asked_again_and_told():
    done = run_rules(
        make_log_from_session(talk_of(3), Rules(counter=Fours())),
        Rules(lambda h, context_budget: h, counter=Fours()),
    )
    assert [e.outcome for e in done.events if e.kind == "end"] == ["nothing"] * 4
    assert not done.compactions


def test_a_summariser_that_fails_leaves_the_history_and_a_note():
    def fails(h, context_budget):
        raise ModelError("The model did not answer.")

    done = run_rules(
        make_log_from_session(talk_of(2), Rules(counter=Fours())), Rules(fails, counter=Fours())
    )
    assert [(h.call, h.why) for h in done.errors] == [
        (n, "failed: The model did not answer.") for n in range(3)
    ]
    assert done.prompts.tolist() == run_rules(done.log, Rules(counter=Fours())).prompts.tolist()


def test_a_list_of_messages_is_a_policys_answer_too():
    plain = Rules(
        lambda h, context_budget: [m for m in h.messages if m.role != "tool" and not m.tool_calls],
        counter=Fours(),
    )
    done = run_rules(make_log_from_session(talk_of(3), plain), plain)
    assert [m.role for m in done.last_prompt().messages] == ["system", "user"]


def test_an_orphan_is_refused_with_the_name_of_its_call():
    bad = Rules(
        lambda h, context_budget: [m for m in h.messages if m.role != "tool"], counter=Fours()
    )
    with pytest.raises(UnsoundHistory, match=r"Tool call read_file \(c.*\) lost its result"):
        run_rules(make_log_from_session(talk_of(2), bad), bad)


@pytest.mark.parametrize(
    ("answer", "kind"), [(None, "None"), (3, "int"), ("history", "str"), ([3], "list")]
)
def test_a_policy_must_return_a_history(answer, kind):
    rules = Rules(lambda h, context_budget: answer, counter=Fours())
    with pytest.raises(BadArguments, match=rf"returned {kind}; it must return a history"):
        run_rules(make_log_from_session(talk_of(1), rules), rules)


def test_new_messages_are_called_back():
    told = []
    rules = Rules(pi(200), t.Above(400), counter=Fours(), on_compacted=told.append)
    done = run_rules(make_log_from_session(talk_of(6), rules), rules)
    assert [m[1].role for m in told] == ["summary"] * len(done.compactions)
    assert len(told) > 1


def test_new_messages_of_a_compaction_by_hand_are_called_back():
    """P20: It is called with the new messages of a compaction that no trigger asked for, too."""
    told = []
    rules = Rules(pi(200), t.Never(), counter=Fours(), on_compacted=told.append)
    log = make_log_from_session(talk_of(6), rules)
    done = advance_run(RulesRun(log, rules), rules, 5)
    new = pi(200)(done.history.at(5), done.budget)
    done.by_hand(new)
    assert told == [new.messages]
    assert len(new.messages) < len(done.compactions[0].was.messages)


def test_automatic_compaction_can_be_off_and_done_by_hand():
    rules = Rules(pi(200), t.Above(400), auto=False, counter=Fours())
    log = make_log_from_session(talk_of(6), rules)
    done = advance_run(RulesRun(log, rules), rules, 5)
    cut = done.by_hand(pi(200)(done.history.at(5), done.budget))
    advance_run(done, rules, log.calls)
    assert [c.call for c in done.compactions] == [5]
    assert done.prompts[5] == cut.after < done.prompts[4]
    assert done.fresh_tokens[5] == cut.after - size(
        log.messages[0]
    )  # only the system prompt is still cached


def test_a_run_that_goes_on_from_another_knows_its_warnings():
    """What was warned of before is not said again until the next compaction."""
    log = make_log_from_session(talk_of(20), Rules(counter=Fours()))
    rules = Rules(pi(500), t.Above(10**6), warnings=(t.Above(300),), counter=Fours())
    past, later = run_rules(log, rules), RulesRun(log, rules)
    assert past.warned
    for _ in range(5):
        log.append(assistant("later"))
    later.resume(past)
    assert later.begin == past.call < log.calls
    assert advance_run(later, rules, log.calls).warned == []


def test_the_fixed_part_counts_in_every_prompt():
    rules = Rules(counter=Fours())
    bare, fixed = (
        run_rules(make_log_from_session(talk_of(2), rules, tokens=[10] * 7, fixed=f), rules)
        for f in (0, 500)
    )
    assert (fixed.prompts - bare.prompts).tolist() == [500] * 3
    with pytest.raises(BadArguments, match="fixed part"):
        run_rules(
            make_log_from_session(talk_of(2), rules, tokens=[10] * 7, fixed=500),
            rules.but(window=400),
        )


@pytest.mark.parametrize("family", ["pi", "window", "clear", "thrash", "spent"])
def test_real_sessions_live_as_replayed(real, family):
    from ctxkit.formats import read

    talk = read(real / "pi" / "before-compaction.jsonl")
    rules = Rules(counter=Fours(), **FAMILIES[family](60_000, 15_000))
    log = make_log_from_session(talk, rules)
    jump = run_rules(log, rules)
    same(jump, live(log, rules))
    assert jump.compactions
