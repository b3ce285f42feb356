"""A run of four calls under a pruning, a compaction and both: what is sent, billed and cached, worked out by hand."""

from __future__ import annotations

import pytest
from builders import assistant, result, session, system, tool_call, user
from random_sessions import Fours

import ctxkit as ck
from ctxkit.engine import (
    BlockedCompaction,
    RulesRun,
    advance_run,
    make_log_from_session,
    run_rules,
)
from ctxkit.engine.context_rules_run import find_first_compaction_call
from ctxkit.engine.run_segments_and_prompts import list_sent_messages
from ctxkit.policies import Clear, MessageLog, Rules, Tail, triggers

READ, RUN = tool_call("read", "c1", path="a"), tool_call("bash", "c2", command="x")
MESSAGES = [
    system("s" * 40, id="s"),
    user("u" * 80, id="u1"),
    assistant("", READ, id="a1"),
    result("r" * 400, READ, id="r1"),
    assistant("a" * 40, RUN, id="a2"),
    result("q" * 400, RUN, id="r2"),
    assistant("z" * 40, id="a3"),
    user("v" * 40, id="u2"),
    assistant("w" * 40, id="a4"),
]
TOKENS = {
    "fixed": 7,
    "s": 10,
    "u1": 20,
    "a1": 4,
    "r1": 100,
    "a2": 15,
    "r2": 100,
    "a3": 10,
    "u2": 10,
}
CLEARED, SUMMARY = 9, 5
"""Tokens of the placeholder, and of the summary."""


def compact(history, _budget):
    return history.summarise(history.safe(3), "S" * 20)


AT_TWO = {"policy": compact, "trigger": triggers.AtCalls((2,))}
BEGINNING = ["fixed", "s", "u1"]
ONE = [*BEGINNING, "a1", "r1"]
TWO = [*ONE, "a2", "r2"]
COMPACTED = ["fixed", "s", "summary@2", "a2", "r2"]
CASES = {
    "nothing": (Rules(), [BEGINNING, ONE, TWO, [*TWO, "a3", "u2"]], {}, [37, 104, 115, 20]),
    "a pruning": (
        Rules(pruning=Clear(keep_last=1)),
        [BEGINNING, ONE, TWO, [*TWO, "a3", "u2"]],
        {"r1": [2, 3]},
        # the third prompt is equal up to the first reply: all behind its 41 tokens is new
        [37, 104, 165 - 41, 20],
    ),
    "a compaction": (
        Rules(**AT_TWO),
        [BEGINNING, ONE, COMPACTED, [*COMPACTED, "a3", "u2"]],
        {},
        [37, 104, 137 - 17, 20],  # behind the system prompt and what no message holds
    ),
    "both": (
        Rules(**AT_TWO, pruning=Clear(keep_last=0)),
        [BEGINNING, ONE, COMPACTED, [*COMPACTED, "a3", "u2"]],
        {"r1": [1], "r2": [2, 3]},
        [37, 13, 46 - 17, 20],
    ),
}


def make_log():
    return MessageLog.of(MESSAGES, Fours(), fixed=7)


@pytest.mark.parametrize("name", CASES)
def test_each_call_is_sent_these_messages_at_these_sizes(name):
    rules, wanted, cleared, fresh = CASES[name]
    run = run_rules(make_log(), rules)
    sizes = []
    for call, ids in enumerate(wanted):
        items = run.sent(call)
        assert [i.message.id.split("~")[0] for i in items] == ids
        for item, of in zip(items, ids, strict=True):
            is_cleared = call in cleared.get(of, ())
            tokens = CLEARED if is_cleared else TOKENS.get(of, SUMMARY)
            assert (item.tokens, item.pruned) == (tokens, is_cleared), (call, of)
            assert item.raw_tokens == (0 if of == "summary@2" else TOKENS[of])
            by = "Clear" if is_cleared else "compact" if of == "summary@2" else None
            assert item.changed_by == by
            row = [m.id for m in MESSAGES].index(of) if of not in ("fixed", "summary@2") else -1
            assert item.row == row
        sizes.append(sum(i.tokens for i in items))
        assert run.left_out(call) == {}
    assert run.prompts.tolist() == sizes
    assert run.fresh_tokens.tolist() == fresh
    assert (run.total, run.fresh, run.peak) == (sum(sizes), sum(fresh), max(sizes))
    assert run.prompt_sizes(5) == [*sizes, None]
    assert run.sizes(1, 3) == sizes[1:3]


