# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
# ruff: noqa: I001  functions first, then the modules that hold more of a kind
from .cache_misses import find_cache_misses as find_cache_misses
from .context_growth_and_floor import GrowthProfile as GrowthProfile
from .cost.pause_cost_by_choice import idle as idle
from .cost.replay_cost_model import ReplayCostModel as ReplayCostModel
from .context_window_report import REPORT_COLUMNS as REPORT_COLUMNS
from .cost.dollars_per_subscription_span import limits as limits
from .frames import FRAME_COLUMNS as FRAME_COLUMNS, arrow as arrow
from .frames.per_message import audience as audience
from .losable_items import LosableItem as LosableItem, extract_items as extract_items
from .loss_tables import drift as drift, losses as losses
from .prompt_composition import count_groups_by_call as count_groups_by_call
from .prompt_sizes_and_contents import (
    PromptAndSharedPrefixSizes as PromptAndSharedPrefixSizes,
    get_prompt_sizes as get_prompt_sizes,
)
from .planted_facts_and_compaction_audits import audits as audits
from .fact_retention_by_meaning_and_values import meaning as meaning
from .compaction_outcomes import thrash as thrash
from .optimal_trigger_floor_and_wait import when_to_compact as when_to_compact
from .user_rule_loss_and_breaches import user_rules as user_rules

from . import (
    compaction_formulas as compaction_formulas,
    cache_misses as cache_misses,
    run_elongation_from_studies as run_elongation_from_studies,
    fact_retention_by_meaning_and_values as fact_retention_by_meaning_and_values,
    loss_tables as loss_tables,
    planted_facts_and_compaction_audits as planted_facts_and_compaction_audits,
    compaction_outcomes as compaction_outcomes,
    optimal_trigger_floor_and_wait as optimal_trigger_floor_and_wait,
)
from .cost import session_bill as session_bill
