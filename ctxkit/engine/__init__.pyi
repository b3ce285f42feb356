# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .replay import find_context_window as find_context_window
from .replay import run_replay as run_replay
from .rule_runs import Run as Run
from .rule_runs import advance_run as advance_run
from .rule_runs import run_rules as run_rules
from .run_conversion import compute_billing_offset as compute_billing_offset
from .run_conversion import count_sizes_by_last_usage as count_sizes_by_last_usage
from .run_conversion import estimate_call_start as estimate_call_start
from .run_conversion import get_run_of_replay as get_run_of_replay
from .run_conversion import interleave_edits as interleave_edits
from .run_conversion import make_log_from_session as make_log_from_session
from .run_conversion import with_message_ids as with_message_ids
from .run_segments_and_prompts import BlockedCompaction as BlockedCompaction
from .run_segments_and_prompts import Compaction as Compaction
from .run_segments_and_prompts import PolicyRunEvent as PolicyRunEvent