@pytest.mark.parametrize("name", CASES)
def test_changes_of_a_prompt_lead_from_one_to_the_next(name):
    rules, wanted, _, _ = CASES[name]
    run = run_rules(make_log(), rules)
    contents: list[int] = []
    for change, ids in zip(run.prompt_changes(), wanted, strict=True):
        contents = [] if change.anew else contents
        contents += [s.content for s in change.added if s.message is not None]
        for state in change.removed:  # also of what was added and changed at this call
            contents.remove(state.content)
        items = [i for i in run.sent(change.call) if i.message.id != "fixed"]
        assert len(contents) == len(items) == len(ids) - 1
        assert change.fixed == 7
    assert [c.call for c in run.prompt_changes(1, 3)] == [1, 2]
    assert next(run.prompt_changes(1)).anew
    assert [c.call for c in run.prompt_changes(2, 99)] == [2, 3]


def test_a_compaction_is_recorded_with_both_of_its_prompts():
    run = run_rules(make_log(), CASES["a compaction"][0])
    (done,) = run.compactions
    assert (done.call, done.before, done.after, done.trigger) == (2, 256, 137, "manual")
    assert [(e.kind, e.call, e.messages, e.tokens, e.outcome) for e in run.events] == [
        ("start", 2, 6, 256, ""),
        ("end", 2, 4, 137, "compacted"),
    ]
    assert [e.policy for e in run.events] == ["compact"] * 2
    (edit,) = run.edits
    assert (edit.kind, edit.targets) == ("summarised", ("u1", "a1", "r1"))
    pruned = run_rules(make_log(), CASES["both"][0])
    assert (pruned.compactions[0].before, pruned.compactions[0].after) == (74, 46)


@pytest.mark.parametrize("unnamed", [False, True])
def test_a_summary_has_the_name_of_the_newest_compaction_up_to_its_call(unnamed):
    run = RulesRun(make_log(), Rules())
    for call, name in ((1, "first"), (2, "second")):
        advance_run(run, run.rules, call)
        made = run.history.at(call).summarise(2 * call, "S" * 20)
        run.by_hand(made, by="" if unnamed else name)
    advance_run(run, run.rules, 4)
    names = [{i.changed_by for i in run.sent(call)} - {None} for call in range(4)]
    expected = [{"a compaction"}] * 3 if unnamed else [{"first"}, {"second"}, {"second"}]
    assert names == [set(), *expected]
    assert [i.changed_by for i in run.sent(2)].count(None) == len(run.sent(2)) - 1


def test_what_a_pruning_leaves_out_is_named_and_not_sent():
    run = run_rules(make_log(), Rules(pruning=Tail(messages=2)))
    ids = [i.message.id for i in run.sent(3)]
    gone = [m.id for m in MESSAGES[:8] if m.id not in ids]
    assert run.left_out(3) == {[m.id for m in MESSAGES].index(i): "Tail" for i in gone}
    assert gone
    assert ids[0] == "fixed"


def test_a_run_is_the_same_call_by_call():
    for rules, _, _, fresh in CASES.values():
        log = make_log()
        run = RulesRun(log, rules)
        for call in range(1, 5):
            advance_run(run, rules, call)
            assert run.call == call
            assert run.fresh_tokens.tolist() == fresh[:call]
            assert run.last_prompt().tokens == run.prompts[-1]
        assert run.coming().tokens > 0


