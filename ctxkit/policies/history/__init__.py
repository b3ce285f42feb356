"""The frozen history that policies work on: columns, searches, safe cuts, verbs."""

from ctxkit._internal.lazy import public_dir
from ctxkit.policies.history.columns import ASSISTANT, ROLES, SUMMARY, SYSTEM, TOOL, USER, SizeSums
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
__dir__ = public_dir(__all__)
