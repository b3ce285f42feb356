"""Classes of calls: calls of one class share a miss rate.

A class is a base, and where rates differ inside it a refinement after a slash: `turn start/2.1.20`.
Rates of a base are the prior of its refinements (`miss_rates`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING

from ctxkit.engine.cache_model.call_features import HOUR, find_miss_cause
from ctxkit.tokens.provider_rules import DEFAULT_CACHE_LIFE

if TYPE_CHECKING:
    from ctxkit.engine.cache_model.call_features import CallFeatures

COLD_START = "cold_start"
COLD_SUBAGENT = f"{COLD_START} subagent"
UNEXPLAINED_CLASSES = (
    "second call",
    "turn start",
    "inside a turn",
    "long pause",
    "turn start, no clock",
    "inside a turn, no clock",
)
"""Bases of calls without a cause; "no clock": misses by a pause are among them; a long pause is
one that the cache should outlive.
"""
_IDLE_LIMITS = (60.0, 300.0, 1800.0, 3600.0, 14400.0)
"""Seconds between which first calls find a cache about as often."""
_TIERS = ("opus", "sonnet", "haiku", "fable")
_GPT = re.compile(r"gpt-(\d+(?:\.\d+)?)")


@lru_cache(maxsize=1024)
def get_model_family(model: str | None) -> str:
    """Return the models that cache alike: a tier of Claude, a version of GPT, else the first word.

    A model behind a router without a price (`...-free`) is of a family of its own.
    """
    name = (model or "").lower().rsplit("/", 1)[-1]
    if name.endswith("free"):
        return f"{name.split('-')[0]}-free"
    if "claude" in name:
        return next((f"claude-{tier}" for tier in _TIERS if tier in name), "claude")
    version = _GPT.search(name)
    return f"gpt-{version[1]}" if version else name.split("-")[0]


@lru_cache(maxsize=4096)
def classify_call(call: CallFeatures) -> str:
    """Return the class whose miss rate a call shares: its cause, refined where rates differ.

    A first call counts by the life of the cache and the time since the developer's last log. A
    pause counts by its length, as OpenAI's caches have no fixed lifetime; a call without a cause by
    whether a turn starts with it, after a command, and by the program's release.
    """
    base = _find_base(call)
    if base.startswith(COLD_START):
        is_known = base != COLD_SUBAGENT and call.idle is not None
        return f"{base}/{bisect_right(_IDLE_LIMITS, call.idle or 0.0)}" if is_known else base
    words = [call.era] if call.era else ["subagent"] if call.subagent else []
    if call.turn_starts and call.after_command and call.era:
        words.append("command")
    return f"{base}/{' '.join(words)}" if words else base


def _find_base(call: CallFeatures) -> str:
    cause, gap = find_miss_cause(call), call.gap
    if cause == "cold_start":
        life = "60m" if call.life >= HOUR else "5m"
        return COLD_SUBAGENT if call.subagent else f"{COLD_START} {life}"
    if cause == "compaction" and call.expired:
        return f"{cause} later"
    if cause == "ttl_expiry":
        length = gap or 0.0
        return f"{cause} {'10m' if length < 600 else '60m' if length < 3600 else 'later'}"
    if cause != "unexplained":
        return cause
    if gap is not None and gap >= DEFAULT_CACHE_LIFE and call.family != "anthropic":
        return "long pause"
    if call.second and gap is not None:
        return "second call"
    start = "inside a turn" if not call.turn_starts else "turn start"
    return f"{start}, no clock" if gap is None else start


def get_class_base(name: str) -> str:
    """Return a class without its refinement."""
    return name.partition("/")[0]


def has_miss_cause(name: str) -> bool:
    """Return whether the calls of a class have a possible cause of a miss."""
    return get_class_base(name) not in UNEXPLAINED_CLASSES
