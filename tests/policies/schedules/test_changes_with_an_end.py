"""A change with an end gives the message back at that call, in whatever batches the calls come."""

from __future__ import annotations

import pytest
from builders import assistant, user

from ctxkit.policies import History, MessageLog, Schedule
from ctxkit.tokens import ContextBudget, default_counter

LOG = MessageLog.of(
    [m for n in range(6) for m in (user(f"question {n} " + "x" * 400), assistant(f"answer {n}"))],
    default_counter(),
)


class ShortenForThreeCalls:
    """Shortens the first message at the calls 1, 2 and 3."""

    counts = False

    def schedule(self, view, _budget):
        if 1 in view.calls():
            view.change(0, "short", since=1, until=4)


@pytest.mark.parametrize("batches", [[6], [1, 2, 3, 4, 5, 6], [2, 6], [4, 6], [3, 5, 6]])
def test_a_message_is_given_back_at_the_end_of_its_change(batches):
    part = ShortenForThreeCalls()
    schedule = Schedule(History.start(LOG), (part,), ContextBudget(10_000, 0, LOG.counter))
    for stop in batches:
        schedule.extend(stop)
    whole = LOG.messages[0].text
    shown = [schedule.top.state(0, call).message.text for call in range(6)]
    assert shown == [whole, "short", "short", "short", whole, whole]
