"""What `mypy --strict` says of rules: plain functions and parts fit, and nothing else does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FITS = """
from collections.abc import Sequence
from ctxkit.policies import Chain, Clear, Fallback, History, Rules, apply_policy, as_rules, guards, triggers
from ctxkit.session import Message
from ctxkit.tokens import ContextBudget

def policy(history: History, room: ContextBudget) -> History: return history
def listed(history: History, room: ContextBudget) -> Sequence[Message]: return history.messages
def due(history: History, room: ContextBudget) -> bool: return True
def alone(history: History) -> History: return history

Rules(policy, due, "clear", guards.Smaller(), warnings=triggers.Above(3))
Rules(Clear() | listed, due | triggers.Above(3), listed, [guards.Smaller(), guards.GraceAfterCompaction(1)])
Fallback((policy, Clear(), Chain.of(listed, policy)), fits=True)
as_rules(Rules(policy=None) | "clear")
def left(rules: Rules, history: History, room: ContextBudget) -> History:
    return history if rules.pruning is None else apply_policy(rules.pruning, history, room)
"""
FAILS = """
Rules(alone)
Rules(due)
Rules(3)
Rules(policy, policy)
Rules(policy, due, alone)
Rules(policy, guards=triggers.Above(3))
Rules(policy, warnings=3)
Chain((policy, alone))
Ladder((due,))
triggers.Above(3) | policy
Clear() | due
applied(alone, History.start, None)
Rules().policy.first
"""


@pytest.mark.long
def test_a_checker_tells_what_fits(tmp_path):
    api = pytest.importorskip("mypy.api")
    file = tmp_path / "written.py"
    file.write_text(FITS + FAILS.lstrip("\n"))
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path)]
    told, errors, _ = api.run([*options, str(file)])
    assert not errors
    known = {int(line) for line in re.findall(r"written\.py:(\d+): error", told)}
    begin = FITS.count("\n") + 1
    assert known == set(range(begin, begin + len(FAILS.split("\n")) - 2)), told
