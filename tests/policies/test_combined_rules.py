"""`|` between rules: both policies run one after the other, and settings fill each other's gaps."""

from __future__ import annotations

from builders import assistant, user
from histories import ROOM, shown

from ctxkit.policies import Above, AntiThrash, Rules, apply_policy, triggers


def replace_text(old: str, new: str):
    """Return a policy that replaces a text in the first message by a shorter one."""

    def policy(history, _budget):
        return history.shorten({0: history.messages[0].text.replace(old, new)})

    return policy


TEXT = "A" * 40 + "B" * 40
FIRST, SECOND = replace_text("A" * 40, "B"), replace_text("B" * 41, "C")
"""The second finds something only behind the first."""


def run(policy) -> str:
    history = shown(assistant(TEXT), user("ok"))
    return apply_policy(policy, history, ROOM).messages[0].text


def test_both_policies_run_and_the_first_one_first():
    assert run((Rules(FIRST) | Rules(SECOND)).policy) == "C"
    assert run((Rules(SECOND) | Rules(FIRST)).policy) == "B" * 41
    assert run((Rules(FIRST) | SECOND).policy) == "C"
    assert run((Rules(FIRST) | Rules(window=9)).policy) == "B" * 41
    assert run((Rules(window=9) | Rules(SECOND)).policy) == TEXT


def test_both_prunings_run_and_the_first_one_first():
    both = Rules(pruning=FIRST) | Rules(pruning=SECOND)
    assert run(both.pruning) == "C"
    assert both.policy is None


def test_the_first_rules_setting_counts_where_both_have_one():
    first, second = (
        Rules(window=1000, reserve=5, name="x"),
        Rules(window=2000, auto=False, name="y"),
    )
    both = first | second
    assert (both.window, both.reserve, both.auto, both.name) == (1000, 5, False, "x | y")


def test_either_trigger_is_enough_and_all_guards_hold():
    one, other = Above(10), Above(20)
    assert (Rules(FIRST, one) | Rules(SECOND, other)).trigger == triggers.Either((one, other))
    assert (Rules(FIRST, one) | Rules(pruning=SECOND)).trigger == one
    assert (Rules(pruning=SECOND) | Rules(FIRST, other)).trigger == other
    guards = AntiThrash(window=5), AntiThrash(window=7)
    combined = Rules(FIRST, guards=guards[:1]) | Rules(SECOND, guards=guards[1:])
    assert combined.guards == guards
