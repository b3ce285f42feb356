"""What a program starts ends with it, whoever runs it and however it hides; with the kernel, too."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import HANG, PATIENCE, wait_until

import ctxkit
from ctxkit import gates
from ctxkit.agent import (
    McpServer,
    ProcessTree,
    RootFolder,
    make_shell_tool,
    process_supervisor,
    run_tool,
)
from ctxkit.agent.acp_client import MAX_RUNNING_AGENTS, AcpClient
from ctxkit.errors import BadArguments, ModelError
from ctxkit.session import ToolCall

PACKAGE = Path(ctxkit.__file__).parent
OUTSIDE = Path(__file__).parents[2] / "outside"
pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc here")

HIDE = {
    "child": "sh {}",
    "nohup": "nohup sh {} >/dev/null 2>&1",
    "session": "setsid sh {}",
    "orphan": "(setsid sh {} </dev/null >/dev/null 2>&1 &)",
    "orphan without an environment": "(setsid env -i /bin/sh {} </dev/null >/dev/null 2>&1 &)",
    "daemon": "{python} -c 'import os; os.fork() and os._exit(0); os.setsid();"
    ' os.fork() and os._exit(0); os.execvp("sh", ["sh", "{}"])\'',
    "holds the output": "setsid sh {}",
}
"""How a command starts a script that continues."""


@pytest.fixture
def hidden(tmp_path):
    """Write a command that starts a process in one of these ways, and tell whether that lives."""

    class Hidden:
        pids = tmp_path / "pids"

        def words(self, way: str) -> str:
            script = tmp_path / "hides.sh"
            script.write_text(f"echo $$ >> {self.pids}\nexec sleep 300\n")
            return HIDE[way].format(script, python=sys.executable) + " &"

        def wait(self, n: int = 1) -> None:
            wait_until(lambda: len(self.pid_list) >= n)

        @property
        def pid_list(self) -> list[int]:
            return [int(p) for p in self.pids.read_text().split()] if self.pids.exists() else []

        @property
        def alive(self) -> list[int]:
            return [p for p in self.pid_list if is_alive(p)]

        def gone(self) -> bool:
            return wait_until(lambda: not self.alive)

    made = Hidden()
    yield made
    for pid in made.alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def script(tmp_path, words: str, then: str) -> str:
    """Return a command that starts what hides, waits until it runs, and does something then."""
    path = tmp_path / "begins.sh"
    path.write_text(f"{words}\nwhile [ ! -s {tmp_path}/pids ]; do sleep 0.05; done\n{then}\n")
    return f"sh {path}"


# -- a program that `gate` runs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "ends"),
    [
        *((way, ends) for way in HIDE for ends in ("well", "badly")),
        *((way, "late") for way in ("session", "orphan", "daemon")),
    ],
)
def test_what_a_compactor_starts_ends_with_it(tmp_path, hidden, way, ends):
    then = {
        "well": """echo '[{"role": "user", "content": "x"}]'""",
        "late": "sleep 300",
        "badly": "exit 3",
    }
    program = gates.command(
        script(tmp_path, hidden.words(way), then[ends]), seconds=3 if ends == "late" else PATIENCE
    )
    if ends == "well":
        assert program([]) == [{"role": "user", "content": "x"}]
    else:
        said = "did not answer within 3 s" if ends == "late" else "failed with exit code 3"
        with pytest.raises(BadArguments, match=said):
            program([])
    assert len(hidden.pid_list) == 1
    assert hidden.gone()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exit 7", "failed with exit code 7"),
        ("kill -9 $$", "failed with signal 9"),
        ("kill -SEGV $$", "failed with signal 11"),
        ("trap '' TERM; kill 0; sleep 0.2; exit 5", "failed with exit code 5"),  # its own group
    ],
)
def test_how_a_program_ends_is_told_as_if_nothing_stood_between(tmp_path, body, said):
    (tmp_path / "p.sh").write_text(body)
    with pytest.raises(BadArguments, match=said):
        gates.command(f"sh {tmp_path / 'p.sh'}")([])


@pytest.mark.parametrize(
    ("mode", "text", "said"),
    [
        (None, "", "cannot be started: No such file or directory"),
        (0o644, "#!/bin/sh\n", "cannot be started: Permission denied"),
        (0o755, "#!/no/such/interpreter\n", "failed with exit code 126. It said: .*No such file"),
    ],
)
def test_what_cannot_be_started_is_a_sentence(tmp_path, mode, text, said):
    program = tmp_path / "p"
    if mode is not None:
        program.write_text(text)
        program.chmod(mode)
    with pytest.raises(BadArguments, match=said):
        gates.command(str(program))([])


# -- a shell -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", HIDE)
@pytest.mark.parametrize("ends", ["late", "stopped"])
def test_what_a_shell_command_starts_ends_with_it(tmp_path, hidden, way, ends):
    words = hidden.words(way) + ("" if way == "holds the output" else " sleep 300")
    shell = make_shell_tool(RootFolder(tmp_path), seconds=1.0 if ends == "late" else HANG)

    async def stopped():
        running = asyncio.ensure_future(shell.run(words))
        await asyncio.to_thread(hidden.wait)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    began = time.monotonic()
    if ends == "late":
        assert "[stopped after 1 seconds]" in asyncio.run(shell.run(words))
    else:
        asyncio.run(stopped())
    hidden.wait()
    assert hidden.gone()
    assert time.monotonic() - began < PATIENCE


def test_a_shell_command_that_is_cancelled_while_it_is_started_leaves_nothing(
    tmp_path, hidden, monkeypatch
):
    popen = subprocess.Popen

    def return_when_it_runs(*words, **options):
        process = popen(*words, **options)
        hidden.wait()
        return process

    monkeypatch.setattr(subprocess, "Popen", return_when_it_runs)
    shell = make_shell_tool(RootFolder(tmp_path), seconds=HANG)

    async def cancelled():
        running = asyncio.ensure_future(shell.run(hidden.words("holds the output")))
        while not hidden.pid_list:  # noqa: ASYNC110  so that its next step is the cancellation
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    before, began = open_files(), time.monotonic()
    asyncio.run(cancelled())
    assert hidden.gone()
    assert open_files() == before
    assert time.monotonic() - began < PATIENCE


def test_what_a_shell_command_leaves_running_goes_on(tmp_path, hidden):
    words = hidden.words("orphan")
    call = ToolCall("c", "shell", {"command": f"{words} echo begun; exit 4"})
    result = asyncio.run(run_tool(call, {"shell": make_shell_tool(RootFolder(tmp_path))}))
    assert result.text == "begun\n\n[exit status 4]"
    hidden.wait()
    time.sleep(0.2)
    assert hidden.alive


# -- agents and servers ------------------------------------------------------------------------------


def wrapped(tmp_path, hidden, program: str, manner: str) -> list[str]:
    """Return the command of a stand-in that starts what hides first, and ignores its input's end."""
    begins = script(tmp_path, hidden.words("session") + hidden.words("orphan"), "")
    path = tmp_path / "stand_in.sh"
    path.write_text(
        f"{begins} </dev/null >/dev/null 2>&1\n{sys.executable} {OUTSIDE / program} {manner}\nsleep 300"
    )
    return ["sh", str(path)]


