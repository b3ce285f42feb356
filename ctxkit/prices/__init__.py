"""What a model costs and how much it takes: a table with its date, which `update` renews."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ctxkit.data import FOLDER
from ctxkit.errors import BadArguments
from ctxkit.faces import listed
from ctxkit.prices.model_rows import MILLION, candidates
from ctxkit.prices.price_updates import Table, keep, kept, of_litellm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["Price", "Tier", "context_limit", "cost_usd", "price", "register", "table", "update"]
__dir__ = listed(__all__)

_LONGEST = 200
"""Characters of a name that is looked up; the longest of the table has fewer than a hundred."""
_CLASSES = {
    "input": "input_cost_per_token",
    "cache_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "output": "output_cost_per_token",
}


_OWN_SERVERS = ("ollama", "ollama_chat", "hosted_vllm", "lm_studio", "llamafile")


class Priceable(Protocol):
    """What a price is put to: `messages.Usage`, or anything that counts the same classes."""

    @property
    def prompt_tokens(self) -> int | None:
        """The whole prompt."""

    @property
    def input_tokens(self) -> int | None:
        """Prompt tokens that no cache held."""

    @property
    def cache_read_tokens(self) -> int | None:
        """Prompt tokens read from a cache."""

    @property
    def cache_write_tokens(self) -> int | None:
        """Prompt tokens written to live five minutes."""

    @property
    def cache_write_1h_tokens(self) -> int | None:
        """Prompt tokens written to live an hour."""

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the reply, reasoning included."""


class Tier(msgspec.Struct, frozen=True):
    """Prices that hold for a whole call whose prompt is longer than `above` tokens; None: as below
    it.
    """

    above: int
    input: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    output: float | None = None


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars a token, by class, and the limits of a model. None: the table does not say."""

    input: float
    """Prompt tokens that no cache held."""
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    """Writes that live five minutes."""
    cache_write_1h: float | None = None
    """Writes that live an hour."""
    tiers: tuple[Tier, ...] = ()
    """Prices of long prompts, by rising length."""
    context_limit: int | None = None
    """Tokens that the prompt may hold."""
    output_limit: int | None = None
    min_cacheable: int | None = None
    """Prompts shorter than this are not cached."""
    pictures: bool | None = None
    """Whether the model takes pictures."""
    provider: str | None = None
    entry: str | None = None
    """The row of the table that was taken."""
    source: str = "registered"
    """Where the prices come from, with the version of the table."""
    derived: tuple[str, ...] = ()
    """Names of the fields that the table does not hold and a stated rule gave."""

    def at(self, prompt_tokens: int) -> Price:
        """Return the prices for a call with a prompt of this many tokens."""
        if not self.tiers:
            return self
        reached = [t for t in self.tiers if prompt_tokens > t.above]
        if not reached:
            return self
        tier = max(reached, key=lambda t: t.above)
        changes = {
            name: getattr(tier, name) for name in _CLASSES if getattr(tier, name) is not None
        }
        return msgspec.structs.replace(self, **changes)

    @property
    def read(self) -> float:
        """What a token costs that the cache holds; as fresh input without a price of its own."""
        return self.input if self.cache_read is None else self.cache_read

    def write(self, *, hour: bool = False) -> float:
        """Return what a token costs that is written, to live an hour or five minutes.

        Without a price of their own hour-long writes are billed as short ones, and those as fresh
        input.
        """
        short = self.input if self.cache_write is None else self.cache_write
        return self.cache_write_1h if hour and self.cache_write_1h is not None else short

    def asked_usd(self, prompt: int, output: int, *, cached: bool = False) -> float:
        """Return the dollars of a call whose prompt is all fresh, or all read from the cache."""
        p = self.at(prompt)
        return prompt * (p.read if cached else p.input) + output * p.output

    def cost_usd(self, usage: Priceable) -> float | None:
        """Return the dollars of one call; None where its prompt or its output is not known."""
        if usage.prompt_tokens is None or usage.output_tokens is None:
            return None
        return self.prompt_usd(usage) + self.output_usd(usage)

    def prompt_usd(self, usage: Priceable) -> float:
        """Return the dollars of a call's prompt; what is not known counts as nothing."""
        p = self.at(usage.prompt_tokens or 0)
        return (
            (usage.input_tokens or 0) * p.input
            + (usage.cache_read_tokens or 0) * p.read
            + (usage.cache_write_tokens or 0) * p.write()
            + (usage.cache_write_1h_tokens or 0) * p.write(hour=True)
        )

    def output_usd(self, usage: Priceable) -> float:
        """Return the dollars of a call's reply; what is not known counts as nothing."""
        return (usage.output_tokens or 0) * self.at(usage.prompt_tokens or 0).output


_registered: dict[str, Price] = {}


def register(name: str, price: Price) -> None:
    """Set the price of a model under a name, before anything that the table says.

    Raises:
        BadArguments: the name is empty, or a price is negative or no number.
    """
    told = [getattr(of, n) for of in (price, *price.tiers) for n in _CLASSES]
    if not name or not all(n is None or 0 <= n < math.inf for n in told):
        raise BadArguments(
            "A price needs the model's name and dollars a token that are not negative."
        )
    _registered[name.lower()] = price
    _find.cache_clear()


