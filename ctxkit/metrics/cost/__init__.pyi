# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .session_spend import Spend as Spend
from .spending import spend as spend
