"""A replay that nothing refers to takes no memory: nothing in its cycles is hidden from the collector."""

from __future__ import annotations

import gc

import pytest
from conftest import sample

import ctxkit as ck
from ctxkit.policies import MessageLog
from ctxkit.presets import names

CYCLES = ("ai_sdk", "codex", "opencode", "tyrum")
"""Presets whose replays were in cycles: of prunings, and of compactions that are built on others."""


def logs_in_memory() -> int:
    gc.collect()
    # by its type: `isinstance` asks an object for its `__class__`, which objects of other tests refuse
    return sum(issubclass(type(each), MessageLog) for each in gc.get_objects())


@pytest.mark.parametrize("rules", dict.fromkeys([*CYCLES, *sample(names(), 2)]))
def test_a_replay_is_freed(rules: str) -> None:
    path = ck.samples.path("billing")
    ck.report(ck.replay(path, rules))
    before = logs_in_memory()
    for _ in range(2):
        ck.report(ck.replay(path, rules))
    assert logs_in_memory() <= before
