"""Cut what a reply says beside the tool calls that it leads to (fuseraft)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from ctxkit.messages import Part, Text, Thinking, ToolCall
from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME
from ctxkit.texts import contents

if TYPE_CHECKING:
    from ctxkit.messages import Message
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room


@dataclass(frozen=True, kw_only=True, repr=False)
class Intermediate(Scheduled):
    """Cut text, reasoning and arguments of replies that only led to the next tool call."""

    counts = False
    max_chars: Natural = 120
    """Characters that text and reasoning keep."""
    max_argument_chars: Natural = 500
    """Argument values of more characters become a note that says so."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Cut each step as soon as another reply is there."""
        low = min(self.max_chars, self.max_argument_chars)
        for p, call, old in view.window("assistant", lambda n: n - 1):
            if view.long(p, low):
                view.change(p, self._short if old else AS_IT_CAME, since=call, low=low + 1)

    def _short(self, message: Message) -> Message:
        if not message.tool_calls:
            return message
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, (Text, Thinking)) and len(part.text) > self.max_chars:
                note = " [text omitted]" if isinstance(part, Text) else " [reasoning omitted]"
                done = part.text.endswith(note)
                parts.append(part if done else type(part)(text=part.text[: self.max_chars] + note))
            else:
                parts.append(part)
        short = msgspec.structs.replace(message, parts=tuple(parts))
        return contents.with_arguments(short, self._arguments)

    def _arguments(self, call: ToolCall) -> dict[str, object] | None:
        chars = {k: len(contents.written(v)) for k, v in call.arguments.items()}
        elided = {k: _elided(n) for k, n in chars.items() if n > self.max_argument_chars}
        return {**call.arguments, **elided} if elided else None


def _elided(chars: int) -> str:
    return (
        f"[ELIDED — {chars} chars, NOT the real value. Do not reuse this placeholder as content; "
        "re-read the file or regenerate the value if you need it again.]"
    )
