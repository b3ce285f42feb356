"""Tools answer to fuseraft's names and parameters, and a person is asked under their own names."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from builders import tool_call

from ctxkit.agent import (
    TOOL_NAMES,
    RootFolder,
    make_inert_brief_and_summary_tools,
    make_tools,
    run_tool,
    tool,
)
from ctxkit.agent.tools.execution_and_results import TOOL_ALIASES, resolve_alias
from ctxkit.policies import format_stub
from ctxkit.session import Message
from ctxkit.teams.sub_agents_and_permissions import ASKING

LINES = "\n".join(f"line {n}" for n in range(1, 101))


@pytest.fixture
def tools(tmp_path):
    (tmp_path / "a.txt").write_text(LINES)
    made = make_tools(
        TOOL_NAMES, RootFolder(tmp_path), {}, work_tools=make_inert_brief_and_summary_tools()
    )
    return {t.name: t for t in (*made, *ASKING)}


def ran(tools, call, **more):
    return asyncio.run(run_tool(call, tools, **more))


@pytest.mark.parametrize("name", TOOL_ALIASES)
def test_every_alias_leads_to_parameters_that_its_tool_takes(name, tools):
    alias = TOOL_ALIASES[name]
    given = dict.fromkeys([*alias.parameters, *alias.without], "x")
    resolved = resolve_alias(tool_call(name, **given), tools)
    assert resolved.name == alias.tool
    assert set(resolved.arguments) <= set(inspect.signature(tools[alias.tool].run).parameters)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("read_file", {"path": "a.txt", "startLine": 3, "maxLines": 2}, "line 3\nline 4\n"),
        ("read_file", {"path": "a.txt", "startLine": "99"}, "line 99\nline 100"),
        ("read_file", {"path": "a.txt", "maxLines": 1}, "line 1\n"),
        ("grep_in_file", {"path": "a.txt", "pattern": "LINE 42", "contextLines": 2}, "a.txt:42: line 42"),
        ("grep_file", {"path": "a.txt", "pattern": "line 42"}, "a.txt:42: line 42"),
        ("search_content", {"query": "LINE 42", "caseSensitive": True}, "(no hits)"),
        ("list_directory", {"directory": "."}, "a.txt"),
        ("shell_run", {"command": "echo yes", "timeoutSeconds": 5}, "yes\n"),
        ("shell_run_script", {"script": "echo one\necho two"}, "one\ntwo\n"),
        ("patch_file", {"path": "a.txt", "oldText": "line 42", "newText": "forty-two"}, "Patched a.txt."),
    ],
)  # fmt: skip
def test_a_call_in_fuserafts_words_is_answered(name, arguments, text, tools):
    result = ran(tools, tool_call(name, **arguments))
    assert (result.text, result.is_error) == (text, False)


def test_a_command_runs_in_the_folder_that_it_names(tools, tmp_path):
    (tmp_path / "a b").mkdir()
    result = ran(tools, tool_call("shell_run", command="pwd", workingDirectory="a b"))
    assert result.text.strip() == str(tmp_path / "a b")


def test_what_a_stub_advises_can_be_done(tools):
    """F99: The tools that the stub of an offloaded result names exist, with their parameters."""
    call = tool_call("read_file", path="a.txt")
    stub = format_stub(LINES, Message(role="tool", tool="read_file", call_id=call.id), call, "0a")
    advised = {w.strip(",.()") for w in stub.replace("/", " ").split()} & {*TOOL_ALIASES, *tools}
    assert advised
    lines = {k: 7 if k != "maxLines" else 1 for k in ("startLine", "maxLines", "start", "end")}
    for name in advised:
        searches = resolve_alias(tool_call(name), tools).name == "search"
        more = {"pattern": "line 7$"} if searches else {k: n for k, n in lines.items() if k in stub}
        assert "line 7" in ran(tools, tool_call(name, path="a.txt", **more)).text


def test_a_person_is_asked_under_the_name_of_the_tool_that_runs(tools):
    asked = []

    def approve(call):
        asked.append((call.name, call.arguments))
        return False

    result = ran(tools, tool_call("shell_run", command="echo no"), approve=approve,
                 approval_tools={"shell"})  # fmt: skip
    assert asked == [("shell", {"command": "echo no"})]
    assert result.is_error
    assert result.details


def test_a_tool_of_ones_own_keeps_its_name_and_its_arguments(tools):
    def read_file(path: str, maxLines: int = 0) -> str:  # noqa: N803
        """Read."""
        return f"{path} {maxLines}"

    def shell_run(command: str) -> str:
        """Run."""
        return f"mine: {command}"

    mine = {**tools, "read_file": tool(read_file), "shell_run": tool(shell_run)}
    assert ran(mine, tool_call("read_file", path="b", maxLines=3)).text == "b 3"
    assert ran(mine, tool_call("shell_run", command="ls")).text == "mine: ls"


def test_without_the_tool_no_other_name_reaches_it(tools):
    del tools["shell"]
    result = ran(tools, tool_call("shell_run", command="echo no"))
    assert result.is_error
    assert "There is no tool 'shell_run'" in result.text
