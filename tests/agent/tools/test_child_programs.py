"""Programs that exchange lines of JSON: what is received, and the sentence about their end."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from ctxkit.agent.child_processes import ChildProcess


def talk(script):
    """Return what a Python script prints until it ends, and why it ended."""

    async def receive_all():
        child, received = ChildProcess("The program"), []
        await child.begin([sys.executable, "-I", "-S", "-c", script], env=dict(os.environ))
        while (message := await child.receive()) is not None:
            received.append(message)
        await child.end()
        return received, child.over

    return asyncio.run(receive_all())


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("import sys; sys.exit('Error: no such model')",
         "The program ended with exit code 1. It said: Error: no such model"),
        ("raise SystemExit(3)", "The program ended with exit code 3."),
    ],
)  # fmt: skip
def test_the_sentence_about_an_end_quotes_what_was_said(script, why):
    assert talk(script) == ([], why)


def test_lines_that_are_no_objects_are_passed_over_but_not_without_end():
    """1,000 of them are ignored; the next one ends the exchange and is quoted."""
    lines = "for n in range({}): print('line', n)\n" + "print('{{\"id\": 7}}')"
    assert talk(lines.format(1_000))[0] == [{"id": 7}]
    assert talk(lines.format(1_001)) == (
        [],
        "The program prints what is no message. It said: line 1000",
    )


def test_a_line_of_stderr_is_the_end_of_a_sentence():
    child = ChildProcess("The program")
    assert child.quote_stderr(b"starting\nready\n") == ". It said: ready"
    assert child.quote_stderr(b"\n") == child.quote_stderr() == "."
