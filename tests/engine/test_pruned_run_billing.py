"""The bill of a pruning: read off its schedule it is that of the same prompts made one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random

import numpy as np
import pytest
from builders import session
from conftest import examples, sample
from hypothesis import given, settings
from hypothesis import strategies as st
from late_result_messages import late_talk
from policy_contract import kinds
from random_sessions import Fours, by_chance
from scheduled_prunings import PARTS

from ctxkit import read
from ctxkit.agent import LiveContext
from ctxkit.engine import RulesRun, advance_run, make_log_from_session, run_rules, with_message_ids
from ctxkit.errors import BadArguments
from ctxkit.formats import samples
from ctxkit.policies import (
    AdaptiveTrim,
    BasePolicy,
    BaseTrigger,
    CacheTtl,
    Chain,
    Clear,
    Fallback,
    KeepNewestToolPairs,
    MessageCountCap,
    MessageLog,
    OldResultsDigest,
    PruneToolCalls,
    RecordedCompactionsPolicy,
    ResultEvictionOverBudget,
    RoleFilter,
    Rules,
    ScheduledPruning,
    Tail,
    TrimStage,
    WithoutTools,
    apply_policy,
    is_only_call_overridden,
    triggers,
)
from ctxkit.session import Message, Text

POLICIES = {
    "none": None,
    "summary": lambda h, _budget: h.summarise(h.safe(h.back(300)), 80, "full"),
    "clearing": lambda h, _budget: h.shorten(np.flatnonzero(h.role("tool"))[:-2], "[gone]", "old"),
    "window": lambda h, _budget: h.drop(h.safe(h.back(200)), "window", start=1),
}


def by_calls(parts):
    """The same prompts from a plain function: nothing but the call is known of it."""

    def pruning(history, budget):
        for part in parts:
            history = apply_policy(part, history, budget)
        return history

    return pruning


def bills(log, parts, policy, window):
    due = None if POLICIES[policy] is None else triggers.Above(window // 2)
    rules = Rules(POLICIES[policy], due, counter=Fours(), window=window, assumed=True)
    said, asked = (run_rules(log, rules.but(pruning=p)) for p in (Chain(parts), by_calls(parts)))
    assert (said.unscheduled_calls, asked.unscheduled_calls) == (0, log.calls)
    assert said.prompts.tolist() == asked.prompts.tolist()
    assert said.fresh_tokens.tolist() == asked.fresh_tokens.tolist()
    assert (said.total, said.fresh, said.peak) == (asked.total, asked.fresh, asked.peak)
    assert [c.call for c in said.compactions] == [c.call for c in asked.compactions]
    cold = {c: n for c, n in said.shared_when_cold.items() if c}
    assert cold == {c: n for c, n in asked.shared_when_cold.items() if c}
    return said


@pytest.mark.parametrize(
    ("name", "policy"), sample([(name, policy) for policy in POLICIES for name in PARTS], 20)
)
def test_the_schedule_is_billed_as_its_prompts(name, policy):
    """Twenty pairs of a pruning and a compaction in the suite; all where everything is taken."""

    @settings(max_examples=examples(3))
    @given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3]), st.integers(1500, 9000))
    def check(seed, late, window):
        bills(MessageLog.of(late_talk(seed, 24, late=late), Fours()), PARTS[name], policy, window)

    check()


@pytest.mark.parametrize("name", PARTS)
def test_live_is_replay(name):
    log = make_log_from_session(by_chance(5, 30), Rules(counter=Fours()))
    rules = Rules(
        POLICIES["summary"], triggers.Above(4000), pruning=Chain(PARTS[name]), counter=Fours()
    )
    live, whole = RulesRun(log, rules), run_rules(log, rules)
    for call in range(1, log.calls + 1):
        advance_run(live, rules, call)
        assert live.last_prompt().tokens == live.prompts[-1]
    assert live.prompts.tolist() == whole.prompts.tolist()
    assert live.fresh_tokens.tolist() == whole.fresh_tokens.tolist()


@pytest.mark.parametrize("name", ["clear", "pairs in steps", "clear at_least"])
def test_real_sessions(real, name):
    from ctxkit.formats import read_all

    paths = sample(sorted(p for p in real.rglob("*.json*") if p.stat().st_size < 300_000), 3)
    for talk in (s for path in paths for s in read_all(path, progress=False)):
        log = make_log_from_session(talk, Rules(counter=Fours()))
        if 0 < log.calls < 150:
            bills(log, PARTS[name], "none", 60_000)


def test_two_rules_that_send_the_same_get_the_same_bill():
    """Cleared for each call, or for good at each call: the prompts are the same, and so is the bill."""
    log = make_log_from_session(by_chance(7, 40), Rules(counter=Fours()))
    clear = Clear(keep_last=2)
    masked = run_rules(log, Rules(pruning=clear, counter=Fours()))
    cleared = run_rules(log, Rules(clear, counter=Fours()))
    assert cleared.compactions
    assert masked.prompts.tolist() == cleared.prompts.tolist()
    assert masked.fresh_tokens.tolist() == cleared.fresh_tokens.tolist()


def swelling(seed: int) -> MessageLog:
    """A talk of which the fixed part grows and shrinks, as with tools that come and go."""
    log, chance = MessageLog(Fours()), Random(seed)
    for entry in by_chance(seed, 40).messages:
        if entry.role == "assistant":
            log.open(float(log.calls), fixed=chance.choice([900, 900, 900, 600, 2400]))
        log.append(entry)
    return log


@pytest.mark.parametrize("seed", range(5))
def test_what_a_fixed_part_grows_by_is_fresh_however_it_is_worked_out(seed):
    log = swelling(seed)
    idle = Clear(keep_last=10**6)
    plain, said, asked = (
        run_rules(log, Rules(pruning=p, counter=Fours())) for p in (None, idle, by_calls((idle,)))
    )
    rows = np.diff([log.tokens.P[n] for n in log.upto])
    grown = np.maximum(np.diff(log.fixed_at), 0)
    assert grown.any()
    assert (np.diff(log.fixed_at) < 0).any()
    for done in (plain, said, asked):
        assert done.prompts.tolist() == plain.prompts.tolist()
        assert done.fresh_tokens[1:].tolist() == (rows + grown).tolist()


class Loud(Clear):
    """A member below an inherited schedule: the call alone counts."""

    def __call__(self, history, budget):
        failed = history.errors & history.role("tool")
        return history.shorten(failed, self.placeholder, "failed")


class Quiet(Clear):
    """A member with another text: call and schedule are inherited together."""

    def _old(self, n):
        return super()._old(n) // 2


class Lower(Loud):
    """A schedule below a call that does not follow from it: nobody asks for it, so the call counts."""

    def schedule(self, view, budget):
        for p in view.new("user"):
            view.change(p, "[user]", since=view.arrival(p))


@pytest.mark.parametrize("part", [Loud(keep_last=1), Lower(keep_last=1), Quiet(keep_last=1)])
def test_a_subclass_is_billed_as_what_it_sends(part):
    log = make_log_from_session(by_chance(7, 40), Rules(counter=Fours()))
    done = run_rules(log, Rules(pruning=part, counter=Fours()))
    own = run_rules(log, Rules(pruning=by_calls((part,)), counter=Fours()))
    parent = run_rules(log, Rules(pruning=Clear(keep_last=1), counter=Fours()))
    assert done.prompts.tolist() == own.prompts.tolist() != parent.prompts.tolist()
    assert done.fresh_tokens.tolist() == own.fresh_tokens.tolist()
    assert done.unscheduled_calls == (log.calls if isinstance(part, Loud) else 0)


APPENDING = {
    "digest": OldResultsDigest(keep_last=1),
    "manifest": ResultEvictionOverBudget(max_tokens=50, keep_last=1),
}


class Asks(ScheduledPruning):
    """One of a person's own, of which nothing is said but its schedule."""

    def schedule(self, view, budget):
        for p in view.new("user"):
            view.change(p, "[user]", since=view.arrival(p))


