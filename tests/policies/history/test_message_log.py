"""A log that grows: the calls that it knows by their replies alone."""

from __future__ import annotations

from builders import assistant, user
from random_sessions import Fours

from ctxkit.policies import MessageLog


def test_a_call_known_by_its_reply_alone_was_sent_its_latency_before():
    """Without a latency it was sent when the message before it came."""
    log = MessageLog(Fours())
    log.append(user("Go on.", time=1_000.0))
    log.append(assistant("So.", time=1_100.0, latency=30.0))
    log.append(user("And?", time=1_200.0))
    log.append(assistant("So.", time=1_300.0))
    assert (log.sent, log.end_times) == ([1_070.0, 1_200.0], [1_100.0, 1_300.0])
