# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .cache_and_prompt_strip_charts import cache as cache
from .cache_and_prompt_strip_charts import idle as idle
from .cache_and_prompt_strip_charts import strip as strip
from .compaction_diff_chart import diff as diff
from .composition_chart import composition as composition
from .cumulative_agent_input_and_threshold_charts import budget as budget
from .cumulative_agent_input_and_threshold_charts import views as views
from .growth_chart import growth as growth
from .prompt_size_estimates_chart import calibration as calibration
from .savings_thrash_loss_charts import loss as loss
from .savings_thrash_loss_charts import savings as savings
from .savings_thrash_loss_charts import thrash as thrash
from .sweep_charts import frontier as frontier
from .sweep_charts import heatmap as heatmap
from .user_rule_visibility_chart import user_rules as user_rules

# isort: split
# For other packages and for tests, not in `__all__`:
from .cache_and_prompt_strip_charts import BlockRow as BlockRow
from .cache_and_prompt_strip_charts import BlockRowsDrawing as BlockRowsDrawing
from .cache_and_prompt_strip_charts import BlockSpan as BlockSpan
from .cache_and_prompt_strip_charts import cache_data as cache_data
from .cache_and_prompt_strip_charts import get_prompt_strip as get_prompt_strip
from .chart import PAGE_TEXT_COLOUR as PAGE_TEXT_COLOUR
from .chart import Chart as Chart
from .chart import apply_page_text_colours as apply_page_text_colours
from .chart import escape_plotly_label as escape_plotly_label
from .chart import render_small_table as render_small_table
from .compaction_diff_chart import get_diff_data as get_diff_data
from .composition_chart import composition_data as composition_data
from .cumulative_agent_input_and_threshold_charts import (
    CumulativeAgentTokens as CumulativeAgentTokens,
)
from .cumulative_agent_input_and_threshold_charts import (
    get_cumulative_input_data as get_cumulative_input_data,
)
from .label_placement_and_thinning import decimate_points as decimate_points
from .plotly_to_svg import render_svg_html as render_svg_html
from .prompt_size_estimates_chart import calibration_data as calibration_data
from .savings_thrash_loss_charts import CompactionSizes as CompactionSizes
from .savings_thrash_loss_charts import find_guard_closing as find_guard_closing
from .savings_thrash_loss_charts import is_guard_off as is_guard_off
from .savings_thrash_loss_charts import is_saving_too_small as is_saving_too_small
from .savings_thrash_loss_charts import loss_data as loss_data
from .savings_thrash_loss_charts import savings_data as savings_data
from .savings_thrash_loss_charts import thrash_data as thrash_data
from .sweep_charts import frontier_data as frontier_data
from .sweep_charts import heatmap_data as heatmap_data
from .xy_figure import LimitLine as LimitLine
from .xy_figure import Trace as Trace
from .xy_figure import VerticalMark as VerticalMark
from .xy_figure import XyDrawing as XyDrawing
