"""Dated rules of providers: cache, prices as shares of input, tokenizers, what is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, Literal

import msgspec

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.data import DATA_DIR

__all__ = [
    "DatedProviderRule",
    "compare_tokenizers",
    "describe_cache_rules",
    "find_rule",
    "find_rules",
    "get_provider",
    "get_value",
    "load_provider_rules",
]
__dir__ = make_dunder_dir(__all__)

# `data/provider_rules.json` holds one row for each fact, family of models and period. Rows are
# ordered from general to specific: of those that match a model and a day, the last one applies.

OTHER = "other"
"""Provider of models of no known family, and of models behind a free router."""
DEFAULT_CACHE_LIFE = 300.0
"""Seconds that a written prefix lives where a model has no rule, and the default of settings: the
shortest life of the table.
"""
_MAX_NAME_CHARS = 200

Fact = Literal[
    "cache_life",
    "cache_life_1h",
    "cache_life_max",
    "minimum_prefix",
    "block_tokens",
    "caches_reply",
    "write_share",
    "write_share_1h",
    "automatic_writes",
    "read_share",
    "look_back",
    "breakpoints",
    "price_tier",
    "tokenizer_ratio",
    "compare_with",
    "compaction_trigger",
    "compaction_trigger_min",
    "compaction_billed_apart",
    "clearing_trigger",
    "clearing_keep",
    "tool_window",
    "refuses",
]


class DatedProviderRule(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about a family of models, with the period in which it holds and its source."""

    provider: str
    family: str
    """The models, in words."""
    models: str
    """A regular expression that is searched in a model's lower-case name."""
    fact: Fact
    value: Any
    """Seconds, tokens, a share of the price of input, a word or a table, by the fact."""
    since: str | None = None
    """First day, as `2026-06-27`; None: as long as the models exist."""
    until: str | None = None
    """Day on which another rule replaced it; None: it applies today."""
    source: str
    """Address of the page, or the page of this kit that measures it."""
    read: str
    """Day on which the source was read."""
    basis: Literal["documentation", "third party", "measured", "assumed"]
    note: str = ""
    """Conditions, and what another source says."""

    def is_about(self, model: str) -> bool:
        """Return whether the rule is about a model, given by its lower-case name."""
        return re.search(self.models, model) is not None

    def covers(self, day: str) -> bool:
        """Return whether a day is in its period."""
        return (self.since or "") <= day and (self.until is None or day < self.until)


class _RuleFile(msgspec.Struct, frozen=True):
    providers: dict[str, tuple[str, ...]]
    rules: tuple[DatedProviderRule, ...]


@cache
def _read_file() -> _RuleFile:
    return msgspec.json.decode((DATA_DIR / "provider_rules.json").read_bytes(), type=_RuleFile)


def load_provider_rules() -> tuple[DatedProviderRule, ...]:
    """Return all rules in the order of the data file.

    Returns:
        Rules of prompt caches, price ratios, tokenizers and refusals, each with its source and
        period.

    Example:
        >>> {rule.fact for rule in load_provider_rules()} >= {"cache_life"}
        True
    """
    return _read_file().rules


@lru_cache(maxsize=1024)
def get_provider(model: str) -> str:
    """Return the provider in whose cache a model's calls are; `other` where it is unknown.

    Args:
        model: the model's name in any spelling. One that ends in `free` is served by a router.

    Example:
        >>> get_provider("us.anthropic.claude-opus-4-5-20251101-v1:0"), get_provider("llama-4")
        ('anthropic', 'other')
    """
    name = model.lower()
    if name.endswith("free"):
        return OTHER
    providers = _read_file().providers.items()
    return next((p for p, words in providers if any(w in name for w in words)), OTHER)


