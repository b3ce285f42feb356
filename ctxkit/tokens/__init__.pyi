# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from ctxkit._internal.safe_files import get_ctxkit_cache_folder as get_ctxkit_cache_folder

from .exact_counters import Claude2Counter as Claude2Counter
from .exact_counters import TiktokenCounter as TiktokenCounter
from .exact_counters import anthropic_counter as anthropic_counter
from .exact_counters import can_count_exactly as can_count_exactly
from .exact_counters import encoding_for_model as encoding_for_model
from .exact_counters import exact_counter as exact_counter
from .live_prompt_sizes import estimate_schema_tokens as estimate_schema_tokens
from .message_sizes_from_recorded_prompts import measure_sizes as measure_sizes
from .message_token_counting import IMAGE_TOKENS as IMAGE_TOKENS
from .message_token_counting import count_message_tokens as count_message_tokens
from .provider_rules import find_rule as find_rule
from .token_counters import AI as AI
from .token_counters import FASED as FASED
from .token_counters import FUSERAFT as FUSERAFT
from .token_counters import FUSERAFT_DENSE as FUSERAFT_DENSE
from .token_counters import PI as PI
from .token_counters import PULSE_CODER as PULSE_CODER
from .token_counters import TYRUM as TYRUM
from .token_counters import ContextBudget as ContextBudget
from .token_counters import EstimatedCounter as EstimatedCounter
from .token_counters import IncrementalCounter as IncrementalCounter
from .token_counters import TokenCounter as TokenCounter
from .token_counters import counter_names as counter_names
from .token_counters import default_counter as default_counter
from .token_counters import estimated_counter as estimated_counter
from .token_counters import get_counter as get_counter

# isort: split
# For other packages and for tests, not in `__all__`:
from .context_windows import LIKE_WINDOWS_KEY as LIKE_WINDOWS_KEY
from .context_windows import get_context_window as get_context_window
from .context_windows import share_window_evidence as share_window_evidence
from .live_prompt_sizes import find_call_of_current_size as find_call_of_current_size
from .live_prompt_sizes import get_billed_prompt as get_billed_prompt
from .message_sizes_from_recorded_prompts import CountedMessages as CountedMessages
from .message_sizes_from_recorded_prompts import find_prompt_drops as find_prompt_drops
from .message_sizes_from_recorded_prompts import has_mask_processor as has_mask_processor
from .message_sizes_from_recorded_prompts import iter_usage_anchors as iter_usage_anchors
from .message_sizes_from_recorded_prompts import split_by_weight as split_by_weight
from .message_token_counting import encode_arguments as encode_arguments
from .provider_rules import get_comparison_models as get_comparison_models
