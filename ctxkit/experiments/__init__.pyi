# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .advice import advise as advise
from .comparison import Comparison as Comparison
from .comparison import compare as compare
from .exams import SummaryPrompt as SummaryPrompt
from .exams import exam as exam
from .forecast_records import forecasts as forecasts
from .forecast_records import write_forecast as write_forecast
from .grids import grid as grid
from .memory_ablation import index_or_paste as index_or_paste
from .memory_ablation import with_memory as with_memory
from .scores import score as score
from .section_costs import sections as sections
from .section_costs import without as without
from .sweep_runs import compare_settings as compare_settings
from .sweep_runs import mark_pareto_front as mark_pareto_front
from .sweep_runs import summarise_runs as summarise_runs
from .sweep_runs import sweep as sweep
