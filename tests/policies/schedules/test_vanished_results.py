"""Pruning by sums over results goes on from the right sums when a result vanishes for good."""

from __future__ import annotations

import pytest
from builders import assistant, result, tool_call, user
from policies.schedules.test_schedules import holds

from ctxkit.policies import CacheTtl, ScheduledPruning


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