COUNTING = {
    "one's own": Asks(),
    "cap": MessageCountCap(max_messages=5),
    "digest": OldResultsDigest(keep_last=2, line_chars=4),
    "prune": PruneToolCalls(tool_calls="before-last-3-messages"),
    "roles": RoleFilter(roles=("assistant", "tool")),
    "tail": Tail(messages=6),
}


@pytest.mark.parametrize("behind", COUNTING)
@pytest.mark.parametrize("before", APPENDING)
def test_what_is_put_at_the_end_of_a_call_counts_for_the_parts_behind(before, behind):
    parts, log = (APPENDING[before], COUNTING[behind]), MessageLog.of(late_talk(5, 24), Fours())
    rules = Rules(pruning=Chain(parts), counter=Fours())
    done, own = run_rules(log, rules), run_rules(log, rules.but(pruning=by_calls(parts)))
    assert done.prompts.tolist() == own.prompts.tolist()
    assert done.fresh_tokens.tolist() == own.fresh_tokens.tolist()
    live = RulesRun(log, rules)
    for call in range(1, log.calls + 1):
        advance_run(live, rules, call)
        assert live.last_prompt().tokens == done.prompts[call - 1]


class FirstMessageAndReminder(ScheduledPruning):
    """Sends the first message and a reminder; its text changes at every third call."""

    appends = True

    def schedule(self, view, budget):
        for p in view.new():
            if p:
                view.change(p, None, since=view.arrival(p))
        for call in view.calls():
            view.append(Message(role="user", parts=(Text(f"Stage {call // 3}."),)), call)


