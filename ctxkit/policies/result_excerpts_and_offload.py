"""Prunings that move tool results out of the prompt: a digest, excerpts, or artifact stubs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

import msgspec

from ctxkit.policies.policy_base_and_chains import PolicyWithParts
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE
from ctxkit.policies.schedules.pruning_changes_at_new_calls import PositionsByAge, TextsByPosition
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.validated_settings_and_scheduled_prunings import ScheduledPruning
from ctxkit.session.messages import USER_VISIBLE_KEY, Message, Text, get_plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.policies.policy_base_and_chains import BasePolicy
    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural
    from ctxkit.session.messages import ToolCall
    from ctxkit.tokens import ContextBudget


ARCHIVED_STUB = "[archived: see the digest]"
DIGEST_HEADING = "[Compaction tool digest]"
EXCERPT_HEADING = "[Tool output summary]"
EXCERPT_MARKER = "\n... (truncated) ...\n"
ARCHIVED_KIND = "tool_result_archived"


@dataclass(frozen=True, kw_only=True, repr=False)
class OldResultsDigest(ScheduledPruning):
    """Archive all tool results but the newest, and append a digest with one line for each.

    An archived result keeps a stub, so no call is left unanswered. The digest is for the agent
    only (`details["user_visible"]` is False); archived results stay visible to the user.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = OldResultsDigest(keep_last=3)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "OldResultsDigest" for item in pruned.sent(-1))
        40
    """

    keep_last: Natural = 10
    """Number of newest tool results that stay."""
    line_chars: Natural = 200
    """Maximum characters of a line of the digest."""
    appends = True

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Archive old results and append the digest at each call where this saves tokens."""
        view.stages((None, _Archive(self)), lambda _, size: size(1) < size(0))


@dataclass(frozen=True)
class _Archive:
    """The stage of `OldResultsDigest` for calls where it saves tokens."""

    digest: OldResultsDigest

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Archive each result when enough newer ones follow; append the digest."""
        window: PositionsByAge = view.memory.setdefault("results", PositionsByAge())
        lines: TextsByPosition = view.memory.setdefault("lines", TextsByPosition())
        news = {call: more for call, *more in view.iter_visibility_changes("tool")}
        events = view.events("tool")
        for call in view.calls():
            newly_old = set(
                self._shift_window(view, window, lines, call, news.get(call, ((), (), ())))
            )
            newly_old.update(p for p in events.get(call, ()) if p in window and window.is_old(p))
            # A result that another part archived already has no line in the digest.
            for p in sorted(newly_old):
                message = view.message(p, call)
                if message is None or message.kind == ARCHIVED_KIND:
                    lines.remove(p)
                else:
                    lines.insert(p, format_digest_line(message, self.digest.line_chars))
            view.append(partial(_digest_message, *lines.take_snapshot()), call)

    def _shift_window(
        self,
        view: ScheduleView,
        window: PositionsByAge,
        lines: TextsByPosition,
        call: int,
        news: Sequence[Sequence[int]],
    ) -> Iterator[int]:
        """Apply the news of a call to the window; yield each result that becomes old."""
        added, hidden, protected = news
        # Hidden and protected results leave the window; their lines leave the digest.
        for p in (*hidden, *protected):
            if p in window and window.remove(p):
                lines.remove(p)
                view.change(p, UNDO_CHANGE, since=call)
        for p in added:
            if not view.stays(p, call) and window.insert(p):
                view.change(p, _with_stub, since=call)
                yield p
        for p, old in window.set_old_count(len(window.positions) - self.digest.keep_last):
            view.change(p, _with_stub if old else UNDO_CHANGE, since=call)
            if old:
                yield p
            else:
                lines.remove(p)


def _digest_message(lines: list[str], n: int) -> Message | None:
    """Return the digest of the first n lines as a message; None where there are none."""
    return make_agent_only_message("\n".join([DIGEST_HEADING, *lines[:n]])) if n else None


@dataclass(frozen=True, kw_only=True, repr=False)
class ResultExcerpts(ScheduledPruning):
    """Replace old results by a short excerpt with tool, call and status (the agent `ai`).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = ResultExcerpts(keep_last=3)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "ResultExcerpts" for item in pruned.sent(-1))
        23
    """

    counts = False
    keep_last: Natural = 10
    """Number of newest tool results that stay."""
    strategy: Literal["llm", "heuristic", "off"] = "heuristic"
    """`heuristic`: 800 characters, from both ends; `llm`: 1,200; `off`: no change."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Replace each result when it is older than the newest `keep_last`."""
        if self.strategy == "off":
            return
        for p, call, old in view.window("tool", lambda n: n - self.keep_last, with_protected=False):
            view.change(p, self._excerpted if old else UNDO_CHANGE, since=call)

    def _excerpted(self, result: Message) -> Message:
        return (
            result if result.kind == ARCHIVED_KIND else _as_archived(result, self.excerpt(result))
        )

    def excerpt(self, result: Message) -> str:
        """Return the excerpt of a result."""
        limit = 1200 if self.strategy == "llm" else 800
        head = limit * 2 // 3
        text = message_content_and_truncation.truncate_middle(
            get_plain_text(result), head, limit - head, EXCERPT_MARKER
        )
        return format_excerpt(result, text or "(empty output)")


