"""Whatever a tool does, its call has a result, and a turn that is stopped does not wait for it."""

from __future__ import annotations

import asyncio
import time

import pandas as pd
import pytest
from builders import tool_call

from ctxkit.agent.running import run_tool
from ctxkit.tools.kernel import python_tool
from ctxkit.tools.tool import tool


def ran(function, **more):
    made = tool(function)
    return asyncio.run(run_tool(tool_call(made.name), {made.name: made}, **more))


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "(no output)"), ("", "(no output)"), (b"\xffraw", "\ufffdraw"), ({"a": [1]}, '{"a":[1]}'), (3, "3"),
     ((1, 2), "[1,2]"), ([object], "[<class 'object'>]")],
)  # fmt: skip
def test_whatever_is_returned_becomes_text(value, text):
    assert ran(lambda: value).text == text


def test_a_frame_is_returned_as_it_prints():
    assert "0  1" in ran(lambda: pd.DataFrame({"x": [1]})).text


def test_a_huge_result_is_cut_where_nothing_keeps_it():
    assert len(ran(lambda: "row\n" * 10**6).text) < 60_000


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), ZeroDivisionError("0")]
)
def test_whatever_is_raised_is_the_result(error):
    def broken():
        raise error

    result = ran(broken)
    assert result.is_error
    assert type(error).__name__ in result.text


def test_an_approval_that_fails_allows_nothing():
    done = []
    result = ran(lambda: done.append(1), approve=lambda _: 1 / 0)
    assert result.is_error
    assert not done


def test_a_function_that_returns_an_awaitable_is_awaited():
    async def late():
        return "late"

    def begin():
        return late()

    assert ran(begin).text == "late"


def test_endless_code_ends_with_the_turn():
    space = {"n": 0}
    made = python_tool(space)

    async def go():
        task = asyncio.ensure_future(
            run_tool(tool_call("python", code="while True:\n    n += 1"), {"python": made})
        )
        while not space["n"]:  # noqa: ASYNC110  the code that counts knows no event
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    for _ in range(200):
        before = space["n"]
        time.sleep(0.02)
        if space["n"] == before:
            return
    pytest.fail("the code still runs")
