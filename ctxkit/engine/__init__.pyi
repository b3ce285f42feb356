# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
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
