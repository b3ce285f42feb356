# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from . import charts as charts
from . import closed_loop as closed_loop
from . import forecast_and_threshold_holdout as forecast_and_threshold_holdout
from . import idle_cost_and_pause_choice_accuracy as idle_cost_and_pause_choice_accuracy
from . import mask_token_errors_and_visibility_exams as mask_token_errors_and_visibility_exams
from . import policy_ratios_and_noise_floors as policy_ratios_and_noise_floors
from . import published_runs_and_tables as published_runs_and_tables
from . import user_rule_survival_and_human_labels as user_rule_survival_and_human_labels
from .closed_loop import loop as loop
from .closed_loop import run_scripted_agent as run_scripted_agent
from .published_runs_and_tables import table as table