def opened(agent: AcpClient) -> AcpClient:
    asyncio.run(agent.open("/"))
    return agent


def test_an_agent_and_what_it_started_end_when_its_session_is_closed(tmp_path, hidden, monkeypatch):
    monkeypatch.setattr("ctxkit.agent.child_processes._EXIT_SECONDS", 0.2)
    agent = opened(AcpClient(wrapped(tmp_path, hidden, "acp_agent.py", "good")))
    hidden.wait(2)
    assert len(hidden.alive) == 2
    agent.close()
    assert hidden.gone()


def test_a_server_of_tools_and_what_it_started_end_with_it(tmp_path, hidden, monkeypatch):
    monkeypatch.setattr("ctxkit.agent.child_processes._EXIT_SECONDS", 0.2)
    server = McpServer(wrapped(tmp_path, hidden, "mcp_server.py", "good"))
    assert server.tools()
    hidden.wait(2)
    server.close()
    assert hidden.gone()


def test_where_the_supervisor_itself_is_killed_its_group_still_ends(tmp_path, hidden):
    agent = opened(AcpClient(wrapped(tmp_path, hidden, "acp_agent.py", "good")))
    hidden.wait(2)
    program = process_supervisor.list_descendants(agent._child._process.pid)[0]
    os.kill(agent._child._process.pid, signal.SIGKILL)
    assert is_alive(program)
    agent.close()
    wait_until(lambda: not is_alive(program))


