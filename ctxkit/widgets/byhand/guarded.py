"""What a replay would have cost if a guard had closed after one of its compactions."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

from ctxkit.engine import run_behind
from ctxkit.policies.guards import Open
from ctxkit.widgets.trials import Trials

if TYPE_CHECKING:
    from ctxkit.policies.policy import Forecast, Past
    from ctxkit.policies.rules import Rules
    from ctxkit.session import Session


class AtMost(Open):
    """So many compactions and no more: what an anti-thrash guard comes to once it has closed."""

    word = "closed"

    def __init__(self, cuts: int) -> None:
        self.cuts = cuts

    def first(self, past: Past, forecast: Forecast, start: int, stop: int) -> int:  # noqa: ARG002
        """Return `stop` once they are spent."""
        return stop if len(past.cuts) >= self.cuts else start


class Guarded:
    """The dollars of a replay, as it is and with a guard that closes; worked out on demand.

    Args:
        session: any session; only a replay that this process made can be replayed on.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._known: dict[int | None, float | None] = {}

    @cached_property
    def rules(self) -> Rules | None:
        """The rules of the replay; None where it is none."""
        done = run_behind(self.session)
        return None if done is None or self.session.origin is None else done.rules

    @property
    def why(self) -> str:
        """Why there are no dollars; empty where there are."""
        if self.rules is not None:
            return ""
        if self.session.origin is not None or self.session.format == "replay":
            return "Dollars need the replay as it was made here: call ck.replay again."
        return (
            "What a guard would have saved in dollars is known of a replay only: "
            "ck.thrash(ck.replay(session, rules))."
        )

    @cached_property
    def _trials(self) -> Trials:
        return Trials(self.session.origin or self.session)

    def usd(self, closes: int | None) -> float | None:
        """Return what the replay costs where no compaction comes after that one; None: all of them.

        Raises:
            BadArguments: the rules cannot work.
        """
        rules = self.rules
        if rules is None:
            return None
        if closes not in self._known:
            guards = rules.guards if closes is None else (*rules.guards, AtMost(closes + 1))
            cost = self._trials.at(rules.but(guards=guards)).row.get("cost_usd")
            self._known[closes] = None if cost is None or math.isnan(cost) else float(cost)
        return self._known[closes]
