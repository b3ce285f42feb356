"""Large results leave the history for an artifact; a stub says what they were and how to get at them (fuseraft)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.policies import contents
from ctxkit.policies.setting import Setting, at_least

if TYPE_CHECKING:
    from collections.abc import Callable

    from ctxkit.history import History
    from ctxkit.messages import Message, ToolCall
    from ctxkit.tokens import Room

STUB = "[result offloaded — "
HINTS = ("path", "command", "script", "url", "key", "query", "message", "branch")
"""Arguments that a stub names, the first of them that the call has."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Offload(Setting):
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
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(history.tool(*self.tools) & (history.chars > self.threshold)).tolist():
            message = history[p]
            text = contents.texts(message)
            if len(text) <= self.threshold or text.startswith(STUB) or contents.has_images(message):
                continue
            artifact = sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
            if self._saved(artifact, text):
                changes[p] = contents.with_text(message, stub(text, message, _asked(history, p), artifact))
        return history.shorten(changes, reason="offloaded to an artifact") if changes else history

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
    return f"{key}={contents.one_line(str(call.arguments[key]), 60)}"


def _asked(history: History, position: int) -> ToolCall | None:
    """Return the call that the result at a position answers."""
    log, message = history.log, history[position]
    row = history.row(position)
    if row < 0:
        return None
    return next((c for c in log.messages[log.groups[row]].tool_calls if c.id == message.call_id), None)
