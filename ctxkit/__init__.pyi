# The public names: type checkers and editors read this stub, `lazy_exports` reads it at run time.
# ruff: noqa: I001  grouped by task

from IPython.core.interactiveshell import InteractiveShell

# read and write logs
from .formats.reading import read as read, read_all as read_all
from .formats.writing import write as write
from .formats.snapshots.log_reader_with_cache import read_snapshots as read_snapshots
from .formats.log_discovery import discover as discover
from .formats.archive_and_search import (
    find as find,
    keep as keep,
)

# look at a session
from .metrics.context_window_report import report as report
from .metrics.frames import frame as frame
from .metrics.estimator_error import calibrate as calibrate
from .metrics.cost.spend_by_turn_tool_file import spend as spend
from .metrics.cache_misses import misses as misses
from .metrics.compaction_threshold_for_many_sessions import when as when
from .widgets.widget_factories import (
    break_even as break_even,
    budget as budget,
    explore as explore,
    savings as savings,
    thrash as thrash,
    tune as tune,
    watch as watch,
)
from .widgets.folder_board import board as board
from .widgets.reports import export as export

# try other settings
from .engine.replay import replay as replay
from .experiments.setting_advice import advise as advise
from .experiments.rules_comparison_on_one_session import compare as compare
from .experiments.gates.regression_gate import gate as gate
from .experiments.setting_grids_and_labels import grid as grid
from .experiments.cost_and_loss_scores import score as score
from .experiments.sweep_runs import sweep as sweep
from .presets.rules_from_config_files import load_rules as load_rules
from .experiments.compaction_config_file_validation import validate as validate

# run agents
from .agent.recorders.api_call_recorder import record as record
from .engine.chat_message_compaction import (
    Context as Context,
    fit as fit,
    history_processor as history_processor,
)
from .teams.team_factory import team as team

# the course
from .course.contests import contest as contest
from .course.exercises import check as check

# values
from .policies.history.history import History as History
from .session.messages import Edit as Edit, Message as Message, Usage as Usage
from .session.session import Session as Session
from .tokens.token_counters import ContextBudget as ContextBudget

# errors
from .errors import (
    BadArguments as BadArguments,
    CtxkitError as CtxkitError,
    ModelError as ModelError,
    ReadError as ReadError,
    StoreError as StoreError,
    UnknownFormat as UnknownFormat,
    UnknownName as UnknownName,
    UnsoundHistory as UnsoundHistory,
)

# submodules
from . import (
    agent as agent,
    course as course,
    experiments as experiments,
    formats as formats,
    metrics as metrics,
    plots as plots,
    policies as policies,
    presets as presets,
)
from .experiments import gates as gates, studies as studies
from .formats import samples as samples, snapshots as snapshots
from .tokens import prices as prices

__version__: str

def load_ipython_extension(shell: InteractiveShell) -> None: ...
def unload_ipython_extension(shell: InteractiveShell) -> None: ...
