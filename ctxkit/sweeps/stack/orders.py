"""Which rules opt in, as what they do (a shape) and with which numbers; rules of one shape are run together.

Only exact types are taken, under the settings named here: a rule that the stack could not do to the token is none.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.policies import triggers, window
from ctxkit.policies.structured import PiSummary
from ctxkit.policies.summarisers import Fixed
from ctxkit.policies.summarisers import Share as ShareSummary
from ctxkit.policies.summary import Summary
from ctxkit.presets._langchain_summary import LangChainSummary
from ctxkit.presets.moments import opens_turn
from ctxkit.sweeps.grids import Refused

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules

NO_LIMIT = 2**53
"""Larger than any size."""
Part = tuple[tuple[Any, ...], dict[str, float]]
"""What a part does, and its numbers."""


class Order(NamedTuple):
    """What rules do. Orders of one shape differ in numbers alone."""

    cut: tuple[Any, ...]
    """Where it cuts and what it puts there: see `cuts`."""
    due: tuple[tuple[Any, ...], ...]
    """Triggers of which any will do: see `dues`."""
    counting: tuple[Any, ...]
    """Names of the counter and the estimator, and the life of the cache."""
    numbers: dict[str, float]

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be equal for orders to be run together."""
        return (self.cut, self.due, self.counting, tuple(self.numbers))


def order_of(rules: Rules | Refused) -> Order | None:
    """Return the order of rules, or None where they do not opt in."""
    if isinstance(rules, Refused) or rules.pruning is not None or rules.guards or rules.warnings:
        return None
    if rules.on_compacted is not None:
        return None
    counting = (*(getattr(c, "name", None) for c in (rules.counter, rules.estimator)), rules.cache_life)
    numbers: dict[str, float] = {"window": rules.window or 0, "reserve": rules.reserve}
    if rules.policy is None or not rules.auto:
        return Order(("nothing",), (), counting, numbers)
    cut, due = _cut(rules.policy), _due(rules.trigger)
    if cut is None or due is None:
        return None
    numbers |= cut[1]
    for i, (_, own) in enumerate(due):
        numbers |= {f"{name}{i}": value for name, value in own.items()}
    return Order(cut[0], tuple(kind for kind, _ in due), counting, numbers)


# -- triggers ----------------------------------------------------------------------------------------------------------


def _due(trigger: Any) -> list[Part] | None:
    if type(trigger) is triggers.Either:
        parts = [_due(part) for part in trigger.parts]
        return None if any(p is None for p in parts) else [one for part in parts for one in part or ()]
    if type(trigger) is triggers.Both and len(trigger.parts) == 2 and trigger.parts[1] is opens_turn:
        whole = _due(trigger.parts[0])
        if whole is None or len(whole) != 1 or whole[0][0][0] not in _STAYS_DUE:
            return None
        return [(("opening", *whole[0][0]), whole[0][1])]
    make = _DUE.get(type(trigger))
    one = None if make is None else make(trigger)
    return None if one is None else [one]


def _above(t: triggers.Above) -> Part:
    limit = min(ceil(t.limit) - 1 if t.or_equal else t.limit, NO_LIMIT)
    return ("above", t.estimated), {"limit": limit}


def _share(t: triggers.Share) -> Part:
    return ("share", t.of, t.or_equal, t.estimated), {"share": t.share}


def _count(t: triggers.Count) -> Part | None:
    return None if "system" in t.roles else (("count", t.roles), {"n": t.n})


def _spent(t: triggers.Spent) -> Part | None:
    return None if t.agent is not None or t.limit != int(min(t.limit, NO_LIMIT)) else (("spent",), {"limit": t.limit})


_STAYS_DUE = ("above", "share", "full", "count", "turns", "spent")
"""Triggers that are due at all calls after the first one at which they are, until something is cut."""
_DUE: dict[type, Any] = {
    triggers.Above: _above,
    triggers.Share: _share,
    triggers.Count: _count,
    triggers.Spent: _spent,
    triggers.Turns: lambda t: (("turns",), {"n": t.n}),
    triggers.Always: lambda _: (("always",), {}),
    triggers.Never: lambda _: (("never",), {}),
    triggers.Overflow: lambda t: (("after", "overflow", 0.0) if t.recorded else ("full",), {}),
    triggers.CutShort: lambda _: (("after", "length", 0.0), {}),
    triggers.Recorded: lambda _: (("after", "recorded", 0.0), {}),
    triggers.Idle: lambda t: (("after", "idle", t.seconds), {}),
}


# -- policies ----------------------------------------------------------------------------------------------------------


def _cut(policy: Any) -> Part | None:
    make = _CUT.get(type(policy))
    return None if make is None else make(policy)


def _summary(p: Summary, *, where: tuple[Any, ...] | None = None, keep: dict[str, float] | None = None) -> Part | None:
    """Return where a summary is put and how large it is; only sizes are known here, so no summary of texts."""
    if where is None:
        where, keep = _kept(p)
    numbers = dict(keep or {})
    limit = NO_LIMIT if p.limit is None else p.limit
    made = p.summariser
    if type(made) is Fixed:
        numbers["size"] = min(made.tokens, limit)
        return ("summary", *where, "fixed", False, p.must_shrink), numbers
    if type(made) is not ShareSummary or where[-1] == "quirks":
        return None
    numbers |= {"part": made.share, "cap": made.cap, "floor": made.floor, "limit": limit}
    numbers["split"] = limit if p.split_limit is None else p.split_limit
    return ("summary", *where, "share", p.apart, p.must_shrink), numbers


def _kept(p: Summary) -> tuple[tuple[Any, ...], dict[str, float]]:
    if p.keep_turns is not None:
        return ("turns", False, "back"), {"keep": p.keep_turns}
    how = "on" if p.split_turns else "turn"
    if p.keep_messages is not None:
        return ("messages", False, how), {"keep": p.keep_messages}
    if p.keep_share is not None:
        return ("share", p.estimated, how), {"keep": p.keep_share}
    return ("tokens", p.estimated, how), {"keep": 20_000 if p.keep_tokens is None else p.keep_tokens}


def _pi(p: PiSummary) -> Part | None:
    where, keep = _kept(p)
    if where[0] == "turns":
        return _summary(p)
    return _summary(p, where=(*where[:2], "quirks" if p.quirks else "on"), keep=keep)


def _langchain(p: LangChainSummary) -> Part | None:
    kind, value = p.keep
    if type(p.summariser) is not Fixed:  # the summariser sees the end alone
        return None
    where = ("messages", False, "back") if kind == "messages" else (f"most {kind}", False, "back")
    return _summary(p, where=where, keep={"keep": int(value) if kind != "fraction" else value})


def _window(p: window.Window) -> Part:
    return ("window", p.estimated), {"keep": p.keep_tokens}


_CUT: dict[type, Any] = {
    Summary: _summary,
    PiSummary: _pi,
    LangChainSummary: _langchain,
    window.Window: _window,
    window.WindowShare: lambda p: (("window share",), {"keep": p.keep_share}),
    window.Turns: lambda p: None if p.keep_first else (("window turns",), {"keep": p.keep_turns}),
}
