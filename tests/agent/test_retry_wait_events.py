"""A model that has to wait says so: an event for listeners, a line in the cell, nothing in the session."""

from __future__ import annotations

from itertools import count

import pytest
from stand_in_models import COUNT, Says, run

from ctxkit.agent import Delta, LiveSession, Workspace
from ctxkit.magics.turn_display import TurnRenderer
from ctxkit.policies import Rules

SECRET = "sk-planted0123456789abcdef"


class Waits(Says):
    """A model whose provider lets it wait once before each reply."""

    async def __call__(self, request, emit):
        emit(
            Delta("wait", f"test/says is over its rate limit ({SECRET}); it is asked again in 2 s")
        )
        return await super().__call__(request, emit)


@pytest.fixture
def live(tmp_path):
    ticks, rules = count(1_800_000_000), Rules(counter=COUNT, window=50_000)
    with LiveSession("one", model=Waits(), rules=rules, clock=lambda: float(next(ticks)), listener=lambda _: None,
                     tools=[], workspace=Workspace(tmp_path)) as s:  # fmt: skip
        yield s


def test_a_wait_is_heard_and_shown_and_no_part_of_the_reply(live):
    heard, shown = [], TurnRenderer(live)
    live.listen(heard.append)
    live.listen(shown.on_event)
    run(live.turn("go"))
    waits = [e.payload for e in heard if e.kind == "model_wait"]
    assert len(waits) == 1
    assert "asked again in 2 s" in waits[0]["why"]
    assert SECRET not in str(waits)
    assert "… test/says is over its rate limit" in shown.text
    assert [m.text for m in live.session.messages] == ["go", "done"]
