# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from . import charts as charts
from . import closed_loop as closed_loop
from . import forecast_and_threshold_holdout as forecast_and_threshold_holdout
from . import idle_cost_accuracy as idle_cost_accuracy
from . import mask_and_visibility_accuracy as mask_and_visibility_accuracy
from . import policy_turn_and_cost_ratios as policy_turn_and_cost_ratios
from . import published_runs_and_tables as published_runs_and_tables
from . import user_rule_survival as user_rule_survival
from .closed_loop import loop as loop
from .closed_loop import run_scripted_agent as run_scripted_agent
from .published_runs_and_tables import table as table
