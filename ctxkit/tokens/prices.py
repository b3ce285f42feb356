"""Prices and limits of models: price table, look-up by any spelling, update from LiteLLM."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.safe_files import SafeFolder, get_ctxkit_cache_folder
from ctxkit.data import DATA_DIR
from ctxkit.errors import BadArguments, StoreError
from ctxkit.tokens import provider_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


__all__ = [
    "Price",
    "PriceTier",
    "context_limit",
    "cost_usd",
    "price",
    "register",
    "table_version",
    "update",
]
__dir__ = make_dunder_dir(__all__)


_MAX_NAME_CHARS = 200
"""Characters of a name that is looked up; those of the table have fewer than a hundred."""
_LITELLM_KEYS = {
    "input": "input_cost_per_token",
    "cache_read": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
    "output": "output_cost_per_token",
}
"""Fields of a price, with LiteLLM's keys for them."""
_LOCAL_SERVERS = ("ollama", "ollama_chat", "hosted_vllm", "lm_studio", "llamafile")
"""Providers that a user runs; LiteLLM's table does not say what their models can do."""


class BillableUsage(Protocol):
    """The token counts of a call by class, such as `session.messages.Usage`."""

    @property
    def prompt_tokens(self) -> int | None:
        """The whole prompt."""

    @property
    def input_tokens(self) -> int | None:
        """Uncached prompt tokens."""

    @property
    def cache_read_tokens(self) -> int | None:
        """Prompt tokens read from a cache."""

    @property
    def cache_write_tokens(self) -> int | None:
        """Prompt tokens written to a cache for five minutes."""

    @property
    def cache_write_1h_tokens(self) -> int | None:
        """Prompt tokens written to a cache for an hour."""

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the reply, reasoning included."""


class PriceTier(msgspec.Struct, frozen=True):
    """Prices, in dollars per token, of calls with a long prompt; None: as for shorter ones.

    Example:
        >>> from ctxkit.tokens import prices
        >>> tier = prices.PriceTier(above=200_000, input=6e-6)
        >>> price = prices.Price(input=3e-6, output=15e-6, tiers=(tier,))
        >>> price.at(200_000).input, price.at(200_001).input
        (3e-06, 6e-06)
    """

    above: int
    """The prices are those of the whole call where its prompt is longer than so many tokens."""
    input: float | None = None
    """Uncached prompt tokens."""
    cache_read: float | None = None
    """Prompt tokens read from a cache."""
    cache_write: float | None = None
    """Cache writes that live five minutes."""
    cache_write_1h: float | None = None
    """Cache writes that live an hour."""
    output: float | None = None
    """Tokens of the reply, reasoning included."""


class DollarsByTokenClass(msgspec.Struct, frozen=True, gc=False):
    """The dollars of one call by disjoint token class."""

    fresh: float
    read: float
    write: float
    """Of writes that live five minutes."""
    write_1h: float
    output: float

    @property
    def prompt(self) -> float:
        """Dollars of the whole prompt."""
        return self.fresh + self.read + self.write + self.write_1h


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """A model's prices, in dollars per token, and its limits, in tokens; None: unknown.

    Example:
        >>> from ctxkit.tokens import prices
        >>> price = prices.Price(input=3e-6, output=15e-6, cache_read=3e-7)
        >>> round(price.request_usd(100_000, 500, cached=True), 4)
        0.0375
    """

    input: float
    """Uncached prompt tokens."""
    output: float
    """Tokens of the reply, reasoning included."""
    cache_read: float | None = None
    """Prompt tokens read from a cache; None: billed as uncached ones."""
    cache_write: float | None = None
    """Cache writes that live five minutes."""
    cache_write_1h: float | None = None
    """Cache writes that live an hour."""
    tiers: tuple[PriceTier, ...] = ()
    """Prices of long prompts, by rising length."""
    context_limit: int | None = None
    """Maximal tokens of the prompt."""
    output_limit: int | None = None
    """Maximal tokens of the reply."""
    min_cacheable: int | None = None
    """Tokens of the shortest prompt that is cached."""
    writes_unread: bool = False
    """True where whatever a cacheable prompt does not read is written, and billed so, even where a
    log does not count it (GPT-5.6 and later).
    """
    pictures: bool | None = None
    """Whether the model accepts images."""
    provider: str | None = None
    """LiteLLM's name of the provider, such as `anthropic`; None: unknown."""
    entry: str | None = None
    """Name of the row in the table."""
    source: str = "registered"
    """Source of the prices, with the version of the table."""
    derived: tuple[str, ...] = ()
    """Names of the fields that are derived by a rule, as the table has no value."""

    def at(self, prompt_tokens: int) -> Price:
        """Return the prices for a call with a prompt of this many tokens."""
        tier: PriceTier | None = None
        for each in self.tiers:
            if prompt_tokens > each.above and (tier is None or each.above > tier.above):
                tier = each
        if tier is None:
            return self
        prices = {name: getattr(tier, name) for name in _LITELLM_KEYS}
        changes = {name: value for name, value in prices.items() if value is not None}
        return msgspec.structs.replace(self, **changes)

    def on(self, at: float | None) -> Price:
        """Return the prices at a time, in seconds since 1970; None: today's.

        They differ only if `tokens.provider_rules` has another cache-read share for that time.
        """
        if at is None or self.entry is None:
            return self
        if not provider_rules.has_periods("read_share", self.entry):
            return self  # most models: found without the rules of the day
        then = provider_rules.find_rule("read_share", self.entry, at=at)
        if then is None or then.until is None:
            return self
        tiers = tuple(
            msgspec.structs.replace(t, cache_read=None if t.input is None else t.input * then.value)
            for t in self.tiers
        )
        return msgspec.structs.replace(self, cache_read=self.input * then.value, tiers=tiers)

    @property
    def read(self) -> float:
        """Price of a token read from the cache; that of uncached input where it has none."""
        return self.input if self.cache_read is None else self.cache_read

    def write(self, *, hour: bool = False) -> float:
        """Return the price of a token written to the cache.

        Without a price of their own, hour-long writes are billed as short ones, and those as
        uncached input.

        Args:
            hour: whether the write lives an hour, not five minutes.
        """
        short_write = self.input if self.cache_write is None else self.cache_write
        return self.cache_write_1h if hour and self.cache_write_1h is not None else short_write

    def request_usd(self, prompt: int, output: int, *, cached: bool = False) -> float:
        """Return the dollars of a call whose prompt is not cached at all, or all read.

        Args:
            prompt: tokens of the prompt.
            output: tokens of the reply.
            cached: whether the whole prompt is read from the cache.
        """
        prices = self.at(prompt)
        return prompt * (prices.read if cached else prices.input) + output * prices.output

    def cost_usd(self, usage: BillableUsage) -> float | None:
        """Return the dollars of one call; None where its prompt or its output is unknown."""
        if usage.prompt_tokens is None or usage.output_tokens is None:
            return None
        split = self.split_usd(usage)
        return split.prompt + split.output

    def prompt_usd(self, usage: BillableUsage) -> float:
        """Return the dollars of a call's prompt; unknown classes count as 0 tokens."""
        return self.split_usd(usage).prompt

    def split_usd(self, usage: BillableUsage) -> DollarsByTokenClass:
        """Return the dollars of a call by token class; unknown classes count as 0 tokens."""
        prices = self.at(usage.prompt_tokens or 0) if self.tiers else self
        is_written = self.writes_unread and self.has_unlogged_writes(usage)
        short_write, hour_write = usage.cache_write_tokens, usage.cache_write_1h_tokens
        return DollarsByTokenClass(
            (usage.input_tokens or 0) * (prices.write() if is_written else prices.input),
            (usage.cache_read_tokens or 0) * prices.read,
            short_write * prices.write() if short_write else 0.0,
            hour_write * prices.write(hour=True) if hour_write else 0.0,
            (usage.output_tokens or 0) * prices.output,
        )

    def has_unlogged_writes(self, usage: BillableUsage) -> bool:
        """Return whether a call's uncached tokens were written although its log counts none."""
        is_logged = usage.cache_write_tokens or usage.cache_write_1h_tokens
        is_cacheable = (usage.prompt_tokens or 0) >= (self.min_cacheable or 0)
        has_split = usage.cache_read_tokens is not None
        return self.writes_unread and has_split and is_cacheable and not is_logged


