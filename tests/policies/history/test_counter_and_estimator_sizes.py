"""A message that a rule puts in has two sizes: the counter's, and that of the rules' own estimator."""

from __future__ import annotations

import pytest
from builders import assistant, user
from random_sessions import Fours

from ctxkit.errors import UnsoundHistory
from ctxkit.policies import History, MessageLog
from ctxkit.policies.history.edits import replace_sized_messages


class Threes(Fours):
    """An estimator for which every message has three tokens."""

    def message(self, message):
        return 3


def start() -> History:
    log = MessageLog.of(
        [user("x" * 400), user("y" * 400), assistant()], Fours(), estimator=Threes()
    )
    return History.start(log)


def test_a_replaced_message_is_counted_and_estimated_each_by_its_own_measure():
    new = start().replace({0: "z" * 40})
    assert (new.tokens, new.estimated) == (10 + 100, 3 + 3)
    assert new.sizes.tolist() == [10, 100]


class Doubled(Fours):
    """An estimator for which every message has twice its tokens."""

    def message(self, message):
        return 2 * super().message(message)


def test_a_shortened_message_is_estimated_anew():
    log = MessageLog.of(
        [user("x" * 400), user("y" * 400), assistant()], Fours(), estimator=Doubled()
    )
    new = History.start(log).shorten([0], "z" * 40)
    assert (new.sizes.tolist(), new.estimates.tolist()) == ([10, 100], [20, 200])
    assert (new.tokens, new.estimated) == (110, 220)


def test_messages_of_known_sizes_have_them():
    changed = user("z" * 40)
    new = replace_sized_messages(start(), {0: (changed, 17)})
    assert (new.tokens, new.estimated) == (17 + 100, 6)
    only_last = replace_sized_messages(start(), {0: (None, 0)})
    assert [m.text for m in only_last.messages] == ["y" * 400]


def test_what_hides_a_pinned_message_is_refused():
    log = MessageLog.of([user("never!", pinned=True), user("y" * 400), assistant()], Fours())
    history = History.start(log)
    assert len(replace_sized_messages(history, {1: (None, 0)}).messages) == 1
    with pytest.raises(UnsoundHistory, match="must stay"):
        replace_sized_messages(history, {0: (None, 0)})
