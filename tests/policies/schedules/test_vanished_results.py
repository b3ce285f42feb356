"""Pruning by sums over results goes on from the right sums when a result vanishes for good."""

from __future__ import annotations

import pytest
from builders import assistant, result, tool_call, user
from histories import CHARS
from policies.schedules.test_schedules import holds
from random_sessions import Fours

from ctxkit.policies import (
    UNDO_CHANGE,
    CacheTtl,
    CharacterBudget,
    History,
    MessageLog,
    Schedule,
    ScheduledPruning,
)
from ctxkit.tokens import ContextBudget


class HideOldResult(ScheduledPruning):
    """Hide the second result, once four results are there, for good."""

    def schedule(self, view, _budget):
        results = view.memory.setdefault("results", [])
        for new in view.iter_visibility_changes("tool"):
            results += new.arrived
            if len(results) >= 4 and not view.memory.get("done"):
                view.memory["done"] = True
                for p in (results[1], results[1] - 1):
                    view.change(p, None, since=new.call)


def make_talk(sizes):
    """Return a question and a call with a result of each size."""
    out = [user("go")]
    for i, size in enumerate(sizes):
        call = assistant(f"step {i}", tool_call("shell", command=f"{i}"), id=f"a{i}")
        out += [call, result("x" * size, of=call, id=f"r{i}")]
    return [*out, assistant("done")]


@pytest.mark.parametrize("limit", range(400, 4000, 300))
def test_the_oldest_results_are_cleared_by_what_each_of_them_saves(limit):
    rule = CacheTtl(
        ttl_seconds=0, keep_last_assistants=0, soft_trim_ratio=0.0, hard_clear_ratio=0.3,
        soft_trim_max_chars=9000, min_prunable_tool_chars=0,
    )  # fmt: skip
    sizes = (500, 3000, 700, 900, 400, 1500, 600, 2000)
    holds((HideOldResult(), rule), make_talk(sizes), limit)


class HideResultForAWhile(ScheduledPruning):
    """Hide the second result with its call, while three to six results are there."""

    def schedule(self, view, _budget):
        results = view.memory.setdefault("results", [])
        for new in view.iter_visibility_changes("tool"):
            results += new.arrived
            hides = 3 <= len(results) < 7
            if hides != view.memory.get("hides", False):
                view.memory["hides"] = hides
                for p in (results[1], results[1] - 1):
                    view.change(p, None if hides else UNDO_CHANGE, since=new.call)


@pytest.mark.parametrize("limit", range(400, 4000, 300))
def test_a_result_that_comes_back_is_cleared_in_its_place(limit):
    """It stands before results that the sums contain already."""
    rule = CacheTtl(
        ttl_seconds=0, keep_last_assistants=0, soft_trim_ratio=0.0, hard_clear_ratio=0.3,
        soft_trim_max_chars=9000, min_prunable_tool_chars=0,
    )  # fmt: skip
    sizes = (500, 3000, 700, 900, 400, 1500, 600, 2000)
    holds((HideResultForAWhile(), rule), make_talk(sizes), limit)


class HideTwoReplies(ScheduledPruning):
    """Hide the third and the fourth reply with their results, once a fifth is there."""

    def schedule(self, view, _budget):
        results = view.memory.setdefault("results", [])
        for new in view.iter_visibility_changes("tool"):
            results += new.arrived
            if len(results) == 5:
                for p in results[2:4]:
                    view.change(p, None, since=new.call)
                    view.change(p - 1, None, since=new.call)


def test_a_trimmed_result_is_whole_again_when_it_is_among_the_newest():
    """The newest two replies keep their results; two newer ones than the second vanish."""
    rule = CacheTtl(
        ttl_seconds=0, keep_last_assistants=2, soft_trim_ratio=0.0, hard_clear=False,
        soft_trim_max_chars=100, soft_trim_head_chars=30, soft_trim_tail_chars=30,
    )  # fmt: skip
    talk = make_talk([500] * 5)
    log, budget = MessageLog.of(talk, CHARS), ContextBudget(4000, 0, CHARS)
    for pruning, whole in (
        # calls 0 to 5: the n-th call has the results of n replies
        ((rule,), ["", "0", "01", "12", "23", "34"]),
        ((HideTwoReplies(), rule), ["", "0", "01", "12", "23", "14"]),
    ):
        schedule = Schedule(History.start(log), pruning, budget).extend(log.calls)
        prompts = [schedule.prompt_at(n).messages for n in range(log.calls)]
        assert [
            "".join(m.id[1] for m in prompt if m.text == "x" * 500) for prompt in prompts
        ] == whole
    holds((HideTwoReplies(), rule), talk, 4000)


@pytest.mark.parametrize("max_chars", [900, 1300, 1700])
def test_a_vanished_result_has_no_share_of_what_is_left(max_chars):
    """The placeholder has as many tokens as the second result, so that it is not elided."""
    placeholder, second = "e" * 101, 104
    assert Fours()(placeholder) == Fours()("x" * second) == 26
    rule = CharacterBudget(max_chars=max_chars, step=1, min_chars=1, placeholder=placeholder)
    holds((HideOldResult(), rule), make_talk((500, second, 700, 900, 4000, 5000)), 4000)
