"""Programs that exchange lines of JSON: what is received, and the sentence about their end."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

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


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the pipe is opened by /proc")
def test_the_end_does_not_wait_for_others_that_hold_the_pipe_of_stderr(monkeypatch):
    for limit in ("_EXIT_SECONDS", "END_SECONDS"):
        monkeypatch.setattr(f"ctxkit.agent.child_processes.{limit}", 0.1)
    script = "import os; print('{\"pid\": %d}' % os.getpid(), flush=True); input()"

    async def hold_pipe_and_end():
        child = ChildProcess("The program")
        await child.begin([sys.executable, "-I", "-S", "-c", script], env=dict(os.environ))
        pipe = os.open(f"/proc/{(await child.receive())['pid']}/fd/2", os.O_WRONLY)
        ending = asyncio.ensure_future(child.end())
        await asyncio.wait({ending}, timeout=PATIENCE / 4)
        has_ended = ending.done()
        os.close(pipe)
        await ending
        return has_ended

    assert asyncio.run(hold_pipe_and_end())
