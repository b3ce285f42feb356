"""Pruning schedules: which messages a pruning changes, from which call on, and the prompts."""

from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.policies.schedules.messages_without_any_pruning import MessageState, UnprunedMessages
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE, Layer
from ctxkit.policies.schedules.pruning_changes_at_new_calls import (
    EarlierTurnsView,
    PositionsByAge,
    ScheduleView,
    TextsByPosition,
)
from ctxkit.policies.schedules.pruning_schedule import Schedule

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
