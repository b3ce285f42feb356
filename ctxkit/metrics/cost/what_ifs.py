"""Changes of settings that can be priced without a replay, and their costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import format_change, format_usd, pluralize
from ctxkit.engine.cache_model.call_features import HOUR
from ctxkit.metrics.cost.session_bill import bill_session
from ctxkit.session.messages import Usage
from ctxkit.tokens.prices import price
from ctxkit.tokens.provider_rules import compare_tokenizers, get_comparison_models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.cost.bill_splits import PricedCacheMiss, PromptCostsByMessage
    from ctxkit.metrics.cost.call_and_summary_charges import CallCharge, SessionBill
    from ctxkit.session.session import Session
    from ctxkit.tokens.prices import Price

MIN_USD = 0.005
"""Smallest difference in dollars that gets a sentence."""


class WhatIf(NamedTuple):
    """A change of settings, and the difference in dollars that it would have made."""

    name: str
    usd: float
    """Additional dollars; negative: dollars saved."""
    sentence: str


def estimate_what_ifs(
    session: Session,
    bill: SessionBill,
    prompt_costs: PromptCostsByMessage,
    resent: Sequence[PricedCacheMiss],
) -> list[WhatIf]:
    """Return the changes that can be estimated without a replay, assuming the same calls.

    Args:
        session: a recorded session.
        bill: its bill.
        prompt_costs: dollars of each message in prompts.
        resent: tokens sent again at cache misses, with their cost.

    Returns:
        One change of a setting per item, with its dollars.
    """
    what_ifs = (
        _what_if_hour_cache(session, bill, resent),
        _what_if_other_models(session, bill),
        _what_if_stable_prefix(resent, prompt_costs),
        _what_if_append_only(session),
        _what_if_cheaper_summaries(session, bill),
    )
    return sorted(
        (w for w in what_ifs if w is not None and abs(w.usd) >= MIN_USD), key=lambda w: w.usd
    )


def _what_if_hour_cache(
    session: Session, bill: SessionBill, resent: Sequence[PricedCacheMiss]
) -> WhatIf | None:
    """Estimate a cache that lives an hour: shorter pauses become hits, every write costs more."""
    model_price = _get_session_price(session)
    if model_price is None or model_price.cache_write is None or model_price.cache_write_1h is None:
        return None
    after_pauses = [r for r in resent if r.miss.paused]
    after_short_pauses = [r for r in after_pauses if r.miss.gap is not None and r.miss.gap < HOUR]
    usages = {c.index: c.message.usage for c in session.calls}
    if not after_short_pauses or any(
        u is not None and u.cache_write_1h_tokens for u in usages.values()
    ):
        return None
    saved_usd, missed_by_call = (
        sum(r.usd for r in after_short_pauses),
        {r.miss.call: r.miss.missed_tokens for r in after_short_pauses},
    )
    writes = sum(max(c.write - missed_by_call.get(c.call, 0), 0) for c in bill.charges)
    extra_usd = writes * (model_price.cache_write_1h - model_price.cache_write)
    sentence = (
        f"With a cache that lives an hour, {len(after_short_pauses)} of"
        f" {pluralize(len(after_pauses), 'pause')} would"
        f" have cost {format_usd(saved_usd)} less and all writing {format_usd(extra_usd)} more:"
        f" {_more_or_less(extra_usd - saved_usd)} in all."
    )
    return WhatIf("cache for an hour", extra_usd - saved_usd, sentence)


def _what_if_other_models(session: Session, bill: SessionBill) -> WhatIf | None:
    """Price the same calls at other models' prices, though another model would make other calls.

    The tokens are scaled if the ratio of the tokenizers is known.
    """
    session_model, totals = _first_model(session), []
    for name in get_comparison_models():
        other_price = price(name)
        if other_price is not None and session_model is not None and name not in session_model:
            ratio = compare_tokenizers(session_model, name)
            charges = (c for c in bill.charges if c.usd is not None)
            usd = sum(_price_charge(other_price, c, ratio or 1.0) for c in charges)
            totals.append((usd, name, ratio))
    if not totals or not bill.priced_calls_usd:
        return None
    phrases = [
        f"{format_usd(usd)} at those of {name} ({format_change(usd / bill.priced_calls_usd - 1)}"
        f"{_describe_tokenizer(ratio)})"
        for usd, name, ratio in sorted(totals)
    ]
    unscaled = any(ratio is None for *_, ratio in totals)
    sentence = (
        f"By other models' prices the same calls would have cost {', '.join(phrases)}; another"
        f" model takes other calls{', and counts tokens otherwise' if unscaled else ''}."
    )
    return WhatIf("another model", min(totals)[0] - bill.priced_calls_usd, sentence)


def _describe_tokenizer(ratio: float | None) -> str:
    return f", with {format_change(ratio - 1)} tokens" if ratio is not None and ratio != 1 else ""


def _price_charge(other: Price, c: CallCharge, ratio: float) -> float:
    """Return the dollars of a call at another price, with `ratio` times its tokens."""
    usage = Usage(
        input_tokens=round(c.fresh * ratio),
        cache_read_tokens=round(c.read * ratio),
        cache_write_tokens=round(c.write * ratio),
        output_tokens=round(c.output * ratio),
    )
    return other.cost_usd(usage) or 0.0


def _what_if_stable_prefix(
    resent: Sequence[PricedCacheMiss], prompt_costs: PromptCostsByMessage
) -> WhatIf | None:
    """Estimate the cost with summaries after the stable part of the prompt, which stays cached."""
    after_compactions = [r for r in resent if r.miss.kind == "compaction" and r.miss.missed_tokens]
    saved_usd = sum(
        r.usd
        * min(max(prompt_costs.fixed_tokens - r.miss.read_tokens, 0), r.miss.missed_tokens)
        / r.miss.missed_tokens
        for r in after_compactions
    )
    if not after_compactions:
        return None
    sentence = (
        "Had the system prompt and the tools stayed in the cache at"
        f" {pluralize(len(after_compactions), 'compaction')} (the stable part before the summary),"
        " it would have"
        f" cost {format_usd(saved_usd)} less."
    )
    return WhatIf("stable part first", -saved_usd, sentence)


def _what_if_append_only(session: Session) -> WhatIf | None:
    """Estimate the cost with summaries requested at the end of the cached prompt."""
    if session.origin is not None or not session.edits:
        return None
    billed_usd, reused_usd = (
        bill_session(session).summaries_usd,
        bill_session(session, reuse=True).summaries_usd,
    )
    if billed_usd is None or reused_usd is None:
        return None
    sentence = (
        "Had each summary been asked for at the end of the cached prompt, the summaries would have"
        f" cost {format_usd(reused_usd)} and not {format_usd(billed_usd)}."
    )
    return WhatIf("append-only summaries", reused_usd - billed_usd, sentence)


def _what_if_cheaper_summaries(session: Session, bill: SessionBill) -> WhatIf | None:
    session_price, usd = _get_session_price(session), bill.priced_summaries_usd
    priced = ((n, p) for n in get_comparison_models() if (p := price(n)) is not None)
    cheapest = min(priced, key=lambda item: item[1].input, default=None)
    if (
        session_price is None
        or cheapest is None
        or not usd
        or cheapest[1].input >= session_price.input
    ):
        return None
    name, other_price = cheapest
    difference = usd * (other_price.input / session_price.input - 1)
    sentence = (
        f"Summaries by {name} would have cost about {format_usd(usd + difference)} and not "
        f"{format_usd(usd)}, "
        "by its price of input; what they would have left out is another question."
    )
    return WhatIf("cheaper summaries", difference, sentence)


def _get_session_price(session: Session) -> Price | None:
    """Return the prices of the session's model at the time of its first call."""
    times = (c.message.time for c in session.calls if c.message.time is not None)
    return price(_first_model(session), at=next(times, None))


