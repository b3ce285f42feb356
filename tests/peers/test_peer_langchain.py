"""LangChain itself on the same messages: what it keeps, and what the presets keep."""

import warnings

import pytest
from peers.scripted_conversations import cleared, history, kept, script

from ctxkit import presets
from ctxkit.policies import apply_policy
from ctxkit.tokens import ContextBudget, get_counter

pytestmark = pytest.mark.peers
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip(
        "langchain.agents.middleware", reason="needs jupyter-ctxkit[peers]: make test-peers"
    )
    from langchain.agents.middleware import ClearToolUsesEdit, SummarizationMiddleware
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage

ROOM = ContextBudget(100_000, 0, get_counter("chars/4"))
SEEDS = range(20)


def theirs(lines):
    out = []
    for x in lines:
        if x.role == "user":
            out.append(HumanMessage(x.text, id=x.id))
        elif x.role == "tool":
            out.append(ToolMessage(x.text, id=x.id, tool_call_id=x.of, name="bash"))
        else:
            calls = [{"name": "bash", "args": {"command": c}, "id": c} for c in x.calls]
            out.append(AIMessage(x.text, id=x.id, tool_calls=calls))
    return out


def size(messages):
    """The kit's estimate, so that both cut by one measure."""
    return history_of(messages).before(len(messages)) if messages else 0


def history_of(messages):
    from peers.scripted_conversations import Line

    role = {"human": "user", "ai": "assistant", "tool": "tool"}
    return history(
        [
            Line(
                role[m.type],
                m.id,
                m.text,
                tuple(c["id"] for c in getattr(m, "tool_calls", ())),
                getattr(m, "tool_call_id", ""),
            )
            for m in messages
        ]
    )


@pytest.mark.parametrize(
    "keep", [("messages", 3), ("messages", 8), ("messages", 20), ("tokens", 300), ("tokens", 900)]
)
@pytest.mark.parametrize("trigger", [("messages", 12), ("tokens", 1000)])
def test_the_same_messages_stay_behind_the_summary(keep, trigger):
    middleware = SummarizationMiddleware(
        model=FakeListChatModel(responses=["SUMMARY"]),
        trigger=trigger,
        keep=keep,
        token_counter=lambda m: size(list(m)),
    )
    rules = presets.langchain_summary(trigger=trigger, keep=keep, summariser=lambda p: "S")
    for seed in SEEDS:
        lines = script(seed, turns=2 + seed % 9)
        done = middleware.before_model({"messages": theirs(lines)}, None)
        ours = history(lines)
        due = rules.trigger(ours, ROOM)
        new = apply_policy(rules.policy, ours, ROOM) if due else ours
        if done is None:
            assert kept(new) == [x.id for x in lines], seed
        else:
            rest = [m for m in done["messages"] if not isinstance(m, RemoveMessage)]
            assert kept(new)[1:] == [m.id for m in rest[1:]], seed


@pytest.mark.parametrize("keep", [0, 1, 3])
@pytest.mark.parametrize("at_least", [0, 300, 90_000])
def test_the_same_results_are_cleared(keep, at_least):
    """results of a few characters differ: the kit keeps one that its placeholder would not make shorter"""
    edit = ClearToolUsesEdit(trigger=500, keep=keep, clear_at_least=at_least)
    rules = presets.langchain_clear_tools(trigger=500, keep=keep, clear_at_least=at_least)
    for seed in SEEDS:
        lines = script(seed, turns=2 + seed % 9)
        messages = theirs(lines)
        edit.apply(messages, count_tokens=lambda m: size(list(m)))
        new = apply_policy(rules.pruning, history(lines), ROOM)
        assert cleared(new, "[cleared]") == [m.id for m in messages if m.content == "[cleared]"], (
            seed
        )
