"""`--approve` in a real kernel: the call is shown as it will run, and what is saved holds no key."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from importlib.util import find_spec
from queue import Empty
from typing import TYPE_CHECKING

import pytest
from magics.test_agent_in_a_kernel import WAIT, Kernel, errors

from ctxkit.magics.turn_handle_and_approvals import NOBODY_TO_ASK_MESSAGE, OUTPUT_CAPTURED_MESSAGE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not find_spec("ipykernel"), reason="ipykernel is not installed")

PASSWORD = "Aa9xQ7zK2mW8"
COMMAND = f"PASSWORD={PASSWORD};touch${{IFS}}X"
SETUP = f"""\
import ctxkit as ck
ran = []
def note(text):
    'Keep a note.'
    ran.append(text)
    if FAILS:
        raise RuntimeError('no room for ' + text)
    return 'noted'
FAILS = False
call = {{'id': 'c1', 'type': 'function',
        'function': {{'name': 'note', 'arguments': {json.dumps(json.dumps({"text": COMMAND}))}}}}}
talk = ck.Context('pi').add(
    {{'role': 'user', 'content': 'go'}},
    {{'role': 'assistant', 'content': None, 'tool_calls': [call]}},
    {{'role': 'tool', 'tool_call_id': 'c1', 'content': 'noted'}},
    {{'role': 'assistant', 'content': 'Done.'}}).session
get_ipython().run_line_magic('context', 'use talk')"""


def turn(session: str) -> str:
    words = "--model scripted/talk --tools note --approve note --out a"
    return f"%%agent --session {session} {words}\nGo"


class Saved:
    """What a notebook saves of a cell: displays that are replaced in place, and JupyterLab's line
    of a prompt with its answer.
    """

    def __init__(self) -> None:
        self.outputs: list[dict] = []
        self._places: dict[str, int] = {}

    def take(self, message: dict) -> None:
        content, kind = message["content"], message["msg_type"]
        place = content.get("transient", {}).get("display_id")
        if kind == "update_display_data" and place in self._places:
            self.outputs[self._places[place]] = content["data"]
        elif kind in ("display_data", "execute_result", "stream", "error"):
            self.outputs.append(content.get("data") or content)
            if place:
                self._places[place] = len(self.outputs) - 1

    def __str__(self) -> str:
        return json.dumps(self.outputs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("approvals")


def begun(folder) -> Kernel:
    kernel = Kernel(folder)
    assert errors(kernel.run(SETUP)) == []
    return kernel


@pytest.fixture(scope="module")
def kernel(folder):
    kernel = begun(folder)
    yield kernel
    kernel.close()


def asked(kernel: Kernel, session: str) -> tuple[str, Saved, str]:
    """Begin a cell and wait for its question; give what a notebook would hold meanwhile."""
    kernel.run("ran.clear()")
    saved = Saved()
    sent = kernel.client.execute(turn(session), allow_stdin=True)
    prompt = kernel.client.get_stdin_msg(timeout=WAIT)["content"]["prompt"]
    for message in kernel.until(lambda m: "May the agent call" in str(m["content"].get("data"))):
        saved.take(message)
    assert f"text: {COMMAND}" in saved.outputs[-1]["text/plain"]
    assert f"text: {COMMAND}" in saved.outputs[-1]["text/html"]
    assert "May the agent call note" in prompt
    assert PASSWORD not in prompt
    return sent, saved, prompt


def ended(kernel: Kernel, sent: str, saved: Saved) -> list[dict]:
    seen = kernel.end(sent)
    for message in seen:
        saved.take(message)
    return seen


def on_disk(folder: Path) -> str:
    return "".join(p.read_text("utf-8", "replace") for p in folder.rglob("*") if p.is_file())


def printed(kernel: Kernel, code: str) -> str:
    return "".join(m["content"].get("text", "") for m in kernel.run(f"print({code})")).strip()


@pytest.mark.parametrize("ends", ["y", "n", "a", "unclear", "fails", "interrupt"])
def test_the_call_is_shown_as_it_runs_and_nothing_that_is_saved_has_its_key(kernel, folder, ends):
    kernel.run(f"FAILS = {ends == 'fails'}")
    sent, saved, _ = asked(kernel, ends)
    if ends == "interrupt":
        kernel.manager.interrupt_kernel()
    elif ends == "unclear":
        for _ in range(2):
            kernel.client.input("what?")
            kernel.client.get_stdin_msg(timeout=WAIT)
        kernel.client.input("n")
    else:
        kernel.client.input("y" if ends == "fails" else ends)
    ended(kernel, sent, saved)
    assert PASSWORD not in str(saved)
    assert "text: PASSWORD=[redacted]" in str(saved)
    assert PASSWORD not in on_disk(folder)
    ran = printed(kernel, "ran")
    assert ran == (str([COMMAND]) if ends in ("y", "a", "fails") else "[]")


def test_a_front_end_without_a_field_shows_no_key(kernel):
    seen = kernel.end(kernel.client.execute(turn("none"), allow_stdin=False))
    assert errors(seen) == []
    assert PASSWORD not in str(seen)
    assert NOBODY_TO_ASK_MESSAGE in printed(kernel, "a.session.messages[-2].text")


def test_a_call_that_nobody_would_see_is_not_asked_for(kernel):
    line = turn("captured").split("\n")[0].removeprefix("%%agent ")
    cell = f"get_ipython().run_cell_magic('agent', {line!r}, 'Go')"
    capture = "from IPython.utils.capture import capture_output\nwith capture_output():"
    sent = kernel.client.execute(f"{capture}\n    {cell}", allow_stdin=True)
    assert errors(kernel.end(sent)) == []
    assert OUTPUT_CAPTURED_MESSAGE in printed(kernel, "a.session.messages[-2].text")


def test_a_turn_beside_the_notebook_shows_it_in_its_widget_and_takes_it_away(kernel, folder):
    def is_question(message: dict) -> bool:
        return f"text: {COMMAND}" in str(message["content"]) and message["msg_type"] == "comm_msg"

    kernel.run("ran.clear()")
    kernel.begin(turn("beside").replace("--approve", "--background --approve"))
    shown = kernel.until(is_question)
    assert PASSWORD not in str([m for m in shown if m["msg_type"] == "display_data"])
    sent = kernel.client.execute("a.result(90)", allow_stdin=True)  # this cell asks by itself
    assert PASSWORD not in kernel.client.get_stdin_msg(timeout=WAIT)["content"]["prompt"]
    kernel.client.input("y")
    saved = Saved()
    ended(kernel, sent, saved)
    assert PASSWORD not in str(saved)
    assert printed(kernel, "[b.question.value for b in a._views], ran") == f"[''] {[COMMAND]}"
    assert PASSWORD not in on_disk(folder)


def test_a_kernel_that_is_shut_down_takes_the_key_away_first(tmp_path):
    kernel = begun(tmp_path)
    try:
        _, saved, _ = asked(kernel, "s")
        kernel.manager.shutdown_kernel(now=False)
        end = time.monotonic() + WAIT
        with suppress(Empty):
            while PASSWORD in str(saved) and time.monotonic() < end:
                saved.take(kernel.client.get_iopub_msg(timeout=WAIT))
        assert PASSWORD not in str(saved)
        assert PASSWORD not in on_disk(tmp_path)
    finally:
        kernel.close()
