"""Frames and prompts from which `score_oracle` and `loss_oracle` work out a score."""

from __future__ import annotations

from functools import cached_property
from itertools import compress
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

import ctxkit as ck

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session import Message, Session

NO_COMPACTIONS = ("unmarked", "failed", "refused", "skipped")
"""Kinds of rows of the compaction frame that are no compactions."""


def to_plain(value: Any) -> Any:
    """Return a cell without its dtype; None: missing."""
    return None if value is None or (not isinstance(value, str) and pd.isna(value)) else value


def sum_complete(values: Iterable[Any]) -> Any:
    """Return the sum; None where a part is missing or there is none."""
    parts = list(map(to_plain, values))
    return None if None in parts or not parts else sum(parts)


def sum_known(values: Iterable[Any]) -> Any:
    """Return the sum of what is known; None where nothing is."""
    return sum_complete(v for v in map(to_plain, values) if v is not None)


def average(values: Iterable[Any], by: Any = fmean) -> float | None:
    """Return the mean, or another average, of what is known."""
    known = [v for v in map(to_plain, values) if v is not None]
    return float(by(known)) if known else None


def divide(part: float, whole: float) -> float | None:
    return part / whole if whole else None


class PageInputs:
    """The frames and prompts of a session, and of the record that it replays."""

    def __init__(self, session: Session) -> None:
        self.session, self.record = session, session.origin or session
        self.is_replay = session.origin is not None
        self.replay = session.details.get("replay", {}) if self.is_replay else {}
        self.calls_n = len(session.calls)
        self.calls = list(ck.frame(session, per="call").itertuples())
        self.recorded_calls = list(ck.frame(self.record, per="call").itertuples())
        self.row = ck.frame(session, per="session").iloc[0]
        self.has_usage = any(to_plain(c.prompt_tokens) for c in self.recorded_calls)
        self.has_reads = any(to_plain(c.cache_read_tokens) is not None for c in self.recorded_calls)
        self.has_sizes = self.has_usage or self.record.has_sizes
        self.misses = ck.misses(self.record)
        self.rows = [m for m in session.messages if m.visible]

    @cached_property
    def sent(self) -> list[tuple[Any, ...]]:
        """The prompt of each call, message by message."""
        return [self.session.sent(n) for n in range(self.calls_n)]

    def size(self, call: int) -> int:
        """Return the tokens of a prompt: as billed, else counted."""
        billed = to_plain(self.calls[call].prompt_tokens)
        return billed or sum(item.tokens for item in self.sent[call])

    def price(self, call: Any, prompt: int) -> Any:
        """Return the price of a call by its model, its date and the size of its prompt."""
        at = None if pd.isna(call.ts) else call.ts.timestamp()
        price = ck.prices.price(to_plain(call.model), at=at)
        return None if price is None else price.at(prompt)

    def compactions(self, count: str | None) -> list[Any]:
        """Return the rows of the compaction frame that are compactions."""
        frame = ck.frame(self.session, per="compaction", count=count)
        return [r for r in frame.itertuples() if r.kind not in NO_COMPACTIONS]


class Prompt(NamedTuple):
    """A prompt: the numbers of the messages that are sent in their own words, and other texts."""

    rows: frozenset[int]
    texts: tuple[Message, ...]
    """Messages that a compaction or a pruning put in."""


class PromptHistory:
    """The prompts of all calls, what changed them, and when each message left."""

    def __init__(self, inputs: PageInputs) -> None:
        self.inputs, session = inputs, inputs.session
        number, calls = {id(m): n for n, m in enumerate(inputs.rows)}, 0
        self.arrivals: dict[int, int] = {}
        """The first call whose prompt can hold each message."""
        for message in session.messages:
            calls += message.role == "assistant"
            if message.visible:
                self.arrivals[number[id(message)]] = calls
        rows = inputs.compactions(None)
        self.compacted = sorted(
            {inputs.calls_n if to_plain(r.call) is None else int(r.call) for r in rows}
        )
        self.prompts = [self.read_sent(items) for items in inputs.sent]
        if inputs.calls_n in self.compacted:
            self.prompts.append(self.read_view(session.view(), number))
        self.changes = [n for n in range(len(self.prompts)) if self.is_change(n)]
        self.left: dict[int, int] = {}
        """The change at which each message left the prompt for the first time."""
        for n in self.changes:
            for row, arrival in self.arrivals.items():
                if arrival <= n and row not in self.prompts[n].rows:
                    self.left.setdefault(row, n)

    def read_sent(self, items: Sequence[Any]) -> Prompt:
        is_own = [i.row >= 0 and i.changed_by is None for i in items]
        own = compress(items, is_own)
        changed = [
            i
            for i, own_words in zip(items, is_own, strict=True)
            if not own_words and i.message.kind != "fixed"
        ]
        return Prompt(frozenset(i.row for i in own), tuple(i.message for i in changed))

    def read_view(self, view: Sequence[Message], number: dict[int, int]) -> Prompt:
        """Return the prompt after a compaction that no call follows."""
        own = frozenset(number[id(m)] for m in view if id(m) in number)
        return Prompt(own, tuple(m for m in view if id(m) not in number))

    def came(self, call: int) -> set[int]:
        """Return the messages that came since the prompt before."""
        return {row for row, arrival in self.arrivals.items() if arrival == call}

    def is_change(self, call: int) -> bool:
        """Return True where a prompt is not the one before it and what came since."""
        before = self.prompts[call - 1] if call else Prompt(frozenset(), ())
        now = self.prompts[call]
        is_more = now.rows == before.rows | self.came(call)
        texts, texts_before = ([m.text for m in p.texts] for p in (now, before))
        return call in self.compacted or not is_more or texts != texts_before
