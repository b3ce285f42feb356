"""The frozen view of a session that policies work on: columns, searches, safe cuts, verbs."""

from ctxkit.faces import listed
from ctxkit.history.columns import ASSISTANT, ROLES, SUMMARY, SYSTEM, TOOL, USER, Measure
from ctxkit.history.log import Log
from ctxkit.history.steps import Step
from ctxkit.history.verbs import History

__all__ = [
    "ASSISTANT",
    "ROLES",
    "SUMMARY",
    "SYSTEM",
    "TOOL",
    "USER",
    "History",
    "Log",
    "Measure",
    "Step",
]
__dir__ = listed(__all__)
