"""Prices and limits of models: table, look-up by any spelling, update from LiteLLM."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ctxkit._internal.lazy import public_dir
from ctxkit._internal.safe_fs import SafeFolder, cache_folder
from ctxkit.data import DATA_DIR
from ctxkit.errors import BadArguments, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


__all__ = [
    "Price",
    "Tier",
    "context_limit",
    "cost_usd",
    "price",
    "register",
    "table_version",
    "update",
]
__dir__ = public_dir(__all__)


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


class BillableUsage(Protocol):
    """What a price is put to: `session.messages.Usage`, or anything that counts the same
    classes.
    """

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

    def cost_usd(self, usage: BillableUsage) -> float | None:
        """Return the dollars of one call; None where its prompt or its output is not known."""
        if usage.prompt_tokens is None or usage.output_tokens is None:
            return None
        return self.prompt_usd(usage) + self.output_usd(usage)

    def prompt_usd(self, usage: BillableUsage) -> float:
        """Return the dollars of a call's prompt; what is not known counts as nothing."""
        p = self.at(usage.prompt_tokens or 0)
        return (
            (usage.input_tokens or 0) * p.input
            + (usage.cache_read_tokens or 0) * p.read
            + (usage.cache_write_tokens or 0) * p.write()
            + (usage.cache_write_1h_tokens or 0) * p.write(hour=True)
        )

    def output_usd(self, usage: BillableUsage) -> float:
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
    _find_price.cache_clear()


def price(model: str | None) -> Price | None:
    """Return what a model costs, or None where the table does not know it; nothing is guessed from
    similar names.

    Names are matched as they are, then without a maker's prefix (`anthropic/`), a region and
    version of Bedrock, a date, or with a version written with a dot; `[1m]` at the end states a
    window of a million tokens. A Claude that the table has only as another platform sells it is
    taken from there, and `derived` says `platform`.
    """
    return _find_price(model) if isinstance(model, str) and 0 < len(model) <= _LONGEST else None


def cost_usd(usage: BillableUsage | None, model: str | None) -> float | None:
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
def _find_price(model: str) -> Price | None:
    name = model.strip().lower()
    million = name.endswith(MILLION_SUFFIX)
    for entry, rule in candidate_rows(name.removesuffix(MILLION_SUFFIX)):
        found = _registered.get(entry) or _read(entry)
        if found is not None:
            changes: dict[str, Any] = {"derived": (*found.derived, rule)} if rule else {}
            if million:
                changes["context_limit"] = 1_000_000
            return msgspec.structs.replace(found, **changes) if changes else found
    return None


def _read(entry: str) -> Price | None:
    row = price_table_rows().get(entry)
    return None if row is None else _parse_price(entry, msgspec.json.decode(row))


def price_table_rows() -> Mapping[str, msgspec.Raw]:
    """Return the rows of the table in use by lower-case name, each still undecoded."""
    return _table().rows


def update() -> str:
    """Take the table of the installed LiteLLM from now on, in this process and later ones; return
    what that changed.

    Nothing is downloaded: `pip install -U litellm` brings a newer one.

    Raises:
        StoreError: LiteLLM is not installed, or the table cannot be kept.
    """
    was = price_table_rows()
    data = read_litellm_prices(datetime.now(UTC).strftime("%Y-%m-%d"))
    save_user_prices(data)
    clear_price_cache()
    now = price_table_rows()
    new = len(now.keys() - was.keys())
    read = msgspec.json.decode
    other = sum(read(was[k]) != read(now[k]) for k in was.keys() & now.keys())
    return f"Prices of {table_version()}: {len(now):,} models, {new:,} new, {other:,} changed."


@cache
def _table() -> PriceTable:
    """The newer of the table that came with the kit and the user's own; a damaged one is passed
    over.
    """
    own, carried = _read_table(user_price_file()), _read_table(DATA_DIR / "prices.json")
    found = max((t for t in (own, carried) if t is not None), key=lambda t: t.date, default=None)
    return found or PriceTable("no table", "", {})


def _read_table(path: Path) -> PriceTable | None:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=PriceTable)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return msgspec.structs.replace(
        found, rows={name.lower(): row for name, row in found.rows.items()}
    )


def clear_price_cache() -> None:
    """Read the table again when it is next asked for."""
    _table.cache_clear()
    _find_price.cache_clear()


