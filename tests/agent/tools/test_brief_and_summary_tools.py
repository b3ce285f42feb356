"""The tools for the brief and the summary of a session's work."""

from __future__ import annotations

import sys

import pytest

from ctxkit.agent.tools.python_shell_and_summary_tools import (
    MAX_WRITTEN_CHARS,
    make_brief_and_summary_tools,
)
from ctxkit.errors import BadArguments


def nested(lists):
    return '{"a":' + "[" * lists + "]" * lists + "}"


@pytest.mark.parametrize(
    "brief",
    [
        "{",
        "[1]",
        lambda: nested(sys.getrecursionlimit() - 100),  # libraries raise the limit for good
        lambda: nested(90_000),
        '{"a": "' + "x" * MAX_WRITTEN_CHARS + '"}',
    ],
    ids=["cut off", "a list", "deep", "deeper", "long"],
)
def test_a_brief_that_cannot_be_kept_is_refused_in_a_sentence_and_not_written(brief):
    kept = []
    tools = {
        t.name: t.run
        for t in make_brief_and_summary_tools(lambda *given: kept.append(given), lambda _: "")
    }
    with pytest.raises(BadArguments, match=r"\.$"):
        tools["brief_write"](brief=brief() if callable(brief) else brief)
    assert not kept
