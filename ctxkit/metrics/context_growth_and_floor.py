"""Growth profile of a session: growth per call, pauses, and the floor of its context."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from math import inf, isinf
from statistics import fmean, median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ctxkit._internal.formatting_and_sanitizing import sanitize_line
from ctxkit.engine.cache_model.call_features import (
    HOUR,
    get_cache_lifetime,
    has_reliable_times,
    measure_pause,
)
from ctxkit.errors import BadArguments
from ctxkit.metrics.cache_misses import CacheMiss, find_cache_misses
from ctxkit.metrics.compaction_outcomes import get_compaction_outcomes
from ctxkit.session.messages import Edit
from ctxkit.session.titles import get_title
from ctxkit.tokens.context_windows import get_context_window
from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes, measure_sizes
from ctxkit.tokens.prices import price

if TYPE_CHECKING:
    from ctxkit.metrics.item_index_and_rule_matching import ItemIndex
    from ctxkit.session.session import ModelCall, Session
    from ctxkit.tokens.prices import Price


DEFAULT_WINDOW = 200_000
"""Tokens of the window where neither the log nor the price table states one."""
DEFAULT_SUMMARY_TOKENS = 1_000
"""Tokens of a summary where the log has none."""


class GrowthProfile:
    """Growth, pauses, prices and compactions of one session, measured once.

    Args:
        session: a recorded session with usage.

    Raises:
        BadArguments: the log has no usage or no price, or its prompts do not grow.

    Example:
        >>> import ctxkit as ck
        >>> profile = GrowthProfile(ck.read(ck.samples.path("billing")))
        >>> round(profile.growth), profile.peak
        (216, 39313)
    """

    def __init__(self, session: Session) -> None:
        if not session.has_usage:
            raise BadArguments(
                "When to compact is worked out from recorded prompt sizes, and this log has no"
                " usage: a report counts its texts."
            )
        self.session = session
        self.billed = [
            c
            for c in session.calls
            if c.message.usage is not None and c.message.usage.prompt_tokens
        ]
        self.message_sizes: MessageSizes = measure_sizes(session)
        self.outcomes = get_compaction_outcomes(session, anchored=self.message_sizes)
        self.pairs = _pair_consecutive_calls(self.billed)
        self.model, self.price = _main_model_price(session, self.billed)
        edits = [e for e in session.path if isinstance(e, Edit) and e.inserted]
        inserted_tokens = [sum(self.message_sizes.of(m) for m in e.inserted) for e in edits]
        self.summary = round(median(inserted_tokens)) if inserted_tokens else DEFAULT_SUMMARY_TOKENS
        """Tokens of a summary."""
        self.hour = get_cache_lifetime(session) == HOUR
        """True where cache writes live an hour."""
        steps = [
            _prompt_tokens(b) - _prompt_tokens(a)
            for a, b in self.pairs
            if not self._has_edit_between(a, b)
        ]
        self.growth = fmean(steps) if steps else 0.0
        """Mean tokens by which a prompt is larger than the one before, compactions left out."""
        if self.growth <= 0:
            raise BadArguments(
                f"The prompts of “{get_title(session, 60)}” do not grow, so nothing has to be"
                " compacted."
            )

    @property
    def peak(self) -> int:
        """Tokens of the largest prompt."""
        return max(map(_prompt_tokens, self.billed))

    def _has_edit_between(self, a: ModelCall, b: ModelCall) -> bool:
        return any(isinstance(e, Edit) for e in self.session.path[a.position : b.position])

    @property
    def window(self) -> tuple[int, str]:
        """The window in tokens, and the source of the figure."""
        window = get_context_window(self.session, self.model)
        if window.tokens is None:
            return max(DEFAULT_WINDOW, *map(_prompt_tokens, self.billed)), "assumed"
        if window.source == "recorded":
            return window.tokens, "recorded"
        return window.tokens, "table of prices" if window.note is None else "what the log proves"

    def estimate_floor_after(self, summary: int) -> tuple[int, str]:
        """Return the tokens that a compaction leaves, and the source of the figure."""
        after = [o.after for o in self.outcomes if o.after < o.before]
        if after:
            return round(median(after)), "as the log's compactions did"
        return min(map(_prompt_tokens, self.billed)) + summary, "its smallest prompt and a summary"

    @property
    def recorded_trigger(self) -> dict[str, int]:
        """The median prompt size, in tokens, before the log's compactions; empty without any."""
        if not self.outcomes:
            return {}
        return {"recorded": round(median(o.before for o in self.outcomes))}

    @cached_property
    def _misses(self) -> tuple[CacheMiss | None, ...] | None:
        """The cache miss of each call; None where the log has no cache split."""
        if not self.session.has_cache:
            return None
        return find_cache_misses(self.session, anchored=self.message_sizes)

    @property
    def miss_share(self) -> float | None:
        """The share of carried tokens that the cache missed, without compactions.

        Without a cache split it is estimated from the pauses that outlive the cache; None without
        times.
        """
        if self._misses is not None:
            later = (self._misses[b.index] for _, b in self.pairs)
            missed = sum(m.missed_tokens for m in later if m is not None and m.kind != "compaction")
            carried = sum(min(_prompt_tokens(a), _prompt_tokens(b)) for a, b in self.pairs)
            return missed / carried  # above 0: the prompts grow
        cold = self._find_cold_calls()
        return None if cold is None else sum(cold) / max(len(cold), 1)

    @property
    def calls_to_cold(self) -> float | None:
        """The mean number of calls until the next cold call; infinite where there is none."""
        cold = self._find_cold_calls()
        if cold is None:
            return None
        distances, distance = [], inf
        for is_cold in reversed(cold):
            distance = 0.0 if is_cold else distance + 1
            distances.append(distance)
        finite = [d for d in distances if not isinf(d)]
        return fmean(finite) if finite else inf

    def _find_cold_calls(self) -> list[bool] | None:
        """Return for each pair whether the later call found the cache expired; None without a
        clock.
        """
        if not has_reliable_times(self.session):
            return None
        if self._misses is not None:
            later = (self._misses[b.index] for _, b in self.pairs)
            return [m is not None and m.paused for m in later]
        life = get_cache_lifetime(self.session)
        gaps = (measure_pause(self.session, *pair) for pair in self.pairs)
        return [gap is not None and gap >= life for gap in gaps]


