"""Semantic Kernel itself on the same messages: where its reducers cut."""

import pytest
from peers.scripted_conversations import history, kept, run, script

from ctxkit import presets
from ctxkit.policies import apply_policy
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.peers
pytest.importorskip("semantic_kernel", reason="needs jupyter-ctxkit[peers-older]: make test-peers")
from semantic_kernel.contents import (  # noqa: E402
    ChatHistoryTruncationReducer,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    TextContent,
)

ROOM = ContextBudget(100_000, 0, get_counter("chars/4"))
SEEDS = range(20)


def theirs(lines):
    out = []
    for x in lines:
        items = [TextContent(text=x.text)]
        if x.role == "tool":
            items = [FunctionResultContent(id=x.of, name="bash", result=x.text)]
        items += [FunctionCallContent(id=c, name="bash", arguments="{}") for c in x.calls]
        out.append(ChatMessageContent(role=x.role, items=items, metadata={"id": x.id}))
    return out


@pytest.mark.parametrize(("target", "threshold"), [(4, 0), (8, 3), (5, 6), (20, 0)])
def test_the_same_messages_stay(target, threshold):
    rules = presets.semantic_kernel(
        method="truncation", target_count=target, threshold_count=threshold
    )
    for seed in SEEDS:
        lines = script(seed, turns=2 + seed % 9)
        reducer = ChatHistoryTruncationReducer(
            messages=theirs(lines), target_count=target, threshold_count=threshold
        )
        done = run(reducer.reduce())
        ours = history(lines)
        new = apply_policy(rules.policy, ours, ROOM) if rules.trigger(ours, ROOM) else ours
        rest = reducer.messages if done is None else done.messages
        assert kept(new) == [m.metadata["id"] for m in rest], seed
