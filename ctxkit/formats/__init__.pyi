# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .chat_completions_conversion import MISSING_RESULT as MISSING_RESULT
from .chat_completions_conversion import to_chat_messages as to_chat_messages
from .log_file_content import Source as Source
from .reading import Sessions as Sessions
from .reading import read as read
from .reading import read_all as read_all
from .reading import read_source as read_source
from .registry import Reader as Reader
from .registry import all_readers as all_readers
from .registry import detect_reader as detect_reader
from .registry import format_names as format_names
from .registry import get_reader as get_reader
from .registry import register as register
from .sessions_from_arguments import as_session as as_session
from .sessions_from_arguments import as_sessions as as_sessions
from .snapshots import write_snapshots as write_snapshots
from .writing import WRITE_FORMATS as WRITE_FORMATS

# isort: split
# For other packages and for tests, not in `__all__`:
from .chat_completions_conversion import add_cache_marks as add_cache_marks
from .chat_completions_conversion import parse_chat_usage as parse_chat_usage
from .chat_message_and_usage_parsers import parse_usage as parse_usage
from .native import encode_session_lines as encode_session_lines
from .openai import encode_chat_message as encode_chat_message
from .reading import find_unread_logs as find_unread_logs
from .registry import READER_MODULES as READER_MODULES
from .sessions_from_arguments import accepts_session as accepts_session
from .untrusted_record_parsing import is_failed_exit as is_failed_exit
from .untrusted_record_parsing import parse_exit_code as parse_exit_code
