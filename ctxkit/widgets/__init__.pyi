# The public names: type checkers and editors read this stub, `lazy_exports` at run time.
from .widget_factories import break_even as break_even
from .widget_factories import budget as budget
from .widget_factories import explore as explore
from .widget_factories import savings as savings
from .widget_factories import thrash as thrash
from .widget_factories import tune as tune
from .widget_factories import watch as watch

# isort: split
# For other packages and for tests, not in `__all__`:
from .anti_thrash_guard_widget import MaxCompactionsGuard as MaxCompactionsGuard
from .base_widget import ChartWidget as ChartWidget
from .base_widget import read_widget_asset as read_widget_asset
from .budget_threshold_hits_widget import judge_turns as judge_turns
from .budget_threshold_hits_widget import pack_agent_for_browser as pack_agent_for_browser
from .data_source import resolve_source as resolve_source
from .folder_board import Board as Board
from .folder_board import FileBoardRows as FileBoardRows
from .folder_board_rows import make_board_row as make_board_row
from .python_to_javascript import (
    translate_function_to_javascript as translate_function_to_javascript,
)
from .reports.compaction_card import make_card as make_card
from .reports.html_page import render_chart as render_chart
from .reports.session_summary import describe_session_origin as describe_session_origin
from .reports.session_summary import get_session_facts as get_session_facts
from .reports.session_summary import tabulate_compactions as tabulate_compactions
from .reports.session_summary import tabulate_sessions as tabulate_sessions
from .reports.session_summary import tabulate_turns as tabulate_turns
from .session_compactions_widget import list_session_compactions as list_session_compactions
from .session_explorer import Explorer as Explorer
from .tuner_controls import make_setting_controls as make_setting_controls
