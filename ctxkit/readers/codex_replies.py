"""Codex's replies while items and counts go by: several items make one; a count tells its end."""

from __future__ import annotations

from typing import Any

import msgspec

from ctxkit.messages import Message, Part, ToolCall, Usage
from ctxkit.readers.codex_items import to_usage
from ctxkit.readers.fields import mapping, number, time
from ctxkit.readers.logs import MAX_PARTS, ReaderLog


class RolloutReplies:
    """The log of a rollout, and the reply at its end that items still belong to."""

    def __init__(self) -> None:
        self.log = ReaderLog()
        self.model: str | None = None
        self.window: int | None = None
        self.called: dict[str, str] = {}
        """Id of a call to the name of its tool."""
        # Versions up to about 0.57 write the count of a call before its items, later ones after
        # them.
        self.counts_first: bool | None = None
        self._total: Any = None
        self._pending: tuple[Usage, float | None, int | None] | None = None
        """A count whose items have yet to come."""
        self._open: int | None = None
        """Index of the reply that further items belong to."""
        self._unpaid: int | None = None
        """Index of the last reply without usage."""
        self._answered = False

    def close(self) -> None:
        """Let what follows begin anew: a compaction, or a branch."""
        self.flush()
        self._open = self._unpaid = None

    def heard(self, message: Message) -> None:
        """Add what the model was told."""
        self.flush()
        self._open = None
        self.log.add(message)

    def say(self, p: dict[str, Any], parts: list[Part], when: float | None) -> None:
        """Add what the model said to the reply that is open, or begin one."""
        if self.counts_first is None:
            self.counts_first = self._pending is not None
        if not self.counts_first and self._answered:
            self._open = None
        if self._open is not None:
            old = self.log.entries[self._open]
            if type(old) is Message and len(old.parts) < MAX_PARTS:
                self.log.replace(
                    self._open, msgspec.structs.replace(old, parts=(*old.parts, *parts))
                )
                return
        usage, ended, window = self._pending or (None, when, self.window)
        self._pending, self._answered = None, False
        self._open = self.log.say(
            "assistant",
            parts,
            p.get("id"),
            time=ended if ended is not None else when,
            usage=usage,
            model=self.model,
            context_window=window,
        )
        self._unpaid = self._open if usage is None else None

    def call(self, p: dict[str, Any], call: ToolCall, when: float | None) -> None:
        """Add a call to its reply."""
        self.called[call.id] = call.name
        self.say(p, [call], when)

    def answer(
        self,
        call: str,
        parts: tuple[Part, ...],
        when: float | None,
        *,
        kind: str = "",
        failed: bool = False,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Add a call's result; what the model says next is a new reply, but after server tools."""
        self._answered = self._answered or not kind
        self.log.say(
            "tool",
            parts,
            kind=kind,
            time=when,
            tool=self.called.get(call),
            call_id=call or None,
            is_error=failed,
            details=details or {},
        )

    def count(self, info: dict[str, Any], record: dict[str, Any]) -> None:
        """Take the count of one call; one whose total did not grow repeats the one before."""
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        if type(last) is not dict or (total is not None and total == self._total):
            return
        self._total = total
        self.window = number(info.get("model_context_window")) or self.window
        usage = to_usage(mapping(last))
        if usage is None:
            return
        when = time(record.get("timestamp"))
        if self.counts_first is None:
            self.counts_first = self._unpaid is None
        if self.counts_first:
            self.flush()
            self._pending, self._open = (usage, when, self.window), None
            return
        self._pay(usage, when)

    def _pay(self, usage: Usage, when: float | None) -> None:
        old = self.log.entries[self._unpaid] if self._unpaid is not None else None
        if type(old) is Message and self._unpaid is not None:
            paid = msgspec.structs.replace(
                old, usage=usage, time=when or old.time, context_window=self.window
            )
            self.log.replace(self._unpaid, paid)
        else:
            self._pending = (usage, when, self.window)
            self.flush()
        self._open = self._unpaid = None

    def flush(self) -> None:
        """Write a call that was counted and of which no item came."""
        if self._pending is None:
            return
        usage, when, window = self._pending
        self._pending = None
        self.log.say(
            "assistant",
            time=when,
            usage=usage,
            model=self.model,
            context_window=window,
            visible=False,
        )

    def failed(self, stop: str, said: str | None, when: float | None) -> None:
        """Add a call that failed or was broken off."""
        self.flush()
        self.log.say(
            "assistant",
            time=when,
            model=self.model,
            visible=False,
            is_error=True,
            error=None if said is None else said[:500],
            stop=stop,
        )
        self._open = None