_registered: dict[str, Price] = {}


def register(name: str, price: Price) -> None:
    """Register the price of a model; it comes before the price table in this process.

    Args:
        name: the model's name.
        price: its prices.

    Raises:
        BadArguments: the name is empty, or a price is negative or no number.

    Example:
        >>> from ctxkit.tokens import prices
        >>> prices.register("example-model", prices.Price(input=1e-6, output=5e-6))
        >>> prices.price("example-model").output
        5e-06
    """
    values = [getattr(p, name) for p in (price, *price.tiers) for name in _LITELLM_KEYS]
    if not name or not all(v is None or 0 <= v < math.inf for v in values):
        raise BadArguments(
            "A price needs the model's name and dollars a token that are not negative."
        )
    _registered[name.lower()] = price
    _find_price.cache_clear()


def price(model: str | None, *, at: float | None = None) -> Price | None:
    """Look up the prices of a model; None where the table does not have it.

    The name is matched as it is, then without a maker's prefix (`anthropic/`), without Bedrock's
    region and version, without a date, and with dots in a Claude version as hyphens. `[1m]` at the
    end means a window of a million tokens. A Claude model that the table has only for another
    platform gets the prices of that, and `derived` contains `platform`. Similar names never match.

    Args:
        model: the model's name in any of these spellings.
        at: time of the call, in seconds since 1970, whose prices are meant; None: today's.

    Returns:
        Dollars per token by class, limits in tokens, and the source; None: not in the table.

    Example:
        >>> from ctxkit.tokens import prices
        >>> prices.price("claude-sonnet-4-5").input
        3e-06
    """
    if not isinstance(model, str) or not 0 < len(model) <= _MAX_NAME_CHARS:
        return None
    dated_price = _find_price(model)
    return dated_price and dated_price.on(at)


