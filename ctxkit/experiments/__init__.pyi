# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .ablations_of_sections_store_and_memory import SECTION_COLUMNS as SECTION_COLUMNS
from .ablations_of_sections_store_and_memory import index_or_paste as index_or_paste
from .ablations_of_sections_store_and_memory import sections as sections
from .ablations_of_sections_store_and_memory import with_memory as with_memory
from .ablations_of_sections_store_and_memory import without as without
from .cost_and_loss_scores import score as score
from .exams_comparing_ways_to_compact import SummaryPromptCandidate as SummaryPromptCandidate
from .exams_comparing_ways_to_compact import exam as exam
from .next_session_forecasts_and_outcomes import forecasts as forecasts
from .next_session_forecasts_and_outcomes import write_forecast as write_forecast
from .rules_comparison_on_one_session import Comparison as Comparison
from .rules_comparison_on_one_session import compare as compare
from .score_columns import SCORE_COLUMN_NAMES as SCORE_COLUMN_NAMES
from .score_columns import SCORE_COLUMNS as SCORE_COLUMNS
from .setting_advice import advise as advise
from .setting_grids_and_labels import grid as grid
from .sweep_runs import compare_settings as compare_settings
from .sweep_runs import summarise_runs as summarise_runs
from .sweep_runs import summarise_runs_with_pareto_front as summarise_runs_with_pareto_front
from .sweep_runs import sweep as sweep

# isort: split
# For other packages and for tests, not in `__all__`:
from .cost_and_loss_scores import SessionAnalysisCache as SessionAnalysisCache
from .cost_and_loss_scores import score_run as score_run
from .cost_and_loss_scores import score_session as score_session
from .exams_comparing_ways_to_compact import CompactorCandidate as CompactorCandidate
from .exams_comparing_ways_to_compact import grade_answers as grade_answers
from .exams_comparing_ways_to_compact import measure_answerable_share as measure_answerable_share
from .score_columns import UNCOMPUTED_COLUMNS as UNCOMPUTED_COLUMNS
from .setting_advice import MAX_SESSION_SHARE as MAX_SESSION_SHARE
from .setting_advice import measure_saving_concentration as measure_saving_concentration
from .setting_choice_and_sweep_display import display_advice as display_advice
from .sweep_workers import NamedRules as NamedRules
from .sweep_workers import SessionRunner as SessionRunner
from .sweep_workers import SweepScoreOptions as SweepScoreOptions
