"""The AI SDK's `pruneMessages`: drop reasoning and tool calls from all but the last messages, then what is empty."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies import contents
from ctxkit.policies.setting import Setting, at_least

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.tokens import Room

_MODE = re.compile(r"none|all|before-last-message|before-last-(\d+)-messages")


@dataclass(frozen=True, kw_only=True, repr=False)
class Prune(Setting):
    """Drop tool calls with their results, and reasoning, from what lies before the last messages.

    A call is kept where its own id occurs among the last messages, so a call just before them survives with its result.
    The results of one reply count as one message, as they are one in the AI SDK.
    """

    tool_calls: str = "none"
    """`none`, `all`, `before-last-message` or `before-last-N-messages` (N = 0 drops nothing, as in the SDK)."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools that this concerns."""
    reasoning: Literal["none", "all", "before-last-message"] = "none"
    """Whose reasoning is dropped."""
    empty_messages: Literal["remove", "keep"] = "remove"
    """What becomes of messages that hold nothing afterwards."""

    def __post_init__(self) -> None:
        if not _MODE.fullmatch(self.tool_calls):
            raise BadArguments(f"Prune knows none, all, before-last-N-messages, not {self.tool_calls!r}.")
        if self.reasoning not in ("none", "all", "before-last-message"):
            raise BadArguments(f"Prune knows reasoning none, all, before-last-message, not {self.reasoning!r}.")
        if self.empty_messages not in ("remove", "keep"):
            raise BadArguments(f"Prune knows empty_messages remove and keep, not {self.empty_messages!r}.")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history without them."""
        return history.replace(dict(self._changes(history)), reason=self.tool_calls) if len(history) else history

    def _changes(self, history: History) -> dict[int, Message | None]:
        messages, stays = history.messages, history.stays
        units = self._units(messages)
        gone = self._dropped(messages, units, [bool(s) for s in stays])
        changes: dict[int, Message | None] = {}
        for p, message in enumerate(messages):
            new: Message | None = message
            if message.role == "tool":
                new = None if message.call_id in gone else message
            elif message.role == "assistant":
                new = contents.without_calls(message, gone)
                if self.reasoning == "all" or (self.reasoning != "none" and p < len(messages) - 1):
                    new = contents.without_reasoning(new)
            if new is not None and self.empty_messages == "remove" and _empty(new) and not stays[p]:
                new = None
            if new is not message:
                changes[p] = new
        return changes

    def _units(self, messages: tuple[Message, ...]) -> list[int]:
        """Return for each message which message of the SDK it is in: results in a row are one."""
        out: list[int] = []
        for i, m in enumerate(messages):
            joined = i and m.role == "tool" and messages[i - 1].role == "tool"
            out.append(out[-1] if joined else (out[-1] + 1 if out else 0))
        return out

    def _dropped(self, messages: tuple[Message, ...], units: list[int], stays: list[bool]) -> frozenset[str]:
        """Return the ids of the calls that go."""
        match = _MODE.fullmatch(self.tool_calls)
        if self.tool_calls == "none" or match is None or match[1] == "0":
            return frozenset()
        last = 0 if self.tool_calls == "all" else int(match[1] or 1)
        first = units[-1] + 1 - last
        kept = {m.call_id for m, u, s in zip(messages, units, stays, strict=True) if s or u >= first}
        named: dict[str, str] = {}
        for m, u, s in zip(messages, units, stays, strict=True):
            for call in m.tool_calls:
                named[call.id] = call.name
                if s or u >= first:
                    kept.add(call.id)
        answered = {m.call_id for m in messages if m.role == "tool"}
        return frozenset(c for c, name in named.items() if c not in kept and self._concerns(name)) | frozenset(
            c for c in answered - named.keys() - kept if c is not None and self._concerns("")
        )

    def _concerns(self, tool: str) -> bool:
        return any(fnmatchcase(tool.lower(), pattern.lower()) for pattern in self.tools)


@dataclass(frozen=True, kw_only=True, repr=False)
class Cap(Setting):
    """Keep the messages before the first reply, and the last of the rest: at most so many in all (Tyrum)."""

    max_messages: int = 0
    """How many messages there may be; 0: any number."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_messages")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the head and the tail."""
        while self.max_messages and len(history) > self.max_messages:
            new = self._once(history)
            if new is history:
                break
            history = new
        return history

    def _once(self, history: History) -> History:
        n = len(history)
        why = f"more than {self.max_messages} messages"
        head = next((int(p) for p in np.flatnonzero(history.role("assistant", "tool"))), n) or 1
        if head >= self.max_messages:
            return history.keep(np.arange(n) < self.max_messages, why)
        first = n - (self.max_messages - head)
        return history.drop(history.safe(first) or n, why, start=head)


def _empty(message: Message) -> bool:
    if message.role == "tool":  # in the SDK a result is a part, however short its text
        return False
    return not message.parts or all(
        getattr(p, "text", True) == "" and not getattr(p, "hidden", 0) for p in message.parts
    )
