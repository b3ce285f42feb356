# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
# ruff: noqa: I001  functions first, then the modules that hold more of a kind
from .cache_misses import find_cache_misses as find_cache_misses
from .cost.idle_ledger import idle as idle
from .context_report import REPORT_COLUMNS as REPORT_COLUMNS
from .cost.usage_limits import limits as limits
from .frames import FRAME_COLUMNS as FRAME_COLUMNS, arrow as arrow
from .frames.per_message import audience as audience
from .losable_items import LosableItem as LosableItem, extract_items as extract_items
from .loss_tables import drift as drift, losses as losses
from .prompt_composition import count_groups_by_call as count_groups_by_call
from .retention_checks import audits as audits
from .fact_retention import meaning as meaning
from .thrashing import thrash as thrash
from .optimal_trigger import when_to_compact as when_to_compact
from .user_rule_fates import user_rules as user_rules

from . import (
    breakeven as breakeven,
    cache_misses as cache_misses,
    compactions as compactions,
    elongation as elongation,
    fact_retention as fact_retention,
    loss_tables as loss_tables,
    retention_checks as retention_checks,
    thrashing as thrashing,
    optimal_trigger as optimal_trigger,
)
from .cost import session_bill as session_bill
