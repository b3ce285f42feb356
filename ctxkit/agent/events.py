"""What happens in a turn, as events with fuseraft's and ai's names; anybody may listen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class LiveEvent(msgspec.Struct, frozen=True):
    """One event: its name, when it was, in which turn, and what it says.

    Names: `turn_start turn_end model_call model_wait model_response model_error delta tool_call
    tool_result inner_call_context compaction_start compaction_end context_budget_warn
    context_budget_cutover context_window_warn context_exceeded_recovery limit_reached memory_flush
    sections_said memory_promoted memory_consolidated memory_failed cancelled moved
    context_report_created`; a live session writes `listener_failed` and `export_failed`, too.
    """

    kind: str
    time: float
    turn: int
    payload: dict[str, Any]


Listener = Callable[[LiveEvent], None]


def deaf(_: LiveEvent) -> None:
    """Listen to nothing."""


def is_compaction(payload: dict[str, Any]) -> bool:
    """Say whether something was compacted at the end of a compaction; also where its summary
    failed, and something else stands in its place.
    """
    return payload.get("outcome") == "compacted" or "messages" in payload
