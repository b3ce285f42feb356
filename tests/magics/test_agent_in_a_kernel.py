"""`%%agent` in real kernels: an interrupt, a stop, two kernels on one session, a kernel that is killed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")

SLOW = "import time\ndef list_files():\n    'List.'\n    time.sleep(300)"
LAST = "print(get_ipython().magics_manager.registry['CtxKit'].session().messages[-1].text)"
WAIT = 90
"""Seconds, less than the slow tool sleeps: who waits for it fails."""


class Kernel:
    """A real kernel in a folder."""

    def __init__(self, folder) -> None:
        from jupyter_client.manager import start_new_kernel

        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(folder))
        self.run("%load_ext ctxkit")

    def begin(self, code: str) -> str:
        """Send a cell without waiting for it."""
        return self.client.execute(code)

    def until(self, wanted) -> list[dict]:
        """Read what is shown until a message is what is wanted."""
        seen = []
        while not seen or not wanted(seen[-1]):
            seen.append(self.client.get_iopub_msg(timeout=WAIT))
        return seen

    def end(self, sent: str) -> list[dict]:
        """Read what a cell shows until it has ended."""
        over = {"status"}
        seen = self.until(
            lambda m: (
                m["parent_header"].get("msg_id") == sent
                and m["msg_type"] in over
                and m["content"]["execution_state"] == "idle"
            )
        )
        return [m for m in seen if m["parent_header"].get("msg_id") == sent]

    def run(self, code: str) -> list[dict]:
        return self.end(self.begin(code))

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def clear_kernel(kernel: Kernel, folder: Path) -> Kernel:
    """Bring a kernel into a new folder, without the sessions and settings of the test before."""
    for line in (f"%cd -q {folder}", "%reload_ext ctxkit", "%config CtxKit.seed = ''"):
        assert errors(kernel.run(line)) == []
    return kernel


@pytest.fixture(scope="module")
def shared_kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("kernel"))
    yield kernel
    kernel.close()


@pytest.fixture
def kernel(shared_kernel, tmp_path):
    return clear_kernel(shared_kernel, tmp_path)


@pytest.fixture
def kernels(tmp_path):
    """Make kernels in one folder; all are ended at the end."""
    made: list[Kernel] = []

    def new() -> Kernel:
        made.append(Kernel(tmp_path))
        return made[-1]

    yield new
    for kernel in made:
        kernel.close()


def errors(seen: list[dict]) -> list[tuple[str, str]]:
    return [
        (m["content"]["ename"], m["content"]["evalue"]) for m in seen if m["msg_type"] == "error"
    ]


def shown(seen: list[dict]) -> str:
    texts = [
        m["content"].get("text") or m["content"].get("data", {}).get("text/plain", "") for m in seen
    ]
    return "\n".join(texts)


def calls_the_tool(message: dict) -> bool:
    """The live view of the cell says so, or the widget of a turn beside the notebook."""
    return "▸ list_files" in str(message["content"].get("data", {}))


def test_an_interrupt_keeps_the_partial_turn_and_the_session_goes_on(kernel):
    kernel.run(SLOW)
    sent = kernel.begin("%%agent --tools list_files\nWrite it")
    kernel.until(calls_the_tool)
    kernel.manager.interrupt_kernel()
    seen = kernel.end(sent)
    assert errors(seen) == [
        ("TurnInterrupted", "Interrupted. What was said so far is kept in session 'main'.")
    ]
    [error] = [m for m in seen if m["msg_type"] == "error"]
    assert len(error["content"]["traceback"]) == 1
    assert shown(kernel.run(LAST)).strip() == "Interrupted by the user before it ended."
    again = kernel.run("%%agent --tools files\nCheck it")
    assert errors(again) == []
    assert "no LLM was called" in shown(again)


def test_a_turn_beside_the_notebook_can_be_stopped(kernel):
    kernel.run(SLOW)
    kernel.begin("%%agent --background --tools list_files --out turn\nWrite it")
    kernel.until(calls_the_tool)
    assert "running" in shown(kernel.run("turn.state"))  # the kernel is free meanwhile
    kernel.run("turn.stop()")
    stopped = errors(kernel.run("turn.result(90)"))
    assert stopped == [
        ("TurnInterrupted", "Stopped. What was said so far is kept in session 'main'.")
    ]
    assert shown(kernel.run("print(turn.state)")).strip() == "stopped"


@pytest.mark.parametrize("seed", ["", "tour"])
def test_a_turn_beside_the_notebook_leaves_its_words_in_the_notebook(kernel, seed):
    """A widget is not saved; with a seed nothing is changed afterwards, as nbval does not see it."""
    kernel.run(f"%config CtxKit.seed = {seed!r}")
    kernel.begin("%%agent --background --out turn\nWrite it")
    kernel.begin("print('the', turn.result(90).outcome.ended, turn.running._thread.join())")
    seen = kernel.until(lambda m: "the answered None" in m["content"].get("text", ""))
    updates = [m["content"] for m in seen if m["msg_type"] == "update_display_data"]
    left = [u["data"] for u in updates if "is over" in u["data"]["text/plain"]]
    assert len(left) == (not seed)
    for data in left:
        assert set(data) == {"text/html", "text/plain"}
        assert "▸ write_file" in data["text/plain"]
        assert "heat.py" in data["text/html"]
        assert "<svg" in data["text/html"]


def test_a_second_kernel_is_told_who_holds_the_session_and_resumes_it_when_that_one_is_killed(
    kernels,
):
    first, second = kernels(), kernels()
    first.run("%%agent\nWrite it")
    pid = shown(first.run("import os; print(os.getpid())")).strip()
    [(name, said)] = errors(second.run("%%agent --session main\nMore"))
    assert name == "StoreError"
    assert said.startswith(f"Session 'main' is being written by process {pid} on ")
    first.manager.shutdown_kernel(now=True)  # SIGKILL: nothing is tidied up
    resumed = second.run("%%agent --session main\nCheck it")
    assert errors(resumed) == []
    assert "The constant was 30 and is 32 now" in shown(resumed)
    assert "8" in shown(
        second.run("len(get_ipython().magics_manager.registry['CtxKit'].session().calls)")
    )
