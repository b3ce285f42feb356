"""Large results leave the history for an artifact; a stub says how to get at them (fuseraft)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from ctxkit.policies.scheduled import Scheduled
from ctxkit.texts import contents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.messages import Message, ToolCall
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

STUB = "[result offloaded — "
_NAMED = re.compile(r"^Artifact: ([0-9a-f]{12})$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, repr=False)
class Offload(Scheduled):
    """Put a stub in the place of each result longer than a threshold, as soon as it is there.

    The stub names an artifact by what the result says. A replay writes nothing; a live session
    saves what `artifacts` says, or sends the result whole where it cannot.
    """

    counts = False
    threshold: Natural = 40_000
    """Results of more characters are offloaded."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose results are offloaded."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Offload each result as soon as it is there."""
        for p in view.new("tool", tools=self.tools):
            if view.long(p, self.threshold):
                what = partial(self._stub, call=view.asked(p))
                view.change(p, what, since=view.arrival(p), low=self.threshold + 1)

    def artifacts(self, given: Iterable[Message]) -> dict[str, Message]:
        """Return the results that it may put stubs for, by the artifact that the stub names.

        Args:
            given: what a call shows before this pruning.
        """
        long = (m for m in given if m.role == "tool" and self._is_long(contents.texts(m), m))
        return {artifact_id(contents.texts(m)): m for m in long}

    def _is_long(self, text: str, message: Message) -> bool:
        if len(text) <= self.threshold or text.startswith(STUB):
            return False
        return not contents.has_images(message)

    def _stub(self, message: Message, call: ToolCall | None) -> Message:
        text = contents.texts(message)
        if not self._is_long(text, message):
            return message
        return contents.with_text(message, stub(text, message, call, artifact_id(text)))


def artifact_id(text: str) -> str:
    """Return the name of the artifact that holds a text: the first 12 digits of its SHA-256."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def artifact_named(message: Message) -> str | None:
    """Return the artifact that a stub names; None: it is no stub, or one that was cut."""
    text = contents.texts(message)
    found = _NAMED.search(text) if message.role == "tool" and text.startswith(STUB) else None
    return found[1] if found else None


def stub(text: str, result: Message, call: ToolCall | None, artifact: str) -> str:
    """Return the four lines that stand for an offloaded result."""
    return "\n".join(
        [
            f"{STUB}{len(text):,} chars stored to artifact store]",
            f"Tool: {result.tool or (call.name if call else 'unknown')} | {contents.hint(call)}",
            f"Artifact: {artifact}",
            (
                "Use targeted tools (e.g. read_file with startLine/maxLines, or grep_in_file) for"
                " specific sections."
            ),
        ]
    )
