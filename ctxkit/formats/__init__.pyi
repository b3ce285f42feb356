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
