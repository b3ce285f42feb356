"""Items of a bill: charges of calls and of summary calls, with their sources, and the sums."""

# Every view that shows dollars or cached tokens of a session, a live one or a replay takes them
# from one `SessionBill` (`session_bill.bill_session`), or from the sums of the same charges
# (`replay_cost_model.bill_replay`), which sweeps use because they need no list of calls.
#
# There are two prices: `usd` is the log's own figure, else that of the price table;
# `list_price_usd` is always that of the table, by which replays are billed. The class dollars of a
# charge add up to `usd`.

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ctxkit.metrics.means_and_prediction_intervals import sum_if_complete
from ctxkit.policies.protocols import MODEL_FREE_METHODS
from ctxkit.tokens.prices import price
from ctxkit.tokens.provider_rules import get_value

if TYPE_CHECKING:
    from ctxkit.session.messages import Message, Usage
    from ctxkit.tokens.prices import DollarsByTokenClass, Price


_WEIGHT_MODEL = "claude"
"""Models whose price ratios split the dollars that a log states for a model without a price."""
_OUTPUT_WEIGHT = 5.0
"""Ratio of the price of an output token to that of fresh input, equal for all these models."""


class CallCharge(msgspec.Struct, frozen=True, gc=False):
    """The tokens of one call by disjoint class, and its dollars; None without a price."""

    call: int
    fresh: int
    read: int
    write: int
    """All tokens written to the cache, including those for an hour."""
    write_1h: int
    output: int
    usd: float | None
    """Dollars stated by the log, else by the price table; the sum of the four dollars below."""
    fresh_usd: float | None = None
    read_usd: float | None = None
    write_usd: float | None = None
    output_usd: float | None = None
    source: str | None = None
    """recorded, derived or estimated."""
    table_input_usd: float | None = None
    """Dollars of the prompt by the price table."""
    table_output_usd: float | None = None
    """Dollars of the reply by the price table."""

    @property
    def prompt(self) -> int:
        """Tokens of the whole prompt."""
        return self.fresh + self.read + self.write

    @property
    def list_price_usd(self) -> float | None:
        """Dollars of the call by the price table."""
        return sum_if_complete((self.table_input_usd, self.table_output_usd))


class SummaryBill(msgspec.Struct, frozen=True, gc=False):
    """The cost of the model calls that wrote one compaction's summaries."""

    compaction: int
    """Number of the compaction in the compaction frame."""
    call: int | None
    """The first call after the compaction; None where none followed."""
    usd: float | None
    source: str | None
    """recorded, derived or estimated; None, like `usd`, without a price."""


class SessionBill(msgspec.Struct, frozen=True, dict=True):
    """The charges of all calls and summaries of a session, without its subagents.

    A sum is None if a part has no price; `priced_usd` sums the parts that have one.
    """

    charges: tuple[CallCharge, ...]
    """One for each call with usage."""
    summaries: tuple[SummaryBill, ...] = ()
    """One for each compaction for which a model was called."""
    logged_usd: float | None = None
    """The log's own total, where it states no dollars of single calls."""
    hides_summaries: bool = False
    """True where the format cannot record compactions, so that their cost is unknown."""

    @cached_property
    def calls_usd(self) -> float | None:
        """Dollars of the calls, each as the log prices it, else by the price table."""
        if not self.charges:
            return self.logged_usd
        return sum_if_complete(c.usd for c in self.charges)

    @property
    def summaries_usd(self) -> float | None:
        """Dollars of the calls that wrote summaries; 0.0 where there were none."""
        if self.hides_summaries and not self.summaries:
            return None
        return sum_if_complete(s.usd for s in self.summaries)

    @property
    def cost_usd(self) -> float | None:
        """Dollars of calls and summaries; only of calls if the format cannot record summaries."""
        if self.hides_summaries and not self.summaries:
            return self.calls_usd
        return sum_if_complete((self.calls_usd, self.summaries_usd))

    @cached_property
    def input_usd(self) -> float | None:
        """Dollars of the prompts by the price table."""
        return sum_if_complete(c.table_input_usd for c in self.charges) if self.charges else None

    @cached_property
    def output_usd(self) -> float | None:
        """Dollars of the replies by the price table."""
        return sum_if_complete(c.table_output_usd for c in self.charges) if self.charges else None

    @property
    def list_price_usd(self) -> float | None:
        """`cost_usd` with all calls by the price table."""
        summaries = 0.0 if self.hides_summaries and not self.summaries else self.summaries_usd
        return sum_if_complete((self.input_usd, self.output_usd, summaries))

    @property
    def priced_usd(self) -> float | None:
        """Dollars of all calls and summaries that have a price; None if none has one."""
        if not self.charges:
            return self.logged_usd
        if all(c.usd is None for c in self.charges):
            return None
        return self.priced_calls_usd + self.priced_summaries_usd

    @property
    def priced_calls_usd(self) -> float:
        """Dollars of the calls that have a price."""
        return sum(c.usd for c in self.charges if c.usd is not None)

    @property
    def priced_summaries_usd(self) -> float:
        """Dollars of the summaries that have a price."""
        return sum(s.usd for s in self.summaries if s.usd is not None)

    @property
    def unpriced_n(self) -> int:
        """Calls with usage and without a price."""
        return sum(c.usd is None for c in self.charges)

    @property
    def unpriced_summaries_n(self) -> int:
        """Compactions whose summaries have no price."""
        return sum(s.usd is None for s in self.summaries)

    @property
    def source(self) -> str | None:
        """Source of `cost_usd`: the weakest of its parts; None where the cost is unknown."""
        if self.cost_usd is None:
            return None
        if not self.charges:
            return "recorded"
        return pick_weakest_source([*(c.source for c in self.charges), *self._summary_sources])

    @property
    def summaries_source(self) -> str | None:
        """Source of `summaries_usd`: the weakest of its parts."""
        return None if self.summaries_usd is None else pick_weakest_source(self._summary_sources)

    @property
    def _summary_sources(self) -> list[str | None]:
        return [s.source for s in self.summaries]

    def sum(self, name: str) -> int:
        """Return the tokens of a class over all calls.

        Args:
            name: prompt, fresh, read, write, write_1h or output.
        """
        return sum(getattr(charge, name) for charge in self.charges)


