"""A function becomes a tool; the file tools do what they say; kernel and shell do too."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
import time
from inspect import signature

import pytest
from waiting import wait_until

from ctxkit.agent import (
    TOOL_NAMES,
    RootFolder,
    make_file_tools,
    make_inert_brief_and_summary_tools,
    make_python_tool,
    make_shell_tool,
    make_tools,
    tool,
)
from ctxkit.agent.tools import file_search
from ctxkit.agent.tools.tool import convert_arguments
from ctxkit.errors import BadArguments, StoreError


@pytest.fixture
def kit(tmp_path):
    root = RootFolder(tmp_path)
    root.write("src/one.py", b"import os\nvalue = 1\nlast\n")
    root.write("src/two.txt", b"value = 2\n")
    return {t.name: t.run for t in make_file_tools(root)}


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
    assert convert_arguments(made, {"city": "Rome", "days": "5"}) == {"city": "Rome", "days": 5}


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_the_kits_own_tools_have_the_schema_of_their_function(name, tmp_path):
    made = [
        make_tools([name], RootFolder(folder), {}, work_tools=make_inert_brief_and_summary_tools())
        for folder in (tmp_path, tmp_path)
    ]
    for each, again in zip(*made, strict=True):
        assert each.run is not again.run
        assert each.schema is again.schema
        assert each == tool(each.run, permission=each.needs)
        parameters, schema = signature(each.run).parameters, each.schema.parameters
        assert list(schema.get("properties", {})) == list(parameters)
        needed = [name for name, p in parameters.items() if p.default is p.empty]
        assert schema.get("required", []) == needed


@pytest.mark.parametrize(
    ("given", "why"),
    [({}, "missing 'x'"), ({"x": 1, "y": 2}, "unknown 'y'"), ({"x": "one"}, "'x' is wrong")],
)
def test_wrong_arguments_are_named(given, why):
    def double(x: int) -> int:
        return 2 * x

    with pytest.raises(BadArguments, match=why):
        convert_arguments(tool(double), given)


def test_a_wrong_call_is_answered_with_what_the_tool_takes():
    def double(x: int, times: int = 1) -> int:
        return 2 * x * times

    def clock() -> str:
        return "noon"

    with pytest.raises(BadArguments, match=r"^double: missing 'x'; it takes x, times\.$"):
        convert_arguments(tool(double), {"times": 2})
    with pytest.raises(BadArguments, match=r"^double: missing 'x'; it takes x, times\.$"):
        convert_arguments(tool(double), {})
    with pytest.raises(BadArguments, match=r"^clock: unknown 'a', 'b'; it takes nothing\.$"):
        convert_arguments(tool(clock), {"a": 1, "b": 2})


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
        monkeypatch.setattr(file_search.shutil, "which", lambda _: None)
    assert kit["search"](r"value = \d").splitlines() == [
        "src/one.py:2: value = 1",
        "src/two.txt:1: value = 2",
    ]
    assert kit["search"]("value", files="*.txt") == "src/two.txt:1: value = 2"
    assert kit["search"]("nothing here") == "(no hits)"
    assert kit["search"]("-v") == "(no hits)"
    with pytest.raises(BadArguments, match="regular expression"):
        kit["search"]("(")


def test_a_pattern_that_never_ends_is_ended(kit, tmp_path, monkeypatch):
    monkeypatch.setattr(file_search.shutil, "which", lambda _: None)
    monkeypatch.setattr(file_search, "SEARCH_SECONDS", 1.0)
    kit["write_file"]("src/long.txt", "a" * 60 + "!")
    said = kit["search"](r"^(a+)+$")
    assert said.startswith("(no hits in what was looked at)\n[stopped after 1 seconds; use ")
    assert "it was at src/long.txt" in said
    assert kit["search"](r"value = 1") == "src/one.py:2: value = 1"


def test_a_search_without_ripgrep_shows_what_fits(kit, monkeypatch):
    monkeypatch.setattr(file_search.shutil, "which", lambda _: None)
    kit["write_file"]("src/many.csv", "row é\n" * 50_000)
    kit["write_file"]("src/nul.bin", "row\0")
    hits = kit["search"]("row").splitlines()
    assert (len(hits), hits[0], hits[199]) == (
        201,
        "src/many.csv:1: row é",
        "src/many.csv:200: row é",
    )
    assert hits[200] == "[more than 200 hits: narrow the pattern]"


def test_listing(kit):
    assert kit["list_files"]() == "src/one.py\nsrc/two.txt"
    assert kit["list_files"](pattern="*.txt") == "src/two.txt"
    with pytest.raises(StoreError):
        kit["list_files"]("..")


def test_python_runs_in_the_users_namespace():
    space: dict = {"x": 20}
    run = make_python_tool(space).run
    assert run("y = x + 1\nprint('hi')\ny * 2") == "hi\n42\n"
    assert space["y"] == 21
    assert "ZeroDivisionError" in run("1/0")
    assert "SyntaxError" in run("def")


def test_the_shell_stays_in_the_root_and_sees_no_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-planted")
    shell = make_shell_tool(RootFolder(tmp_path)).run
    run = lambda command: asyncio.run(shell(command))
    assert run("pwd").strip() == str(tmp_path.resolve())
    assert "planted" not in run("env")
    assert "[exit status 3]" in run("exit 3")
    assert "stopped after" in asyncio.run(
        make_shell_tool(RootFolder(tmp_path), seconds=0.2).run("sleep 300")
    )


def test_an_interrupted_command_is_ended_with_what_it_started(tmp_path):
    waits = "touch begun; while [ ! -e go ]; do sleep 0.05; done; touch late"

    async def go():
        task = asyncio.ensure_future(
            make_shell_tool(RootFolder(tmp_path)).run(f"({waits}) & sleep 300")
        )
        await asyncio.to_thread(wait_until, (tmp_path / "begun").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    (tmp_path / "go").touch()
    time.sleep(0.4)
    assert not (tmp_path / "late").exists()


def test_python_takes_only_what_its_own_thread_prints(capsys):
    printing, over = threading.Event(), threading.Event()

    def beside():
        printing.wait(60)
        print("from beside")  # noqa: T201  what is tested
        over.set()

    other = threading.Thread(target=beside)
    other.start()
    out = make_python_tool({"printing": printing, "over": over}).run(
        "print('mine'); printing.set(); over.wait(60); None"
    )
    other.join()
    assert out == "mine\n"
    assert capsys.readouterr().out == "from beside\n"
    assert type(sys.stdout).__name__ != "_Routed"


@pytest.mark.parametrize(
    "code", ["exit(3)", "raise SystemExit", "print(end='\\0' )", "x = '\\0'\n\0"]
)
def test_python_survives_what_code_may_do(code):
    assert make_python_tool({}).run(code)


def test_a_flood_keeps_its_head_and_its_tail():
    said = make_python_tool({}).run("print('first'); print('x' * 3_000_000); print('last')")
    assert said.startswith("first\n")
    assert said.endswith("last\n")
    assert "left out" in said
    assert len(said) < 1_100_000


def test_the_shell_keeps_a_bounded_part_of_a_flood(tmp_path):
    said = asyncio.run(
        make_shell_tool(RootFolder(tmp_path)).run(
            "echo first; head -c 9000000 /dev/zero | tr '\\0' y; echo; echo last"
        )
    )
    assert len(said) < 1_100_000
    assert said.startswith("first\n")
    assert said.endswith("last\n")


def test_a_file_too_large_to_hold_is_not_patched_in_part(tmp_path):
    (tmp_path / "big").write_bytes(b"needle" + b"x" * 10_000_001)
    patch = {t.name: t.run for t in make_file_tools(RootFolder(tmp_path))}["patch_file"]
    with pytest.raises(StoreError, match="larger"):
        patch("big", "needle", "pin")
    assert (tmp_path / "big").stat().st_size == 10_000_007