OPENS = """\
import asyncio, os, sys
from ctxkit.agent.acp_client import AcpClient as AcpAgent
agent = AcpAgent(sys.argv[2:])
asyncio.run(agent.open("/"))
if "forked" in sys.argv[1] and not os.fork():  # it holds a copy of every pipe
    import time
    time.sleep(300)
    os._exit(0)
print("opened", flush=True)
if "closed" in sys.argv[1]:
    agent.close()
    print("closed", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("ends", ["exits", "killed", "killed, forked", "closed, forked"])
def test_an_agent_ends_with_the_kernel(tmp_path, hidden, ends):
    words = wrapped(tmp_path, hidden, "acp_agent.py", "good")
    ours = [sys.executable, "-c", OPENS, ends, *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(ours, **pipes, start_new_session=True) as kernel:
        assert kernel.stdout.readline() == b"opened\n"
        hidden.wait(2)
        if "closed" in ends:
            assert kernel.stdout.readline() == b"closed\n"
            assert not hidden.alive
        kernel.stdin.close() if ends == "exits" else kernel.kill()
        kernel.wait(PATIENCE)
        gone = hidden.gone()
        with suppress(ProcessLookupError):  # what it forked
            os.killpg(kernel.pid, signal.SIGKILL)
    assert gone


def test_agents_at_once_are_bounded_and_a_closed_one_makes_room():
    words = [sys.executable, str(OUTSIDE / "acp_agent.py"), "good"]
    agents = [AcpClient(words) for _ in range(MAX_RUNNING_AGENTS + 1)]
    try:
        for each in agents[:-1]:
            opened(each)
        with pytest.raises(
            ModelError, match=r"8 agents .* run already \(stand-in, .*`%context reset`"
        ):
            opened(agents[-1])
        with pytest.raises(ModelError):
            opened(agents[-1])  # a refusal takes no place
        opened(agents[0])  # it runs
        agents[0].close()
        opened(agents[-1])
    finally:
        for each in agents:
            each.close()
    assert AcpClient._running == []


def test_an_agent_that_died_takes_no_place():
    words = [sys.executable, str(OUTSIDE / "acp_agent.py"), "good"]
    agents = [opened(AcpClient(words)) for _ in range(MAX_RUNNING_AGENTS)]
    last = AcpClient(words)
    try:
        os.kill(
            process_supervisor.list_descendants(agents[0]._child._process.pid)[0], signal.SIGKILL
        )
        wait_until(lambda: agents[0].end_reason)
        assert agents[0].end_reason == "The agent 'stand-in' was ended by signal 9."
        opened(last)
    finally:
        for each in (*agents, last):
            each.close()


# -- one mechanism -----------------------------------------------------------------------------------

ALONE = {"file_tools_and_pdf_office_text.py": "our own script", "file_search.py": "ripgrep, and our own script",
         "doctor.py": "our own Python, which imports packages",
         "process_supervisor.py": "ps"}  # fmt: skip
"""Files that start programs which start none themselves."""


def starts(node: ast.AST) -> bool:
    """Say whether a piece of code starts a program."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    module, _, name = ast.unparse(node.func).rpartition(".")
    return module in ("subprocess", "asyncio", "os") and re.match(
        r"Popen|run$|call$|check_|create_subprocess|system|popen|spawn|posix_spawn|exec", name
    ) is not None  # fmt: skip


