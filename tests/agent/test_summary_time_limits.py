"""The time limit of a summary: the rules' own goes before the session's, and holds for a compaction."""

from __future__ import annotations

import asyncio
from threading import Event
from time import sleep
from typing import ClassVar

import pytest
from agent.test_failed_summaries import Asked, compacted
from stand_in_models import COUNT, agent, run, said
from waiting import HANG

from ctxkit.errors import ModelError
from ctxkit.policies import TimeLimitedSummariser
from ctxkit.presets import fased


async def _takes_a_while(*_):
    await asyncio.sleep(0.2)
    return said("Short.")


def test_the_limit_of_the_rules_goes_before_that_of_the_session():
    """D11: timeoutSeconds of Fased is the limit, where it is longer than the usual one too."""
    rules = fased(keep_recent_tokens=100, timeout_seconds=HANG)
    assert compacted(rules, Asked(_takes_a_while), seconds=0.05)[1].get("error") is None
    rules = fased(keep_recent_tokens=100, timeout_seconds=0.05)
    ended = compacted(rules, Asked(_takes_a_while), seconds=HANG)[1]
    assert (ended["outcome"], "longer than 0.05 s" in ended["error"]) == ("failed", True)


def test_a_summary_past_the_limit_is_cancelled_and_not_asked_for_at_each_call():
    events, cancelled = [], []

    async def hangs(*_):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    model = Asked(hangs)
    rules = fased(keep_recent_tokens=100, timeout_seconds=0.1).but(
        counter=COUNT, window=1_500, assumed=True, reserve=200
    )
    one = agent(*[said(f"reply {n}") for n in range(9)], rules=rules, heard=events,
                summary_model=model)  # fmt: skip
    one.model.notice = ""
    for n in range(9):
        run(one.turn(f"question {n} " + "more " * 190))
    failed = [e.payload for e in events if e.kind == "compaction_end"]
    assert all("longer than 0.1 s" in e["error"] for e in failed)
    assert 1 <= model.n == len(failed) == len(cancelled) < 4


def test_the_calls_of_one_compaction_share_the_limit():
    class Notes:
        given: ClassVar[list[float]] = []

        def within(self, _passage, seconds):
            self.given.append(seconds)
            sleep(0.1)
            return "Short."

    limited = TimeLimitedSummariser(Notes(), 30)
    assert [limited(None), limited(None)] == ["Short."] * 2
    first, second = Notes.given
    assert 0 <= second <= first - 0.1 <= 29.9


def test_a_summariser_past_the_limit_is_left_behind():
    over = Event()
    with pytest.raises(ModelError, match=r"longer than 0\.1 s"):
        TimeLimitedSummariser(lambda _passage: over.wait(HANG), 0.1)(None)
    over.set()


def test_an_error_of_the_summariser_is_not_taken_for_the_limit():
    def fails(_passage):
        raise TimeoutError("the host did not answer")

    with pytest.raises(TimeoutError, match="did not answer"):
        TimeLimitedSummariser(fails, 30)(None)