def price(model: str | None) -> Price | None:
    """Return what a model costs, or None where the table does not know it; nothing is guessed from
    similar names.

    Names are matched as they are, then without a maker's prefix (`anthropic/`), a region and
    version of Bedrock, a date, or with a version written with a dot; `[1m]` at the end states a
    window of a million tokens. A Claude that the table has only as another platform sells it is
    taken from there, and `derived` says `platform`.
    """
    return _find(model) if isinstance(model, str) and 0 < len(model) <= _LONGEST else None


def cost_usd(usage: Priceable | None, model: str | None) -> float | None:
    """Return the dollars of one call; None where the model has no price or the usage is
    not whole.
    """
    known = price(model)
    return None if known is None or usage is None else known.cost_usd(usage)


def context_limit(model: str | None) -> int | None:
    """Return how many tokens a model's prompt may hold, or None where that is not known."""
    known = price(model)
    return None if known is None else known.context_limit


@lru_cache(maxsize=4096)
def _find(model: str) -> Price | None:
    name = model.strip().lower()
    million = name.endswith(MILLION)
    for entry, rule in candidates(name.removesuffix(MILLION)):
        found = _registered.get(entry) or _read(entry)
        if found is not None:
            changes: dict[str, Any] = {"derived": (*found.derived, rule)} if rule else {}
            if million:
                changes["context_limit"] = 1_000_000
            return msgspec.structs.replace(found, **changes) if changes else found
    return None


def _read(entry: str) -> Price | None:
    row = rows().get(entry)
    return None if row is None else _price(entry, msgspec.json.decode(row))


def rows() -> Mapping[str, msgspec.Raw]:
    """Return the rows of the table in use by lower-case name, each still undecoded."""
    return _table().rows


def update() -> str:
    """Take the table of the installed LiteLLM from now on, in this process and later ones; return
    what that changed.

    Nothing is downloaded: `pip install -U litellm` brings a newer one.

    Raises:
        StoreError: LiteLLM is not installed, or the table cannot be kept.
    """
    was = rows()
    data = of_litellm(datetime.now(UTC).strftime("%Y-%m-%d"))
    keep(data)
    forget()
    now = rows()
    new = len(now.keys() - was.keys())
    read = msgspec.json.decode
    other = sum(read(was[k]) != read(now[k]) for k in was.keys() & now.keys())
    return f"Prices of {table()}: {len(now):,} models, {new:,} new, {other:,} changed."


@cache
def _table() -> Table:
    """The newer of the table that came with the kit and the user's own; a damaged one is passed
    over.
    """
    own, carried = _read_table(kept()), _read_table(FOLDER / "prices.json")
    found = max((t for t in (own, carried) if t is not None), key=lambda t: t.date, default=None)
    return found or Table("no table", "", {})


def _read_table(path: Path) -> Table | None:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Table)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return msgspec.structs.replace(
        found, rows={name.lower(): row for name, row in found.rows.items()}
    )


def forget() -> None:
    """Read the table again when it is next asked for."""
    _table.cache_clear()
    _find.cache_clear()


def table() -> str:
    """Return the name, version and date of the table in use, for reports."""
    known = _table()
    return f"{known.source} of {known.date}" if known.rows else "no table"


def _price(entry: str, row: dict[str, Any]) -> Price | None:
    found = {name: _number(row.get(key)) for name, key in _CLASSES.items()}
    if found["input"] is None or found["output"] is None:
        return None
    derived: tuple[str, ...] = ()
    if found["cache_write_1h"] is None and found["cache_write"] and "claude" in entry:
        found["cache_write_1h"] = (
            2 * found["input"]
        )  # Anthropic bills an hour's write at twice the input
        derived = ("cache_write_1h",)
    limits = {
        "context_limit": _whole(row.get("max_input_tokens")),
        "output_limit": _whole(row.get("max_output_tokens")),
        "min_cacheable": _whole(row.get("prompt_cache_min_tokens")),
    }
    return Price(
        **found,  # type: ignore[arg-type]
        **limits,  # type: ignore[arg-type]
        tiers=tuple(_tiers(row, claude="claude" in entry)),
        pictures=_seeing(row),
        provider=row.get("litellm_provider"),
        entry=entry,
        source=table(),
        derived=derived,
    )


def _tiers(row: dict[str, Any], *, claude: bool) -> Iterator[Tier]:
    lengths = {
        int(m[1])
        for key in row
        if (m := re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key))
    }
    for k in sorted(lengths):
        prices = {
            name: _number(row.get(f"{key}_above_{k}k_tokens")) for name, key in _CLASSES.items()
        }
        if prices["cache_write_1h"] is None and claude and prices["input"]:
            prices["cache_write_1h"] = 2 * prices["input"]
        yield Tier(k * 1000, **prices)


def _seeing(row: dict[str, Any]) -> bool | None:
    """Return whether a model takes pictures; the table says it of all but servers of one's own."""
    told = row.get("supports_vision")
    if isinstance(told, bool):
        return told
    return None if row.get("litellm_provider") in _OWN_SERVERS else False


def _number(value: object) -> float | None:
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
        else None
    )


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number else None
