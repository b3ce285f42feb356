"""Cut single messages: tool results, replayed replies, reads acted on, raw tool output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ctxkit.errors import BadArguments
from ctxkit.history.columns import TOOL
from ctxkit.messages import FRAME, HEARD, Text
from ctxkit.policies.reads import stale
from ctxkit.policies.scheduled import Scheduled
from ctxkit.policies.setting import at_least
from ctxkit.schedules import AS_IT_CAME
from ctxkit.texts import contents, trims
from ctxkit.tools.tool_names import READERS, WRITERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.messages import Message
    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

TRUNCATED = "\n[...truncated — {n} chars omitted to reduce context size...]"
CONSUMED = (
    "\n[...{n} chars elided — file was written or patched later this session; "
    "call read_file again if current content is needed]"
)
_SUMMARY = "[CONVERSATION SUMMARY"


@dataclass(frozen=True, kw_only=True, repr=False)
class Results(Scheduled):
    """Cut tool results to so many characters, by tool where wanted; reads acted on shorter."""

    counts = False
    max_chars: Natural = 8000
    """Characters a tool result keeps; 0 cuts none."""
    overrides: Mapping[str, int] = field(default_factory=dict)
    """Characters by tool name, in any case, in place of `max_chars`; 0 leaves that tool alone."""
    consumed_chars: int = 500
    """Characters that a read keeps once its file was written later; -1: as any other result."""
    suffix: str = TRUNCATED
    """What follows the cut; `{n}` is the number of characters removed."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools that may be cut."""
    past_only: bool = False
    """Cut results of earlier turns, also those that other agents had; not those of the turn under
    way (fuseraft).
    """

    def __post_init__(self) -> None:
        at_least(self, -1, "consumed_chars")
        for tool, chars in self.overrides.items():
            if not isinstance(chars, int) or chars < 0:
                raise BadArguments(
                    f"Results needs a number of characters for tool {tool!r}, not {chars!r}."
                )

    @property
    def filters_history(self) -> bool:
        """True where the turn under way keeps its results whole."""
        return self.past_only

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Cut each result as soon as it is there; a read shorter once its file was written."""
        if not self.max_chars:
            return
        low = self._low
        roles = ("tool", "user") if self.past_only else ("tool",)
        for p in view.new(*roles, tools=self.tools):
            if view.long(p, low) and (view.role(p) == TOOL or _is_heard(view, p, FRAME)):
                view.change(p, self._cut, since=view.arrival(p), low=low + 1)
        for p, call, old in stale(view) if self.consumed_chars >= 0 else ():
            if view.is_tool(p, self.tools) and view.long(p, low):
                view.change(p, self._consumed if old else self._cut, since=call, low=low + 1)

    @property
    def _low(self) -> int:
        """Characters up to which nothing is cut."""
        consumed_cap = [self.consumed_chars] if self.consumed_chars >= 0 else []
        return min([self.max_chars, *filter(None, self.overrides.values()), *consumed_cap])

    def _consumed(self, message: Message) -> Message:
        return _cut(message, self.consumed_chars, CONSUMED)

    def _cut(self, message: Message) -> Message:
        tool = (message.tool or "").lower()
        own = (n for name, n in self.overrides.items() if name.lower() == tool)
        cap = next(own, self.max_chars)
        return _cut(message, cap, self.suffix) if cap else message


@dataclass(frozen=True, kw_only=True, repr=False)
class ConsumedReads(Scheduled):
    """Cut reads whose file was written or patched later: what they hold is no longer true."""

    counts = False
    max_chars: Natural = 500
    """Characters that such a read keeps."""
    readers: tuple[str, ...] = READERS
    """Names or globs of the tools that read a file."""
    writers: tuple[str, ...] = WRITERS
    """Names or globs of the tools that write or patch one."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Cut each read when its file is written."""
        for p, call, old in stale(view, self.readers, self.writers):
            view.change(p, self._cut if old else AS_IT_CAME, since=call)

    def _cut(self, message: Message) -> Message:
        return _cut(message, self.max_chars, CONSUMED)


