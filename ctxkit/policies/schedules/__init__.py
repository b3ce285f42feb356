"""Pruning schedules: which messages a pruning changes, from which call on, and the prompts."""

from ctxkit._internal.lazy_exports_and_hooks import make_dunder_dir
from ctxkit.policies.schedules.messages_before_pruning import MessageState, UnprunedMessages
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE, Layer
from ctxkit.policies.schedules.pruning_schedule import Schedule
from ctxkit.policies.schedules.schedule_view_of_new_calls import (
    EarlierTurnsView,
    PositionsByAge,
    ScheduleView,
    TextsByPosition,
)

__all__ = [
    "UNDO_CHANGE",
    "EarlierTurnsView",
    "Layer",
    "MessageState",
    "PositionsByAge",
    "Schedule",
    "ScheduleView",
    "TextsByPosition",
    "UnprunedMessages",
]
__dir__ = make_dunder_dir(__all__)
