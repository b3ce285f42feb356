"""LangChain's and Anthropic's clearing of tool uses: the documented cases, side by side."""

import pytest
from builders import call, step, user
from histories import ROOM, shown, texts

from ctxkit import presets
from ctxkit.errors import BadArguments
from ctxkit.policies import CLEARED_PLACEHOLDER

BOTH = {"langchain_clear_tools": "[cleared]", "anthropic_clear_tools": CLEARED_PLACEHOLDER}


def uses(n, size=4000, tool="bash"):
    return shown(
        user("go"),
        *(
            s
            for i in range(n)
            for s in step(tool if i else "memory", str(i) * size, command=str(i))
        ),
    )


def results(name, history, **settings):
    return texts(getattr(presets, name)(**settings).pruning(history, ROOM))[2::2]


@pytest.mark.parametrize(("name", "mark"), BOTH.items())
def test_all_but_the_last_three_are_cleared_above_the_trigger(name, mark):
    h = uses(5)
    assert [t == mark for t in results(name, h, trigger=1000)] == [True, True, False, False, False]
    assert results(name, h, trigger=h.tokens) == texts(h)[2::2]
    assert results(name, h) == texts(h)[2::2]


@pytest.mark.parametrize(("name", "mark"), BOTH.items())
def test_excluded_tools_are_kept(name, mark):
    got = results(name, uses(5), trigger=1000, keep=0, exclude_tools=("memory",))
    assert [t == mark for t in got] == [False, True, True, True, True]


@pytest.mark.parametrize("name", BOTH)
def test_arguments_are_cleared_where_asked(name):
    long = call("write", path="/a", text="x" * 4000)
    h = shown(user("go"), long, *[m for m in uses(4).messages if m.role != "user"])
    rules = getattr(presets, name)(trigger=100, clear_tool_inputs=True)
    assert (
        rules.pruning(h, ROOM).messages[1].tool_calls[0].arguments == long.tool_calls[0].arguments
    )  # no result yet
    h = shown(
        user("go"),
        *step("write", "ok " * 99, path="/a", content="x" * 4000),
        *step("bash", "1"),
        *step("bash", "2"),
        *step("bash", "3"),
    )
    assert rules.pruning(h, ROOM).messages[1].tool_calls[0].arguments == {}


def test_langchain_stops_once_enough_is_freed():
    """clear_at_least: the oldest one by one, and a break"""
    got = results("langchain_clear_tools", uses(6), trigger=100, keep=1, clear_at_least=1500)
    assert [t == "[cleared]" for t in got] == [True, True, False, False, False, False]
    got = results("langchain_clear_tools", uses(6), trigger=100, keep=1, clear_at_least=90_000)
    assert [t == "[cleared]" for t in got] == [True] * 5 + [False]


def test_anthropic_clears_nothing_where_too_little_would_be_freed():
    """clear_at_least: the strategy is not applied"""
    assert CLEARED_PLACEHOLDER not in results(
        "anthropic_clear_tools", uses(6), trigger=100, keep=1, clear_at_least=90_000
    )
    assert (
        results("anthropic_clear_tools", uses(6), trigger=100, keep=1, clear_at_least=1500).count(
            CLEARED_PLACEHOLDER
        )
        == 5
    )


def test_a_placeholder_is_needed():
    with pytest.raises(BadArguments, match="placeholder"):
        presets.langchain_clear_tools(placeholder="")
