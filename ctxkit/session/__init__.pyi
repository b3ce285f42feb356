# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .compactions_and_prunings import group_edits as group_edits
from .messages import CORRECTION_KIND as CORRECTION_KIND
from .messages import INJECTED_KIND as INJECTED_KIND
from .messages import MISSING_START_KIND as MISSING_START_KIND
from .messages import OTHER_AGENT_CALL_KIND as OTHER_AGENT_CALL_KIND
from .messages import OTHER_AGENT_KIND as OTHER_AGENT_KIND
from .messages import OTHER_AGENT_KINDS as OTHER_AGENT_KINDS
from .messages import RECALLED_KIND as RECALLED_KIND
from .messages import Attachment as Attachment
from .messages import Edit as Edit
from .messages import Fault as Fault
from .messages import Message as Message
from .messages import Part as Part
from .messages import SizeOnly as SizeOnly
from .messages import Text as Text
from .messages import Thinking as Thinking
from .messages import ToolCall as ToolCall
from .messages import ToolSchema as ToolSchema
from .messages import Usage as Usage
from .messages import get_plain_text as get_plain_text
from .overflow_errors import NOT_OVERFLOW_TEXTS as NOT_OVERFLOW_TEXTS
from .overflow_errors import OVERFLOW_TEXTS as OVERFLOW_TEXTS
from .overflow_errors import is_overflow as is_overflow
from .overflow_errors import is_rate_limit as is_rate_limit
from .overflow_errors import is_silent_overflow as is_silent_overflow
from .overflow_errors import parse_window as parse_window
from .session import ListPrefix as ListPrefix
from .session import Session as Session
from .session import apply_edit as apply_edit
from .session import with_unique_ids as with_unique_ids
from .titles import get_title as get_title
from .titles import make_names_unique as make_names_unique
from .titles import make_unique_titles as make_unique_titles
from .tool_call_paths_and_descriptions import describe_call as describe_call
from .tool_call_paths_and_descriptions import describe_message as describe_message
from .tool_call_paths_and_descriptions import get_call_path as get_call_path
from .tool_call_paths_and_descriptions import get_path_and_command as get_path_and_command
from .tool_call_paths_and_descriptions import map_results_by_call as map_results_by_call
from .tool_call_paths_and_descriptions import pair_with_calls as pair_with_calls

# isort: split
# For other packages and for tests, not in `__all__`:
from .compactions_and_prunings import hides_compactions as hides_compactions
from .tool_call_paths_and_descriptions import is_read_only_tool as is_read_only_tool
from .tool_call_paths_and_descriptions import is_read_tool as is_read_tool
from .tool_call_paths_and_descriptions import is_write_tool as is_write_tool
