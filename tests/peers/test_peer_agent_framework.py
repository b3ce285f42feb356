"""agent-framework itself on the same messages: which tool uses are collapsed, which groups go."""

import pytest
from peers.scripted_conversations import history, kept, run, script

from ctxkit import presets
from ctxkit.policies import apply_policy
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.peers
pytest.importorskip("agent_framework", reason="needs jupyter-ctxkit[peers]: make test-peers")
from agent_framework import Content, Message  # noqa: E402
from agent_framework._compaction import (  # noqa: E402
    ToolResultCompactionStrategy,
    annotate_message_groups,
    project_included_messages,
)

ROOM = ContextBudget(100_000, 0, get_counter("chars/4"))
SEEDS = range(20)


def theirs(lines):
    out = []
    for x in lines:
        contents = [Content.from_text(x.text)]
        if x.role == "tool":
            contents = [Content.from_function_result(call_id=x.of, result=x.text)]
        contents += [
            Content.from_function_call(call_id=c, name="bash", arguments={"command": c})
            for c in x.calls
        ]
        out.append(Message(role=x.role, contents=contents, message_id=x.id))
    return out


@pytest.mark.parametrize("keep", [0, 1, 4])
def test_the_same_tool_uses_become_lines(keep):
    rules = presets.agent_framework(
        context_window=100_000,
        max_output_tokens=0,
        tool_eviction_threshold=0.00001,
        truncation_threshold=1.0,
        keep_last_tool_call_groups=keep,
    )
    for seed in SEEDS:
        lines = script(seed, turns=2 + seed % 9)
        messages = theirs(lines)
        annotate_message_groups(messages)
        run(ToolResultCompactionStrategy(keep_last_tool_call_groups=keep)(messages))
        left = {m.message_id for m in project_included_messages(messages)}
        new = apply_policy(rules.policy, history(lines), ROOM)
        gone = [x.id for x in lines if x.role == "tool" and x.id not in left]
        assert [x.id for x in lines if x.role == "tool" and x.id not in kept(new)] == gone, seed
        said = [
            m.text
            for m in project_included_messages(messages)
            if m.text.startswith("[Tool results: ")
        ]
        assert len([m for m in new.messages if m.text.startswith("[Tool results: ")]) == len(
            said
        ), seed
