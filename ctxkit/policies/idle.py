"""Trim and clear tool results when the provider's cache is cold anyway (OpenClaw's and Fased's session pruning)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from ctxkit.history.columns import Column
from ctxkit.policies import contents, trims
from ctxkit.policies.setting import Setting, at_least, share
from ctxkit.policies.traces import traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ctxkit.history import History
    from ctxkit.history.clock import Clock
    from ctxkit.messages import Message
    from ctxkit.tokens import Room

PLACEHOLDER = "[Old tool result content cleared]"


@dataclass(frozen=True, kw_only=True, repr=False)
class CacheTtl(Setting):
    """After a pause longer than the cache lives, trim large old results; clear the oldest where that is not enough.

    The pause is read off the log: from the end of the call before to this one. Where times are unknown nothing is done.
    """

    ttl_seconds: float = 300.0
    """Seconds since the last call before which nothing is done; 0: at every call."""
    keep_last_assistants: int = 3
    """From this reply from the end on, nothing is touched; 0: everything may be."""
    soft_trim_ratio: float = 0.3
    """Share of the window, in characters, from which results are trimmed."""
    hard_clear_ratio: float = 0.5
    """Share of the window, in characters, from which results are cleared, until it is below."""
    min_prunable_tool_chars: int = 50_000
    """Results are cleared only where there are at least so many characters of them."""
    soft_trim_max_chars: int = 4000
    """Results of more characters are trimmed."""
    soft_trim_head_chars: int = 1500
    """Characters that a trimmed result keeps at its head."""
    soft_trim_tail_chars: int = 1500
    """Characters that it keeps at its tail."""
    hard_clear: bool = True
    """Whether results are cleared at all."""
    placeholder: str = PLACEHOLDER
    """What a cleared result says."""
    allow: tuple[str, ...] = ("*",)
    """Names or globs of the tools this concerns; empty: all, as in the program."""
    deny: tuple[str, ...] = ()
    """Names or globs of the tools it never concerns; stronger than `allow`."""
    keep_images: int = 0
    """Results with images are skipped; from how many images from the end on, where above 0 (OpenClaw: the last 3)."""

    def __post_init__(self) -> None:
        at_least(self, 0, "ttl_seconds", "keep_last_assistants", "min_prunable_tool_chars", "keep_images")
        at_least(self, 0, "soft_trim_max_chars", "soft_trim_head_chars", "soft_trim_tail_chars")
        share(self, "soft_trim_ratio", "hard_clear_ratio")

    def __call__(self, history: History, room: Room) -> History:
        """Return the history as this call is sent."""
        if not self.due(history):
            return history
        which = self.prunable(history)
        window = room.limit * 4
        if not which.any() or int(history.chars.sum()) < self.soft_trim_ratio * window:
            return history
        return self.cleared(self.trimmed(history, which), which, window)

    changes = ("tool",)

    @property
    def traced_bill(self) -> Callable[..., tuple[NDArray[Any], NDArray[Any]]]:
        """What all coming calls are sent at once; not there where it may act at every call."""
        if not self.ttl_seconds:
            raise AttributeError("traced_bill")
        return self._traced_bill

    def _traced_bill(
        self, history: History, start: int, stop: int, clock: Clock, room: Room
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        return traced((self,), self, history, (start, stop), clock, room)

    def acts(self, history: History, span: tuple[int, int], _prompts: NDArray[Any], _room: Room) -> list[int]:
        """Return the calls of a span at which it may do anything: those after a long pause."""
        if not self.ttl_seconds:
            return list(range(*span))
        late = history.log.clock(self.ttl_seconds).calls  # the first call, always cold, has no pause before it
        return late[bisect_left(late, max(span[0], 1)) : bisect_left(late, span[1])]

    def due(self, history: History) -> bool:
        """Say whether the pause before this call was long enough."""
        if not self.ttl_seconds:
            return True
        log, call = history.log, history.call
        if not 0 < call < log.calls:
            return False
        pause = log.sent[call] - log.done[call - 1]
        return not isnan(pause) and pause >= self.ttl_seconds

    def prunable(self, history: History) -> NDArray[Any]:
        """Return a mask of the results that may be touched: after the first user message, before the last replies."""
        start, stop = self._span(history)
        if start < 0 or stop < 0:
            return np.zeros(len(history), bool)
        mask = history.tool(*(self.allow or ("*",)))
        mask[:start] = mask[stop:] = False
        if self.deny:
            mask &= ~history.tool(*self.deny)
        mask[self._seen(history, mask)] = False
        return mask

    def _span(self, history: History) -> tuple[int, int]:
        """Return the first user message, and the first of the last replies; -1: there is none."""
        last = self.keep_last_assistants
        return history.next(0, "user"), history.nth_last("assistant", last) if last else len(history)

    def _seen(self, history: History, mask: NDArray[Any]) -> NDArray[Any]:
        """Return the positions of the results among those of a mask whose images protect them."""
        found = np.flatnonzero(mask & _with_images(history))
        return found[-self.keep_images :] if self.keep_images else found

    def trimmed(self, history: History, which: NDArray[Any]) -> History:
        """Return the history with long results cut to head and tail."""
        long = np.flatnonzero(which & (history.chars > self.whole)).tolist()
        changes = {p: self.trim(history[p]) for p in long}
        return history.shorten(changes, reason="long results are trimmed to head and tail") if changes else history

    @property
    def whole(self) -> int:
        """Characters up to which a result is left whole."""
        return max(self.soft_trim_max_chars, self.soft_trim_head_chars + self.soft_trim_tail_chars)

    def trim(self, message: Message) -> Message:
        """Return a long result as head and tail; the message itself where it is not long, or was trimmed."""
        text = contents.texts(message)
        if len(text) <= self.whole or "\n\n[Tool result trimmed: " in text[-200:]:
            return message
        return contents.with_text(message, soft(text, self.soft_trim_head_chars, self.soft_trim_tail_chars))

    def cleared(self, history: History, which: NDArray[Any], window: int) -> History:
        """Return the history with the oldest results cleared until it is below the share."""
        oldest = self._oldest(history.chars, which, window)
        return history.shorten(oldest, self.placeholder, reason="the oldest results are cleared")

    def _oldest(self, chars: NDArray[Any], which: NDArray[Any], window: int) -> NDArray[Any]:
        """Return the positions of the results to clear."""
        total, limit = int(chars.sum()), self.hard_clear_ratio * window
        positions = np.flatnonzero(which & (chars > len(self.placeholder)))
        enough = int(chars[positions].sum()) >= self.min_prunable_tool_chars
        if not self.hard_clear or total < limit or not enough:
            return positions[:0]
        left = total - np.cumsum(chars[positions] - len(self.placeholder))
        return positions[: int(np.searchsorted(-left, -limit, side="right")) + 1]


def _with_images(history: History) -> NDArray[Any]:
    """Return a mask of the messages that hold images."""
    log, head = history.log, history.head
    column = log.memo.get("images")
    if column is None:
        messages = log.messages
        column = log.memo["images"] = Column(lambda a, b: [contents.has_images(m) for m in messages[a:b]], np.bool_)
    tail: NDArray[Any] = column.upto(history.hi)[history.lo :]
    if not head.size:
        return tail
    return np.concatenate(([contents.has_images(i.message(log)) for i in head.items], tail))


def soft(text: str, head: int, tail: int) -> str:
    """Return head and tail of a text with OpenClaw's note on what it was."""
    note = f"\n\n[Tool result trimmed: kept first {head} chars and last {tail} chars of {len(text)} chars.]"
    return trims.ends(text, head, tail, "\n...\n") + note
