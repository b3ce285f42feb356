"""Names and results of tools of MCP servers, as the agent has them."""

from __future__ import annotations

import asyncio
import base64
from hashlib import sha256
from types import SimpleNamespace

import pytest

from ctxkit.agent import McpServer
from ctxkit.agent.mcp_tools import make_safe_tool_name, parse_result_part, to_part_text
from ctxkit.errors import BadArguments, CtxkitError
from ctxkit.session import Attachment

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "words"}, "words"),
        ({"type": "text", "text": None}, ""),
        (IMAGE, Attachment("image/png", PNG)),
        ({"type": "image", "data": "AA=="}, ("[a picture that is not shown: the picture is no picture that a model takes: "
                                            "PNG, JPEG, GIF or WebP.]")),
        ({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}, "inside"),
        ({"type": "resource", "resource": {"blob": "AA=="}}, "[resource: ]"),
        ({"type": "other", "resource": {"text": "inside"}, "uri": "file:///a", "mimeType": "x/y"}, "[other: file:///a]"),
        ({"type": "audio", "mimeType": "audio/wav"}, "[audio: audio/wav]"),
        ({"type": "x" * 99, "uri": "y" * 300}, f"[{'x' * 39}…: {'y' * 199}…]"),
    ],
)  # fmt: skip
def test_a_part_of_a_result(part, expected):
    assert parse_result_part(part) == expected


def test_a_picture_that_is_no_base64_is_described():
    assert parse_result_part({"type": "image", "data": "?"}).startswith(
        "[a picture that is not shown: "
    )
    assert parse_result_part({"type": "image"}).startswith(
        "[a picture that is not shown: the picture is"
    )


def test_a_part_that_is_no_text_is_json():
    assert (to_part_text("words"), to_part_text({"a": ["é"]})) == ("words", '{"a":["é"]}')


def test_a_name_has_64_characters_at_most():
    assert make_safe_tool_name("mcp__a.b__c d-1_é") == "mcp__a_b__c_d-1__"
    assert make_safe_tool_name("x" * 64) == "x" * 64
    digest = sha256(("x" * 65).encode()).hexdigest()
    assert make_safe_tool_name("x" * 65) == f"{'x' * 55}_{digest[:8]}"
    assert make_safe_tool_name("x" * 66) != make_safe_tool_name("x" * 65)


def run_tool_with_result(monkeypatch, **result):
    """Call a tool of a server that is not started; its session returns the result."""
    server = McpServer(["no-such-program"], name="s", seconds=9.0)
    tools = {}
    server._add_tool({"name": "look"}, tools)

    async def call_on_loop(tool, arguments):
        assert (tool, arguments) == ("look", {"x": 1})
        return result

    monkeypatch.setattr(server, "_call_on_loop", call_on_loop)
    monkeypatch.setattr(server, "_on_loop", lambda: SimpleNamespace(run=lambda work: work))
    return asyncio.run(tools["mcp__s__look"].run(x=1))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"content": [{"type": "text", "text": "a"}, "no part", {"type": "text", "text": "b"}]},
            "a\nb",
        ),
        ({"content": [{"type": "text", "text": "a"}, IMAGE]}, ["a", Attachment("image/png", PNG)]),
        ({"content": None, "structuredContent": {"n": 1}}, '{"n":1}'),
        (
            {
                "content": [{"type": "text", "text": "a"}],
                "structuredContent": {"n": 1},
                "isError": False,
            },
            "a",
        ),
        ({}, ""),
    ],
)
def test_the_result_of_a_call(monkeypatch, result, expected):
    assert run_tool_with_result(monkeypatch, **result) == expected


@pytest.mark.parametrize(
    ("content", "error"),
    [([{"type": "text", "text": "no such"}, IMAGE], r"^no such\n\[a picture\]$"), ([], r"^The MCP server 's' says that look failed\.$")],
)  # fmt: skip
def test_a_call_that_failed(monkeypatch, content, error):
    with pytest.raises(CtxkitError, match=error):
        run_tool_with_result(monkeypatch, content=content, isError=True)


def test_a_tool_by_its_description():
    server, tools, key = McpServer(["program"], name="s"), {}, "sk-ant-api03-" + "Ab3xY9" * 15
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    server._add_tool({"name": "look", "description": f"Looks. {key}", "inputSchema": schema}, tools)
    server._add_tool({"name": "long", "description": "x" * 5_000, "inputSchema": "none"}, tools)
    server._add_tool({"name": None}, tools)
    look, long, unnamed = tools.values()
    assert list(tools) == ["mcp__s__look", "mcp__s__long", "mcp__s__"]
    assert (look.schema.description, look.schema.parameters) == ("Looks. [redacted]", schema)
    assert (look.needs, look.free) == ("mcp", True)
    assert (long.schema.description, long.schema.parameters) == ("x" * 4_000, {"type": "object"})
    assert unnamed.schema.description == ""
    assert server.notes == []
    server._add_tool({"name": "look"}, tools)
    empty = len('{"name":"mcp__s__huge","description":"","parameters":{"a":""}}')
    server._add_tool({"name": "huge", "inputSchema": {"a": "x" * (50_001 - empty)}}, tools)
    assert server.notes == [
        "The MCP server 's': its tool 'look' is there twice, and is left out.",
        "The MCP server 's': its tool 'huge' has a schema of 50,001 characters, and is left out.",
    ]
    server._add_tool({"name": "huge", "inputSchema": {"a": "x" * (50_000 - empty)}}, tools)
    assert tools["mcp__s__huge"].schema.chars == 50_000


def test_a_server_needs_a_command_and_is_named_by_it():
    with pytest.raises(
        BadArguments, match=r"^Name the command of the MCP server, such as 'uvx mcp-server-time'\.$"
    ):
        McpServer([])
    server = McpServer(["no-such-program"])
    with pytest.raises(
        BadArguments,
        match=r"^The MCP server 'no-such-program' cannot be started: no-such-program: ",
    ):
        server.tools()
    server.close()


def test_how_a_server_failed_is_described():
    server = McpServer(["program"], name="s")
    group = BaseExceptionGroup(
        "x", [BaseExceptionGroup("y", [ValueError("odd\nanswer"), KeyError()])]
    )
    assert server._describe_failure(group) == (
        "The MCP server 's' did not answer as the protocol asks (ValueError: odd answer)."
    )
    server._child.over = "it ended"
    assert server._describe_failure(group) == "it ended"
