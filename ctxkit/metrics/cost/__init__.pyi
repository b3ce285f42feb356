# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .spend_report import Spend as Spend
from .spend_report import spend as spend
