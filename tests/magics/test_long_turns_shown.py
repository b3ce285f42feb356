"""Showing a turn takes a bounded part of its time, however much it says."""

from __future__ import annotations

import time
from itertools import count

from talkers import COUNT, Says

from ctxkit.agent import LiveSession, Workspace
from ctxkit.magics import turn_display
from ctxkit.magics.turn_display import TurnDisplay
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
        with turn_display.TurnScreen(live, Slow()) as screen:
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
        display = TurnDisplay(live)
        began = time.process_time()
        for _ in range(60_000):
            display._add_piece("text", "x" * 40)
        assert time.process_time() - began < 3
        assert display.text == "x" * 2_400_000
        assert "…" in display.plain()