def make_charge(
    call: int, usage: Usage, model_price: Price | None, usd: float | None, source: str | None
) -> CallCharge:
    """Return the charge of a call.

    Args:
        call: its number.
        usage: its tokens.
        model_price: prices of its model; None: the table has none.
        usd: its dollars, stated by the log, else by the table.
        source: source of these dollars.
    """
    hour = usage.cache_write_1h_tokens or 0
    counts = (
        usage.input_tokens or 0,
        usage.cache_read_tokens or 0,
        (usage.cache_write_tokens or 0) + hour,
        usage.output_tokens or 0,
    )
    fresh, read, write, output = counts
    split = None if model_price is None else model_price.split_usd(usage)
    prompt_usd = None if split is None or usage.prompt_tokens is None else split.prompt
    output_usd = None if split is None or usage.output_tokens is None else split.output
    if usd is None:
        parts: _ClassDollars = (None, None, None, None)
        source = None
    else:
        parts = _split_by_class(usd, counts, split)
    return CallCharge(
        call, fresh, read, write, hour, output, usd, *parts, source, prompt_usd, output_usd
    )


_ClassDollars: TypeAlias = tuple[float | None, float | None, float | None, float | None]


def _split_by_class(
    usd: float, counts: tuple[int, int, int, int], split: DollarsByTokenClass | None
) -> tuple[float, float, float, float]:
    """Split dollars by token class: by the price table, or by weights without a price."""
    if split is None:
        shares = (get_value("read_share", _WEIGHT_MODEL), get_value("write_share", _WEIGHT_MODEL))
        weights = (1.0, *shares, _OUTPUT_WEIGHT)
        fresh, read, write, output = (n * w for n, w in zip(counts, weights, strict=True))
    else:
        fresh, read, output = split.fresh, split.read, split.output
        write = split.write + split.write_1h
    total = fresh + read + write + output
    if not total:  # dollars without tokens
        return (usd, 0.0, 0.0, 0.0)
    return usd * fresh / total, usd * read / total, usd * write / total, usd * output / total


def find_read_price(charge: CallCharge, model_price: Price | None) -> float:
    """Return the dollars at which a call reads a token from the cache, or would have read it.

    A call that reads nothing would have read at its model's price, in proportion to what its prompt
    cost; without a price, by the weights by which its dollars were split.

    Args:
        charge: a priced call.
        model_price: prices of its model at its time; None: the table has none.
    """
    if charge.read:
        return (charge.read_usd or 0.0) / charge.read
    paid = (charge.fresh_usd or 0.0) + (charge.write_usd or 0.0)
    if model_price is None:
        read = get_value("read_share", _WEIGHT_MODEL)
        listed = charge.fresh + charge.write * get_value("write_share", _WEIGHT_MODEL)
    else:
        read, listed = model_price.at(charge.prompt).read, charge.table_input_usd or 0.0
    return float(read * paid / listed) if listed else 0.0


def get_call_price_and_source(
    message: Message, model: str | None
) -> tuple[float | None, str | None]:
    """Return one call's cost and its source.

    Args:
        message: the reply, with its usage.
        model: name of the model, for the price table; None: unknown.

    Returns:
        US dollars, and "recorded" or the source of the price; (None, None) where neither log nor
        table has a price.
    """
    table = price(model)
    return price_call_with(message, None if table is None else table.on(message.time))


def price_call_with(message: Message, prices: Price | None) -> tuple[float | None, str | None]:
    """Return the same as `get_call_price_and_source`, by given prices.

    Args:
        message: the reply, with its usage.
        prices: prices on the day of the call; None: unknown.
    """
    usage = message.usage
    if usage is None:
        return None, None
    if usage.cost_usd is not None:
        return usage.cost_usd, "recorded"
    usd = None if prices is None else prices.cost_usd(usage)
    if usd is None:
        return None, None
    return usd, "estimated" if get_output_source(message) == "estimated" else "derived"


def get_output_source(message: Message) -> str | None:
    """Return the source of a call's output tokens; None where the log has none.

    They are estimated if the log has only the first piece of a stream.
    """
    usage = message.usage
    if usage is None or usage.output_tokens is None:
        return None
    return str(message.details.get("output_source", "recorded"))


def pick_weakest_source(sources: list[str | None]) -> str | None:
    """Return the least certain source (recorded, derived, estimated); None if any is None."""
    if not sources or None in sources:
        return None
    return max(
        (s for s in sources if s is not None), key=("recorded", "derived", "estimated").index
    )


def is_written_by_model(method: str | None) -> bool:
    """Return True if a model writes, or would write, the summaries of a method of rules.

    Without a method the user's own function wrote the summary.
    """
    return method is not None and method not in MODEL_FREE_METHODS
