"""The scripted model is keyed to turn and step, bills a real prefix cache, overflows, and its scripts really run."""

from __future__ import annotations

import asyncio

import pytest
from builders import assistant, call, result, system, user

from ctxkit import tokens
from ctxkit.agent import (
    SCRIPT_OVER,
    Request,
    RootFolder,
    ScriptedModel,
    get_script,
    ignore_delta,
    make_file_tools,
)
from ctxkit.agent.models.scripted_and_lookup_models import SCRIPTS, split_replies_by_turn
from ctxkit.errors import BadArguments, ModelError
from ctxkit.session import ToolSchema

COUNT = tokens.get_counter("chars/4")


def ask(model, *messages, turn=0, step=0, tools=(), emit=ignore_delta):
    return asyncio.run(model(Request(messages=messages, turn=turn, step=step, tools=tools), emit))


def scripted(*turns, **more):
    return ScriptedModel(
        turns, name="test", counter=COUNT, clock=more.pop("clock", lambda: 0.0), **more
    )


def test_the_turn_and_the_step_choose_the_reply_not_the_messages():
    model = scripted((call("a", id="first"), assistant("one")), (assistant("two"),))
    assert ask(model, user(), turn=1).text == "two"
    assert ask(model, user(), turn=0, step=1).text == "one"
    assert ask(model, user(), turn=0, step=0).tool_calls[0].id == "first"


def test_past_the_last_turn_the_script_is_over():
    model = scripted((assistant("one"),))
    assert ask(model, user(), turn=1).text == SCRIPT_OVER
    assert ask(model, user(), turn=0, step=5).stop == "stop"


def test_the_same_prefix_is_read_from_the_cache_while_it_is_warm():
    now = [0.0]
    model = scripted((assistant("r"),), clock=lambda: now[0])
    s, u = system("s" * 400), user("u" * 40)
    first = ask(model, s, u).usage
    assert (first.cache_read_tokens, first.cache_write_tokens) == (0, 110)
    second = ask(model, s, u, user("n" * 8)).usage
    assert (second.cache_read_tokens, second.cache_write_tokens) == (110, 2)
    changed = ask(model, s, user("x" * 40)).usage
    assert (changed.cache_read_tokens, changed.cache_write_tokens) == (100, 10)
    now[0] = 301.0
    assert ask(model, s, user("x" * 40)).usage.cache_read_tokens == 0


def test_a_prompt_above_the_window_overflows():
    with pytest.raises(ModelError) as e:
        ask(scripted((assistant("r"),), context_window=10), user("x" * 100))
    assert e.value.overflow


def test_tool_schemas_are_part_of_the_prompt():
    tool = ToolSchema(name="t", chars=400)
    assert (
        ask(scripted((assistant("r"),)), user("x" * 40), tools=(tool,)).usage.prompt_tokens == 110
    )


def test_a_session_becomes_a_script():
    asked = call("look")
    turns = split_replies_by_turn(
        [
            system(),
            user(),
            asked,
            result("r", asked),
            assistant("one"),
            user(),
            user(),
            assistant("two"),
        ]
    )
    assert [[m.text for m in t] for t in turns] == [["", "one"], ["two"]]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_tools_of_a_script_really_work(name, tmp_path):
    made = get_script(name)
    tools = {t.name: t.run for t in make_file_tools(RootFolder(tmp_path))}
    has_hits = []
    for turn in made.turns:
        for reply in turn:
            for c in reply.tool_calls:
                answer = tools[c.name](**c.arguments)
                if c.name == "search":
                    has_hits.append(answer != "(no hits)")
    # only the last search of the audit finds nothing: every wrong sign is mended by then
    assert has_hits == [True] * (len(has_hits) - 1) + [name != "audit"]
    assert len(made.prompts) == len(made.turns)
    assert made == get_script(name)


def test_the_audit_finds_what_it_mends(tmp_path):
    tools = {t.name: t.run for t in make_file_tools(RootFolder(tmp_path))}
    last = [
        tools[c.name](**c.arguments)
        for t in get_script("audit").turns
        for m in t
        for c in m.tool_calls
    ][-1]
    assert last == "(no hits)"


def test_the_audit_is_long_enough_to_compact_twice(tmp_path):
    exact = tokens.get_counter("exact")
    total = sum(exact.message(m) for t in get_script("audit").turns for m in t)
    assert total > 2 * 8_000  # what it writes; as much again is read back


def test_an_unknown_script_is_named():
    with pytest.raises(BadArguments, match="Did you mean 'audit'"):
        get_script("audits")
