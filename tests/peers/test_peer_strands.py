"""Strands itself on the same messages: the window and the split of a summary."""

from types import SimpleNamespace

import pytest
from peers.scripted_conversations import alone, history, kept

from ctxkit import presets
from ctxkit.policies import apply_policy
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.peers
pytest.importorskip("strands", reason="needs jupyter-ctxkit[peers]: make test-peers")
from strands.agent.conversation_manager import SlidingWindowConversationManager  # noqa: E402
from strands.agent.conversation_manager.compression.context_compression import (  # noqa: E402
    adjust_split_point_for_tool_pairs,
)

ROOM = ContextBudget(100_000, 0, get_counter("chars/4"))
SEEDS = range(20)


def theirs(lines):
    out = []
    for x in lines:
        content = [{"text": x.text}]
        if x.role == "tool":
            content = [
                {
                    "toolResult": {
                        "toolUseId": x.of,
                        "status": "success",
                        "content": [{"text": x.text}],
                    }
                }
            ]
        content += [
            {"toolUse": {"toolUseId": c, "name": "bash", "input": {"command": c}}} for c in x.calls
        ]
        out.append(
            {
                "role": "assistant" if x.role == "assistant" else "user",
                "content": content,
                "id": x.id,
            }
        )
    return out


@pytest.mark.parametrize("size", [1, 2, 5, 12, 40])
def test_the_same_window_stays(size):
    rules = presets.strands(window_size=size)
    for seed in SEEDS:
        lines = alone(seed)
        agent = SimpleNamespace(messages=theirs(lines))
        SlidingWindowConversationManager(window_size=size).apply_management(agent)
        new = apply_policy(rules.policy, history(lines), ROOM)
        assert kept(new) == [m["id"] for m in agent.messages], seed


@pytest.mark.parametrize(("ratio", "recent"), [(0.3, 10), (0.5, 4), (0.8, 1)])
def test_a_summary_takes_the_same_messages(ratio, recent):
    rules = presets.strands(
        method="summary",
        summary_ratio=ratio,
        preserve_recent_messages=recent,
        summariser=lambda p: "S",
    )
    for seed in SEEDS:
        lines = alone(seed)
        count = min(max(1, int(len(lines) * ratio)), len(lines) - recent)
        first = adjust_split_point_for_tool_pairs(theirs(lines), count) if count > 0 else 0
        new = apply_policy(rules.policy, history(lines), ROOM)
        assert [i for i in kept(new) if i != "S"] == [x.id for x in lines[first:]], seed