def _first_model(session: Session) -> str | None:
    return session.model or next((c.message.model for c in session.calls if c.message.model), None)


def _more_or_less(usd: float) -> str:
    return f"{format_usd(-usd)} less" if usd < 0 else f"{format_usd(usd)} more"


def what_if_smaller_window(session: Session, bill: SessionBill, window: int) -> WhatIf:
    """Return the cost of a session in a smaller window, by a replay under Claude Code's rules.

    Args:
        session: a recorded session.
        bill: its bill.
        window: tokens of the smaller context window.
    """
    from ctxkit.engine.replay import replay
    from ctxkit.presets import claude_code

    base = session.origin or session
    replay_bill = bill_session(replay(base, claude_code(context_window=window)))
    usd, actual_usd = replay_bill.priced_usd or 0.0, bill.priced_usd or 0.0
    change = format_change(usd / actual_usd - 1) if actual_usd else "no cost is known"
    sentence = (
        f"In a window of {window:,} tokens, compacted as Claude Code does, it would have cost"
        f" {format_usd(usd)} ({change}), with"
        f" {pluralize(len(replay_bill.summaries), 'paid summary', 'paid summaries')}. A replay: the"
        " same"
        " calls."
    )
    return WhatIf(f"window of {window:,}", usd - actual_usd, sentence)
