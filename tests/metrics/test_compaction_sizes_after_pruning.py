"""The size before a compaction is that of the prompt that would have been sent, prunings applied."""

from __future__ import annotations

import pytest
from builders import assistant, session, step, summarised, user
from conftest import sample

import ctxkit as ck
from ctxkit import policies
from ctxkit.engine import run_replay
from ctxkit.metrics import (
    get_replay_compactions,
    get_rules_run_compactions,
)
from ctxkit.presets import names, resolve_rules
from ctxkit.widgets import MaxCompactionsGuard

PRUNING = [name for name in names() if resolve_rules(name).pruning is not None]


def without_the_last(session, rules, n: int):
    """The run of the same rules that stops after `n` compactions."""
    return run_replay(session, rules.but(guards=(*rules.guards, MaxCompactionsGuard(n))))


@pytest.mark.parametrize("name", PRUNING)
def test_the_size_before_is_the_prompt_of_the_same_rules_without_it(name, real):
    session = ck.read(real / "pi/before-compaction.jsonl")
    replay = ck.replay(session, name)
    run, compactions = replay.prompt_source, get_rules_run_compactions(replay.prompt_source)
    assert get_replay_compactions(replay) == compactions
    for n in sample([i for i, c in enumerate(compactions) if c.call < run.call], 3):
        call = compactions[n].call
        (sent_without,) = without_the_last(session, run.rules, n).sizes(call, call + 1)
        assert compactions[n].before == sent_without, (n, call)
        assert compactions[n].after == run.sizes(call, call + 1)[0]


def test_what_a_pruning_had_freed_already_is_no_saving(real):
    """217,353 tokens are in the history, and 34,293 of them were sent."""
    session = ck.read(real / "pi/before-compaction.jsonl")
    replay = ck.replay(session, "tyrum")
    first = get_rules_run_compactions(replay.prompt_source)[0]
    cut = replay.prompt_source.compactions[0]
    assert first.before < cut.was.tokens / 2
    row = ck.score(replay, loss=False)
    frame = ck.frame(replay, per="compaction")
    assert frame["tokens_before"][0] == first.before
    assert row["token_savings"] == pytest.approx(frame["token_savings"].mean())
    outcomes = ck.metrics.thrash(replay).outcomes
    assert [o.before for o in outcomes] == frame["tokens_before"].tolist()


def test_a_summary_after_another_step_of_its_compaction_reads_what_that_step_left():
    log = session(
        user("u" * 400),
        *(message for _ in range(3) for message in step("read", "r" * 400)),
        assistant("a" * 400),
        *(user("b" * 400), assistant(), user("more"), assistant()),
        model="claude-sonnet-4-5",
    )
    policy = policies.Chain.of(policies.Clear(keep_last=1), policies.Summary(keep_tokens=50))
    replay = ck.replay(log, policies.Rules(policy, policies.triggers.Above(450)))
    (compaction,) = get_rules_run_compactions(replay.prompt_source)
    cleared, summarised = replay.edits
    assert (cleared.kind, summarised.kind) == ("shortened", "summarised")
    assert (compaction.before, compaction.after) == (cleared.tokens_before, summarised.tokens_after)
    (summary,) = compaction.summaries
    assert summary.prompt == cleared.tokens_after == summarised.tokens_before < compaction.before
    removed = summarised.tokens_before - summarised.tokens_after
    assert summary.source == removed + summary.summary  # the summary is in the size after it
    assert get_replay_compactions(replay) == [compaction]


def test_a_size_after_a_compaction_is_not_below_0():
    """The log says 10 tokens before, and more than that was removed."""
    old = [user("u" * 4_000), assistant("a" * 4_000)]
    table = ck.frame(
        session(*old, summarised(old, "short", tokens_before=10), user("go")), per="compaction"
    )
    assert table[["tokens_before", "tokens_after"]].to_numpy().tolist() == [[10, 0]]