def cost_usd(
    usage: BillableUsage | None, model: str | None, *, at: float | None = None
) -> float | None:
    """Return the dollars of one call; None where the model has no price or usage is missing.

    Args:
        usage: the call's tokens by class.
        model: the model's name.
        at: seconds since 1970 of the call, for prices that have changed since; None: today's.

    Returns:
        Dollars, cache reads and writes at their own prices.

    Example:
        >>> from ctxkit.session import Usage
        >>> from ctxkit.tokens import prices
        >>> usage = Usage(input_tokens=1_000, cache_read_tokens=9_000, output_tokens=200)
        >>> round(prices.cost_usd(usage, "claude-sonnet-4-5"), 4)
        0.0087
    """
    prices = price(model)
    return None if prices is None or usage is None else prices.on(at).cost_usd(usage)


def context_limit(model: str | None) -> int | None:
    """Return the maximal prompt of a model, in tokens; None where it is unknown.

    Args:
        model: the model's name in any spelling, as `price` takes it.

    Returns:
        Tokens, or None.

    Example:
        >>> from ctxkit.tokens import prices
        >>> prices.context_limit("claude-sonnet-4-5"), prices.context_limit("no-such-model")
        (200000, None)
    """
    prices = price(model)
    return None if prices is None else prices.context_limit


@lru_cache(maxsize=4096)
def _find_price(model: str) -> Price | None:
    name = model.strip().lower()
    is_million = name.endswith(MILLION_SUFFIX)
    for entry, rule in iter_candidate_row_names(name.removesuffix(MILLION_SUFFIX)):
        prices = _registered.get(entry) or _read_price(entry)
        if prices is not None:
            changes: dict[str, Any] = {"derived": (*prices.derived, rule)} if rule else {}
            if is_million:
                changes["context_limit"] = 1_000_000
            return msgspec.structs.replace(prices, **changes) if changes else prices
    return None


def _read_price(entry: str) -> Price | None:
    row = price_table_rows().get(entry)
    return None if row is None else _parse_price(entry, msgspec.json.decode(row))


def price_table_rows() -> Mapping[str, msgspec.Raw]:
    """Return the rows of the current table by lower-case name, each undecoded."""
    return _table().rows


def update() -> str:
    """Use the price table of the installed LiteLLM, in this process and later ones.

    Nothing is downloaded; `pip install -U litellm` installs a newer table.

    Returns:
        A sentence with the version of the table and the numbers of new and changed models.

    Raises:
        StoreError: LiteLLM is not installed, or the table cannot be saved.

    Example:
        >>> from ctxkit.tokens import prices
        >>> prices.update()  # doctest: +SKIP
        'Prices of litellm ...: ... models, ... new, ... changed.'
    """
    before = price_table_rows()
    data = read_installed_litellm_prices(datetime.now(UTC).strftime("%Y-%m-%d"))
    save_user_prices(data)
    clear_price_cache()
    after = price_table_rows()
    n_new = len(after.keys() - before.keys())
    decode = msgspec.json.decode
    both = before.keys() & after.keys()
    n_changed = sum(decode(before[name]) != decode(after[name]) for name in both)
    return (
        f"Prices of {table_version()}: {len(after):,} models, {n_new:,} new, {n_changed:,} changed."
    )


