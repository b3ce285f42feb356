"""The prompt of a replay is modelled: a report of it never calls its size recorded."""

from __future__ import annotations

from metrics.hand_sessions import make_priced_session

import ctxkit as ck


def test_a_recorded_prompt_is_recorded_and_a_replayed_one_is_not():
    session = make_priced_session()
    for call in range(4):
        assert ck.report(session, call).prompt_source == "recorded"
    replay = ck.replay(session, "none")
    for call in range(4):
        assert ck.report(replay, call).prompt_source != "recorded"
