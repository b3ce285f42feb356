"""A function becomes a tool; the file tools do what they say; kernel and shell do too."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest

from ctxkit.errors import BadArguments, StoreError
from ctxkit.tools import files
from ctxkit.tools.files import file_tools
from ctxkit.tools.kernel import python_tool, shell_tool
from ctxkit.tools.root import Root
from ctxkit.tools.tool import arguments_for, tool


@pytest.fixture
def kit(tmp_path):
    root = Root(tmp_path)
    root.write("src/one.py", b"import os\nvalue = 1\nlast\n")
    root.write("src/two.txt", b"value = 2\n")
    return {t.name: t.run for t in file_tools(root)}


def test_a_plain_function_is_a_tool():
    def weather(city: str, days: int = 3) -> str:
        """Say the weather.

        More that the model need not read.
        """
        return f"{city} {days}"

    made = tool(weather)
    assert made.schema.description == "Say the weather."
    assert made.schema.parameters["properties"] == {
        "city": {"type": "string"},
        "days": {"type": "integer", "default": 3},
    }
    assert made.schema.parameters["required"] == ["city"]
    assert arguments_for(made, {"city": "Rome", "days": "5"}) == {"city": "Rome", "days": 5}


@pytest.mark.parametrize(
    ("given", "why"), [({}, "missing 'x'"), ({"x": 1, "y": 2}, "unknown 'y'"), ({"x": "one"}, "'x' is wrong")]
)
def test_wrong_arguments_are_named(given, why):
    def double(x: int) -> int:
        return 2 * x

    with pytest.raises(BadArguments, match=why):
        arguments_for(tool(double), given)


def test_a_parameter_that_json_cannot_say_is_refused():
    def odd(x: object, /) -> str:
        return str(x)

    with pytest.raises(BadArguments, match="by name"):
        tool(odd)


def test_reading_by_lines(kit):
    assert kit["read_file"]("src/one.py", start=2, end=2) == "value = 1\n"
    with pytest.raises(BadArguments, match="has 3 lines"):
        kit["read_file"]("src/one.py", start=9)


def test_a_patch_must_be_unique(kit):
    assert kit["patch_file"]("src/one.py", "value = 1", "value = 3") == "Patched src/one.py."
    assert "value = 3" in kit["read_file"]("src/one.py")
    with pytest.raises(BadArguments, match="0 times"):
        kit["patch_file"]("src/one.py", "value = 1", "")


@pytest.mark.parametrize("ripgrep", [True, False])
def test_search_with_and_without_ripgrep(kit, monkeypatch, ripgrep):
    if ripgrep and not shutil.which("rg"):
        pytest.skip("ripgrep is not installed")
    if not ripgrep:
        monkeypatch.setattr(files.shutil, "which", lambda _: None)
    assert kit["search"](r"value = \d").splitlines() == ["src/one.py:2: value = 1", "src/two.txt:1: value = 2"]
    assert kit["search"]("value", files="*.txt") == "src/two.txt:1: value = 2"
    assert kit["search"]("nothing here") == "(no hits)"
    assert kit["search"]("-v") == "(no hits)"
    with pytest.raises(BadArguments, match="regular expression"):
        kit["search"]("(")


def test_listing(kit):
    assert kit["list_files"]() == "src/one.py\nsrc/two.txt"
    assert kit["list_files"](pattern="*.txt") == "src/two.txt"
    with pytest.raises(StoreError):
        kit["list_files"]("..")


def test_python_runs_in_the_users_namespace():
    space: dict = {"x": 20}
    run = python_tool(space).run
    assert run("y = x + 1\nprint('hi')\ny * 2") == "hi\n42\n"
    assert space["y"] == 21
    assert "ZeroDivisionError" in run("1/0")
    assert "SyntaxError" in run("def")


def test_the_shell_stays_in_the_root_and_sees_no_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-planted")
    shell = shell_tool(Root(tmp_path)).run
    run = lambda command: asyncio.run(shell(command))
    assert run("pwd").strip() == str(tmp_path.resolve())
    assert "planted" not in run("env")
    assert "[exit status 3]" in run("exit 3")
    assert "stopped after" in asyncio.run(shell_tool(Root(tmp_path), seconds=0.2).run("sleep 5"))


def test_an_interrupted_command_is_ended_with_what_it_started(tmp_path):
    async def go():
        task = asyncio.ensure_future(shell_tool(Root(tmp_path)).run("(sleep 1; touch late) & sleep 60"))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    time.sleep(1.2)
    assert not (tmp_path / "late").exists()
