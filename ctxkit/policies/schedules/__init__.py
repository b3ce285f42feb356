"""Pruning schedules: which messages a pruning changes, from which call on, and the prompts."""

from ctxkit._internal.lazy import public_dir
from ctxkit.policies.schedules.layers import Layer
from ctxkit.policies.schedules.message_changes import UNDO_CHANGE
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
__dir__ = public_dir(__all__)
