"""Token counters, estimates of real systems, and the context budget of a policy."""

from __future__ import annotations

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit._internal.safe_files import get_ctxkit_cache_folder
from ctxkit.tokens.exact_counters import (
    Claude2Counter,
    TiktokenCounter,
    anthropic_counter,
    can_count_exactly,
    encoding_for_model,
    exact_counter,
)
from ctxkit.tokens.live_prompt_sizes import estimate_schema_tokens
from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes
from ctxkit.tokens.message_token_counting import IMAGE_TOKENS, count_message_tokens
from ctxkit.tokens.provider_rules import find_rule
from ctxkit.tokens.token_counters import (
    AI,
    FASED,
    FUSERAFT,
    FUSERAFT_DENSE,
    PI,
    PULSE_CODER,
    TYRUM,
    ContextBudget,
    EstimatedCounter,
    IncrementalCounter,
    TokenCounter,
    counter_names,
    default_counter,
    estimated_counter,
    get_counter,
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
    "can_count_exactly",
    "count_message_tokens",
    "counter_names",
    "default_counter",
    "encoding_for_model",
    "estimate_schema_tokens",
    "estimated_counter",
    "exact_counter",
    "find_rule",
    "get_counter",
    "get_ctxkit_cache_folder",
    "measure_sizes",
]
__dir__ = make_dunder_dir(__all__)
