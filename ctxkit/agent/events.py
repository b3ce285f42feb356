"""What happens in a turn, as events with fuseraft's and ai's names; anybody may listen.

`LiveEvents.tell` is the one way by which text of a running turn reaches a listener, and so a
screen, a saved notebook, a log and a collector: it redacts every payload, and text in pieces across
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ctxkit.redaction import redacted, secrets
from ctxkit.redaction.redacted_streams import Stream


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
_ENDS_TEXT = frozenset({
    "turn_start", "turn_end", "model_call", "model_response", "model_error", "tool_call",
    "tool_result", "cancelled", "limit_reached",
})  # fmt: skip
"""Events after which no more of a text comes. Others may come within it, and within a key."""


class LiveEvents:
    """Tells the events of a session to a listener, without keys.

    A `delta` is a piece of text of a kind (`text`, `thinking`, `tool_call`, `arguments`). The last
    word of a text is held back until it is known to be no part of a key: until more of it comes,
    a piece of another kind, or an event that ends the text.

    Args:
        hear: is told every event.
        clock: seconds since 1970.
        turn: returns the number of the turn under way.
    """

    def __init__(self, hear: Listener, clock: Callable[[], float], turn: Callable[[], int]) -> None:
        self._hear, self._clock, self._turn = hear, clock, turn
        self._kind, self._stream = "", Stream()

    def tell(self, kind: str, payload: dict[str, Any]) -> None:
        """Tell an event."""
        if kind == "delta":
            self._tell_piece(payload["kind"], payload["text"])
            return
        if kind in _ENDS_TEXT:
            self._end_text()
        self._emit(kind, redacted(payload))

    def _tell_piece(self, kind: str, text: str) -> None:
        if kind != self._kind:
            self._end_text()
            self._kind, self._stream = kind, Stream(secrets())
        self._emit_text(self._stream.feed(text))
        if kind == "tool_call":  # a name comes whole
            self._end_text()

    def _end_text(self) -> None:
        self._emit_text(self._stream.flush())
        self._kind = ""

    def _emit_text(self, text: str) -> None:
        if text:
            self._emit("delta", {"kind": self._kind, "text": text})

    def _emit(self, kind: str, payload: dict[str, Any]) -> None:
        self._hear(LiveEvent(kind, self._clock(), self._turn(), payload))


def deaf(_: LiveEvent) -> None:
    """Listen to nothing."""


def is_compaction(payload: dict[str, Any]) -> bool:
    """Say whether something was compacted at the end of a compaction; also where its summary
    failed, and something else stands in its place.
    """
    return payload.get("outcome") == "compacted" or "messages" in payload
