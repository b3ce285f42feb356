"""Showing a turn takes a bounded part of its time, however much it says."""

from __future__ import annotations

import re
import time
from html import escape
from itertools import count

import pytest
from stand_in_models import COUNT, Says

from ctxkit._internal import choose_text_colour
from ctxkit.agent import LiveEvent, LiveSession, Workspace
from ctxkit.magics import turn_display
from ctxkit.magics.turn_display import TurnRenderer
from ctxkit.policies import Rules


def test_showing_a_turn_leaves_it_most_of_the_time(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(turn_display.time, "monotonic", lambda: now[0])
    shows = []

    class Slow:
        def show(self, shown):
            shows.append(now[0])
            now[0] += 1.0

        end = show

    ticks = count(1)
    with LiveSession("one", model=Says(), rules=Rules(counter=COUNT), clock=lambda: next(ticks),
                     workspace=Workspace(tmp_path)) as live:  # fmt: skip
        with turn_display.LiveTurnDisplay(live, Slow()) as screen:
            for _ in range(100):
                now[0] += 0.01
                live._emit("delta", {"kind": "text", "text": "word "})
            live._emit(
                "model_response", {"model": "m"}
            )  # until then the last word may continue to a key
        assert screen.turn.text.count("word") == 100
    assert len(shows) <= 9


def test_a_long_reply_is_shown_in_time_that_grows_with_it(tmp_path):
    ticks = count(1)
    with LiveSession("one", model=Says(), rules=Rules(counter=COUNT), clock=lambda: next(ticks),
                     workspace=Workspace(tmp_path)) as live:  # fmt: skip
        display = TurnRenderer(live)
        began = time.thread_time()
        for _ in range(60_000):
            display._add_piece("text", "x" * 40)
        assert time.thread_time() - began < 3
        assert display.text == "x" * 2_400_000
        assert "…" in display.plain()


def test_notices_stay_where_a_long_reply_is_cut(tmp_path):
    """What went wrong before a long reply is seen behind it too, and no more than three of it."""
    ticks = count(1)
    with LiveSession("one", model=Says(), rules=Rules(counter=COUNT), clock=lambda: next(ticks),
                     workspace=Workspace(tmp_path)) as live:  # fmt: skip
        display = TurnRenderer(live)
        for n in range(5):
            attempt = {"outcome": "refused", "reason": f"reason {n} <b>"}
            display.on_event(LiveEvent("compaction_end", 1.0, 0, attempt))
        display.on_event(LiveEvent("reply_cut_short", 1.0, 0, {"continues": True}))
        display._add_piece("text", "! compaction of the model's own\n" + "word " * 2_000)
    text, html = display.plain(is_final=True), display.html(is_final=True)
    notices = [n for n in text.splitlines() if n.startswith("! ")]
    assert notices == [
        "! compaction refused: reason 3 <b>; the history is kept as it was",
        "! compaction refused: reason 4 <b>; the history is kept as it was",
        "! the reply was cut by its limit of length; the model is asked to go on where it ended",
    ]
    assert "(the session has the whole turn)" in text
    assert [html.count(f"<b>{escape(n)}</b>") for n in notices] == [1, 1, 1]
    assert html.count("<b>") == 3
    assert len(escape(text.rpartition("\n")[0]).encode()) <= turn_display._MAX_FINAL_BYTES


@pytest.mark.parametrize("is_final", [False, True])
def test_a_warning_about_a_budget_is_black_on_yellow(tmp_path, is_final):
    """F86: While the turn runs and after it; a word of the model that begins so stays as it is."""
    with LiveSession("one", model=Says(), rules=Rules(counter=COUNT), clock=lambda: 1.0,
                     workspace=Workspace(tmp_path)) as live:  # fmt: skip
        display = TurnRenderer(live)
        sums = {"cumulative_input_tokens": 81_000, "warn_at": 80_000, "cutover_at": 120_000}
        display.on_event(LiveEvent("context_budget_warn", 1.0, 0, sums))
        display.on_event(LiveEvent("reply_cut_short", 1.0, 0, {"continues": True}))
        display._add_piece("text", "! context budget: of the model's own")
    html = display.html(is_final=is_final)
    words = "81,000 tokens sent since the last compaction, warned at 80,000, cutover at 120,000"
    (style, line) = re.search(r'<b style="([^"]*)">(.*)</b>', html).groups()
    assert line == f"! context budget: {words}"
    fill, ink = re.fullmatch(r"background:(#\w{6});color:(#\w{6})", style).groups()
    red, green, blue = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
    assert min(red, green) > 2 * blue  # yellow
    assert choose_text_colour(fill) == ink
    assert html.count("<b style") == 1