@cache
def _table() -> PriceTable:
    """Return the newer of ctxkit's own table and the user's; a damaged file is ignored."""
    tables = (_read_table(user_price_file()), _read_table(DATA_DIR / "prices.json"))
    newest = max((t for t in tables if t is not None), key=lambda t: t.date, default=None)
    return newest or PriceTable("no table", "", {})


def _read_table(path: Path) -> PriceTable | None:
    try:
        table = msgspec.json.decode(path.read_bytes(), type=PriceTable)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return msgspec.structs.replace(table, rows={n.lower(): row for n, row in table.rows.items()})


def clear_price_cache() -> None:
    """Make the next look-up read the table again."""
    _table.cache_clear()
    _find_price.cache_clear()


def table_version() -> str:
    """Return name, version and date of the current table, for reports.

    Example:
        >>> from ctxkit.tokens import prices
        >>> prices.table_version()
        'litellm ... of 20...'
    """
    table = _table()
    return f"{table.source} of {table.date}" if table.rows else "no table"


def _parse_price(entry: str, row: dict[str, Any]) -> Price | None:
    prices = {name: _number(row.get(key)) for name, key in _LITELLM_KEYS.items()}
    if prices["input"] is None or prices["output"] is None:
        return None
    derived: tuple[str, ...] = ()
    hour_share = provider_rules.get_value("write_share_1h", entry)
    if prices["cache_write_1h"] is None and prices["cache_write"] and hour_share:
        prices["cache_write_1h"] = hour_share * prices["input"]
        derived = ("cache_write_1h",)
    limits = {
        "context_limit": _positive_int(row.get("max_input_tokens")),
        "output_limit": _positive_int(row.get("max_output_tokens")),
        "min_cacheable": provider_rules.get_value("minimum_prefix", entry)
        or _positive_int(row.get("prompt_cache_min_tokens")),
    }
    return Price(
        **prices,  # type: ignore[arg-type]
        **limits,  # type: ignore[arg-type]
        tiers=tuple(_parse_tiers(row, hour_share)),
        writes_unread=bool(provider_rules.get_value("automatic_writes", entry)),
        pictures=_supports_vision(row),
        provider=row.get("litellm_provider"),
        entry=entry,
        source=table_version(),
        derived=derived,
    )


def _parse_tiers(row: dict[str, Any], hour_share: float | None) -> Iterator[PriceTier]:
    lengths = {
        int(m[1])
        for key in row
        if (m := re.fullmatch(r"input_cost_per_token_above_(\d+)k_tokens", key))
    }
    for k in sorted(lengths):
        prices = {
            name: _number(row.get(f"{key}_above_{k}k_tokens"))
            for name, key in _LITELLM_KEYS.items()
        }
        if prices["cache_write_1h"] is None and hour_share and prices["input"]:
            prices["cache_write_1h"] = hour_share * prices["input"]
        yield PriceTier(k * 1000, **prices)


def _supports_vision(row: dict[str, Any]) -> bool | None:
    """Return whether a model accepts images; a missing value means no, except for local servers."""
    value = row.get("supports_vision")
    if isinstance(value, bool):
        return value
    return None if row.get("litellm_provider") in _LOCAL_SERVERS else False


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    return None


def _positive_int(value: object) -> int | None:
    number = _number(value)
    return int(number) if number else None


# Look-up of a model's name: an exact match first, then spellings with one part after the other
# removed (provider prefixes, Bedrock's region and version, dates), then the maker's prefix added,
# and for Claude models the names of other platforms. A name is never completed or matched by
# similarity, as models of similar names differ in price.

_MAKER_NAMES = (
    "anthropic",
    "openai",
    "openai-codex",
    "deepseek",
    "google",
    "gemini",
    "xai",
    "x-ai",
    "mistral",
)
_MORE_MAKER_NAMES = ("mistralai", "moonshot", "moonshotai", "moonshot-ai", "zai", "z-ai", "minimax")
_PLATFORMS = (
    "azure",
    "azure_ai",
    "bedrock",
    "amazon-bedrock",
    "vertex_ai",
    "vertex",
    "google-vertex",
    "openrouter",
)
_RESELLERS = frozenset((*_MAKER_NAMES, *_MORE_MAKER_NAMES, *_PLATFORMS, "litellm_proxy"))
"""Prefixes that may be removed from a name: makers, and platforms with the maker's price."""
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest|default)$")
_BEDROCK = re.compile(r"^(?:[a-z]{2,6}(?:-gov)?\.)?anthropic\.(claude-.+?)(?:-v\d+(?::\d+)?)?$")
_MAKER_PREFIXES = {
    "kimi-": "moonshot/",
    "grok-": "xai/",
    "glm-": "zai/",
    "deepseek-": "deepseek/",
    "mistral-": "mistral/",
    "devstral-": "mistral/",
    "codestral-": "mistral/",
    "minimax-": "minimax/",
    "gemini-": "gemini/",
}
"""Model families that the table lists with their maker's prefix only."""
MILLION_SUFFIX = "[1m]"
"""Suffix of Claude Code for models with a window of a million tokens."""