@dataclass(frozen=True, kw_only=True, repr=False)
class Replies(Scheduled):
    """Cut long replies when they are sent again; summaries are never cut."""

    counts = False
    max_chars: Natural = 2000
    """Characters of text a reply keeps; 0 cuts none."""
    keep_last: Natural = 0
    """Replies at the end that are left alone."""
    suffix: str = TRUNCATED
    """What follows the cut; `{n}` is the number of characters removed."""
    past_only: bool = False
    """Cut replies of earlier turns, and what other agents said; not those of the turn under way
    (fuseraft).
    """

    @property
    def filters_history(self) -> bool:
        """True where the turn under way keeps its replies whole."""
        return self.past_only

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Cut each reply as soon as `keep_last` newer ones are there."""
        if not self.max_chars:
            return
        for p in view.new("user") if self.past_only else ():
            if view.long(p, self.max_chars) and _is_heard(view, p, HEARD):
                view.change(p, self._cut, since=view.arrival(p), low=self.max_chars + 1)
        for p, call, old in view.window("assistant", lambda n: n - self.keep_last):
            if view.long(p, self.max_chars):
                what = self._cut if old else AS_IT_CAME
                view.change(p, what, since=call, low=self.max_chars + 1)

    def _cut(self, message: Message) -> Message:
        summary = contents.texts(message).startswith(_SUMMARY)
        return message if summary else _cut(message, self.max_chars, self.suffix)


@dataclass(frozen=True, kw_only=True, repr=False)
class Outputs(Scheduled):
    """Cut raw tool output by lines, characters, then bytes; a last line says so (as `ai`)."""

    counts = False
    max_lines: Natural = 2000
    """Lines a result keeps; 0: all."""
    max_chars: Natural = 204_800
    """Characters a result keeps; 0: all."""
    max_bytes: Natural = 51_200
    """Bytes of UTF-8 a result keeps; 0: all."""
    mode: Literal["head", "head_tail", "middle"] = "head_tail"
    """`head`; `head_tail` keeps both ends of the lines; `middle` of characters and bytes, too."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose output is cut."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Cut each output as soon as it is there."""
        low = self._low
        for p in view.new("tool", tools=self.tools):
            if view.long(p, low):
                view.change(p, self._cut, since=view.arrival(p), low=low + 1)

    @property
    def _low(self) -> int:
        """Characters up to which nothing can be too long."""
        lows = (
            (self.max_lines, self.max_lines - 1),
            (self.max_chars, self.max_chars),
            (self.max_bytes, self.max_bytes // 4),
        )
        return min((low for limit, low in lows if limit), default=1 << 62)

    def _cut(self, message: Message) -> Message:
        texts = (p.text for p in message.parts if isinstance(p, Text))
        text = "".join(texts)  # as `ai`: blocks without a separator
        short = trims.output(
            text,
            max_lines=self.max_lines,
            max_chars=self.max_chars,
            max_bytes=self.max_bytes,
            mode=self.mode,
        )
        done = short == text or "\n[tool output truncated: " in text[-200:]
        return message if done else contents.with_text(message, short)


def _is_heard(view: ScheduleView, p: int, kind: str) -> bool:
    """Return True for what another agent said, or its tool call with the result."""
    return view.rows.message(p).kind == kind


def _cut(message: Message, cap: int, suffix: str) -> Message:
    """Return a message cut; itself where it is short, was cut before or holds more than text."""
    text = contents.texts(message)
    if len(text) <= cap or contents.has_images(message) or _is_cut(text, suffix):
        return message
    return contents.with_text(message, trims.cut(text, cap, suffix))


def _is_cut(text: str, suffix: str) -> bool:
    """Say whether a text ends as this cut leaves it: a second one would tell less of what went."""
    return text.endswith(suffix.rsplit("{n}", maxsplit=1)[-1])
