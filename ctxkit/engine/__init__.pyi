# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .cache_model.call_features import find_miss_cause as find_miss_cause
from .cache_model.call_features import get_call_features as get_call_features
from .cache_model.training_counts import load_training_counts as load_training_counts
from .context_rules_run import RulesRun as RulesRun
from .context_rules_run import advance_run as advance_run
from .context_rules_run import run_rules as run_rules
from .replay import find_context_window as find_context_window
from .replay import run_replay as run_replay
from .run_and_session_conversion import compute_billing_offset as compute_billing_offset
from .run_and_session_conversion import count_sizes_by_last_usage as count_sizes_by_last_usage
from .run_and_session_conversion import estimate_call_start as estimate_call_start
from .run_and_session_conversion import get_run_of_replay as get_run_of_replay
from .run_and_session_conversion import interleave_edits as interleave_edits
from .run_and_session_conversion import make_log_from_session as make_log_from_session
from .run_and_session_conversion import with_message_ids as with_message_ids
from .run_segments_and_prompts import BlockedCompaction as BlockedCompaction
from .run_segments_and_prompts import Compaction as Compaction
from .run_segments_and_prompts import PolicyRunEvent as PolicyRunEvent

# isort: split
# For other packages and for tests, not in `__all__`:
from .cache_model.call_features import get_cache_lifetime as get_cache_lifetime
from .cache_model.call_features import has_reliable_times as has_reliable_times
from .cache_model.call_features import measure_pause as measure_pause
from .cache_model.input_cost_prediction import (
    compute_compaction_read_error as compute_compaction_read_error,
)
from .cache_model.input_cost_prediction import make_input_cost_function as make_input_cost_function
from .cache_model.input_cost_prediction import predict_input_cost as predict_input_cost
from .cache_model.input_cost_prediction import (
    predict_reads_after_compactions as predict_reads_after_compactions,
)
from .cache_model.input_cost_prediction import prepare_prediction as prepare_prediction
from .cache_model.input_cost_prediction import replace_reads as replace_reads
from .cache_model.input_cost_prediction import with_random_reads as with_random_reads
from .cache_model.input_cost_prediction import with_shuffled_reads as with_shuffled_reads
from .cache_model.training_counts import classify_call as classify_call
from .cache_model.training_counts import get_class_base as get_class_base
from .cache_model.training_counts import get_recorded_reads as get_recorded_reads
from .replay import compute_shared_tokens as compute_shared_tokens
from .replay import make_session_from_run as make_session_from_run
from .sent_prompts import SentPrompts as SentPrompts
