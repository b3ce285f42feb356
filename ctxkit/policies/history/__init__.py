"""The frozen history that policies work on: columns, searches, safe cuts, verbs."""

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.policies.history.growing_columns_and_sums import (
    ASSISTANT,
    ROLES,
    SUMMARY,
    SYSTEM,
    TOOL,
    USER,
    RowAndCallSums,
)
from ctxkit.policies.history.history import History
from ctxkit.policies.history.history_view_and_searches import HistoryEdit
from ctxkit.policies.history.message_log import MessageLog

__all__ = [
    "ASSISTANT",
    "ROLES",
    "SUMMARY",
    "SYSTEM",
    "TOOL",
    "USER",
    "History",
    "HistoryEdit",
    "MessageLog",
    "RowAndCallSums",
]
__dir__ = make_dunder_dir(__all__)
