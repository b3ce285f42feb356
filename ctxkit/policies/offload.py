"""Move tool results out of the prompt: behind a digest, an excerpt, or a stub that names an
artifact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import msgspec

from ctxkit.policies.base import ScheduledPruning
from ctxkit.policies.schedules.message_changes import AS_IT_CAME
from ctxkit.policies.schedules.schedule_input import OrderedTexts, SlidingWindow
from ctxkit.policies.texts import content
from ctxkit.session.messages import USER_VISIBLE_KEY, Message, Text, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.policies.base import Natural
    from ctxkit.policies.schedules.schedule_input import ScheduleView
    from ctxkit.session.messages import ToolCall
    from ctxkit.tokens import ContextBudget


ARCHIVED_STUB = "[archived: see the digest]"
DIGEST_HEADING = "[Compaction tool digest]"
EXCERPT_HEADING = "[Tool output summary]"
EXCERPT_MARKER = "\n... (truncated) ...\n"
ARCHIVED_KIND = "tool_result_archived"


@dataclass(frozen=True, kw_only=True, repr=False)
class Digest(ScheduledPruning):
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

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Archive at each call what is old, and append the digest, where both together save."""
        view.stages((None, _Archive(self)), lambda _, size: size(1) < size(0))


@dataclass(frozen=True)
class _Archive:
    """What a `Digest` makes of each call, whether it saves or not."""

    digest: Digest

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Archive each result as soon as enough newer ones are there; append what they were."""
        window: SlidingWindow = view.memory.setdefault("results", SlidingWindow())
        lines: OrderedTexts = view.memory.setdefault("lines", OrderedTexts())
        news = {call: more for call, *more in view.news("tool")}
        events = view.events("tool")
        for call in view.calls():
            newly_old = set(self._shifted(view, window, lines, call, news.get(call, ((), (), ()))))
            newly_old.update(p for p in events.get(call, ()) if p in window and window.is_old(p))
            for p in sorted(newly_old):
                message = view.message(p, call)
                if message is None or message.kind == ARCHIVED_KIND:
                    lines.out(p)
                else:
                    lines.put(p, digest_line(message, self.digest.line_chars))
            view.append(partial(_digest_message, *lines.now()), call)

    def _shifted(
        self,
        view: ScheduleView,
        window: SlidingWindow,
        lines: OrderedTexts,
        call: int,
        news: Sequence[Sequence[int]],
    ) -> Iterator[int]:
        """Let the window follow a call; yield each result that becomes one of the old ones."""
        added, hidden, protected = news
        for p in (*hidden, *protected):
            if p in window and window.out(p):
                lines.out(p)
                view.change(p, AS_IT_CAME, since=call)
        for p in added:
            if not view.stays(p, call) and window.put(p):
                view.change(p, _with_stub, since=call)
                yield p
        for p, old in window.settle(len(window.found) - self.digest.keep_last):
            view.change(p, _with_stub if old else AS_IT_CAME, since=call)
            if old:
                yield p
            else:
                lines.out(p)


def _digest_message(lines: list[str], n: int) -> Message | None:
    """Return the message of the first so many lines; None where there are none."""
    return agent_only_message("\n".join([DIGEST_HEADING, *lines[:n]])) if n else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Excerpts(ScheduledPruning):
    """Put a short excerpt, with tool, call and status, in the place of old results (as `ai`)."""

    counts = False
    keep_last: Natural = 10
    """Tool results at the end that stay whole."""
    strategy: Literal["llm", "heuristic", "off"] = "heuristic"
    """`heuristic` takes 800 characters of both ends; `llm` allows 1,200; `off` does nothing."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Put an excerpt in each result's place as soon as `keep_last` newer ones are there."""
        if self.strategy == "off":
            return
        for p, call, old in view.window("tool", lambda n: n - self.keep_last, settled=False):
            view.change(p, self._excerpted if old else AS_IT_CAME, since=call)

    def _excerpted(self, result: Message) -> Message:
        return (
            result if result.kind == ARCHIVED_KIND else _as_archived(result, self.excerpt(result))
        )

    def excerpt(self, result: Message) -> str:
        """Return the text that stands for a result."""
        limit = 1200 if self.strategy == "llm" else 800
        head = limit * 2 // 3
        text = content.truncate_middle(plain_text(result), head, limit - head, EXCERPT_MARKER)
        return format_excerpt(result, text or "(empty output)")


