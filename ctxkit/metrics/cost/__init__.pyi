# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .spend_by_turn_tool_file import Spend as Spend
from .spend_by_turn_tool_file import spend as spend
