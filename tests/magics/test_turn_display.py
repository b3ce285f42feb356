"""What a person sees of a turn: each thing once, thinking and arguments as they grow, and little that stays."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from html import unescape
from types import SimpleNamespace

import pytest
from builders import assistant, session, summarised, usage, user
from hypothesis import given
from hypothesis import strategies as st
from stand_in_models import COUNT, ECHO, Says, live, run, said

from ctxkit._internal import TextAndHtml, escape_html
from ctxkit.agent import Delta, LiveEvent, LiveSession, ProviderModel, Workspace
from ctxkit.errors import ModelError
from ctxkit.magics.turn_display import (
    LiveTurnDisplay,
    TurnRenderer,
    render_live_growth_chart,
    truncate_start,
)
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


@pytest.mark.parametrize("text", ["plain words ", "&<\"'>", "ж漢🙂", "a\n"])
def test_a_long_reply_is_cut_to_6000_characters_on_the_screen_and_to_2200_bytes_as_it_stays(text):
    def words(shown: TextAndHtml) -> tuple[str, str]:
        pre = re.search("<pre[^>]*>(.*?)</pre>", shown.html, re.DOTALL)[1]
        return shown.text.rpartition("\n[")[0], unescape(pre)

    agent = SimpleNamespace(model=SimpleNamespace(notice=""), gauge=lambda: (1, 10))
    stub = SimpleNamespace(
        agent=agent, name="s", session=session(), listen=lambda _: None, unlisten=lambda _: None
    )
    view, reply = Seen(), (text * 7_000)[:6_999] + "."
    with LiveTurnDisplay(stub, view) as display:
        for piece in (reply[:4_000], reply[4_000:]):
            payload = {"kind": "text", "text": piece}
            display.on_event(LiveEvent(kind="delta", time=0.0, turn=0, payload=payload))
            display._last = 0.0  # the next piece comes after the pause
    assert words(view.live[0]) == (reply[:4_000], reply[:4_000])
    assert words(view.live[1]) == ("…" + reply[-6_000:],) * 2
    (kept,) = view.ended
    plain, from_html = words(kept)
    assert plain == from_html
    assert 2_180 < len(escape_html(plain).encode()) <= 2_200
    assert plain.startswith("… (the session has the whole turn)\n")
    assert reply.endswith(plain.split("turn)\n", 1)[1])


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


@pytest.mark.parametrize(("raises", "ended", "is_shown"), [
    (True, "limit", False), (False, "limit", True), (True, "answered", True),
])  # fmt: skip
def test_a_limit_that_the_caller_is_told_of_is_not_shown_too(raises, ended, is_shown):
    agent = SimpleNamespace(model=SimpleNamespace(notice=""))
    renderer = TurnRenderer(SimpleNamespace(agent=agent), raises=raises)
    for kind, payload in (
        ("delta", {"kind": "text", "text": "I look."}),
        ("limit_reached", {"limit": "2 calls"}),
        ("turn_end", {"ended": ended}),
    ):
        renderer.on_event(LiveEvent(kind=kind, time=0.0, turn=0, payload=payload))
    assert renderer.text == ("I look.\n! limit reached: 2 calls" if is_shown else "I look.")
    renderer = TurnRenderer(SimpleNamespace(agent=agent), raises=raises)
    for kind, payload in (
        ("delta", {"kind": "text", "text": "I look."}),
        ("turn_end", {"ended": ended}),
    ):
        renderer.on_event(LiveEvent(kind=kind, time=0.0, turn=0, payload=payload))
    assert renderer.text == "I look."


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


def test_the_chart_below_a_turn_is_thinned():
    """A long session has as many points as fit below each turn: 100 of the line, 24 compactions."""
    log, seen = [user("go")], []
    for n in range(600):
        log.append(assistant("a", usage=usage(100 + 97 * n % 1000)))
        seen.append(log[-1])
        if n % 17 == 16:
            log.append(summarised(seen))
            seen = [log[-1].inserted[0]]
    chart = render_live_growth_chart(SimpleNamespace(name="long", session=session(*log)))
    line, squares = re.findall(r' d="([^"]*)"', chart)[:2]
    assert 50 < line.count("L") <= 100
    assert 12 < squares.count("M") <= 24
    assert chart.count("<line") == 3  # of the grid: none for a compaction
    empty = SimpleNamespace(name="empty", session=session(user("go")))
    assert render_live_growth_chart(empty) == ""


NAME = "n" * 300
COMPACTED = {"tokens_before": 9_000, "tokens_after": 1_000, "trigger": "auto", "messages": 4}
EVENTS = [
    ("tool_call", {"tool_name": "t", "args": {"a": NAME, "b": 1}}, f"▸ t(a={NAME[:59]}…, b=1)"),
    ("tool_call", {"tool_name": "t", "args": dict.fromkeys("abc", NAME)},
     f"▸ t(a={NAME[:59]}…, b={NAME[:59]}…, c={NAME[:29]}…)"),
    ("tool_result", {"is_error": False, "result_chars": 1_234}, "  → 1,234 characters"),
    ("tool_result", {"is_error": True, "result_chars": 3, "pictures": 2}, "  → 3 characters, 2 pictures failed"),
    ("sections_said", {"top": False, "names": ["time", "store"]}, "· said with the prompt: time, store"),
    ("sections_said", {"top": True, "names": ["time"]}, ""),
    ("artifact_stored", {"tool_name": NAME, "chars": 9_999, "file": f"/{NAME}"},
     (f"✂ the result of {NAME[:59]}…, 9,999 characters, is kept whole in a file; the prompt has a short stub that"
     f" says how to read it\n  → /{NAME[:238]}…")),
    ("artifact_failed", {"tool_name": NAME, "error": NAME},
     f"! the result of {NAME[:59]}… could not be stored, and is sent within the limits of outputs: {NAME[:159]}…"),
    ("memory_promoted", {"names": ["a", "b", "c"]}, "· remembered: a, b, c (%memory list)"),
    ("memory_promoted", {"names": [NAME, "b", "c", "d", "e"]}, f"· remembered: {NAME[:159]}… and 2 more (%memory list)"),
    ("memory_promoted", {"names": []}, ""),
    ("memory_failed", {"error": NAME}, f"! {NAME[:199]}…"),
    ("memory_consolidated", {"names": ["a", "b"]}, "· forgot 2 that are too much (%memory consolidate)"),
    ("context_cap_warning", {"messages": 1_500, "cap": 2_000}, "! 1,500 messages, of 2,000 that are shown at most"),
    ("reply_cut_short", {"continues": False}, "! the reply was cut by its limit of length"),
    ("reply_cut_short", {"continues": True},
     "! the reply was cut by its limit of length; the model is asked to go on where it ended"),
    ("model_wait", {"why": NAME}, f"… {NAME[:159]}…"),
    ("limit_reached", {"limit": NAME, "calls": 2}, f"! limit reached: {NAME[:159]}…"),
    ("context_exceeded_recovery", {"stage": 2, "chars": 500}, "! context exceeded recovery: stage 2, chars 500"),
    ("compaction_end", {"outcome": "skipped", "reason": NAME},
     f"compaction skipped: {NAME[:159]}…; the history is kept as it was"),
    ("compaction_end", {"outcome": "refused", "error": "too large", "summary_model": "m", "summary_tokens": 1_200,
                        "cost_usd": 0.5, "retry_after_calls": 2},
     ("! compaction refused: too large; the history is kept as it was · the summary's call: 1,200 tokens, $0.5000"
     " · not asked again for 2 calls\n  → nothing is lost: a later trigger or a shorter summary avoids such a call")),
    ("compaction_end", {"outcome": "failed", "reason": "no reply", "summary_model": "m", "summary_tokens": None,
                        "cost_usd": None},
     ("! compaction failed: no reply; the history is kept as it was · its call reported no usage, so no cost is known"
     "\n  → nothing is lost: mend the summary model, or name another by `--summary-model`")),
    ("context_budget_warn", {"tokens": 3_000}, "! context budget: 3,000 tokens in the prompt, near the next compaction"),
    ("context_budget_warn", {"warn_at": 5_000, "cumulative_input_tokens": 6_000},
     "! context budget: 6,000 tokens sent since the last compaction, warned at 5,000"),
    ("model_response", {"model": "m"}, ""),
]  # fmt: skip
SIZES = [
    ({}, "✂ compacted 9,000 → 1,000 tokens (auto)"),
    ({"tokens_source": "estimated", "summary_model": "m", "summary_tokens": 7, "cost_usd": 0.0},
     "✂ compacted 9,000 → 1,000 tokens (auto, estimated) · the summary's call: 7 tokens, free"),
    ({"tokens_after": 9_001, "summary_model": "m", "summary_tokens": 7, "cost_usd": None},
     "✂ compacted 9,000 → 9,001 tokens (auto); the prompt has grown · the summary's call: 7 tokens, no price known"),
    ({"error": NAME},
     (f"✂ compacted 9,000 → 1,000 tokens (auto); the summary failed: {NAME[:159]}…\n  → the earlier messages left the"
     " prompt without a model's summary: mend that model, then `%context checkpoints` and `%context restore N` bring"
     " them back")),
]  # fmt: skip


def test_each_event_is_a_line_of_bounded_text():
    agent = SimpleNamespace(model=SimpleNamespace(notice=""), gauge=lambda: (1, 10))
    log = session(user("go"), assistant("a"), summarised([]))
    rows = [*EVENTS, *(("compaction_end", COMPACTED | more, line) for more, line in SIZES)]
    for kind, payload, line in rows:
        renderer = TurnRenderer(SimpleNamespace(agent=agent, session=log))
        renderer.on_event(LiveEvent(kind=kind, time=0.0, turn=0, payload=payload))
        assert renderer.text == line
    assert (
        renderer.plain().splitlines()[-1] == "[###...........................] 1/10 tokens (10 %)"
    )


def test_thinking_and_a_call_are_folded_while_they_grow_and_text_ends_them():
    agent = SimpleNamespace(model=SimpleNamespace(notice=""), gauge=lambda: (1, 10))
    thought = "· thought 7 characters"
    renderer = TurnRenderer(SimpleNamespace(agent=agent))
    for kind, piece, text, fold in (
        ("arguments", "{}", "", "… writing a call, 2 characters: {}"),
        ("thinking", "Hm, ", "", "… thinking, 4 characters: Hm,"),
        ("thinking", "so.", "", "… thinking, 7 characters: Hm, so."),
        ("text", "I look.", f"{thought}\nI look.", ""),
        ("text", " Twice.", f"{thought}\nI look. Twice.", ""),
        ("tool_call", "echo", f"{thought}\nI look. Twice.", "… writing a call of echo, 0 characters:"),
        ("arguments", "x" * 90, f"{thought}\nI look. Twice.", f"… writing a call of echo, 90 characters: {'x' * 80}"),
        ("tool_call", "echo", f"{thought}\nI look. Twice.", "… writing a call of echo, 0 characters:"),
        ("tool_call", NAME, f"{thought}\nI look. Twice.", f"… writing a call of {NAME[:59]}…, 0 characters:"),
        ("thinking", "b", f"{thought}\nI look. Twice.", "… thinking, 1 characters: b"),
        ("text", "End.", f"{thought}\nI look. Twice.\n· thought 1 characters\nEnd.", ""),
    ):  # fmt: skip
        payload = {"kind": kind, "text": piece}
        renderer.on_event(LiveEvent(kind="delta", time=0.0, turn=0, payload=payload))
        assert renderer.text == text
        folded = renderer.plain().removeprefix(text).strip("\n").split("\n")[:-1]
        assert [row.rstrip() for row in folded] == ([fold] if fold else [])


def test_nothing_is_shown_as_an_empty_view():
    assert (repr(TextAndHtml()), TextAndHtml()._repr_html_()) == ("", "<span></span>")
