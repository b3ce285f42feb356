"""Inspect itself on the same messages: what is cleared, what is trimmed."""

import pytest
from peers.scripted_conversations import cleared, history, kept, run, script

from ctxkit import presets
from ctxkit.policies import apply_policy
from ctxkit.presets import OldestShareTrim
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.peers
pytest.importorskip("inspect_ai", reason="needs jupyter-ctxkit[peers]: make test-peers")
from inspect_ai.model import (  # noqa: E402
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    CompactionEdit,
    get_model,
)
from inspect_ai.model._trim import trim_messages  # noqa: E402
from inspect_ai.tool import ToolCall  # noqa: E402

ROOM = ContextBudget(100_000, 0, get_counter("chars/4"))
SEEDS = range(20)


def theirs(lines):
    out = []
    for x in lines:
        if x.role == "user":
            out.append(ChatMessageUser(content=x.text, id=x.id))
        elif x.role == "tool":
            out.append(ChatMessageTool(content=x.text, id=x.id, tool_call_id=x.of, function="bash"))
        else:
            calls = [ToolCall(id=c, function="bash", arguments={"command": c}) for c in x.calls]
            out.append(ChatMessageAssistant(content=x.text, id=x.id, tool_calls=calls or None))
    return out


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_the_same_results_are_cleared(keep):
    rules = presets.inspect_edit(keep_tool_uses=keep)
    model = get_model("mockllm/model")
    for seed in SEEDS:
        lines = script(seed, turns=2 + seed % 9)
        done, _ = run(
            CompactionEdit(keep_tool_uses=keep, memory=False).compact(model, theirs(lines), [])
        )
        theirs_cleared = [
            m.tool_call_id for m in done if m.role == "tool" and m.text == "(Tool result removed)"
        ]
        new = apply_policy(rules.policy, history(lines), ROOM)
        assert [
            i.removeprefix("r") for i in cleared(new, "(Tool result removed)")
        ] == theirs_cleared, seed


@pytest.mark.parametrize("preserve", [0.8, 0.5])
def test_the_same_messages_are_trimmed(preserve):
    """a cut between a call and its result differs: Inspect drops the orphan, the kit moves the cut behind it"""
    for seed in SEEDS:
        lines = script(seed, turns=2 + seed % 9)
        done = [m.id for m in run(trim_messages(theirs(lines), preserve=preserve))]
        new = OldestShareTrim(preserve=preserve).once(history(lines))
        assert kept(new) == done, seed