def format_excerpt(result: Message, excerpt: str) -> str:
    """Return an excerpt under a heading with tool, call id and status.

    Args:
        result: the tool result that the excerpt stands for.
        excerpt: the text of the excerpt.
    """
    head = f"{EXCERPT_HEADING}\nTool: {result.tool or 'unknown'}\nCall ID: {result.call_id or ''}"
    return f"{head}\nStatus: {_status(result)}\n{excerpt}"


def _status(result: Message) -> str:
    return {True: "error", False: "ok", None: "unknown"}[result.is_error]


def make_agent_only_message(text: str) -> Message:
    """Return a message about archived results that is shown to the agent, not to the user."""
    details = {USER_VISIBLE_KEY: False}
    return Message(role="user", kind="tool_summary", parts=(Text(text),), details=details)


def format_digest_line(result: Message, limit: int = 200) -> str:
    """Return one line on a tool result: `- name (ok|error|unknown): text`.

    Args:
        result: a tool result.
        limit: characters of its text that are used.
    """
    text = " ".join(get_plain_text(result).split("\n"))[:limit].strip() or "(empty output)"
    return f"- {result.tool or 'unknown'} ({_status(result)}): {text}"


def _with_stub(result: Message) -> Message:
    return result if result.kind == ARCHIVED_KIND else _as_archived(result, ARCHIVED_STUB)


def _as_archived(message: Message, text: str) -> Message:
    return msgspec.structs.replace(
        message_content_and_truncation.replace_text(message, text), kind=ARCHIVED_KIND
    )


