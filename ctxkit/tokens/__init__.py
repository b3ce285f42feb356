"""Token counters: exact ones, those of real systems, and the room that a policy has."""

from __future__ import annotations

from ctxkit.caches import cache_folder
from ctxkit.faces import listed
from ctxkit.tokens.counter_names import default, named, names
from ctxkit.tokens.counters import IMAGE_TOKENS, Counter, Room, message_tokens
from ctxkit.tokens.encoders import Anthropic, Exact, anthropic, encoding_for, exact, ready
from ctxkit.tokens.estimates import (
    AI,
    FASED,
    FUSERAFT,
    FUSERAFT_DENSE,
    PI,
    PULSE_CODER,
    TYRUM,
    Estimate,
    estimate,
)
from ctxkit.tokens.growing import Growing

__all__ = [
    "AI",
    "FASED",
    "FUSERAFT",
    "FUSERAFT_DENSE",
    "IMAGE_TOKENS",
    "PI",
    "PULSE_CODER",
    "TYRUM",
    "Anthropic",
    "Counter",
    "Estimate",
    "Exact",
    "Growing",
    "Room",
    "anthropic",
    "cache_folder",
    "default",
    "encoding_for",
    "estimate",
    "exact",
    "message_tokens",
    "named",
    "names",
    "ready",
]
__dir__ = listed(__all__)
