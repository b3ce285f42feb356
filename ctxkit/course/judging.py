"""Figures of rules on a session of the contest: cost, facts that are kept, loss."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit._internal import formatting
from ctxkit._internal.formatting import sanitize_line
from ctxkit.course.rules_encoding import decode_rules
from ctxkit.course.sample_data import facts_kept, load_sample, score_replay
from ctxkit.errors import BadArguments
from ctxkit.policies.rules import Rules
from ctxkit.presets.registry import resolve_rules

if TYPE_CHECKING:
    from ctxkit.presets.registry import RulesLike
    from ctxkit.session.session import Session

__all__ = ["ALLOWED_LOSS", "ContestEntry", "judge_rules", "score_contest_entry"]

ALLOWED_LOSS = 0.05
"""Share of what is needed later that an entry may take out of sight."""


@dataclass(frozen=True, kw_only=True)
class ContestEntry:
    """One entry: figures of its replay of a session."""

    name: str
    rules: str
    """The label of the rules."""
    by: str = ""
    """The user of a shared folder who entered it."""
    cost_usd: float
    low_usd: float | None
    """Lower end of the interval of `cost_usd`, and `high_usd` the upper one; None: no log of its
    kind taught the cache model, so that there is no interval.
    """
    high_usd: float | None
    real_run_low_usd: float | None
    """Lower end of what real runs of that kind cost, with as many calls as they might take."""
    real_run_high_usd: float | None
    facts_n: int
    kept_n: int
    needed_later_loss: float
    peak_tokens: int
    compactions_n: int
    over_window: bool

    @property
    def why(self) -> str:
        """Why it does not count; empty where it does."""
        parts = []
        if self.kept_n < self.facts_n:
            parts.append(f"keeps {self.kept_n} of {self.facts_n} facts")
        if self.needed_later_loss > ALLOWED_LOSS:
            # one digit: 5.2 % is not 5 %
            parts.append(f"loses {self.needed_later_loss:.1%}")
        if self.over_window:
            parts.append("runs past the window")
        return ", ".join(parts)

    @property
    def rank(self) -> tuple[bool, float]:
        """What entries are sorted by: those that count first, the cheapest on top."""
        return bool(self.why), self.cost_usd


def judge_rules(
    name: str, rules: RulesLike, session: Session | None = None, *, by: str = ""
) -> ContestEntry:
    """Return the figures of rules on a session; None: on the sample `billing`.

    A prompt may be as large as the session's own window, whatever window the rules name.

    Raises:
        BadArguments: they are no rules.
    """
    from ctxkit.engine.replay import replay as replay_session

    resolved = resolve_rules(rules)
    if not isinstance(resolved, Rules):
        raise BadArguments("Give rules: Rules(policy=..., trigger=...), or the name of a preset.")
    record = load_sample() if session is None else session
    replay = replay_session(record, resolved)
    row, facts = score_replay(replay), facts_kept(replay)
    peak = int(row["peak_tokens"])
    return ContestEntry(
        name=sanitize_line(name, 40),
        by=sanitize_line(by, 40),
        rules=sanitize_line(str(row["rules"]), 120),
        cost_usd=float(row["cost_usd"]),
        low_usd=_float_or_none(row["cost_low_usd"]),
        high_usd=_float_or_none(row["cost_high_usd"]),
        real_run_low_usd=_float_or_none(row["real_run_low_usd"]),
        real_run_high_usd=_float_or_none(row["real_run_high_usd"]),
        facts_n=len(facts),
        kept_n=sum(facts.values()),
        needed_later_loss=float(row["needed_later_loss"]),
        peak_tokens=peak,
        compactions_n=int(row["compactions_n"]),
        over_window=peak > (record.context_window or peak),
    )


def score_contest_entry(name: str, data: Any, *, by: str = "") -> ContestEntry:
    """Return the figures of an entry's rules, as a file has them, on the sample `billing`.

    Raises:
        BadArguments: the data holds no rules.
    """
    return _judge_text(name, msgspec.json.encode(data), by)


# figures are never read from a file: the rules are run again, once in each process
@lru_cache(maxsize=1_000)
def _judge_text(name: str, data: bytes, by: str) -> ContestEntry:
    return judge_rules(name, decode_rules(msgspec.json.decode(data)), by=by)


def _float_or_none(value: object) -> float | None:
    return float(str(value)) if formatting.has_value(value) else None
