"""Cut single messages down: tool results, replayed replies, reads that were acted on, raw tool output."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.policies import contents, trims
from ctxkit.policies.courses import Traced
from ctxkit.policies.setting import Setting, at_least

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ctxkit.history import History
    from ctxkit.messages import Message
    from ctxkit.policies.courses import Course
    from ctxkit.policies.trims import Mode
    from ctxkit.tokens import Room

TRUNCATED = "\n[...truncated — {n} chars omitted to reduce context size...]"
CONSUMED = (
    "\n[...{n} chars elided — file was written or patched later this session; "
    "call read_file again if current content is needed]"
)
READERS = ("read_file", "read", "view_file", "open_file")
WRITERS = ("write_file", "patch_file", "write", "edit", "edit_file", "multiedit", "str_replace*", "apply_patch")
_SUMMARY = "[CONVERSATION SUMMARY"


@dataclass(frozen=True, kw_only=True, repr=False)
class Results(Setting):
    """Cut tool results to a number of characters, by tool where wanted; reads that were acted on shorter still."""

    max_chars: int = 8000
    """Characters a tool result keeps; 0 cuts none."""
    overrides: Mapping[str, int] = field(default_factory=dict)
    """Characters by tool name (upper and lower case alike), in place of `max_chars`; 0 leaves that tool alone."""
    consumed_chars: int = 500
    """Characters that a read keeps once its file was written later; -1 treats it as any other result."""
    suffix: str = TRUNCATED
    """What follows the cut; `{n}` is the number of characters removed."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools that may be cut."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_chars")
        for tool, chars in self.overrides.items():
            if not isinstance(chars, int) or chars < 0:
                raise BadArguments(f"Results needs a number of characters for tool {tool!r}, not {chars!r}.")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with shorter tool results."""
        if not self.max_chars:
            return history
        low = min([self.max_chars, *filter(None, self.overrides.values()), *self._consumed_cap()])
        maybe = np.flatnonzero(history.tool(*self.tools) & (history.chars > low))
        if not len(maybe):
            return history
        read = consumed(history) if self.consumed_chars >= 0 else frozenset()
        caps = {name.lower(): chars for name, chars in self.overrides.items()}
        changes: dict[int, Message | str] = {}
        for p in maybe.tolist():
            message = history[p]
            cap, suffix = caps.get((message.tool or "").lower(), self.max_chars), self.suffix
            if p in read:
                cap, suffix = self.consumed_chars, CONSUMED
            elif not cap:
                continue
            changes |= _cut(p, message, cap, suffix)
        return history.shorten(changes, reason="long tool results are cut")

    def _consumed_cap(self) -> tuple[int, ...]:
        return (self.consumed_chars,) if self.consumed_chars >= 0 else ()


@dataclass(frozen=True, kw_only=True, repr=False)
class ConsumedReads(Setting):
    """Cut reads whose file was written or patched later: what they hold is no longer true."""

    max_chars: int = 500
    """Characters that such a read keeps."""
    readers: tuple[str, ...] = READERS
    """Names or globs of the tools that read a file."""
    writers: tuple[str, ...] = WRITERS
    """Names or globs of the tools that write or patch one."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_chars")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with stale reads cut."""
        changes: dict[int, Message | str] = {}
        for p in sorted(consumed(history, self.readers, self.writers)):
            changes |= _cut(p, history[p], self.max_chars, CONSUMED)
        return history.shorten(changes, reason="the file was written after it was read") if changes else history


@dataclass(frozen=True, kw_only=True, repr=False)
class Replies(Setting):
    """Cut long replies when they are sent again; summaries are never cut."""

    max_chars: int = 2000
    """Characters of text a reply keeps; 0 cuts none."""
    keep_last: int = 0
    """Replies at the end that are left alone."""
    suffix: str = TRUNCATED
    """What follows the cut; `{n}` is the number of characters removed."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_chars", "keep_last")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with shorter replies."""
        if not self.max_chars:
            return history
        stop = len(history)
        if self.keep_last:
            stop = history.nth_last("assistant", self.keep_last)
        long = history.role("assistant") & (history.chars > self.max_chars)
        changes: dict[int, Message | str] = {}
        for p in np.flatnonzero(long).tolist():
            if p < stop and not contents.texts(history[p]).startswith(_SUMMARY):
                changes |= _cut(p, history[p], self.max_chars, self.suffix)
        return history.shorten(changes, reason="long replies are cut") if changes else history


@dataclass(frozen=True, kw_only=True, repr=False)
class Outputs(Traced, Setting):
    """Cut raw tool output by lines, then characters, then bytes, with a last line that says so (as the agent `ai`)."""

    max_lines: int = 2000
    """Lines a result keeps; 0: all."""
    max_chars: int = 204_800
    """Characters a result keeps; 0: all."""
    max_bytes: int = 51_200
    """Bytes of UTF-8 a result keeps; 0: all."""
    mode: Mode = "head_tail"
    """`head`; `head_tail` keeps both ends of the lines; `middle` cuts the middle of characters and bytes as well."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose output is cut."""

    def __post_init__(self) -> None:
        at_least(self, 0, "max_lines", "max_chars", "max_bytes")
        if self.mode not in ("head", "head_tail", "middle"):
            raise BadArguments(f"Outputs knows the modes head, head_tail and middle, not {self.mode!r}.")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with output within its limits."""
        long = np.flatnonzero(history.tool(*self.tools) & (history.chars > self._low)).tolist()
        changes: dict[int, Message | str] = {p: self._cut(history[p]) for p in long}
        return history.shorten(changes, reason="tool output beyond its limits is cut") if changes else history

    changes = ("tool",)

    def trace(self, course: Course, _room: Room) -> None:
        """Cut each output as soon as it is there."""
        course.each(course.long(course.shown.tool(*self.tools), self._low), self._low, self._cut)

    @property
    def _low(self) -> int:
        """Characters up to which nothing can be too long."""
        return min(n for n in (self.max_lines, self.max_chars, self.max_bytes // 4, 1 << 62) if n)

    def _cut(self, message: Message) -> Message:
        text = contents.texts(message)
        short = trims.output(
            text, max_lines=self.max_lines, max_chars=self.max_chars, max_bytes=self.max_bytes, mode=self.mode
        )
        done = short == text or "\n[tool output truncated: " in text[-200:]
        return message if done else contents.with_text(message, short)


def consumed(history: History, readers: Iterable[str] = READERS, writers: Iterable[str] = WRITERS) -> frozenset[int]:
    """Return positions of reads whose path a later message writes; paths are compared without case."""
    last_write: dict[str, int] = {}
    asked: dict[str, tuple[int, str]] = {}
    reads: list[tuple[int, int, str]] = []
    for p in np.flatnonzero(history.role("assistant", "tool")).tolist():
        message = history[p]
        for call in message.tool_calls:
            path = contents.path(call).casefold()
            if path and _among(call.name, writers):
                last_write[path] = p
            elif path and _among(call.name, readers):
                asked[call.id] = (p, path)
        if message.call_id in asked:
            reads.append((p, *asked[message.call_id]))
    return frozenset(p for p, at, path in reads if last_write.get(path, -1) > at)


def _among(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in patterns)


def _cut(position: int, message: Message, cap: int, suffix: str) -> dict[int, Message | str]:
    """Return the change that cuts a message's text, or nothing where it is short enough or holds more than text."""
    text = contents.texts(message)
    if len(text) <= cap or contents.has_images(message) or _is_cut(text, suffix):
        return {}
    return {position: contents.with_text(message, trims.cut(text, cap, suffix))}


def _is_cut(text: str, suffix: str) -> bool:
    """Say whether a text ends as this cut leaves it, so that a second cut would say less of how much went."""
    return text.endswith(suffix.rsplit("{n}", maxsplit=1)[-1])
