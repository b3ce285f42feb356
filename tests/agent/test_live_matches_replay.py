"""A live session, and a replay of its own record under the same rules, agree call by call in prompts and edits."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from builders import session
from conftest import examples, sample
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from stand_in_models import COUNT, said

import ctxkit as ck
from ctxkit import presets
from ctxkit.agent import Agent, ScriptedModel, tool
from ctxkit.policies import (
    Above,
    AntiThrash,
    Count,
    KeepNewestToolPairs,
    Rules,
    Share,
    Summary,
    TokensSpent,
    guards,
)
from ctxkit.session import ToolCall
from ctxkit.tokens import estimate_schema_tokens

SMALL = 6_000
RULES = {
    "standard": Rules(policy=Summary(keep_share=0.3, file_lists=True), trigger=Share(0.75), window=SMALL),
    "pi": presets.pi(context_window=SMALL, reserve_tokens=1_500, keep_recent_tokens=1_000),
    "fased": presets.fased(context_window=40_000, keep_recent_tokens=1_500, reserve_tokens=35_000),
    "fuseraft": presets.fuseraft(trigger_turn_count=9, keep_recent_turns=3, context_window=SMALL),
    "fuseraft budget": presets.fuseraft(warn_at=4_000, cutover_at=9_000, trigger_turn_count=500, keep_recent_turns=3),
    "window": presets.fuseraft(mode="window", token_budget=3_000, context_window=SMALL),
    "views": presets.fuseraft(trigger_turn_count=12, keep_recent_turns=5, context_window=SMALL, max_turn_age=4,
                              max_tail_messages=6, max_tool_result_chars=300, max_replay_chars=100),
    "text only": presets.fuseraft(trigger_turn_count=12, keep_recent_turns=5, context_window=SMALL, text_only=True),
    "tyrum": presets.tyrum(context_window=SMALL, reserved_input_tokens=2_000),
    "ai": presets.ai(context_window=40_000),
    "cleared": Rules(policy=Summary(keep_tokens=800), trigger=Above(1_500), pruning=KeepNewestToolPairs(keep_pairs=2), window=SMALL),
    "guarded": Rules(policy=Summary(keep_tokens=2_500), trigger=Above(3_000) | Count(12),
                     guards=(guards.GraceAfterCompaction(calls=2), AntiThrash(0.2, 2)), window=SMALL),
    "spending": Rules(policy=Summary(keep_turns=1), trigger=TokensSpent(9_000), warnings=(TokensSpent(3_000),), window=SMALL),
}  # fmt: skip


def give(n: int) -> str:
    """Give so many words."""
    return "path/to/file.py " * n


STEP = st.tuples(st.integers(0, 60), st.integers(0, 120), st.booleans())
"""Words of the reply, words of the result, whether two tools are called."""
SCRIPTS = st.lists(st.lists(STEP, min_size=0, max_size=6), min_size=1, max_size=6)


def turns(script):
    ids = count()
    out = []
    for steps in script:
        replies = []
        for words, size, twice in steps:
            calls = [ToolCall(f"c{next(ids)}", "give", {"n": size}) for _ in range(1 + twice)]
            replies.append(said("thought " * words, *calls, stop="tool", usage=None))
        out.append((*replies, said("It is done. " * 5, usage=None)))
    return tuple(out)


def lived(script, rules, resumed=False):
    """Take every turn of a script; `resumed`: by a new agent each time, as after a restart."""
    ticks = count(1_800_000_000)
    model = ScriptedModel(
        turns(script), name="made", counter=COUNT, clock=lambda: float(next(ticks))
    )
    make = lambda at: Agent(
        at, model=model, rules=rules, tools=[tool(give)], clock=lambda: float(next(ticks))
    )
    a = make(session())
    for i in range(len(script)):
        a = make(a.session) if resumed else a
        asyncio.run(a.turn(f"Do part {i}: " + "please " * 40))
    return a


def agree(a, rules):
    live = a.session
    sizes = [COUNT.message(m) for m in live.messages]
    again = ck.replay(
        live, rules, tokens=sizes, fixed=estimate_schema_tokens(t.schema for t in a.tools.values())
    )
    prompts = [[c.message.usage.prompt_tokens for c in s.calls] for s in (live, again)]
    assert prompts[0] == prompts[1]
    edits = [
        [(e.kind, e.targets, [m.text for m in e.inserted]) for e in s.edits] for s in (live, again)
    ]
    assert edits[0] == edits[1]
    fixed = lambda item: item.message.kind == "fixed"
    for call, view in live.views():
        sent = [i.message.text for i in again.sent(call.index) if not fixed(i)]
        assert [m.text for m in view] == sent
    return len(live.edits)


@pytest.mark.parametrize("name", RULES)
@given(script=SCRIPTS)
@settings(
    max_examples=examples(5),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.generate],
)
def test_any_script_under_any_rules(name, script):
    rules = RULES[name].but(counter=COUNT)
    a = lived(script, rules)
    assume(
        all(c.message.usage for c in a.session.calls)
    )  # a call that overflowed was answered otherwise than a replay can
    agree(a, rules)


LONG = [[(20, 90, True), (10, 110, False)] * 3] * 5
COMPACTING = set(RULES) - {"tyrum", "ai"}


CASES = [*((True, name) for name in RULES), *((False, name) for name in sample([*RULES], 4))]
"""Every rules in a session that is resumed; some, in the suite, also in one that goes on."""


@pytest.mark.parametrize(("resumed", "name"), CASES)
def test_a_long_script_that_is_compacted(name, resumed):
    rules = RULES[name].but(counter=COUNT)
    made = agree(lived(LONG, rules, resumed), rules)
    assert made >= 2 or name not in COMPACTING
