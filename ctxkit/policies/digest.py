"""Archive old tool results behind a digest, or behind a short excerpt each (the agent `ai`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from ctxkit.messages import USER_VISIBLE, Message, Text
from ctxkit.policies.scheduled import Scheduled
from ctxkit.schedules import AS_IT_CAME, OldFirst, Roll
from ctxkit.texts import contents, trims

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.policies.setting import Natural
    from ctxkit.schedules import ScheduleView
    from ctxkit.tokens import Room

ARCHIVED = "[archived: see the digest]"
DIGEST = "[Compaction tool digest]"
OUTPUT = "[Tool output summary]"
CUT = "\n... (truncated) ...\n"
KIND = "tool_result_archived"


@dataclass(frozen=True, kw_only=True, repr=False)
class Digest(Scheduled):
    """Archive all tool results but the last, and say in one message at the end what each of them
    was.

    The call of an archived result keeps a stub as its result, so no call is left unanswered. The
    digest is for the agent only: `details["user_visible"]` is False on it, while the archived
    results stay visible to the user.
    """

    keep_last: Natural = 10
    """Tool results at the end that stay whole."""
    line_chars: Natural = 200
    """Characters of each result in the digest."""
    appends = True

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Archive at each call what is old, and append the digest, where both together save."""
        view.stages((None, _Archive(self)), lambda _, size: size(1) < size(0))


@dataclass(frozen=True)
class _Archive:
    """What a `Digest` makes of each call, whether it saves or not."""

    digest: Digest

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Archive each result as soon as enough newer ones are there; append what they were."""
        window: OldFirst = view.memory.setdefault("results", OldFirst())
        lines: Roll = view.memory.setdefault("lines", Roll())
        news = {call: more for call, *more in view.news("tool")}
        events = view.events("tool")
        for call in view.calls():
            old = set(self._shifted(view, window, lines, call, news.get(call, ((), (), ()))))
            old.update(p for p in events.get(call, ()) if p in window and window.is_old(p))
            for p in sorted(old):
                message = view.message(p, call)
                if message is None or message.kind == KIND:
                    lines.out(p)
                else:
                    lines.put(p, digest_line(message, self.digest.line_chars))
            view.append(partial(_told, *lines.now()), call)

    def _shifted(
        self,
        view: ScheduleView,
        window: OldFirst,
        lines: Roll,
        call: int,
        news: Sequence[Sequence[int]],
    ) -> Iterator[int]:
        """Let the window follow a call; yield each result that becomes one of the old ones."""
        came, went, settled = news
        for p in (*went, *settled):
            if p in window and window.out(p):
                lines.out(p)
                view.change(p, AS_IT_CAME, since=call)
        for p in came:
            if not view.stays(p, call) and window.put(p):
                view.change(p, _stubbed, since=call)
                yield p
        for p, old in window.settle(len(window.found) - self.digest.keep_last):
            view.change(p, _stubbed if old else AS_IT_CAME, since=call)
            if old:
                yield p
            else:
                lines.out(p)


def _told(lines: list[str], n: int) -> Message | None:
    """Return the message of the first so many lines; None where there are none."""
    return for_agent("\n".join([DIGEST, *lines[:n]])) if n else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Excerpts(Scheduled):
    """Put a short excerpt, with tool, call and status, in the place of old results (as `ai`)."""

    counts = False
    keep_last: Natural = 10
    """Tool results at the end that stay whole."""
    strategy: Literal["llm", "heuristic", "off"] = "heuristic"
    """`heuristic` takes 800 characters of both ends; `llm` allows 1,200; `off` does nothing."""

    def schedule(self, view: ScheduleView, _room: Room) -> None:
        """Put an excerpt in each result's place as soon as `keep_last` newer ones are there."""
        if self.strategy == "off":
            return
        for p, call, old in view.window("tool", lambda n: n - self.keep_last, settled=False):
            view.change(p, self._excerpted if old else AS_IT_CAME, since=call)

    def _excerpted(self, result: Message) -> Message:
        return result if result.kind == KIND else _archived(result, self.excerpt(result))

    def excerpt(self, result: Message) -> str:
        """Return the text that stands for a result."""
        limit = 1200 if self.strategy == "llm" else 800
        head = limit * 2 // 3
        text = trims.ends(contents.texts(result), head, limit - head, CUT)
        return summarised(result, text or "(empty output)")


def summarised(result: Message, said: str) -> str:
    """Return what is said of a result, under the tool, the call and how it ended."""
    head = f"{OUTPUT}\nTool: {result.tool or 'unknown'}\nCall ID: {result.call_id or ''}"
    return f"{head}\nStatus: {'error' if result.is_error else 'ok'}\n{said}"


def for_agent(text: str) -> Message:
    """Return a message that says what was archived: for the agent, not for the user."""
    details = {USER_VISIBLE: False}
    return Message(role="user", kind="tool_summary", parts=(Text(text),), details=details)


def digest_line(result: Message, limit: int = 200) -> str:
    """Return one line on a tool result: `- name (ok|error): text`."""
    text = " ".join(contents.texts(result).split("\n"))[:limit].strip() or "(empty output)"
    return f"- {result.tool or 'unknown'} ({'error' if result.is_error else 'ok'}): {text}"


def _stubbed(result: Message) -> Message:
    return result if result.kind == KIND else _archived(result, ARCHIVED)


def _archived(message: Message, text: str) -> Message:
    return msgspec.structs.replace(contents.with_text(message, text), kind=KIND)
