"""Evict tool results beyond a budget, each behind a line that says what it was, with a list of both (fuseraft)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.messages import Message, Text
from ctxkit.policies import contents
from ctxkit.policies.courses import Untraceable
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history import History
    from ctxkit.messages import ToolCall
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

KEYS = ("path", "command", "query", "content", "name")
"""Arguments by which a label names a call, the first of them that it has."""
EVICTED = "[tool result — evicted: "


@dataclass(frozen=True, kw_only=True, repr=False)
class Tombstones(Traced, Setting):
    """Evict all tool results but the last, where all of them together are over a budget."""

    max_tokens: int = 8000
    """Characters of all results divided by four; up to this nothing is done."""
    keep_last: int = 20
    """Results at the end that stay whole."""
    manifest: bool = True
    """Add a message that lists what is there and what was evicted."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_tokens", "keep_last")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with old results evicted."""
        results = np.flatnonzero(history.role("tool"))
        if int(history.chars[results].sum()) // 4 <= self.max_tokens:
            return history
        old = [int(p) for p in results[: max(len(results) - self.keep_last, 0)]]
        labels = {p: label(_asked(history, p), history[p]) for p in results.tolist()}
        changes: dict[int, Message | str] = {p: _evicted(history[p], labels[p]) for p in old}
        new = history.shorten(changes, reason="over the budget of tool results") if changes else history
        if new is history or not self.manifest:
            return new
        gone = [labels[p] for p in old]
        here = [labels[int(p)] for p in results.tolist() if int(p) not in old]
        told = Message(role="user", kind="injected", parts=(Text(manifest(here, gone)),))
        listed = new.insert(len(new), told, "what is there and what was evicted")
        return listed if listed.tokens < history.tokens else new

    changes = ("tool",)

    @property
    def alone(self) -> bool:
        """False: it counts all results."""
        return False

    @property
    def trace(self) -> Callable[[Course, Room], None]:
        """Say when each result is evicted; not there with a manifest, which is another message at each call."""
        if self.manifest:
            raise AttributeError("trace")
        return self._trace

    @property
    def traced_bill(self) -> Callable[..., Any]:
        """As `trace`."""
        if self.manifest:
            raise AttributeError("traced_bill")
        return super().traced_bill

    def _trace(self, course: Course, _room: Room) -> None:
        if course.states:
            raise Untraceable
        shown = course.shown
        results = np.flatnonzero(shown.role("tool"))
        over = np.flatnonzero(np.cumsum(shown.chars[results]) // 4 > self.max_tokens)
        if not len(over):
            return
        begin = int(course.arrive[results[over[0]]])
        for p, late in zip(results.tolist(), course.arrive[results[self.keep_last :]].tolist(), strict=False):
            name = label(_asked(shown, p), shown[p])
            course.change(p, max(begin, late), partial(_evicted, name=name))


def label(call: ToolCall | None, result: Message) -> str:
    """Return `tool(argument)`, the argument cut to 50 characters; the call's id where the call is not known."""
    if call is None:
        return f"{result.tool or 'tool'}({result.call_id or ''})"
    key = next((k for k in KEYS if isinstance(call.arguments.get(k), str)), None)
    return f"{call.name}({contents.one_line(str(call.arguments[key]), 50) if key else ''})"


def tombstone(name: str, text: str) -> str:
    """Return the line that stands for an evicted result."""
    preview = contents.one_line(text, 300)
    return f'{EVICTED}{name}. Preview: "{preview}". Re-read with targeted ranges if needed.]'


def manifest(here: list[str], gone: list[str]) -> str:
    """Return the list of results that are there and of those that were evicted."""
    rows = ["[Context Manifest]", f"Active tool results ({len(here)}):", *(f"- {n}" for n in here)]
    return "\n".join([*rows, f"Superseded ({len(gone)}) — evicted to save context:", *(f"- {n}" for n in gone)])


def _evicted(result: Message, name: str) -> Message:
    text = contents.texts(result)
    return result if text.startswith(EVICTED) else contents.with_text(result, tombstone(name, text))


def _asked(history: History, position: int) -> ToolCall | None:
    """Return the call that the result at a position answers."""
    log, message, row = history.log, history[position], history.row(position)
    if row < 0:
        return None
    return next((c for c in log.messages[log.groups[row]].tool_calls if c.id == message.call_id), None)