def test_an_appended_message_that_stays_the_same_is_part_of_the_shared_prefix():
    log = MessageLog.of(late_talk(5, 24), Fours())
    parts = (FirstMessageAndReminder(),)
    done, own = (
        run_rules(log, Rules(pruning=p, counter=Fours())) for p in (Chain(parts), by_calls(parts))
    )
    reminder_tokens = log.measure(Message(role="user", parts=(Text("Stage 1."),)))
    fresh = done.fresh_tokens.tolist()
    assert fresh == own.fresh_tokens.tolist()
    assert fresh[1:7] == [0, 0, reminder_tokens, 0, 0, reminder_tokens]


class Marked(Clear):
    """Says changes of its own before what it inherits says stages."""

    def schedule(self, view, budget):
        for p in view.new("user"):
            view.change(p, "[user]", since=view.arrival(p))
        super().schedule(view, budget)


def test_changes_beside_stages_are_refused():
    log = MessageLog.of(late_talk(5, 24), Fours())
    part = Marked(keep_last=1, at_least=10)
    for pruning in (part, by_calls((part,))):
        with pytest.raises(BadArguments, match="Marked names stages and changes messages"):
            run_rules(log, Rules(pruning=pruning, counter=Fours()))
    done = run_rules(log, Rules(pruning=Marked(keep_last=1), counter=Fours()))
    assert done.total < run_rules(log, Rules(pruning=Clear(keep_last=1), counter=Fours())).total


class Noted(ScheduledPruning):
    """Puts a message at the end of each call, and does not say that it does."""

    def schedule(self, view, budget):
        for call in view.calls():
            view.append(Message(role="user", parts=(Text("go on"),)), call)


def test_a_part_that_appends_unsaid_is_refused_before_one_that_counts():
    log = MessageLog.of(late_talk(5, 24), Fours())
    with pytest.raises(BadArguments, match="declare `appends` in the class of that part"):
        run_rules(log, Rules(pruning=Noted() | Tail(messages=6), counter=Fours()))
    said = type("Said", (Noted,), {"appends": True})()
    done = run_rules(log, Rules(pruning=said | Tail(messages=6), counter=Fours()))
    own = run_rules(log, Rules(pruning=by_calls((said, Tail(messages=6))), counter=Fours()))
    assert done.prompts.tolist() == own.prompts.tolist()


