"""At how many tokens sent the budget of some rules warns and hands over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.policies.triggers import Spent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.policies.dues import Due
    from ctxkit.policies.rules import Rules

THRESHOLDS = ("warn_at", "cutover_at")
"""The columns of a turn frame, and the settings of rules, that hold them."""


def thresholds(rules: Rules) -> dict[str, int]:
    """Return `warn_at` and `cutover_at` in tokens; 0: none is set.

    They are the settings of these names, as fuseraft has them, else the first warning and the first
    trigger on tokens spent.
    """
    due = () if rules.trigger is None else (rules.trigger,)
    said = {"warn_at": rules.warnings, "cutover_at": due}
    return {k: int(rules.parameters.get(k) or _spent(by) or 0) for k, by in said.items()}


def _spent(triggers: tuple[Due, ...]) -> int | None:
    return next((int(t.limit) for t in _flat(triggers) if isinstance(t, Spent)), None)


def _flat(triggers: tuple[Due, ...]) -> Iterator[Due]:
    for t in triggers:
        yield t
        yield from _flat(t.parts)
