"""Large results leave the history for an artifact; a stub says what they were and how to get at them (fuseraft)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from ctxkit.policies import contents
from ctxkit.policies.scheduled import Scheduled
from ctxkit.policies.setting import at_least

if TYPE_CHECKING:
    from ctxkit.messages import Message, ToolCall
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

STUB = "[result offloaded — "
HINTS = ("path", "command", "script", "url", "key", "query", "message", "branch")
"""Arguments that a stub names, the first of them that the call has."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Offload(Scheduled):
    """Put a stub in the place of each result longer than a threshold; the newest result too, as soon as it is there."""

    threshold: int = 40_000
    """Results of more characters are offloaded."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose results are offloaded."""

    def __post_init__(self) -> None:
        at_least(self, 0, "threshold")

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Offload each result as soon as it is there."""
        for p in view.new("tool", tools=self.tools):
            if view.long(p, self.threshold):
                what = partial(self._stub, call=view.asked(p))
                view.change(p, what, since=view.arrival(p), low=self.threshold + 1)

    def _stub(self, message: Message, call: ToolCall | None) -> Message:
        text = contents.texts(message)
        if len(text) <= self.threshold or text.startswith(STUB) or contents.has_images(message):
            return message
        return contents.with_text(message, stub(text, message, call, artifact_id(text)))


def artifact_id(text: str) -> str:
    """Return the name of the artifact that holds a text: the first 12 digits of its SHA-256."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


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
