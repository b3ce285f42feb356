"""What a person sees of a turn: each thing once, thinking and arguments as they grow, and little that stays."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stand_in_models import COUNT, ECHO, Says, live, run, said

from ctxkit._internal import TextAndHtml, escape_html
from ctxkit.agent import Delta, LiveSession, ProviderModel, Workspace
from ctxkit.errors import ModelError
from ctxkit.magics.turn_display import LiveTurnDisplay, truncate_start
from ctxkit.policies import Above, Rules, Summary
from ctxkit.session import Message, Text, ToolCall, Usage

MOST = 12_000
"""Bytes of a turn in a saved notebook."""


class Seen:
    """A view that keeps what it was shown."""

    def __init__(self):
        self.live, self.ended = [], []

    def show(self, shown):
        self.live.append(shown)

    def end(self, shown):
        self.ended.append(shown)


def taken(session, prompt="go", **more):
    """Take a turn; return what was shown."""
    view = Seen()
    with LiveTurnDisplay(session, view, **more):
        run(session.turn(prompt))
    return view


def weight(shown):
    bundle = {"text/plain": repr(shown), "text/html": shown._repr_html_()}
    return len(json.dumps(bundle, ensure_ascii=False).encode())


class Scripted(Says):
    """A model that leaves summaries to the rules."""

    notice = "scripted for a test"


class Streams(Says):
    """A model that thinks, speaks and writes a call, piece by piece."""

    async def __call__(self, request, emit):
        if not self.asked:
            for word in ("Hm, ", "let me see."):
                emit(Delta("thinking", word))
            emit(Delta("text", "I look."))
            emit(Delta("tool_call", "echo"))
            for piece in ('{"x": ', '"<b> ', 'more"}'):
                await asyncio.sleep(0.16)  # longer than the pause between two updates
                emit(Delta("arguments", piece))
        return await super().__call__(request, emit)


def test_thinking_and_arguments_are_shown_as_they_come_folded_and_leave_a_line(tmp_path):
    call = ToolCall("c", "echo", {"x": "<b>"})
    with live(tmp_path, tools=[ECHO]) as session:
        session.agent.model = Streams(said("I look.", call, stop="tool"), said("Done."))
        session.agent.move(session.session, session.log.append)  # it continues that model
        seen = taken(session)
    growing = [s for s in seen.live if "writing a call of echo" in s.text]
    assert "6 characters" in growing[0].text
    assert "11 characters" in growing[-1].text  # the last word waits: it might be the half of a key
    assert "<details><summary>… writing a call of echo, 11 characters" in growing[-1].html
    assert "<b>" not in growing[-1].html
    (kept,) = seen.ended
    assert kept.text.split("\n")[:4] == [
        "· thought 15 characters", "I look.", "▸ echo(x=<b>)", "  → 5 characters",
    ]  # fmt: skip
    assert "details" not in kept.html


@pytest.mark.parametrize("text", ["plain words ", "&<\"'>", "ж漢🙂", "a\n"])
def test_what_stays_of_a_turn_is_bounded_and_does_not_grow_with_the_session(tmp_path, text):
    usage, weights = Usage(input_tokens=9_000, output_tokens=5), []
    reply = Message(role="assistant", parts=(Text((text * 4000)[:4000]),), stop="stop", usage=usage)
    rules = Rules(policy=Summary(keep_turns=2), trigger=Above(3_000), counter=COUNT, window=20_000)
    model = Scripted(*[reply] * 60)
    with LiveSession("main", model=model, rules=rules, clock=1.8e9.__abs__, tools=[],
                     workspace=Workspace(tmp_path)) as session:  # fmt: skip
        weights = [weight(taken(session, "go " + text).ended[0]) for _ in range(60)]
        assert len(session.session.edits) > 5
    assert max(weights) < MOST
    assert weights[-1] < weights[30] * 1.1


@given(st.text(), st.integers(200, 4000))
def test_the_end_of_a_text_fits_its_room(text, room):
    kept = truncate_start(text, room)
    assert len(escape_html(kept).encode()) <= room
    assert kept == text or text.endswith(kept.split("turn)\n", 1)[1])


@pytest.mark.parametrize(("raises", "times"), [(True, 0), (False, 1)])
def test_an_error_that_is_raised_is_not_shown_too(tmp_path, raises, times):
    with live(tmp_path, ModelError("the server fell over")) as session:
        view = taken(session, raises=raises)
    assert view.ended[0].text.count("fell over") == times


def test_an_error_after_which_it_went_on_is_shown_once(tmp_path):
    lost = ModelError("the reply broke off", again=True)
    with live(tmp_path, lost, lost, said("done")) as session:
        view = taken(session, raises=True)
    assert view.ended[0].text.count("broke off") == 1


def test_the_import_of_litellm_is_told(monkeypatch):
    heard = []
    monkeypatch.delitem(sys.modules, "litellm", raising=False)

    def importing():
        raise KeyboardInterrupt

    monkeypatch.setattr("ctxkit.agent.models.litellm_provider.load_litellm", importing)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(
            ProviderModel("openai/x", options={"api_base": "http://127.0.0.1:9"})(
                None, heard.append
            )
        )
    assert [d.kind for d in heard] == ["wait"]
    assert "being imported" in heard[0].text


def test_nothing_is_shown_as_an_empty_view():
    assert (repr(TextAndHtml()), TextAndHtml()._repr_html_()) == ("", "<span></span>")