def test_programs_are_started_by_one_mechanism():
    started = {}
    for path in PACKAGE.rglob("*.py"):
        code = path.read_text("utf-8")
        if not re.search(r"\b(subprocess|asyncio|os)\b", code):
            continue
        calls = [ast.unparse(n) for n in ast.walk(ast.parse(code)) if starts(n)]
        calls = [call for call in calls if not call.startswith("asyncio.run")]
        if calls and path.name not in ALONE:
            started[path.name] = calls
    assert list(started) == ["child_processes.py"]
    assert all("_options" in call for call in started["child_processes.py"])


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_program_whose_supervisor_was_killed_is_ended(hidden):
    tree = ProcessTree(["sh", "-c", hidden.words("child") + " sleep 300"])
    running = tree.start()
    hidden.wait()
    running.kill()
    tree.end_and_wait(running)
    assert hidden.gone()


def test_a_tree_that_could_not_be_started_leaves_nothing_open(tmp_path):
    before = open_files()
    tree = ProcessTree(shlex.split("sh -c true"))
    with pytest.raises(OSError, match="No such file"):
        tree.start(cwd=tmp_path / "none")
    assert open_files() == before
    for _ in range(3):
        with pytest.raises(BadArguments):
            gates.command("sh -c false")([])
    assert open_files() == before


@pytest.mark.parametrize(("manner", "continues"), [("loads", True), ("good", False)])
def test_only_an_agent_that_can_load_a_conversation_is_asked_to(tmp_path, manner, continues):
    heard = tmp_path / "heard.jsonl"
    agent = AcpClient([sys.executable, str(OUTSIDE / "acp_agent.py"), manner, str(heard)])
    try:
        assert asyncio.run(agent.open("/", resume_id="old")) is continues
        assert agent.session == ("old" if continues else "s1")
        # what is open stays open, whatever is asked for
        assert asyncio.run(agent.open("/", resume_id=agent.session)) is True
        assert asyncio.run(agent.open("/", resume_id="other")) is False
        methods = [json.loads(line)["method"] for line in heard.read_text().splitlines()]
        assert methods == ["initialize", "session/load" if continues else "session/new"]
    finally:
        agent.close()


LOGIN = {"authMethods": [{"name": "key"}, "odd", {"name": "browser"}, {}]}


@pytest.mark.parametrize(
    ("error", "answer", "sentence"),
    [
        ({"message": "odd.\nnow."}, {}, "answered session/new with an error: odd. now."),
        ({"message": "odd", "data": {"details": "line 3"}}, {}, "answered session/new with an error: odd (line 3)."),
        ({}, {}, "answered session/new with an error: no reason."),
        ("odd", {}, "answered session/new with an error: no reason."),
        ({"code": -32601, "message": "x"}, {},
         "does not know session/new: it does not speak the Agent Client Protocol."),
        ({"code": -32000, "message": "Log in."}, LOGIN,
         "asks for a login (it offers: key, browser): log in with it, in a terminal. It said: Log in."),
        ({"code": -32000}, {}, "asks for a login: log in with it, in a terminal. It said: no reason."),
        ({"code": -32000}, {"authMethods": "key"}, "asks for a login: log in with it, in a terminal. It said: no reason."),
    ],
)  # fmt: skip
def test_an_error_of_an_agent_is_a_sentence(error, answer, sentence):
    agent = AcpClient(["/opt/own-agent", "--acp"])
    agent.initialize_answer = answer
    assert agent.failure(error, "session/new") == f"The agent 'own-agent' {sentence}"


def test_an_agent_says_whether_it_takes_pictures():
    agent = AcpClient(["own-agent"])
    assert (agent.pictures, agent.end_reason, agent.session) == (False, "", None)
    for takes in (True, False, "yes", None):
        agent.initialize_answer = {"agentCapabilities": {"promptCapabilities": {"image": takes}}}
        assert agent.pictures is (takes is True)
    agent.initialize_answer = {"agentCapabilities": "none"}
    assert agent.pictures is False
    with pytest.raises(BadArguments, match=r"^Name the agent's command, such as acp:'gemini"):
        AcpClient([])
    with pytest.raises(ModelError, match=r"^The agent 'own-agent' is closed\.$"):
        asyncio.run(agent.cancel())
