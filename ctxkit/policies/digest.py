"""Archive old tool results behind a digest, or behind a short excerpt each (the agent `ai`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from ctxkit.errors import BadArguments
from ctxkit.messages import Message, Text
from ctxkit.policies import contents, trims
from ctxkit.policies.setting import Setting, at_least
from ctxkit.policies.traces import Traced

if TYPE_CHECKING:
    from ctxkit.history import History
    from ctxkit.policies.courses import Course
    from ctxkit.tokens import Room

ARCHIVED = "[archived: see the digest]"
DIGEST = "[Compaction tool digest]"
OUTPUT = "[Tool output summary]"
KIND = "tool_result_archived"


@dataclass(frozen=True, kw_only=True, repr=False)
class Digest(Setting):
    """Archive all tool results but the last, and say in one message at the end what each of them was.

    The call of an archived result keeps a stub as its result, so no call is left unanswered. The digest is for the
    agent only: `details["user_visible"]` is False on it, while the archived results stay visible to the user.
    """

    keep_last: int = 10
    """Tool results at the end that stay whole."""
    line_chars: int = 200
    """Characters of each result in the digest."""

    def __post_init__(self) -> None:
        at_least(self, 0, "keep_last", "line_chars")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with old results archived and a digest at its end."""
        old = _old(history, self.keep_last)
        if not old:
            return history
        lines = [digest_line(history[p], self.line_chars) for p in old]
        new = history.shorten({p: _archived(history[p], ARCHIVED) for p in old}, reason="archived behind a digest")
        if new is history:
            return history
        digest = Message(
            role="user",
            kind="tool_summary",
            parts=(Text("\n".join([DIGEST, *lines])),),
            details={"user_visible": False},
        )
        told = new.insert(len(new), digest, "the digest of what was archived")
        return told if told.tokens < history.tokens else history


@dataclass(frozen=True, kw_only=True, repr=False)
class Excerpts(Traced, Setting):
    """Put a short excerpt, with tool, call and status, in the place of each tool result but the last (as `ai`)."""

    keep_last: int = 10
    """Tool results at the end that stay whole."""
    strategy: Literal["llm", "heuristic", "off"] = "heuristic"
    """`heuristic` takes 800 characters of both ends; `llm` allows 1,200; `off` does nothing."""

    def __post_init__(self) -> None:
        at_least(self, 0, "keep_last")
        if self.strategy not in ("llm", "heuristic", "off"):
            raise BadArguments(f"A tool summary strategy is llm, heuristic or off, not {self.strategy!r}.")

    def __call__(self, history: History, _room: Room) -> History:
        """Return the history with old results as excerpts."""
        if self.strategy == "off":
            return history
        changes: dict[int, Message | str] = {
            p: _archived(history[p], self.excerpt(history[p])) for p in _old(history, self.keep_last)
        }
        return history.shorten(changes, reason="old results are excerpts") if changes else history

    changes = ("tool",)

    def trace(self, course: Course, _room: Room) -> None:
        """Say when each result becomes an excerpt: as soon as `keep_last` newer ones are there."""
        if self.strategy == "off":
            return
        course.need_calls()
        found = np.flatnonzero(course.shown.role("tool") & ~course.stays)
        late = course.arrive[found[self.keep_last :]].tolist()
        for p, call in zip(found.tolist(), late, strict=False):
            course.change(p, call, lambda m: m if m.kind == KIND else _archived(m, self.excerpt(m)))

    def excerpt(self, result: Message) -> str:
        """Return the text that stands for a result."""
        limit = 1200 if self.strategy == "llm" else 800
        head = limit * 2 // 3
        text = trims.ends(contents.texts(result), head, limit - head, "\n... (truncated) ...\n") or "(empty output)"
        status = "error" if result.is_error else "ok"
        return f"{OUTPUT}\nTool: {result.tool or 'unknown'}\nCall ID: {result.call_id or ''}\nStatus: {status}\n{text}"


def digest_line(result: Message, limit: int = 200) -> str:
    """Return one line on a tool result: `- name (ok|error): text`."""
    text = " ".join(contents.texts(result).split("\n"))[:limit].strip() or "(empty output)"
    return f"- {result.tool or 'unknown'} ({'error' if result.is_error else 'ok'}): {text}"


def _old(history: History, keep: int) -> list[int]:
    """Return positions of the tool results before the last `keep`, those archived before left out."""
    found = np.flatnonzero(history.role("tool") & ~history.stays).tolist()
    return [p for p in found[: max(len(found) - keep, 0)] if history[p].kind != KIND]


def _archived(message: Message, text: str) -> Message:
    return msgspec.structs.replace(contents.with_text(message, text), kind=KIND)