def test_warnings_are_given_once_until_a_compaction():
    warnings = triggers.Above(100), triggers.Count(2)
    plain = run_rules(
        make_log(), Rules(warnings=warnings, policy=compact, trigger=triggers.Never())
    )
    assert plain.warned == [(0, "message_count"), (1, "window_size")]
    again = run_rules(make_log(), Rules(warnings=warnings, **AT_TWO))
    assert again.warned == [
        *[(0, "message_count"), (1, "window_size")],
        *[(3, "window_size"), (3, "message_count")],
    ]


def test_after_a_compaction_a_trigger_goes_by_what_is_left():
    """Turns of 110 tokens: 320 at the third call, then 101, 211 and 321 of what was kept and came."""
    log = [m for n in range(8) for m in (user("u" * 400, id=f"u{n}"), assistant("a" * 40))]

    def keep_request(history, _budget):
        return history.summarise(history.safe(len(history) - 1), "S", "full")

    run = run_rules(
        MessageLog.of(log, Fours()), Rules(keep_request, triggers.Above(300), counter=Fours())
    )
    assert [(c.call, c.before, c.after) for c in run.compactions] == [
        (2, 320, 101),
        (4, 321, 101),
        (6, 321, 101),
    ]
    assert run.prompts.tolist() == [100, 210, 101, 211, 101, 211, 101, 211]


TALK = [m for n in range(6) for m in (user("u" * 400, id=f"u{n}"), assistant("a" * 40, id=f"a{n}"))]
"""Turns of 110 tokens."""


def test_an_edit_by_hand_costs_its_prefix_at_one_call_alone():
    rules = Rules(counter=Fours())
    run = advance_run(RulesRun(MessageLog.of(TALK, Fours()), rules), rules, 2)
    history = run.history.at(2)
    run.by_hand(history.summarise(4, "S"))  # a token, and the new request
    for stop in (3, 4, 5):
        advance_run(run, rules, stop)
    assert run.prompts.tolist() == [100, 210, 101, 211, 321]
    assert run.fresh_tokens.tolist() == [100, 110, 101, 110, 110]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_edit_before_the_first_call_of_a_run_shares_nothing_with_its_past(is_resumed):
    rules = Rules(counter=Fours())
    log = MessageLog.of(MESSAGES, Fours())
    run = past = advance_run(RulesRun(log, rules), rules, 2)
    if is_resumed:
        run = RulesRun(log, rules)
        run.resume(past)
    run.by_hand(run.history.at(2).summarise(4, "S" * 20))
    advance_run(run, rules, 3)
    prompt = sum(TOKENS[name] for name in ("s", "a2", "r2")) + SUMMARY
    assert run.prompts.tolist() == [30, 134, prompt]
    shared = 0 if is_resumed else TOKENS["s"]  # the system prompt is before the summary
    assert run.fresh_tokens.tolist() == [30, 104, prompt - shared]


def test_a_compaction_by_hand_is_measured_as_the_prunings_leave_its_prompts():
    rules = Rules(pruning=Clear(keep_last=1), counter=Fours())
    run = advance_run(RulesRun(MessageLog.of(MESSAGES, Fours()), rules), rules, 3)
    compaction = run.by_hand(compact(run.history.at(3), run.budget))
    kept = sum(TOKENS[name] for name in ("s", "a2", "r2", "a3", "u2"))
    assert compaction.after == kept + SUMMARY
    # the first result is cleared, for all prompts
    assert compaction.before == kept + TOKENS["u1"] + TOKENS["a1"] + CLEARED
    assert (compaction.messages_before, compaction.messages_after) == (8, 6)


@pytest.mark.parametrize("call", range(4))
def test_messages_without_sizes_are_those_that_are_sent(call):
    rules = Rules(pruning=Clear(keep_last=1), counter=Fours())
    run = advance_run(RulesRun(MessageLog.of(MESSAGES, Fours()), rules), rules, 3)
    messages = list_sent_messages(run, call)
    assert [(m.id, m.text) for m in messages] == [
        (i.message.id, i.message.text) for i in run.sent(call if call < 3 else None)
    ]
    assert ("r" * 400 in [m.text for m in messages]) == (call == 1)


