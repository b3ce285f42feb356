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