def find_rules(
    fact: Fact, model: str | None, *, at: float | None = None
) -> list[DatedProviderRule]:
    """Return the rules of one fact that apply to a model, the most specific one last.

    Args:
        fact: name of the fact.
        model: the model's name; None: unknown.
        at: seconds since 1970 at which they hold; None: today's rules.

    Returns:
        Rules in force at that time; the last one decides.
    """
    if not model or len(model) > _MAX_NAME_CHARS:
        return []
    day = None if at is None or not has_periods(fact, model) else _format_day(at // 86_400)
    return list(_find_rules(fact, model, day))


@lru_cache(maxsize=4096)
def _format_day(day: float) -> str | None:
    try:
        return datetime.fromtimestamp(86_400 * day, UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return None


@lru_cache(maxsize=1024)
def _match_rules(fact: Fact, model: str) -> tuple[DatedProviderRule, ...]:
    """Return the rules of a fact for a model, of all periods."""
    provider, name = get_provider(model), model.lower()
    if provider == "anthropic":
        name = re.sub(r"[.@]", "-", name)
    return tuple(
        r
        for r in load_provider_rules()
        if r.fact == fact and r.provider == provider and r.is_about(name)
    )


@lru_cache(maxsize=1024)
def has_periods(fact: Fact, model: str) -> bool:
    """Return whether a rule for a model begins or ends on some day; else the day makes no
    difference.

    Args:
        fact: name of the fact.
        model: the model's name.
    """
    return any(r.since or r.until for r in _match_rules(fact, model))


@lru_cache(maxsize=8192)
def _find_rules(fact: Fact, model: str, day: str | None) -> tuple[DatedProviderRule, ...]:
    rules = _match_rules(fact, model)
    # A day before the first period of a family (a clock that starts at 0) excludes nothing.
    dated = {r.models for r in rules if day is not None and r.covers(day)}
    return tuple(
        r
        for r in rules
        if (r.until is None if day is None or r.models not in dated else r.covers(day))
    )


def find_rule(
    fact: Fact, model: str | None, *, at: float | None = None
) -> DatedProviderRule | None:
    """Return the last of `find_rules`: the rule of a fact for a model. None where no rule is known.

    Args:
        fact: subject of the rule, such as "cache_life".
        model: name of the model; None: unknown.
        at: seconds since 1970 at which the rule holds; None: today's rule.

    Returns:
        The rule: its value, its source, and the models and days for which it holds.

    Example:
        >>> find_rule("cache_life", "gpt-6-sol").value, find_rule("cache_life", "llama-4")
        (1800, None)
    """
    return next(reversed(find_rules(fact, model, at=at)), None)


def get_value(
    fact: Fact, model: str | None, default: Any = None, *, at: float | None = None
) -> Any:
    """Return the value of a fact for a model, else the default. As `find_rule`.

    Args:
        fact: name of the fact.
        model: the model's name; None: unknown.
        default: what is returned where no rule is known.
        at: seconds since 1970; None: today's rules.

    Returns:
        A number, a text or a table, as the fact has it.

    Example:
        >>> get_value("read_share", "claude-fable-5-1"), get_value("read_share", "llama-4", 1.0)
        (0.025, 1.0)
    """
    rule = find_rule(fact, model, at=at)
    return default if rule is None else rule.value


def get_comparison_models() -> list[str]:
    """Return the current models whose prices are compared with a session's own."""
    return [r.value for r in load_provider_rules() if r.fact == "compare_with" and r.until is None]


def compare_tokenizers(model: str | None, other: str | None) -> float | None:
    """Return the tokens of a text for another model over those for a model; None: unknown.

    Args:
        model: the model whose tokens are known.
        other: the model whose tokens are asked for.

    Returns:
        The factor for the tokens of `model`, or None.

    Example:
        >>> compare_tokenizers("claude-sonnet-4-5", "claude-haiku-5-5")
        1.3
        >>> compare_tokenizers("claude-sonnet-4-5", "gpt-6-sol") is None
        True
    """
    ratio, others = get_value("tokenizer_ratio", model), get_value("tokenizer_ratio", other)
    if ratio is None or others is None or get_provider(model or "") != get_provider(other or ""):
        return None
    return float(others / ratio)


def describe_cache_rules(model: str | None) -> str:
    """Describe in a sentence which rules are known for a model.

    Example:
        >>> describe_cache_rules("llama-4")
        "No provider's rule is known for model 'llama-4': lives, blocks and refusals are assumed."
    """
    name, provider = model or "without a name", get_provider(model or "")
    if provider == OTHER:
        return (
            f"No provider's rule is known for model {name!r}: lives, blocks and refusals are"
            " assumed."
        )
    life, least = find_rule("cache_life", model), find_rule("minimum_prefix", model)
    parts = [f"its cache lives {life.value:,.0f} s ({life.basis})"] if life else []
    parts += [f"holds prompts from {least.value:,} tokens on ({least.basis})"] if least else []
    facts = " and ".join(parts) or "nothing about its cache is known"
    return f"Of model {name!r} ({provider}), {facts}."
