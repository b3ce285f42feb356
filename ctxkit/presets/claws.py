"""What OpenClaw and its fork Fased share: a floored reserve, Pi's summary, pruning when cold."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ctxkit.policies.idle import CacheTtl

if TYPE_CHECKING:
    from collections.abc import Mapping

FLOOR = 20_000
"""Least tokens held free."""


def reserve(reserve_tokens: int | None = None, reserve_tokens_floor: int = FLOOR) -> int:
    """Return the tokens held free: as configured (Pi's 16,384), never below the floor (0: none)."""
    return max(16_384 if reserve_tokens is None else reserve_tokens, reserve_tokens_floor)


def capped(held: int, window: int | None) -> int:
    """Return the tokens held free by OpenClaw 2026.9: a quarter of the window at most."""
    return min(held, (window or 200_000) // 4)


def summary(p: Mapping[str, Any], held: int, *, focus: str, seconds: float) -> dict[str, Any]:
    """Return a summary's settings in either mode: Pi's limits, 0.8 and 0.5 of what is held free."""
    return {
        "keep_tokens": p["keep_recent_tokens"],
        "limit": max(int(0.8 * held), 1),
        "split_limit": max(int(0.5 * held), 1),
        "focus": focus,
        "seconds": seconds,
    }


def cold(p: Mapping[str, Any], **more: Any) -> CacheTtl:
    """Return the pruning of results after a pause; its settings are called so, but for three."""
    return CacheTtl(
        **{f.name: p[f.name] for f in fields(CacheTtl) if f.name in p},
        placeholder=p["hard_clear_placeholder"],
        allow=p["tools_allow"] or ("*",),
        deny=p["tools_deny"],
        **more,
    )
