"""A replay is a session: what was said, with other edits, and prompts that say what would have been sent."""

from __future__ import annotations

import pytest
from builders import assistant, session, step, summarised, system, usage, user
from conftest import sample
from random_sessions import by_chance

from ctxkit import replay
from ctxkit.engine import make_log_from_session, run_replay, run_rules, with_message_ids
from ctxkit.errors import BadArguments
from ctxkit.policies import Rules, guards, recorded_rules, triggers
from ctxkit.tokens import get_billed_prompt, measure_sizes


def pi(keep, at, **more):
    return Rules(
        lambda h, budget: h.summarise(h.safe(h.back(keep)), "So far.", "full"),
        triggers.Above(at),
        **more,
    )


RULES = {
    "none": Rules(),
    "pi": pi(800, 3000),
    "plain": lambda h, budget: h.shorten(h.role("tool"), "[gone]"),
}


@pytest.mark.parametrize("name", RULES)
def test_the_session_shows_what_the_run_showed(name):
    talk = by_chance(4, 40)
    again, done = replay(talk, RULES[name]), run_replay(talk, RULES[name])
    assert [m.id for m in again.messages] == [m.id for m in talk.messages]
    assert [m.usage.prompt_tokens for c in again.calls if (m := c.message)] == done.prompts.tolist()
    assert [m.id for m in again.view()] == [m.id for m in done.history.at(done.log.calls).messages]
    edited = [c.index for c in again.calls if again.path[c.position - 1] in again.edits]
    assert sorted({c.call for c in done.compactions}) == edited


def test_replaying_a_replay_changes_nothing():
    once = replay(by_chance(4, 40), pi(800, 3000))
    counts = [10] * len(once.messages)
    a, b = (replay(s, pi(300, 400), tokens=counts, fixed=0) for s in (once, by_chance(4, 40)))
    assert [e.targets for e in a.edits] == [e.targets for e in b.edits]
    assert [c.message.usage for c in a.calls] == [c.message.usage for c in b.calls]


def test_recorded_compactions_are_lifted_out():
    old = [user("x" * 4000), assistant("y" * 4000)]
    talk = session(*old, summarised(old), user(), assistant())
    assert not replay(talk, Rules()).edits
    assert len(replay(talk, recorded_rules()).edits) == 1
    assert run_replay(talk, recorded_rules()).prompts[-1] < run_replay(talk, Rules()).prompts[-1]


def test_usage_is_modelled_and_output_recorded():
    talk = session(
        user(), assistant(usage=usage(100, 0, 0, 7)), user(), assistant(usage=usage(20, 110, 0, 9))
    )
    again = replay(talk, Rules())
    assert [c.message.usage.output_tokens for c in again.calls] == [7, 9]
    assert [c.message.usage.prompt_tokens for c in again.calls] == [100, 130]
    assert [c.message.usage.cache_read_tokens for c in again.calls] == [0, 100]
    assert all(c.message.usage.cost_usd is None for c in again.calls)
    assert again.calls[0].message.details["usage_source"] == "derived"
    assert again.format == "replay"


def test_what_was_held_back_and_warned_is_told():
    rules = pi(
        230,
        300,
        counter="chars/4",
        guards=(guards.GraceAfterCompaction(calls=1),),
        warnings=(triggers.TokensSpent(500),),
        parameters={"keep": 10},
    )
    told = replay(
        session(system(), user(), *(step(text="x" * 900) for _ in range(9))), rules
    ).details["replay"]
    assert {h["guard"] for h in told["held"]} == {"grace"}
    assert told["warned"][0]["trigger"] == "cumulative_budget"
    assert told["parameters"] == {"keep": 10}
    assert {e["outcome"] for e in told["events"]} == {"", "compacted"}


def test_subagents_are_threads_of_their_own():
    child = by_chance(5, 30)
    parent = session(user(), assistant(), children=(child,))
    again = replay(parent, pi(800, 3000))
    assert again.children[0].edits == replay(child, pi(800, 3000)).edits != ()
    assert not again.edits


def test_messages_without_ids_get_them():
    talk = session(user(id=""), assistant(id=""), user(id="twice"), assistant(id="twice"))
    assert [m.id for m in with_message_ids(talk).messages] == [
        "message#0",
        "message#1",
        "twice",
        "twice#3",
    ]
    assert with_message_ids(by_chance(1, 3)).messages == by_chance(1, 3).messages
    replay(talk, pi(1, 2))


def test_an_invisible_reply_was_a_call_all_the_same():
    talk = session(user("x" * 40), assistant("failed", visible=False), user("y" * 40), assistant())
    assert run_replay(talk, Rules(counter="chars/4")).prompts.tolist() == [10, 20]
    assert len(replay(talk, Rules()).calls) == 2


def test_rules_that_are_none_are_refused():
    with pytest.raises(BadArguments, match="neither rules nor a policy"):
        replay(session(user()), 3)


def test_a_session_without_calls_replays_to_itself():
    assert len(replay(session(user()), pi(1, 2)).messages) == 1
    assert replay(session(), Rules()).log == ()


def test_the_window_is_the_rules_the_logs_or_the_default():
    talk = session(user(), assistant(context_window=50_000))
    assert run_replay(talk, Rules()).budget.limit == 50_000
    assert run_replay(talk, Rules(window=9000)).budget.limit == 9000
    assert run_replay(session(user(), assistant()), Rules()).budget.limit == 200_000


def files(real):
    from ctxkit.formats import read_all

    return [s for s in read_all(real, progress=False) if s.calls]


def test_the_recorded_policy_reproduces_every_recorded_prompt(real):
    for talk in map(with_message_ids, sample(files(real), 40)):
        modelled = measure_sizes(talk).modelled  # of a call without a bill
        expected = [
            get_billed_prompt(c.message) or n for c, n in zip(talk.calls, modelled, strict=True)
        ]
        assert run_replay(talk, recorded_rules()).prompts.tolist() == expected, talk


def test_pi_files_reproduce_what_the_provider_billed(real):
    from ctxkit.formats import read

    talk = read(real / "pi" / "before-compaction.jsonl")
    done = run_replay(talk, recorded_rules())
    known = {
        c.index: c.message.usage.prompt_tokens
        for c in talk.calls
        if c.message.usage and c.message.usage.prompt_tokens
    }
    off = [abs(int(done.prompts[i]) - n) for i, n in known.items()]
    assert len(done.compactions) == 2
    assert len(off) > 450
    assert sum(o == 0 for o in off) > 0.99 * len(off)


def test_all_real_sessions_replay_soundly(real):
    rules = Rules(
        lambda h, budget: h.summarise(h.safe(h.back(h.tokens // 4)), 300, "x"),
        triggers.Above(20_000),
    )
    for talk in sample(files(real), 40):
        done = run_rules(make_log_from_session(with_message_ids(talk), rules), rules)
        again = replay(talk, rules)
        assert [m.id for m in again.view()] == [
            m.id for m in done.history.at(done.log.calls).messages
        ], talk
