"""A turn beside the notebook asks: Allow, Deny and Always are clicked, and its words stay where the notebook is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browser.jupyterlab_driver import CELLS, written

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.browser

TALK = """\
import ctxkit as ck
kept = []
def note(text):
    'Keep a note.'
    kept.append(text)
    return 'noted'

def asks(n):
    said = '{"text": "<b>call %d</b>"}' % n
    call = {'id': 'c%d' % n, 'type': 'function', 'function': {'name': 'note', 'arguments': said}}
    return [{'role': 'assistant', 'content': None, 'tool_calls': [call]},
            {'role': 'tool', 'tool_call_id': 'c%d' % n, 'content': 'noted'}]

talk = [{'role': 'user', 'content': 'go'}]
for n in (1, 2, 3, 4):
    talk += asks(n)
talk += [{'role': 'assistant', 'content': 'All is kept.'}]
talk = ck.Context('pi').add(*talk).session"""
TURN = """\
%%agent --background --session asks --model scripted/talk --tools note --approve note --out turn
Keep it"""
RUN_CODE = """async (code) => {
  const kernel = window.notebook.sessionContext.session.kernel;
  const done = await kernel.requestExecute({code: '', user_expressions: {it: code}}).done;
  return done.content.user_expressions.it.data['text/plain'];
}"""
ANSWERS = ("Deny", "Allow", "Always")


def test_what_is_clicked_is_what_is_done(jupyter, tmp_path: Path):
    notebook = written(tmp_path / "asks", "%load_ext ctxkit", TALK, "%context use talk;", TURN)
    asked: list[str] = []
    left: list[dict] = []
    ran: list[str] = []

    def use(page, _) -> None:
        for n, answer in enumerate(ANSWERS, 1):
            page.wait_for_selector(f"pre:has-text('<b>call {n}</b>')")
            asked.append(page.locator("pre:has-text('May the agent call note?')").inner_text())
            page.locator(f"button:has-text('{answer}')").click()
        page.wait_for_selector("text=The turn of session 'asks' is over")
        left.extend(page.evaluate(CELLS)[-1]["outputs"])
        ran.append(page.evaluate(RUN_CODE, "'|'.join(kept)"))

    seen = jupyter.run(notebook, act=use)
    assert seen.problems == []
    assert [f"text: <b>call {n}</b>" in said for n, said in enumerate(asked, 1)] == [True] * 3
    assert ran == [
        "'<b>call 2</b>|<b>call 3</b>|<b>call 4</b>'"
    ]  # one was denied; the last was not asked for
    [shown] = [out["data"] for out in left]
    assert set(shown) == {"text/html", "text/plain"}  # what is saved needs no kernel
    assert "All is kept." in str(shown["text/plain"])
