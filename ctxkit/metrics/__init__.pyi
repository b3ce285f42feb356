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

# isort: split
# For other packages and for tests, not in `__all__`:
from .bootstrap_and_paired_tests import average_cost_uncertainty_usd as average_cost_uncertainty_usd
from .bootstrap_and_paired_tests import compare_settings as compare_settings
from .bootstrap_and_paired_tests import find_pareto_front as find_pareto_front
from .bootstrap_and_paired_tests import mcnemar as mcnemar
from .bootstrap_and_paired_tests import summarise_runs as summarise_runs
from .compaction_savings_and_payback import (
    CombinedCompactionBeforeCall as CombinedCompactionBeforeCall,
)
from .compaction_savings_and_payback import get_replay_compactions as get_replay_compactions
from .compaction_savings_and_payback import get_rules_run_compactions as get_rules_run_compactions
from .compaction_savings_and_payback import judge_compactions as judge_compactions
from .compaction_savings_and_payback import summarise_verdicts as summarise_verdicts
from .compaction_sizes_and_detection import measure_compactions as measure_compactions
from .compaction_threshold_for_many_sessions import SharedThreshold as SharedThreshold
from .context_growth_and_floor import MAX_TURN_TOKENS as MAX_TURN_TOKENS
from .context_growth_and_floor import estimate_floor as estimate_floor
from .cost.pause_cost_by_choice import find_pauses as find_pauses
from .cost.replay_cost_model import closure_error as closure_error
from .frames.typed_frame_builder import build_frame as build_frame
from .item_index_and_rule_matching import ItemIndex as ItemIndex
from .item_index_and_rule_matching import RuleParaphraseMatcher as RuleParaphraseMatcher
from .losable_items import ITEM_FAMILIES as ITEM_FAMILIES
from .losable_items import MessageItemCache as MessageItemCache
from .losable_items import expand_path_endings as expand_path_endings
from .losable_items import extract_items_without_thinking as extract_items_without_thinking
from .losable_items import extract_text_items as extract_text_items
from .losable_items import iter_texts_and_argument_strings as iter_texts_and_argument_strings
from .means_and_prediction_intervals import PredictionInterval as PredictionInterval
from .means_and_prediction_intervals import mean_or_none as mean_or_none
from .means_and_prediction_intervals import median_or_none as median_or_none
from .means_and_prediction_intervals import predict_interval as predict_interval
from .means_and_prediction_intervals import sum_if_complete as sum_if_complete
from .message_visibility import get_rules_run_visibility as get_rules_run_visibility
from .message_visibility import get_session_visibility as get_session_visibility
from .prompt_sizes_and_contents import RunPromptSizes as RunPromptSizes
from .prompt_sizes_and_contents import has_prompt_sizes as has_prompt_sizes
from .team_agent_logs_and_turns import get_agent_logs as get_agent_logs
from .team_agent_logs_and_turns import get_team_turns as get_team_turns
from .team_agent_logs_and_turns import tabulate_recorded_turns as tabulate_recorded_turns
from .user_rule_loss_and_breaches import UserRuleTimeline as UserRuleTimeline
from .user_rule_loss_and_breaches import UserRuleTimelines as UserRuleTimelines
from .user_rule_loss_and_breaches import (
    tabulate_compaction_consequences as tabulate_compaction_consequences,
)
from .user_rule_loss_and_breaches import trace_user_rules as trace_user_rules