def iter_candidate_row_names(name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the names of rows that may be a model's, the most certain first.

    Each has the rule that is in `Price.derived`, or None.
    """
    spellings = dict.fromkeys(_spellings(name))
    yield from ((n, None) for n in spellings)
    for n in spellings:
        prefixes = (maker for family, maker in _MAKER_PREFIXES.items() if n.startswith(family))
        yield from ((prefix + n, None) for prefix in prefixes)
        if n.startswith("claude-"):
            yield f"anthropic.{n}-v1:0", "platform"
            yield f"anthropic.{n}-v2:0", "platform"
            yield "vertex_ai/" + re.sub(r"-(20\d{6})$", r"@\1", n), "platform"


def _spellings(name: str) -> Iterator[str]:
    """Yield a name, and the name with one prefix or suffix after the other removed."""
    while True:
        yield name
        prefix, _, rest = name.partition("/")
        if not rest or prefix not in _RESELLERS:
            break
        name = rest
    bedrock = _BEDROCK.match(name)
    if bedrock:
        name = bedrock[1]
        yield name
    if name.startswith("claude-"):
        name = name.replace(".", "-").replace("@", "-")
        yield name
    yield _DATE.sub("", name)


_TABLE_FILE = "model_prices_and_context_window_backup.json"
_STORED_KEYS = re.compile(
    r"litellm_provider|supports_vision|max_(input|output)_tokens|prompt_cache_min_tokens|"
    r"((input|output)_cost_per_token|cache_read_input_token_cost|"
    r"cache_creation_input_token_cost(_above_1hr)?)(_above_\d+k_tokens)?"
)
"""Keys of a row that are stored: about a seventh of LiteLLM's table."""


class PriceTable(msgspec.Struct, frozen=True):
    """Prices and limits by LiteLLM's names of models, each row undecoded."""

    source: str
    """LiteLLM with its version."""
    date: str
    """Day on which the table was read from it, as `2026-03-09`."""
    rows: dict[str, msgspec.Raw]


def read_installed_litellm_prices(stored_date: str) -> bytes:
    """Return the table of the installed LiteLLM as JSON; LiteLLM is not imported.

    Args:
        stored_date: the day to be stored with it.

    Raises:
        StoreError: it is not installed, or has no such table.
    """
    from importlib import metadata, util  # 10 ms, which most commands do not need

    spec = util.find_spec("litellm")
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / _TABLE_FILE
    if path is None or not path.is_file():
        raise StoreError(
            "LiteLLM is not installed here: pip install 'jupyter-ctxkit[live]' brings it."
        )
    rows = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Any]])
    trimmed = {name: row for name, full in sorted(rows.items()) if (row := _trim_row(name, full))}
    table = {
        "source": f"litellm {metadata.version('litellm')}",
        "date": stored_date,
        "rows": trimmed,
    }
    return msgspec.json.format(msgspec.json.encode(table), indent=0) + b"\n"


def _trim_row(name: str, full: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored keys of a row; empty where input or output has no price."""
    if name == "sample_spec" or None in (
        full.get("input_cost_per_token"),
        full.get("output_cost_per_token"),
    ):
        return {}
    return {k: v for k, v in full.items() if _STORED_KEYS.fullmatch(k)}


def user_price_file() -> Path:
    """Return the path of the user's own table."""
    return get_ctxkit_cache_folder() / "prices.json"


def save_user_prices(data: bytes) -> None:
    """Write the user's own table atomically.

    Raises:
        StoreError: it cannot be written.
    """
    path = user_price_file()
    try:
        with SafeFolder.open_or_create(path.parent) as folder:
            folder.write(path.name, (data,))
    except OSError as e:
        raise StoreError(f"The prices could not be kept in {path.parent} ({e.strerror}).") from None