def table_version() -> str:
    """Return the name, version and date of the table in use, for reports."""
    known = _table()
    return f"{known.source} of {known.date}" if known.rows else "no table"


def _parse_price(entry: str, row: dict[str, Any]) -> Price | None:
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
        pictures=_supports_vision(row),
        provider=row.get("litellm_provider"),
        entry=entry,
        source=table_version(),
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


def _supports_vision(row: dict[str, Any]) -> bool | None:
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
"""Prefixes that may be dropped from a name: makers, and platforms that sell at the
maker's price.
"""
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest|default)$")
_BEDROCK = re.compile(r"^(?:[a-z]{2,6}(?:-gov)?\.)?anthropic\.(claude-.+?)(?:-v\d+(?::\d+)?)?$")
_MAKERS = {
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
"""The table lists these families under their makers only."""
MILLION_SUFFIX = "[1m]"
"""What Claude Code adds to a name where the window has a million tokens."""


def candidate_rows(name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the rows under which a model may stand, the surest first, each with the rule to be told
    of or None.
    """
    seen = dict.fromkeys(_spellings(name))
    yield from ((n, None) for n in seen)
    for n in seen:
        yield from ((maker + n, None) for family, maker in _MAKERS.items() if n.startswith(family))
        if n.startswith("claude-"):
            yield f"anthropic.{n}-v1:0", "platform"
            yield f"anthropic.{n}-v2:0", "platform"
            yield "vertex_ai/" + re.sub(r"-(20\d{6})$", r"@\1", n), "platform"


def _spellings(name: str) -> Iterator[str]:
    bare = name
    while True:
        yield bare
        prefix, _, rest = bare.partition("/")
        if not rest or prefix not in _RESELLERS:
            break
        bare = rest
    on_bedrock = _BEDROCK.match(bare)
    if on_bedrock:
        bare = on_bedrock[1]
        yield bare
    if bare.startswith("claude-"):
        bare = bare.replace(".", "-").replace("@", "-")
        yield bare
    undated = _DATE.sub("", bare)
    yield undated


_TABLE = "model_prices_and_context_window_backup.json"
_KEPT_FIELDS = re.compile(
    r"litellm_provider|supports_vision|max_(input|output)_tokens|prompt_cache_min_tokens|"
    r"((input|output)_cost_per_token|cache_read_input_token_cost|"
    r"cache_creation_input_token_cost(_above_1hr)?)(_above_\d+k_tokens)?"
)
"""What is kept of a row; LiteLLM's has seven times as much."""


class PriceTable(msgspec.Struct, frozen=True):
    """Prices and limits by LiteLLM's names of models, each row still undecoded."""

    source: str
    """Which version of LiteLLM they are of."""
    date: str
    """The day on which they were taken from it."""
    rows: dict[str, msgspec.Raw]


def read_litellm_prices(date: str) -> bytes:
    """Return the table of the installed LiteLLM, without running any of it.

    Raises:
        StoreError: it is not installed, or has no such table.
    """
    spec = util.find_spec("litellm")
    path = None if spec is None or spec.origin is None else Path(spec.origin).parent / _TABLE
    if path is None or not path.is_file():
        raise StoreError(
            "LiteLLM is not installed here: pip install 'jupyter-ctxkit[live]' brings it."
        )
    rows = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, Any]])
    kept = {name: row for name, full in sorted(rows.items()) if (row := _trim_row(name, full))}
    table = {"source": f"litellm {metadata.version('litellm')}", "date": date, "rows": kept}
    return msgspec.json.format(msgspec.json.encode(table), indent=0) + b"\n"


def _trim_row(name: str, full: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of a row: nothing where it has no price for both directions."""
    if name == "sample_spec" or None in (
        full.get("input_cost_per_token"),
        full.get("output_cost_per_token"),
    ):
        return {}
    return {k: v for k, v in full.items() if _KEPT_FIELDS.fullmatch(k)}


def user_price_file() -> Path:
    """Return where the user's own table is kept."""
    return cache_folder() / "prices.json"


def save_user_prices(data: bytes) -> None:
    """Write the user's own table, whole or not at all.

    Raises:
        StoreError: it cannot be written.
    """
    path = user_price_file()
    try:
        with SafeFolder.own(path.parent) as folder:
            folder.write(path.name, (data,))
    except OSError as e:
        raise StoreError(f"The prices could not be kept in {path.parent} ({e.strerror}).") from None