def format_excerpt(result: Message, excerpt: str) -> str:
    """Return what is said of a result, under the tool, the call and how it ended."""
    head = f"{EXCERPT_HEADING}\nTool: {result.tool or 'unknown'}\nCall ID: {result.call_id or ''}"
    return f"{head}\nStatus: {'error' if result.is_error else 'ok'}\n{excerpt}"


def agent_only_message(text: str) -> Message:
    """Return a message that says what was archived: for the agent, not for the user."""
    details = {USER_VISIBLE_KEY: False}
    return Message(role="user", kind="tool_summary", parts=(Text(text),), details=details)


def digest_line(result: Message, limit: int = 200) -> str:
    """Return one line on a tool result: `- name (ok|error): text`."""
    text = " ".join(plain_text(result).split("\n"))[:limit].strip() or "(empty output)"
    return f"- {result.tool or 'unknown'} ({'error' if result.is_error else 'ok'}): {text}"


def _with_stub(result: Message) -> Message:
    return result if result.kind == ARCHIVED_KIND else _as_archived(result, ARCHIVED_STUB)


def _as_archived(message: Message, text: str) -> Message:
    return msgspec.structs.replace(content.replace_text(message, text), kind=ARCHIVED_KIND)


STUB_PREFIX = "[result offloaded — "
_ARTIFACT_LINE = re.compile(r"^Artifact: ([0-9a-f]{12})$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, repr=False)
class Offload(ScheduledPruning):
    """Put a stub in the place of each result longer than a threshold, as soon as it is there.

    The stub names an artifact by what the result says. A replay writes nothing; a live session
    saves what `artifacts` says, or sends the result whole where it cannot.
    """

    counts = False
    threshold: Natural = 40_000
    """Results of more characters are offloaded."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose results are offloaded."""

    def schedule(self, view: ScheduleView, _room: ContextBudget) -> None:
        """Offload each result as soon as it is there."""
        for p in view.new("tool", tools=self.tools):
            if view.long(p, self.threshold):
                what = partial(self._stub, call=view.asked(p))
                view.change(p, what, since=view.arrival(p), low=self.threshold + 1)

    def artifacts(self, messages: Iterable[Message]) -> dict[str, Message]:
        """Return the results that it may put stubs for, by the artifact that the stub names.

        Args:
            messages: what a call shows before this pruning.
        """
        long = (m for m in messages if m.role == "tool" and self._is_long(plain_text(m), m))
        return {artifact_id(plain_text(m)): m for m in long}

    def _is_long(self, text: str, message: Message) -> bool:
        if len(text) <= self.threshold or text.startswith(STUB_PREFIX):
            return False
        return not content.has_images(message)

    def _stub(self, message: Message, call: ToolCall | None) -> Message:
        text = plain_text(message)
        if not self._is_long(text, message):
            return message
        return content.replace_text(message, format_stub(text, message, call, artifact_id(text)))


def artifact_id(text: str) -> str:
    """Return the name of the artifact that holds a text: the first 12 digits of its SHA-256."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def artifact_in_stub(message: Message) -> str | None:
    """Return the artifact that a stub names; None: it is no stub, or one that was cut."""
    text = plain_text(message)
    match = (
        _ARTIFACT_LINE.search(text)
        if message.role == "tool" and text.startswith(STUB_PREFIX)
        else None
    )
    return match[1] if match else None


def format_stub(text: str, result: Message, call: ToolCall | None, artifact: str) -> str:
    """Return the four lines that stand for an offloaded result."""
    return "\n".join(
        [
            f"{STUB_PREFIX}{len(text):,} chars stored to artifact store]",
            (
                f"Tool: {result.tool or (call.name if call else 'unknown')} | "
                f"{content.call_hint(call)}"
            ),
            f"Artifact: {artifact}",
            (
                "Use targeted tools (e.g. read_file with startLine/maxLines, or grep_in_file) for"
                " specific sections."
            ),
        ]
    )
