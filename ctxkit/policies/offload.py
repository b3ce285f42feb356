"""Large results leave the history for an artifact; a stub says what they were and how to get at them (fuseraft)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.policies import contents
from ctxkit.policies.courses import Untraceable
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history import History
    from ctxkit.messages import Message, ToolCall
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

STUB = "[result offloaded — "
HINTS = ("path", "command", "script", "url", "key", "query", "message", "branch")
"""Arguments that a stub names, the first of them that the call has."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Offload(Traced, Setting):
    """Put a stub in the place of each result longer than a threshold; the newest result too, as soon as it is there."""

    threshold: int = 40_000
    """Results of more characters are offloaded."""
    save: Callable[[str, str], None] | None = None
    """Keeps an artifact: called with its id and text, for a live session; a replay writes nothing."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose results are offloaded."""

    def __post_init__(self) -> None:
        at_least(self, 0, "threshold")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with stubs; a result that could not be saved stays as it is."""
        long = np.flatnonzero(history.tool(*self.tools) & (history.chars > self.threshold)).tolist()
        changes: dict[int, Message | str] = {p: self._stub(history, p, history[p]) for p in long}
        return history.shorten(changes, reason="offloaded to an artifact") if changes else history

    changes = ("tool",)

    def trace(self, course: Course, _room: Room) -> None:
        """Offload each result as soon as it is there; one that is saved somewhere is offloaded when it is sent."""
        if self.save is not None:
            raise Untraceable
        for p in course.long(course.shown.tool(*self.tools), self.threshold):
            course.each([p], self.threshold, lambda m, p=p: self._stub(course.shown, p, m))  # type: ignore[misc]

    def _stub(self, history: History, position: int, message: Message) -> Message:
        text = contents.texts(message)
        if len(text) <= self.threshold or text.startswith(STUB) or contents.has_images(message):
            return message
        artifact = sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
        if not self._saved(artifact, text):
            return message
        return contents.with_text(message, stub(text, message, _asked(history, position), artifact))

    def _saved(self, artifact: str, text: str) -> bool:
        if self.save is None:
            return True
        try:
            self.save(artifact, text)
        except OSError:
            return False  # as fuseraft: the result stays in the history, nothing is lost
        return True


def stub(text: str, result: Message, call: ToolCall | None, artifact: str) -> str:
    """Return the four lines that stand for an offloaded result."""
    return "\n".join(
        [
            f"{STUB}{len(text):,} chars stored to artifact store]",
            f"Tool: {result.tool or (call.name if call else 'unknown')} | {hint(call)}",
            f"Artifact: {artifact}",
            "Use targeted tools (e.g. read_file with startLine/maxLines, or grep_in_file) for specific sections.",
        ]
    )


def hint(call: ToolCall | None) -> str:
    """Return what a call worked on as `key=value`, the value of at most 60 characters."""
    if call is None or not call.arguments:
        return ""
    key = next((k for k in HINTS if k in call.arguments), next(iter(call.arguments)))
    return f"{key}={contents.one_line(contents.written(call.arguments[key]), 60)}"


def _asked(history: History, position: int) -> ToolCall | None:
    """Return the call that the result at a position answers."""
    log, message = history.log, history[position]
    row = history.row(position)
    if row < 0:
        return None
    return next((c for c in log.messages[log.groups[row]].tool_calls if c.id == message.call_id), None)
