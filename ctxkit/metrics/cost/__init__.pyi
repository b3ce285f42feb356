# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .spend_breakdown import Spend as Spend
from .spend_breakdown import spend as spend