class Brief(TrimStage):
    """A stage below an inherited schedule: of a chain of stages, too, its call alone counts."""

    def __call__(self, history, budget):
        return history.shorten(np.flatnonzero(history.role("tool")), "[brief]", "brief")


class Stepped(AdaptiveTrim):
    """One whose stages are another's."""

    @property
    def steps(self):
        return Brief(max_chars=900, consumed_chars=50), WithoutTools()


@pytest.mark.parametrize("before", [(), (Clear(keep_last=9),)])
def test_stages_that_redefine_their_call_are_asked_by_it(before):
    log = make_log_from_session(by_chance(7, 40), Rules(counter=Fours()))

    def plainly(history, budget):
        for part in before:
            history = apply_policy(part, history, budget)
        stages = history, Brief.__call__(None, history, budget), WithoutTools()(history, budget)
        return next((h for h in stages if h.tokens <= budget.limit), stages[-1])

    rules = Rules(pruning=Chain((*before, Stepped())), counter=Fours(), window=4000, assumed=True)
    done, own = run_rules(log, rules), run_rules(log, rules.but(pruning=plainly))
    assert done.unscheduled_calls == log.calls
    assert done.prompts.tolist() == own.prompts.tolist()
    assert done.fresh_tokens.tolist() == own.fresh_tokens.tolist()
    live, sent = RulesRun(log, rules), set()
    for call in range(1, log.calls + 1):
        advance_run(live, rules, call)
        assert live.last_prompt().tokens == done.prompts[call - 1]
        sent |= {m.text for m in live.last_prompt().messages if m.role == "tool"}
    assert "[brief]" in sent != {"[brief]"}


class Named(Clear):
    """A member that holds more than its fields tell: two with other words are equal to their base."""

    def __init__(self, words):
        super().__init__(keep_last=1)
        object.__setattr__(self, "words", words)

    def _text(self, text):
        return self.words

    def schedule(self, view, budget):
        for p, call, old in view.window("tool", lambda n: n - self.keep_last):
            if old:
                view.change(p, self.words, since=call)


@dataclass(frozen=True, kw_only=True, repr=False)
class Worded(Named):
    """One whose words are a field that is not compared."""

    words: str = field(compare=False)


def handed(words):
    """One of the kit's own, with a method that this one alone has."""
    part = Clear(keep_last=1)
    object.__setattr__(part, "schedule", Named(words).schedule)
    return part


@pytest.mark.parametrize("made", [Named, lambda words: Worded(words=words, keep_last=1), handed])
@pytest.mark.parametrize("join", [lambda p: p, lambda p: Fallback((p,))])
def test_what_a_log_remembers_is_of_that_part_alone(made, join):
    log = make_log_from_session(by_chance(7, 40), Rules(counter=Fours()))
    short, long = join(made("gone")), join(made("gone, as there are newer ones of it"))
    assert short == long
    bills = [
        run_rules(log, Rules(pruning=p, counter=Fours())).prompts.tolist() for p in (short, long)
    ]
    own = [
        run_rules(log, Rules(pruning=by_calls((p,)), counter=Fours())).prompts.tolist()
        for p in (short, long)
    ]
    assert bills == own
    assert bills[0] != bills[1]


class Backwards(ScheduledPruning):
    """Speaks of a message at a later call first."""

    def schedule(self, view, budget):
        Clear(keep_last=1).schedule(view, budget)
        for p in view.new("tool"):
            view.change(p, "[seen]", since=view.arrival(p))


@pytest.mark.parametrize("trigger", [None, triggers.Above(10**6)])
@pytest.mark.parametrize("join", [lambda p: p, lambda p: p | (lambda history, _budget: history)])
def test_what_becomes_of_a_message_is_said_in_the_order_of_calls(join, trigger):
    """asked at once it would end otherwise than call by call; so, too, before a plain function"""
    log = make_log_from_session(by_chance(7, 40), Rules(counter=Fours()))
    policy = trigger and POLICIES["summary"]
    rules = Rules(policy, trigger, pruning=join(Backwards()), counter=Fours())
    live = RulesRun(log, rules)

    def lived():
        for call in range(live.call + 1, log.calls + 1):
            advance_run(live, rules, call)

    for tried in (
        partial(run_rules, log, rules),
        lived,
    ) * 3:  # it is not billed when it is tried again
        with pytest.raises(BadArguments, match="change each message in the order of calls"):
            tried()


