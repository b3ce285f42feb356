"""Servers of tools, and what becomes of those that hang, die, lie or say too much."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

import pytest
from builders import tool_call
from waiting import HANG, PATIENCE

from ctxkit.agent import McpServer, run_tool
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.session import Attachment

PROGRAM = str(Path(__file__).parent / "mcp_server.py")


@pytest.fixture
def server():
    made = []

    def begin(manner="good", **more):
        made.append(
            McpServer([sys.executable, PROGRAM, manner], seconds=more.pop("seconds", HANG), **more)
        )
        return made[-1]

    yield begin
    for each in made:
        each.close()


def ran(tools, name, **given):
    held = {t.name: t for t in tools}
    return asyncio.run(run_tool(tool_call(f"mcp__stand-in__{name}", **given), held))


def test_its_tools_are_described_run_and_shown(server):
    tools = server().tools()
    first = tools[0].schema
    assert first.name == "mcp__stand-in__echo"
    assert first.description == "Say it again."
    assert first.parameters["required"] == ["text"]
    assert first.chars == len(json.dumps({"name": first.name, "description": first.description,
                                          "parameters": first.parameters}, separators=(",", ":")))  # fmt: skip
    assert ran(tools, "echo", text="héllo").text == "héllo"
    drawn = ran(tools, "draw")
    assert drawn.text == "drawn"
    assert isinstance(drawn.parts[1], Attachment)
    failed = ran(tools, "fail")
    assert (failed.text, failed.is_error) == ("no such thing", True)


def test_it_gets_no_keys_but_those_that_are_named(server, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    env = json.loads(ran(server(env={"GIVEN_TOKEN": "t"}).tools(), "environment").text)
    assert "SOME_API_KEY" not in env
    assert env["GIVEN_TOKEN"] == "t"


def test_calls_of_several_turns_go_to_one_server_and_a_dead_one_begins_again(server):
    one = server("dies")
    tools = one.tools()
    said = ran(tools, "echo", text="x")
    assert said.is_error
    ended = r"The MCP server 'stand-in' (ended with exit code 1|closed its output)\. It said: out of luck"
    assert re.fullmatch(ended, said.text)
    assert len(one.tools()) == 4


@pytest.mark.parametrize(("manner", "said"), [
    ("hangs", r"did not answer echo within 2 s\."),
    ("endless", r"sent more than 16 MB in one message; it was ended\."),
    ("lies", r"did not answer as the protocol asks"),
])  # fmt: skip
def test_a_call_that_goes_wrong_is_a_sentence(server, monkeypatch, manner, said):
    one = server(manner)
    tools, began = one.tools(), time.monotonic()
    if manner == "hangs":
        monkeypatch.setattr(one, "_seconds", 2)
    result = ran(tools, "echo", text="x")
    assert result.is_error
    assert re.search(said, result.text), result.text
    assert time.monotonic() - began < HANG


def test_ten_megabytes_are_bounded(server):
    result = ran(server("large").tools(), "echo", text="x")
    assert len(result.text) < 60_000


@pytest.mark.parametrize(("manner", "said"), [
    ("mute", "did not answer within 2 s"), ("half", "did not answer as the protocol asks"),
])  # fmt: skip
def test_a_server_that_does_not_begin_is_a_sentence(server, manner, said):
    with pytest.raises(BadArguments, match=said):
        server(manner, seconds=2 if manner == "mute" else HANG).tools()


@pytest.mark.parametrize(("command", "said"), [
    ([], "Name the command"), (["no-such-program"], "cannot be started: no-such-program: No such file"),
    (["false"], "ended with exit code 1"),
])  # fmt: skip
def test_a_program_that_is_none_is_a_sentence(command, said):
    with pytest.raises(CtxkitError, match=said):
        McpServer(command).tools()


def test_odd_tools_are_left_out_or_named_soundly(server):
    one = server("odd")
    names = [t.name for t in one.tools()]
    assert len(names) == 5
    assert names[-1].startswith("mcp__stand-in__a_b__zzz")
    assert len(names[-1]) == 64
    assert [n.split(": ")[1][:16] for n in one.notes] == ["its tool 'echo' ", "its tool 'huge' "]
    many = server("many")
    assert len(many.tools()) == 200
    assert "offers 201 tools" in many.notes[0] or "offers 300 tools" in many.notes[0]


def test_an_interrupted_call_leaves_the_server_usable(server):
    tools = server("hangs").tools()

    async def interrupted():
        task = asyncio.ensure_future(tools[0].run(text="x"))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    began = time.monotonic()
    asyncio.run(interrupted())
    assert time.monotonic() - began < PATIENCE
