"""Pruning schedules: which messages a pruning changes, from which call on, and the prompts."""

from ctxkit._internal.lazy_imports import make_dunder_dir
from ctxkit.policies.schedules.pruning_layers import UNDO_CHANGE, Layer
from ctxkit.policies.schedules.pruning_schedule import Schedule
from ctxkit.policies.schedules.schedule_method_input import (
    EarlierTurnsView,
    OrderedTexts,
    ScheduleView,
    SlidingWindow,
)
from ctxkit.policies.schedules.unpruned_messages import HistoryRows, MessageState

__all__ = [
    "UNDO_CHANGE",
    "EarlierTurnsView",
    "HistoryRows",
    "Layer",
    "MessageState",
    "OrderedTexts",
    "Schedule",
    "ScheduleView",
    "SlidingWindow",
]
__dir__ = make_dunder_dir(__all__)