class Below(KeepNewestToolPairs):
    """Speaks, below another class's schedule, of what that may hide later."""

    def schedule(self, view, budget):
        super().schedule(view, budget)
        for p in view.new("tool"):
            view.change(p, "[seen]", since=view.arrival(p))


@pytest.mark.parametrize("join", [lambda p: p, lambda p: Clear(keep_last=5) | p])
def test_a_schedule_below_another_is_sent_and_billed_as_its_plain_call(join):
    log, part = make_log_from_session(by_chance(7, 40), Rules(counter=Fours())), Below(keep_pairs=2)
    rules = Rules(pruning=join(part), counter=Fours())
    own = run_rules(log, rules.but(pruning=by_calls((join(part),))))
    done, live = run_rules(log, rules), RulesRun(log, rules)
    assert done.prompts.tolist() == own.prompts.tolist()
    for call in range(1, log.calls + 1):
        advance_run(live, rules, call)
        assert live.last_prompt().tokens == own.prompts[call - 1]
    assert done.unscheduled_calls == live.unscheduled_calls == log.calls


def test_no_part_of_the_kit_says_first_for_a_call_that_it_redefines():
    """such a part is asked at each due call: what it inherits must say just that"""
    for kind in kinds(BasePolicy, "policies", "presets"):
        made = object.__new__(kind)
        assert kind.first is BasePolicy.first or not is_only_call_overridden(made, "first"), (
            kind.__name__
        )
    for kind in kinds(BaseTrigger, "policies", "presets"):
        assert not is_only_call_overridden(object.__new__(kind), "first"), kind.__name__


class Patient(triggers.Above):
    """A trigger whose call says more than the `first` that it inherits."""

    def __call__(self, history, budget):
        return super().__call__(history, budget) and history.call % 5 == 0


@pytest.mark.parametrize("join", [lambda t: t, lambda t: t | triggers.Never(), lambda t: ~~t])
def test_a_trigger_whose_call_is_redefined_is_asked_by_its_call(join):
    log = make_log_from_session(by_chance(5, 60), Rules(counter=Fours()))
    asked, rules = Patient(2000), Rules(POLICIES["summary"], counter=Fours())
    jumped = run_rules(log, rules.but(trigger=join(asked)))
    plain = run_rules(log, rules.but(trigger=asked.__call__))
    eager = run_rules(log, rules.but(trigger=triggers.Above(2000)))
    assert [c.call for c in jumped.compactions] == [c.call for c in plain.compactions]
    assert [c.call for c in jumped.compactions] != [c.call for c in eager.compactions]


@pytest.mark.parametrize("seed", [1, 5])
@pytest.mark.parametrize("join", [lambda t: ~t, lambda t: t & triggers.Count(12)])
def test_a_turn_is_added_up_beyond_what_was_billed(join, seed):
    trigger, log = join(triggers.TurnTokensSpent(900)), MessageLog.of(late_talk(seed, 24), Fours())
    rules = Rules(POLICIES["summary"], trigger, counter=Fours(), window=4000, assumed=True)
    plain = rules.but(trigger=trigger.__call__)
    assert run_rules(log, rules).prompts.tolist() == run_rules(log, plain).prompts.tolist()


class Often(RecordedCompactionsPolicy):
    """A policy whose call does something where the one that it inherits `first` from does nothing."""

    def __call__(self, history, budget):
        return history.drop(history.safe(history.back(200)), "window", start=1)


@pytest.mark.parametrize("policy", [Often(), Chain((Often(),))])
def test_a_policy_whose_call_is_redefined_is_asked_wherever_the_trigger_is_due(policy):
    log = make_log_from_session(by_chance(5, 60), Rules(counter=Fours()))
    rules = Rules(policy, triggers.Above(2000), counter=Fours())
    plain = run_rules(log, rules.but(policy=Often().__call__))
    assert (
        [c.call for c in run_rules(log, rules).compactions]
        == [c.call for c in plain.compactions]
        != []
    )