def test_a_compaction_that_is_undone_finds_what_was_cached_before_it():
    rules = Rules(lambda h, _: h.summarise(4, "S", "full"), triggers.AtCalls((2,)), counter=Fours())
    run = advance_run(RulesRun(MessageLog.of(TALK, Fours()), rules), rules, 3)
    run.by_hand(run.compactions[0].was.at(3))
    advance_run(run, rules, 4)
    assert run.prompts.tolist() == [100, 210, 101, 430]
    # the second prompt is still cached: as much of it counts as the last prompt was long
    assert run.fresh_tokens.tolist() == [100, 110, 101, 430 - 101]


def test_each_prompt_begins_with_the_fixed_part_of_its_own_call():
    rules = Rules(counter=Fours())
    log = make_log_from_session(session(*TALK[:6]), rules, tokens=[1] * 6, fixed=[7, 8, 9])
    run = run_rules(log, rules)
    assert [run.sent(call)[0].tokens for call in range(3)] == [7, 8, 9]
    assert run.prompts.tolist() == [7 + 1, 8 + 3, 9 + 5]


def test_the_first_call_at_which_rules_may_compact_is_that_of_the_first_compaction():
    log = make_log_from_session(ck.read(ck.samples.path("billing")))
    for rules in (ck.presets.pi(reserve_tokens=150_000), ck.presets.fased(), ck.presets.none()):
        compactions = run_rules(log, rules).compactions
        first = compactions[0].call if compactions else log.calls
        assert find_first_compaction_call(log, rules) == first


def fail(history, _budget):
    raise ck.errors.ModelError("The model did not answer.")


def summarise_at_length(history, _budget):
    return history.summarise(history.safe(3), "S" * 4_000)


@pytest.mark.parametrize(
    ("policy", "guards", "outcome", "error"),
    [
        (fail, (), "failed", "The model did not answer."),
        # the guard compares the 256 tokens of the prompt with 137, or with 1,132, that would remain
        (
            compact,
            (ck.policies.guards.MinProgress(tokens=120),),
            "refused",
            "it saves 119 tokens, and 120 are asked for",
        ),
        (
            summarise_at_length,
            (ck.policies.guards.Smaller(),),
            "refused",
            "after it the prompt would have 1,132 tokens, before it 256 (both as counted here)",
        ),
        # the policy itself refuses to summarise into as much
        (
            ck.policies.Summary(keep_messages=2, summariser=lambda _: "S" * 4_000),
            (),
            "refused",
            "after it the prompt would have 1,132 tokens, before it 256 (both as counted here)",
        ),
        (lambda history, _budget: history, (), "nothing", None),
    ],
)
def test_a_run_of_the_policy_without_a_compaction_is_an_event_with_its_reason(
    policy, guards, outcome, error
):
    run = run_rules(make_log(), Rules(policy, triggers.AtCalls((2,)), guards=guards))
    start, end = run.events
    assert (start.kind, start.call, start.messages, start.tokens) == ("start", 2, 6, 256)
    assert (end.kind, end.call, end.messages, end.tokens) == ("end", 2, 6, 256)
    assert (end.outcome, end.error) == (outcome, error)
    assert run.prompts.tolist() == [37, 141, 256, 276]


@pytest.mark.parametrize(
    ("why", "outcome", "text"),
    [
        ("suppressed: one per run", "skipped", "suppressed: one per run"),
        ("failed: no model", "failed", "failed: no model"),
        ("it saves 0 tokens", "refused", "MinSaving: it saves 0 tokens"),
        ("so it failed: twice", "refused", "MinSaving: so it failed: twice"),
    ],
)
def test_only_a_refusal_names_its_guard_in_the_reason(why, outcome, text):
    blocked = BlockedCompaction(3, "MinSaving", why)
    assert (blocked.outcome, blocked.reason_text) == (outcome, text)
