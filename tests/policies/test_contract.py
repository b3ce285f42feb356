"""The contract of every policy in the catalogue, on arbitrary histories and on real ones."""

import pytest
from conftest import examples, sample
from histories import CHARS
from hypothesis import given, settings
from policy_contract import history_of, holds, messages

from ctxkit.policies import registry
from ctxkit.tokens import ContextBudget

ROOM = ContextBudget(1500, 200, CHARS)
SETTINGS = {
    "text_only": {},
    "roles": {"roles": ("user", "assistant", "summary")},
    "without_agents": {"agents": ("tester",)},
    "turn_age": {"turns": 2},
    "tail": {"messages": 4},
    "shorten": {"max_chars": 300, "consumed_chars": 100},
    "consumed_reads": {"max_chars": 100},
    "replies": {"max_chars": 100},
    "outputs": {"max_chars": 300},
    "clear": {"keep_last": 1},
    "tool_pairs": {"keep_pairs": 1},
    "budget": {"max_chars": 2000},
    "cache_ttl": {
        "ttl_seconds": 0,
        "min_prunable_tool_chars": 0,
        "keep_last_assistants": 1,
        "soft_trim_max_chars": 200,
        "soft_trim_head_chars": 50,
        "soft_trim_tail_chars": 50,
    },
    "prune": {"tool_calls": "before-last-3-messages", "reasoning": "all"},
    "cap": {"max_messages": 5},
    "window": {"keep_tokens": 500},
    "turns": {"keep_turns": 2, "keep_first": 1},
    "window_share": {"keep_share": 0.3},
    "summary": {"keep_tokens": 200},
    "recall": {},
    "keep_rules": {"tokens": 60},
    "safeguard": {"keep_tokens": 200},
    "intents": {"keep_turns": 1},
    "evidence": {"keep_messages": 3},
    "hybrid": {"keep_share": 0.1},
    "digest": {"keep_last": 1},
    "excerpts": {"keep_last": 1},
    "superseded": {"min_chars": 0},
    "repeated_commands": {},
    "intermediate": {"max_chars": 20},
    "tombstones": {"max_tokens": 50, "keep_last": 1},
    "offload": {"threshold": 200},
    "adaptive_trim": {"stages": (200, 50), "consumed_chars": 50},
    "native": {"threshold": 300, "keep_last": 1},
}


def test_every_policy_is_held_to_the_contract():
    assert set(SETTINGS) == set(registry.MEMBERS)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_contract_on_arbitrary_histories(name):
    policy = registry.create_policy(name, **SETTINGS[name])

    @settings(max_examples=examples(20))
    @given(messages())
    def check(rows):
        holds(policy, history_of(rows), ROOM)

    check()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_contract_on_real_sessions(name, real_histories):
    policy = registry.create_policy(name, **SETTINGS[name])
    for history in real_histories:
        holds(policy, history, ContextBudget(max(history.tokens // 3, 400), 0, CHARS))


@pytest.fixture(scope="module")
def real_histories(real):
    from ctxkit.formats import read_all

    sessions = [
        s
        for path in sample(
            sorted(p for p in real.rglob("*.json*") if p.stat().st_size < 200_000), 4
        )
        for s in read_all(path, progress=False)
    ]
    return [
        history_of([m for m in s.messages if m.visible])
        for s in sessions
        if 0 < len(s.messages) < 400
    ][:6]