STUB_PREFIX = "[result offloaded — "
ARTIFACT_FOLDER = ".ctxkit/artifacts"
"""Folder in the paths of artifacts that an agent is shown; a live session's tools read there."""
DEFAULT_ADVICE = "Use read_file with path='{path}', start and end, or search with that path."
"""How parts of an artifact are read with the kit's file tools."""
_ARTIFACT_LINE = re.compile(r"^Artifact: ([0-9a-f]{12})$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, repr=False)
class ResultOffload(ScheduledPruning):
    """Replace each result longer than a threshold by a stub that names an artifact.

    The id of the artifact is a hash of the text. A replay writes nothing; a live session saves
    `artifacts`, and sends a result whole where it cannot save it.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = ResultOffload(threshold=500)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "ResultOffload" for item in pruned.sent(-1))
        25
    """

    counts = False
    threshold: Natural = 40_000
    """Characters above which a result is offloaded."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of tools whose results are offloaded."""
    advice: str = DEFAULT_ADVICE
    """How parts are read, with `{path}` for the artifact's path; a live session names its tools."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Offload each result on arrival."""
        for p in view.new("tool", tools=self.tools):
            if view.may_be_longer(p, self.threshold):
                what = partial(self._stub, call=view.answered_call(p))
                view.change(p, what, since=view.arrival(p), min_chars=self.threshold + 1)

    def artifacts(self, messages: Iterable[Message]) -> dict[str, Message]:
        """Return the results that it may offload, by artifact id.

        Args:
            messages: messages of a call before this pruning.
        """
        long = (m for m in messages if m.role == "tool" and self._is_long(get_plain_text(m), m))
        return {compute_artifact_id(get_plain_text(m)): m for m in long}

    def _is_long(self, text: str, message: Message) -> bool:
        if len(text) <= self.threshold or text.startswith(STUB_PREFIX):
            return False
        return not message_content_and_truncation.has_images(message)

    def _stub(self, message: Message, call: ToolCall | None) -> Message:
        text = get_plain_text(message)
        if not self._is_long(text, message):
            return message
        stub = format_stub(text, message, call, compute_artifact_id(text), self.advice)
        return message_content_and_truncation.replace_text(message, stub)


def compute_artifact_id(text: str) -> str:
    """Return the artifact id of a text: the first 12 digits of its SHA-256."""
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def find_artifact_in_stub(message: Message) -> str | None:
    """Return the artifact id in a stub; None for other messages, and for stubs that were cut."""
    text = get_plain_text(message)
    match = (
        _ARTIFACT_LINE.search(text)
        if message.role == "tool" and text.startswith(STUB_PREFIX)
        else None
    )
    return match[1] if match else None


def get_artifact_path(artifact: str) -> str:
    """Return the path of an artifact that an agent is shown."""
    return f"{ARTIFACT_FOLDER}/{artifact}.txt"


def is_offloaded(pruning: BasePolicy | None, tool: str, chars: int) -> bool:
    """Return whether a pruning would offload a tool result.

    Args:
        pruning: the pruning of some rules; None offloads nothing.
        tool: name of the tool.
        chars: characters of the result.
    """
    if isinstance(pruning, PolicyWithParts):
        return any(is_offloaded(part, tool, chars) for part in pruning.parts)
    return (
        isinstance(pruning, ResultOffload)
        and pruning.threshold < chars
        and any(fnmatchcase(tool, name) for name in pruning.tools)
    )


def with_advice(pruning: BasePolicy, advice: str) -> BasePolicy:
    """Return a pruning whose stubs say how artifacts are read; itself where nothing changes.

    Args:
        pruning: a pruning; only its parts that offload results change.
        advice: the sentence for the stubs.
    """
    if isinstance(pruning, PolicyWithParts):
        parts = tuple(with_advice(part, advice) for part in pruning.parts)
        same = all(a is b for a, b in zip(parts, pruning.parts, strict=True))
        return pruning if same else dataclass_replace(pruning, parts=parts)
    if isinstance(pruning, ResultOffload) and pruning.advice != advice:
        return dataclass_replace(pruning, advice=advice)
    return pruning


def format_stub(
    text: str,
    result: Message,
    call: ToolCall | None,
    artifact: str,
    advice: str = DEFAULT_ADVICE,
) -> str:
    """Return the stub of an offloaded result, in four lines: size, tool, artifact and advice.

    Args:
        text: the text that is stored.
        result: the tool result.
        call: the tool call; None: the log has none.
        artifact: id of the stored text.
        advice: advice on how to read it; ``{path}`` stands for its path.
    """
    return "\n".join(
        [
            f"{STUB_PREFIX}{len(text):,} chars stored to artifact store]",
            (
                f"Tool: {result.tool or (call.name if call else 'unknown')} | "
                f"{message_content_and_truncation.format_call_hint(call)}"
            ),
            f"Artifact: {artifact}",
            advice.format(path=get_artifact_path(artifact)),
        ]
    )
