# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .inputs import as_session as as_session
from .inputs import as_sessions as as_sessions
from .reading import Sessions as Sessions
from .reading import read as read
from .reading import read_all as read_all
from .registry import Reader as Reader
from .registry import detect_reader as detect_reader
from .registry import format_names as format_names
from .registry import register as register
from .source import Source as Source
