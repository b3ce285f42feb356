"""`%%agent --mcp`: a server's tools in a cell, its schemas in the report."""

from __future__ import annotations

import json
import sys

import pytest
from outside.test_mcp_servers import PROGRAM

from ctxkit.errors import BadArguments
from ctxkit.magics.mcp_servers_and_acp_agents import McpServerCommand, parse_mcp_servers

COMMAND = f"{sys.executable} {PROGRAM}"


def run(shell, cell):
    done = shell.run_cell(cell)
    done.raise_error()
    return done.result


def test_a_servers_tools_are_offered_and_weigh_in_the_report(shell):
    answer = run(shell, f"%%agent --mcp '{COMMAND}' --tools ''\nHello")
    names = [t.name for t in answer.session.tools]
    assert names[:2] == ["mcp__stand-in__echo", "mcp__stand-in__draw"]
    report = str(run(shell, "%context detail"))
    assert "mcp__stand-in__echo" in report
    dry = repr(run(shell, f"%%agent --dry-run --session other --mcp '{COMMAND}'\nHello"))
    assert "tool descriptions" in dry
    run(shell, "%%agent --mcp '' --tools ''\nAgain")
    assert not shell.magics_manager.registry["CtxKit"].lives.servers._running["main"]


def test_a_server_that_does_not_begin_opens_no_session(shell, tmp_path):
    with pytest.raises(BadArguments, match="'false' ended with exit code 1"):
        run(shell, "%%agent --mcp false\nHello")
    assert not (tmp_path / ".ctxkit/sessions/main.jsonl").exists()


def test_files_variables_and_commands_name_servers(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(
        json.dumps({"mcpServers": {"a": {"command": "x", "args": ["-v"], "env": {"K": "1"}}}})
    )
    a = {"a": McpServerCommand(("x", "-v"), (("K", "1"),))}
    assert parse_mcp_servers(str(path), {}) == a
    assert (
        parse_mcp_servers(
            "held", {"held": {"a": {"command": "x", "args": ["-v"], "env": {"K": "1"}}}}
        )
        == a
    )
    assert parse_mcp_servers("held", {"held": ["x", "-v"]}) == {"": McpServerCommand(("x", "-v"))}
    assert parse_mcp_servers("x 'two words'", {}) == {"": McpServerCommand(("x", "two words"))}
    assert parse_mcp_servers("  ", {}) == {}


@pytest.mark.parametrize(("words", "said"), [
    ("gone.json", "cannot be read"), ("bad.json", "no JSON with mcpServers"), ("far.json", "not reached"),
    ("x 'y", "No closing quotation"), ("held", "names no server"), ("empty.json", "names no server"),
    ("args.json", "names no server"),
])  # fmt: skip
def test_what_names_none_is_a_sentence(words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "far.json").write_text('{"mcpServers": {"a": {"url": "https://x"}}}')
    (tmp_path / "args.json").write_text('{"mcpServers": {"a": {"command": "x", "args": "-v y"}}}')
    (tmp_path / "empty.json").write_text('{"mcpServers": {"a": {}}}')
    with pytest.raises(BadArguments, match=said):
        parse_mcp_servers(words, {"held": 3})
