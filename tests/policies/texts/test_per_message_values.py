"""What is computed of each message of a log is computed once, and holds for every one of them."""

from __future__ import annotations

import numpy as np
from builders import assistant, user
from histories import shown
from random_sessions import Fours

from ctxkit.policies import History, MessageLog
from ctxkit.policies.texts.tool_outcomes_and_files import map_messages

TEXTS = ("first", "second", "third", "fourth", "fifth")


def test_each_message_has_its_value_also_the_first_and_those_that_come_later():
    calls = []

    def read_text(message):
        calls.append(message.text)
        return None if message.text == "third" else message.text

    log = MessageLog(Fours())
    for text in TEXTS:
        log.append(user(text))
        history = History.start(log, log.open(None))
        texts = [m.text for m in history.messages]
        values = map_messages(history, np.arange(len(texts)), read_text)
        assert values == [text for text in texts if text != "third"]
        # The newest two alone: what was computed for the others is not among them.
        newest = map_messages(history, np.arange(max(len(texts) - 2, 0), len(texts)), read_text)
        assert newest == [text for text in texts[-2:] if text != "third"]
    assert sorted(calls) == sorted(TEXTS)


def test_a_changed_message_has_the_value_of_its_change():
    history = shown(user("first"), assistant("a second text"), user("third")).shorten({1: "2nd"})
    values = map_messages(history, np.arange(3), lambda m: m.text)
    assert values == ["first", "2nd", "third"]