@pytest.mark.parametrize("before", [(), (Clear(keep_last=8),)])
@pytest.mark.parametrize("seed", [25017, 242772])
def test_a_resumed_session_sends_again_what_was_sent_once(seed, before):
    """what it remembers of calls that another process sent is worked out from the log"""
    trims = {"soft_trim_ratio": 0.01, "soft_trim_max_chars": 300, "soft_trim_head_chars": 50}
    clears = {"soft_trim_tail_chars": 50, "hard_clear_ratio": 0.02, "min_prunable_tool_chars": 0}
    lasting = CacheTtl(persists=True, ttl_seconds=20, **trims, **clears)
    rules = Rules(pruning=Chain((*before, lasting)), counter=Fours(), window=40_000)
    said, lived = with_message_ids(session(*late_talk(seed, 18))).messages, []
    log = make_log_from_session(
        session(*said), rules, fixed=0, tokens=[Fours().message(m) for m in said]
    )
    done = run_rules(log, rules)
    context = LiveContext(session(), rules)
    for n, message in enumerate(said):
        if message.role == "assistant":
            if len(lived) in {6, 9, 12, 15}:
                context = LiveContext(session(*said[:n]), rules)
            lived.append(context.prepare(message.time - message.latency).tokens)
        context.add(message)
    assert lived == done.prompts.tolist()


class Whole(Clear):
    """A clearing whose own call clears nothing."""

    def __call__(self, history, budget):
        return history


class Staged(ScheduledPruning):
    """Gives each call what another part leaves, and does not name it in `steps`."""

    of: object = None

    def schedule(self, view, budget):
        view.stages((None, self.of), lambda call, size: 1)


@pytest.mark.parametrize("of", [Whole(keep_last=1), lambda history, budget: history])
def test_a_stage_with_a_call_of_its_own_is_refused(of):
    """its schedule would be billed and sent, and its call asked by nobody"""
    part = Staged()
    object.__setattr__(part, "of", of)
    log = MessageLog.of(late_talk(5, 24), Fours())
    for pruning in (part, by_calls((part,))):
        with pytest.raises(BadArguments, match="defines its own `__call__`: list it in `steps`"):
            run_rules(log, Rules(pruning=pruning, counter=Fours()))


def test_steps_with_a_call_of_their_own_need_a_word_on_each_call():
    part = type("Steps", (Clear,), {"steps": (Whole(keep_last=1),)})(keep_last=1)
    with pytest.raises(
        BadArguments, match="A step of Steps defines its own `__call__`: define `stepped`"
    ):
        run_rules(MessageLog.of(late_talk(5, 24), Fours()), Rules(pruning=part, counter=Fours()))


@dataclass(frozen=True, kw_only=True, repr=False)
class Interrupted(ScheduledPruning):
    """Empties every second result; stops in the middle of what it says, where it is told to."""

    now: list[bool] = field(default_factory=list, compare=False)

    def schedule(self, view, budget):
        seen = view.memory.setdefault("seen", [])
        for p in view.new("tool"):
            seen.append(p)
            if self.now:
                raise KeyboardInterrupt
            if len(seen) % 2:
                view.change(p, "[emptied]", since=view.arrival(p))


def test_what_was_sent_is_worked_out_anew_after_an_interrupt():
    """Also of an earlier stretch, whose bill is written long since."""
    log = make_log_from_session(with_message_ids(read(samples.path())))
    part = Interrupted()
    rules = Rules(policy="summary:keep_tokens=4000", trigger=triggers.Above(11_000), pruning=part)
    done, again = run_rules(log, rules), run_rules(log, rules)
    call = done.compactions[0].call + 5
    assert len(done.compactions) > 1
    part.now.append(True)
    with pytest.raises(KeyboardInterrupt):
        done.sent(call)
    part.now.clear()
    assert done.sent(call) == again.sent(call)
