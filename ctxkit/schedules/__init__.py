"""What a pruning changes, and when: said once, from which each call and the bill of all calls
follow.

A part of a pruning has one method, ``schedule(view, room)``. It is asked about the calls that are
new since it was asked last, and may say nothing of an earlier one; so a replay is one question
about all calls, a live session one question a call, and looking ahead is impossible.
"""

from typing import TYPE_CHECKING

from ctxkit.faces import listed, renamed
from ctxkit.schedules.changes import AS_IT_CAME
from ctxkit.schedules.layers import Layer
from ctxkit.schedules.past_view import PastView
from ctxkit.schedules.rows import Rows, State
from ctxkit.schedules.schedule import Schedule
from ctxkit.schedules.schedule_view import ScheduleView
from ctxkit.schedules.sliding import OldFirst, Roll

__all__ = [
    "AS_IT_CAME",
    "Layer",
    "OldFirst",
    "PastView",
    "Roll",
    "Rows",
    "Schedule",
    "ScheduleView",
    "State",
]
__dir__ = listed(__all__)
if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Window": "OldFirst"})
