# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from . import behaviour as behaviour
from . import charts as charts
from . import closed_loop as closed_loop
from . import exam_accuracy_by_visibility as exam_accuracy_by_visibility
from . import forecast_coverage as forecast_coverage
from . import idle_ledger_accuracy as idle_ledger_accuracy
from . import masks as masks
from . import published_runs as published_runs
from . import rule_survival as rule_survival
from . import threshold_holdout as threshold_holdout
from . import user_constraints_in_summaries as user_constraints_in_summaries
from .closed_loop import loop as loop
from .closed_loop import run_scripted_agent as run_scripted_agent
from .published_runs import table as table
