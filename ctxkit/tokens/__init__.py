"""Token counters, estimates of real systems, and the context budget of a policy."""

from __future__ import annotations

from ctxkit._internal.lazy import public_dir
from ctxkit._internal.safe_fs import cache_folder
from ctxkit.tokens.counter_protocol import (
    IMAGE_TOKENS,
    ContextBudget,
    IncrementalCounter,
    TokenCounter,
    count_message_tokens,
)
from ctxkit.tokens.counter_registry import counter_names, default_counter, get_counter
from ctxkit.tokens.estimated_counters import (
    AI,
    FASED,
    FUSERAFT,
    FUSERAFT_DENSE,
    PI,
    PULSE_CODER,
    TYRUM,
    EstimatedCounter,
    estimated_counter,
)
from ctxkit.tokens.live_prompt_sizes import estimate_schema_tokens
from ctxkit.tokens.message_sizes import measure_sizes
from ctxkit.tokens.tiktoken_counters import (
    Claude2Counter,
    TiktokenCounter,
    anthropic_counter,
    can_count_exactly,
    encoding_for_model,
    exact_counter,
)

__all__ = [
    "AI",
    "FASED",
    "FUSERAFT",
    "FUSERAFT_DENSE",
    "IMAGE_TOKENS",
    "PI",
    "PULSE_CODER",
    "TYRUM",
    "Claude2Counter",
    "ContextBudget",
    "EstimatedCounter",
    "IncrementalCounter",
    "TiktokenCounter",
    "TokenCounter",
    "anthropic_counter",
    "cache_folder",
    "can_count_exactly",
    "count_message_tokens",
    "counter_names",
    "default_counter",
    "encoding_for_model",
    "estimate_schema_tokens",
    "estimated_counter",
    "exact_counter",
    "get_counter",
    "measure_sizes",
]
__dir__ = public_dir(__all__)
