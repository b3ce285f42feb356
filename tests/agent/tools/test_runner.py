"""Whatever a tool does, its call has a result, and a turn that is stopped does not wait for it."""

from __future__ import annotations

import asyncio
import time

import pandas as pd
import pytest
from builders import tool_call

from ctxkit import presets
from ctxkit.agent import OutputLimits, make_python_tool, run_tool, tool
from ctxkit.errors import BadArguments
from ctxkit.session import Text


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


@pytest.mark.parametrize("limits", [None, OutputLimits(lines=3, mode="head")])
def test_an_error_has_the_form_and_the_limits_of_an_output(limits):
    """A19: What a tool raises becomes text and is cut before it is stored, just as what it returns."""
    words = "row\n" * 10**5

    def broken():
        raise ValueError(words)

    failed, fine = ran(broken, output_limits=limits), ran(lambda: words, output_limits=limits)
    assert (failed.is_error, fine.is_error) == (True, False)
    for message in (failed, fine):
        assert [type(p) for p in message.parts] == [Text]
        assert len(message.text) < 60_000
        assert "[tool output truncated: showing" in message.text


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
    made = make_python_tool(space)

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


def test_limits_of_outputs_come_from_words_and_from_rules():
    """A20, A21: Lines, characters, bytes and the size that goes to a file are set by ai's rules or
    by words, the words first.
    """
    rules = presets.ai(max_lines=7, truncate_mode="head", large_output_threshold=900)
    assert OutputLimits.of(rules) == OutputLimits(lines=7, mode="head", spill=900)
    assert OutputLimits.of(rules, "lines=3, spill=0") == OutputLimits(lines=3, mode="head", spill=0)
    assert OutputLimits.of(presets.pi()) == OutputLimits()
    cut = OutputLimits(lines=2, mode="head").shorten("a\nb\nc")
    assert cut == "a\nb\n\n[tool output truncated: showing 2/3 lines, 3B/5B bytes, 3/5 chars]"


@pytest.mark.parametrize("words", ["line=3", "lines", "lines=-1", "lines=many", "mode=side", "a,b"])
def test_what_is_no_limit_of_outputs_is_said(words):
    with pytest.raises(BadArguments, match=r"is no limit of outputs|OutputLimits needs"):
        OutputLimits.of(presets.pi(), words)


def test_a_large_output_goes_to_its_place_or_is_cut():
    """A21: Above the threshold it is kept elsewhere; where it cannot be kept, it is cut."""
    limits = OutputLimits(lines=5, spill=50)
    text = "row\n" * 400
    assert ran(lambda: text, output_limits=limits, offload=lambda *_: "[kept]").text == "[kept]"
    assert (
        ran(lambda: text[:40], output_limits=limits, offload=lambda *_: "[kept]").text != "[kept]"
    )
    assert len(ran(lambda: text, output_limits=limits, offload=lambda _, whole: whole).text) < 200
    none = OutputLimits(spill=0)
    assert ran(lambda: text, output_limits=none, offload=lambda *_: "[kept]").text == text


def test_what_a_person_said_to_a_call_is_kept_with_its_result():
    """T15: Allowed or refused; nothing where nobody was asked."""
    said = [
        ran(lambda: "x", approve=lambda _: True).details,
        ran(lambda: "x", approve=lambda _: False).details,
        ran(lambda: "x", approve=lambda _: True, approval_tools=frozenset({"other"})).details,
        ran(lambda: "x").details,
    ]
    assert said == [{"approval": "allowed"}, {"approval": "refused"}, {}, {}]
