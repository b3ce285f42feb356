"""Write `docs/providers.md` from `ctxkit/data/provider_rules.json`.

It is run by `python docs/make_providers.py`; a test compares the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ctxkit.tokens.provider_rules import DatedProviderRule, load_provider_rules

PAGE = Path(__file__).with_name("providers.md")
HEAD = """# Rules of providers

`ctxkit.tokens.provider_rules.get_value(fact, model)` looks up a rule; each table is one fact. If several rows name a
model, the last one holds. A model that no row names has no rule: `describe_cache_rules(model)` says so, and ctxkit uses an
assumption instead.

A rule is *documented* by the provider, reported by a *third party*, *measured* on logs ([trust](trust.md)), or *assumed*.
The kit fetches nothing: a rule is valid as of the day its source was read. If two sources disagree, the note says so. `python docs/make_providers.py` writes this page from `ctxkit/data/provider_rules.json`.
"""
FACTS = {
    "cache_life": ("Lifetime of a cached prefix", "s"),
    "cache_life_1h": ("Lifetime of long-lived writes", "s"),
    "cache_life_max": ("Longest lifetime", "s"),
    "minimum_prefix": ("Shortest prompt that is cached", "tokens"),
    "block_tokens": ("Size of a cache block", "tokens"),
    "caches_reply": ("The reply is cached with its prompt", ""),
    "write_share": ("Price of a written token", "x input"),
    "write_share_1h": ("Price of a long-lived written token", "x input"),
    "automatic_writes": ("Unread tokens are written and billed without a mark", ""),
    "read_share": ("Price of a token read from the cache", "x input"),
    "look_back": ("Look-back of the search for a cached prefix", "blocks or breakpoints"),
    "breakpoints": ("Cache breakpoints of a request", ""),
    "price_tier": ("Prices of long prompts", ""),
    "tokenizer_ratio": ("Tokens of the same text", "x those of Claude before 4.7"),
    "compare_with": ("Models that `spend` compares with", ""),
    "compaction_trigger": ("Default threshold of server-side compaction", "tokens"),
    "compaction_trigger_min": ("Minimum threshold of server-side compaction", "tokens"),
    "compaction_billed_apart": ("The summary's call is not in the top-level usage", ""),
    "clearing_trigger": ("Default threshold of server-side clearing", "tokens"),
    "clearing_keep": ("Tool uses that server-side clearing keeps by default", ""),
    "tool_window": ("Default window that a program gives a model", "tokens"),
    "refuses": ("Requests that are refused with an error", ""),
}


def format_page() -> str:
    """Return the page in Markdown: a table for each fact."""
    rules = load_provider_rules()
    parts = [HEAD]
    for fact, (title, unit) in FACTS.items():
        rows = [rule for rule in rules if rule.fact == fact]
        parts.append(f"\n## {title}\n\n`{fact}`{f', in {unit}' if unit else ''}.\n")
        parts.append("\n| provider | models | value | holds | basis | source, read | note |\n")
        parts.append("| --- | --- | --- | --- | --- | --- | --- |\n")
        parts += [_format_row(rule) for rule in rows]
    return "".join(parts)


def _format_row(rule: DatedProviderRule) -> str:
    since, until = rule.since or "", rule.until or ""
    period = f"{since} to {until}".strip() if since or until else "always"
    is_address = rule.source.startswith("https://")
    label = rule.source.split("/")[2] if is_address else rule.source.removeprefix("docs/")
    target = rule.source if is_address else label
    cells = (
        rule.provider,
        rule.family,
        _format_value(rule.value),
        period.removesuffix(" to"),
        {"documentation": "documented"}.get(rule.basis, rule.basis),
        f"[{label}]({target}), {rule.read}",
        rule.note,
    )
    return f"| {' | '.join(cells)} |\n"


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:,}" for name, number in value.items())
    return f"{value:,}" if isinstance(value, int | float) else f"`{value}`"


if __name__ == "__main__":
    page = format_page()
    if "--check" in sys.argv:
        current = PAGE.read_text(encoding="utf-8") == page
        sys.exit(None if current else "docs/providers.md is not current")
    PAGE.write_text(page, encoding="utf-8")