def _prompt_tokens(call: ModelCall) -> int:
    return (call.message.usage.prompt_tokens or 0) if call.message.usage else 0


def _pair_consecutive_calls(billed: list[ModelCall]) -> list[tuple[ModelCall, ModelCall]]:
    """Return pairs of consecutive calls of one agent and model, ordered by the later call."""
    threads: dict[tuple[str, str | None], list[ModelCall]] = {}
    for call in billed:
        threads.setdefault((call.agent, call.message.model), []).append(call)
    return sorted((p for t in threads.values() for p in pairwise(t)), key=lambda p: p[1].index)


def _main_model_price(session: Session, billed: list[ModelCall]) -> tuple[str, Price]:
    """Return the model with the most prompt tokens, and its price."""
    tokens_by_model: dict[str | None, int] = {}
    for call in billed:
        name = call.message.model or session.model
        tokens_by_model[name] = tokens_by_model.get(name, 0) + _prompt_tokens(call)
    model = max(tokens_by_model, key=lambda name: tokens_by_model[name])
    first = next(c for c in billed if (c.message.model or session.model) == model)
    model_price = price(model, at=first.message.time)
    if model_price is None:
        name = sanitize_line(model or "without a name", 80)
        raise BadArguments(
            f"Model {name!r} has no price, so nothing can be weighed in dollars: a comparison still"
            " shows sizes and losses."
        )
    return model or "", model_price


MAX_TURN_TOKENS = 20_000
"""Upper bound of the tokens of the last turn. Pi retains this much (`keep_recent_tokens`), and
Codex as much of the user's messages.
"""
CHARS_PER_TOKEN = 4
"""Characters per token of an item's text."""


class ContextFloor(NamedTuple):
    """The tokens of a context that no compaction can remove, by kind."""

    fixed: int
    """System prompt and tools, whether or not they are in the log."""
    turn: int
    """The current turn: the median turn, at most `MAX_TURN_TOKENS`."""
    needed: int | None
    """The texts of the items that are used again later: 90th percentile over calls. None where the
    log has no text.
    """

    @property
    def total(self) -> int:
        """All tokens that must stay."""
        return self.fixed + self.turn + (self.needed or 0)

    def __str__(self) -> str:
        needed = "" if self.needed is None else f", {self.needed:,} of items needed later"
        return f"{self.fixed:,} of system and tools, {self.turn:,} of the last turn{needed}"


def estimate_floor(
    session: Session, anchored: MessageSizes, item_index: ItemIndex | None
) -> ContextFloor:
    """Return the tokens that must stay in a session's context.

    Args:
        session: a recorded session with usage.
        anchored: the sizes of its messages.
        item_index: the items of its messages; None: it has no text.

    Returns:
        Tokens by kind: the fixed part of a prompt, the running turn, and what was needed later.
    """
    prompts = [n for n in anchored.recorded if n]
    system = sum(anchored.of(m) for m in session.messages if m.role == "system" and m.visible)
    fixed = min((anchored.fixed or 0) + system, *prompts) if prompts else system
    return ContextFloor(
        fixed,
        min(_median_turn_tokens(session, anchored), MAX_TURN_TOKENS),
        None if item_index is None else _needed_item_tokens(item_index),
    )


def _median_turn_tokens(session: Session, anchored: MessageSizes) -> int:
    turns = [0]
    for message in session.messages:
        if message.visible and message.role != "system":
            turns += [0] if message.role == "user" and turns[-1] else []
            turns[-1] += anchored.of(message)
    return round(median(turns))


def _needed_item_tokens(index: ItemIndex) -> int:
    """Return the tokens of the texts of the items in use: the 90th percentile over calls.

    An item is in use from the arrival of the first message that states it to its last use.
    """
    items, first_row = index.reused_items, np.full(index.items_n, len(index.messages))
    np.minimum.at(first_row, index.row_items.values, index.row_items.owner)
    chars = np.array([len(item.text) for item in index.item_numbers], np.int64)
    steps = np.zeros(index.calls + 2, np.int64)  # a difference array over calls
    np.add.at(steps, index.arrival_call[first_row[items]], chars[items])
    np.add.at(steps, index.last_use[items] + 1, -chars[items])
    in_use = np.cumsum(steps)[: index.calls]
    return int(np.percentile(in_use, 90)) // CHARS_PER_TOKEN if len(in_use) else 0


def get_compaction_floor(
    profile: GrowthProfile, context_floor: ContextFloor, summary: int
) -> tuple[int, str]:
    """Return the tokens that a compaction leaves, at least what must stay, and their source.

    Args:
        profile: the growth profile of a session.
        context_floor: the tokens that must stay.
        summary: tokens of a summary.

    Returns:
        Tokens, and a phrase on where the number comes from.
    """
    floor, source = profile.estimate_floor_after(summary)
    total = context_floor.total
    return (floor, source) if floor >= total else (total, "what must stay")
