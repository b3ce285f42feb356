"""The frozen history that policies work on: columns, searches, safe cuts, verbs."""

from ctxkit._internal.lazy_imports import make_dunder_dir
from ctxkit.policies.history.growing_columns import (
    ASSISTANT,
    ROLES,
    SUMMARY,
    SYSTEM,
    TOOL,
    USER,
    SizeSums,
)
from ctxkit.policies.history.history import History
from ctxkit.policies.history.history_view import HistoryEdit
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
    "SizeSums",
]
__dir__ = make_dunder_dir(__all__)
