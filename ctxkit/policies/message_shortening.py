"""Prunings that shorten messages: results, replies, stale reads, output, old ones over a budget."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ctxkit.errors import BadArguments
from ctxkit.policies.history.growing_columns_and_sums import TOOL
from ctxkit.policies.schedules.pruned_message_states import UNDO_CHANGE
from ctxkit.policies.schedules.pruning_changes_at_new_calls import PositionsByAge
from ctxkit.policies.texts import message_content_and_truncation
from ctxkit.policies.validated_settings_and_scheduled_prunings import (
    ScheduledPruning,
    check_at_least,
)
from ctxkit.session.messages import (
    OTHER_AGENT_CALL_KIND,
    OTHER_AGENT_KIND,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    get_plain_text,
)
from ctxkit.session.tool_call_paths_and_descriptions import (
    READ_TOOL_PATTERNS,
    WRITE_TOOL_PATTERNS,
    matches_tool,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ctxkit.policies.schedules.pruning_changes_at_new_calls import ScheduleView
    from ctxkit.policies.validated_settings_and_scheduled_prunings import Natural, Positive
    from ctxkit.tokens import ContextBudget


TRUNCATED_SUFFIX = "\n[...truncated — {n} chars omitted to reduce context size...]"
CONSUMED_SUFFIX = (
    "\n[...{n} chars elided — file was written or patched later this session; "
    "call read_file again if current content is needed]"
)
_SUMMARY_PREFIX = "[CONVERSATION SUMMARY"


@dataclass(frozen=True, kw_only=True, repr=False)
class ResultShortening(ScheduledPruning):
    """Cut tool results to a number of characters, by tool if set; stale reads to fewer.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = ResultShortening(max_chars=300)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "ResultShortening" for item in pruned.sent(-1))
        25
    """

    counts = False
    max_chars: Natural = 8000
    """Characters of a tool result; 0: cut none."""
    overrides: Mapping[str, int] = field(default_factory=dict)
    """Characters by tool name (in any case) instead of `max_chars`; 0: cut none."""
    consumed_chars: int = 500
    """Characters of a read result once its file is written later; -1: as any other result."""
    suffix: str = TRUNCATED_SUFFIX
    """What follows the cut; `{n}` is the number of characters removed."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools that may be cut."""
    past_only: bool = False
    """Cut results of earlier turns only, also of other agents (fuseraft)."""

    def __post_init__(self) -> None:
        check_at_least(self, -1, "consumed_chars")
        for tool, chars in self.overrides.items():
            if not isinstance(chars, int) or chars < 0:
                raise BadArguments(
                    f"Results needs a number of characters for tool {tool!r}, not {chars!r}."
                )

    @property
    def filters_history(self) -> bool:
        """True where only earlier turns are cut."""
        return self.past_only

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Cut each result on arrival; a read shorter when its file is written."""
        if not self.max_chars:
            return
        low = self._low
        roles = ("tool", "user") if self.past_only else ("tool",)
        for p in view.new(*roles, tools=self.tools):
            if view.may_be_longer(p, low) and (
                view.role(p) == TOOL or _is_kind(view, p, OTHER_AGENT_CALL_KIND)
            ):
                view.change(p, self._cut, since=view.arrival(p), min_chars=low + 1)
        for p, call, old in iter_read_staleness_changes(view) if self.consumed_chars >= 0 else ():
            if view.is_tool(p, self.tools) and view.may_be_longer(p, low):
                view.change(p, self._consumed if old else self._cut, since=call, min_chars=low + 1)

    @property
    def _low(self) -> int:
        """Characters up to which no result is cut."""
        consumed_cap = [self.consumed_chars] if self.consumed_chars >= 0 else []
        return min([self.max_chars, *filter(None, self.overrides.values()), *consumed_cap])

    def _consumed(self, message: Message) -> Message:
        return _cut_message(message, self.consumed_chars, CONSUMED_SUFFIX)

    def _cut(self, message: Message) -> Message:
        tool = (message.tool or "").lower()
        overrides = (n for name, n in self.overrides.items() if name.lower() == tool)
        cap = next(overrides, self.max_chars)
        return _cut_message(message, cap, self.suffix) if cap else message


@dataclass(frozen=True, kw_only=True, repr=False)
class StaleReadShortening(ScheduledPruning):
    """Cut read results whose file is written or patched later: they are out of date.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("billing"))
        >>> pruning = StaleReadShortening(max_chars=100)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "StaleReadShortening" for item in pruned.sent(-1))
        64
    """

    counts = False
    max_chars: Natural = 500
    """Characters of a stale read."""
    readers: tuple[str, ...] = READ_TOOL_PATTERNS
    """Names or globs of tools that read a file."""
    writers: tuple[str, ...] = WRITE_TOOL_PATTERNS
    """Names or globs of tools that write or patch a file."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Cut each read when its file is written."""
        for p, call, old in iter_read_staleness_changes(view, self.readers, self.writers):
            view.change(p, self._cut if old else UNDO_CHANGE, since=call)

    def _cut(self, message: Message) -> Message:
        return _cut_message(message, self.max_chars, CONSUMED_SUFFIX)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReplyShortening(ScheduledPruning):
    """Cut long replies when they are sent again; summaries are never cut.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("chat"))
        >>> pruning = ReplyShortening(max_chars=100)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "ReplyShortening" for item in pruned.sent(-1))
        43
    """

    counts = False
    max_chars: Natural = 2000
    """Characters of a reply's text; 0: cut none."""
    keep_last: Natural = 0
    """Number of newest replies that stay."""
    suffix: str = TRUNCATED_SUFFIX
    """What follows the cut; `{n}` is the number of characters removed."""
    past_only: bool = False
    """Cut replies of earlier turns only, also of other agents (fuseraft)."""

    @property
    def filters_history(self) -> bool:
        """True where only earlier turns are cut."""
        return self.past_only

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Cut each reply when it is older than the newest `keep_last`."""
        if not self.max_chars:
            return
        for p in view.new("user") if self.past_only else ():
            if view.may_be_longer(p, self.max_chars) and _is_kind(view, p, OTHER_AGENT_KIND):
                view.change(p, self._cut, since=view.arrival(p), min_chars=self.max_chars + 1)
        for p, call, old in view.window("assistant", lambda n: n - self.keep_last):
            if view.may_be_longer(p, self.max_chars):
                what = self._cut if old else UNDO_CHANGE
                view.change(p, what, since=call, min_chars=self.max_chars + 1)

    def _cut(self, message: Message) -> Message:
        summary = get_plain_text(message).startswith(_SUMMARY_PREFIX)
        return message if summary else _cut_message(message, self.max_chars, self.suffix)


@dataclass(frozen=True, kw_only=True, repr=False)
class OutputShortening(ScheduledPruning):
    """Cut raw tool output by lines, then characters, then bytes, with a note (the agent `ai`).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = OutputShortening(max_lines=5, max_chars=200)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "OutputShortening" for item in pruned.sent(-1))
        25
    """

    counts = False
    max_lines: Natural = 2000
    """Lines of a result; 0: all."""
    max_chars: Natural = 204_800
    """Characters of a result; 0: all."""
    max_bytes: Natural = 51_200
    """UTF-8 bytes of a result; 0: all."""
    mode: Literal["head", "head_tail", "middle"] = "head_tail"
    """`head` keeps the start, `head_tail` both ends of the lines, `middle` both ends of all."""
    tools: tuple[str, ...] = ("*",)
    """Names or globs of the tools whose output is cut."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Cut each output on arrival."""
        low = self._low
        for p in view.new("tool", tools=self.tools):
            if view.may_be_longer(p, low):
                view.change(p, self._cut, since=view.arrival(p), min_chars=low + 1)

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
        # A result that is short, or has the note of a cut already, stays as it is.
        texts = (p.text for p in message.parts if isinstance(p, Text))
        text = "".join(texts)  # as `ai`: blocks without a separator
        short = message_content_and_truncation.truncate_output(
            text,
            max_lines=self.max_lines,
            max_chars=self.max_chars,
            max_bytes=self.max_bytes,
            mode=self.mode,
        )
        done = short == text or "\n[tool output truncated: " in text[-200:]
        return message if done else message_content_and_truncation.replace_text(message, short)


def _is_kind(view: ScheduleView, p: int, kind: str) -> bool:
    """Return True for a message of a kind, such as another agent's reply or tool call."""
    return view.rows.message(p).kind == kind


def _cut_message(message: Message, cap: int, suffix: str) -> Message:
    """Return a message cut; itself where it is short, cut already, or has images."""
    text = get_plain_text(message)
    if (
        len(text) <= cap
        or message_content_and_truncation.has_images(message)
        or _is_cut(text, suffix)
    ):
        return message
    return message_content_and_truncation.replace_text(
        message, message_content_and_truncation.truncate_end(text, cap, suffix)
    )


def _is_cut(text: str, suffix: str) -> bool:
    """Return True for a text that ends in the note of a cut: a second cut would lose its number."""
    return text.endswith(suffix.rsplit("{n}", maxsplit=1)[-1])


class _FileReads(NamedTuple):
    """Positions of the replies that write one file, and of its reads by staleness.

    `fresh` and `stale` map the position of a read result to that of the reply that called it.
    """

    writes: set[int]
    fresh: dict[int, int]
    stale: dict[int, int]


def iter_read_staleness_changes(
    view: ScheduleView,
    readers: tuple[str, ...] = READ_TOOL_PATTERNS,
    writers: tuple[str, ...] = WRITE_TOOL_PATTERNS,
) -> Iterator[tuple[int, int, bool]]:
    """Yield (position, call, is_stale) when a read becomes stale, or no longer is.

    A read is stale while a reply after the one that called it writes the same file. Tool calls
    count as recorded, except those of hidden replies; paths are compared without case.

    Args:
        view: the messages and the new calls.
        readers: names or globs of tools that read a file.
        writers: names or globs of tools that write one.

    Returns:
        Position of the read's result, number of the call from which the change holds, and whether
        the read is stale from then on.
    """
    files: dict[str, _FileReads] = view.memory.setdefault(("files", readers, writers), {})
    for call, added, hidden, _ in view.iter_visibility_changes("assistant", "tool"):
        # Only files that a change touches can have reads whose staleness changes.
        touched = dict.fromkeys(path for p in hidden for path in _written_paths(view, p, writers))
        for path in touched:
            files[path].writes.difference_update(hidden)
        for p in added:
            for path in _written_paths(view, p, writers):
                touched[path] = None
                _file_entry(files, path).writes.add(p)
            path = _read_path(view, p, readers)
            if path and p not in _file_entry(files, path).stale:
                touched[path] = None
                files[path].fresh[p] = _calling_reply(view, p)
        for path in touched:
            for p, is_stale in _update_stale(files[path]):
                yield p, call, is_stale


def _update_stale(file: _FileReads) -> Iterator[tuple[int, bool]]:
    """Yield each read that becomes stale (True), or no longer is (False)."""
    # A read is stale if the last write comes after the reply that called it.
    last = max(file.writes, default=-1)
    for p in [p for p, at in file.fresh.items() if at < last]:
        file.stale[p] = file.fresh.pop(p)
        yield p, True
    for p in [p for p, at in file.stale.items() if at >= last]:
        file.fresh[p] = file.stale.pop(p)
        yield p, False


def _file_entry(files: dict[str, _FileReads], path: str) -> _FileReads:
    return files.setdefault(path, _FileReads(set(), {}, {}))


def _written_paths(view: ScheduleView, p: int, writers: tuple[str, ...]) -> list[str]:
    """Return the paths that a reply writes."""
    if view.role(p) == TOOL:
        return []
    return [
        path for call in view.recorded_calls(p) if (path := get_matching_call_path(call, writers))
    ]


def _read_path(view: ScheduleView, p: int, readers: tuple[str, ...]) -> str:
    """Return the path of the file that a result is the content of; empty for other results."""
    call = view.answered_call(p) if view.role(p) == TOOL else None
    return get_matching_call_path(call, readers) if call is not None else ""


def _calling_reply(view: ScheduleView, p: int) -> int:
    """Return the position of the reply that called for a result; -1 where there is none."""
    at = view.rows.place(view.rows.group(p))
    return -1 if at is None else at


def get_matching_call_path(call: ToolCall, tools: tuple[str, ...]) -> str:
    """Return the path of a tool call, in lower case and without a leading `./`.

    Args:
        call: the tool call.
        tools: globs of tool names; where none matches, the result is empty.
    """
    if not matches_tool(call.name, tools):
        return ""
    return _LEADING_DOTS.sub("", message_content_and_truncation.get_path_argument(call).casefold())


_LEADING_DOTS = re.compile(r"^(?:\./+)+(?=[^/])")


@dataclass(frozen=True, kw_only=True, repr=False)
class IntermediateReplyShortening(ScheduledPruning):
    """Cut text, reasoning and arguments of replies that only lead to the next tool call.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("billing"))
        >>> pruning = IntermediateReplyShortening(max_chars=10)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "IntermediateReplyShortening" for item in pruned.sent(-1))
        74
    """

    counts = False
    max_chars: Natural = 120
    """Characters of text and of reasoning."""
    max_argument_chars: Natural = 500
    """Characters of an argument value; a longer one becomes a note."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Cut each reply when another one follows."""
        low = min(self.max_chars, self.max_argument_chars)
        for p, call, old in view.window("assistant", lambda n: n - 1):
            if view.may_be_longer(p, low):
                view.change(p, self._short if old else UNDO_CHANGE, since=call, min_chars=low + 1)

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
        return message_content_and_truncation.replace_arguments(short, self._arguments)

    def _arguments(self, call: ToolCall) -> dict[str, object] | None:
        chars = {
            k: len(message_content_and_truncation.get_argument_text(v))
            for k, v in call.arguments.items()
        }
        elided = {k: _elided_argument(n) for k, n in chars.items() if n > self.max_argument_chars}
        return {**call.arguments, **elided} if elided else None


def _elided_argument(chars: int) -> str:
    return (
        f"[ELIDED — {chars} chars, NOT the real value. Do not reuse this placeholder as content; "
        "re-read the file or regenerate the value if you need it again.]"
    )


ELIDED_PLACEHOLDER = (
    "[RESULT ELIDED — not the real output, do not reuse this as data. "
    "Re-run the tool if you need this result again.]"
)
TRUNCATED_HERE = (
    "\n[TRUNCATED HERE — everything after this point was cut for context budget; "
    "this is not the complete output. Re-run the tool if you need the rest.]"
)


@dataclass(frozen=True, kw_only=True, repr=False)
class CharacterBudget(ScheduledPruning):
    """Elide the oldest results and text replies while all messages exceed a budget (fuseraft).

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("incident"))
        >>> pruning = CharacterBudget(max_chars=10_000)
        >>> pruned = ck.replay(session, ck.policies.Rules(pruning=pruning))
        >>> sum(item.changed_by == "CharacterBudget" for item in pruned.sent(-1))
        38
    """

    counts = False
    max_chars: Positive = 200_000
    """Maximum characters of all messages together."""
    step: Positive = 8
    """The number of elided messages is a multiple of this: the prefix is stable in between."""
    min_chars: Natural = 200
    """Minimum characters of a result where eliding is not enough and the rest is cut."""
    placeholder: str = ELIDED_PLACEHOLDER
    """Text of an elided message."""

    def schedule(self, view: ScheduleView, _budget: ContextBudget) -> None:
        """Elide as many of the oldest as each call needs; if all are not enough, cut the rest."""
        elidable: _Elidable = view.memory.setdefault("elidable", _Elidable(self.placeholder))
        news = {call: more for call, *more in view.iter_visibility_changes("assistant", "tool")}
        events = view.events("assistant", "tool")
        for call in view.calls():
            for p in sorted({*events.get(call, ()), *(p for ps in news.get(call, ()) for p in ps)}):
                elidable.update(view, p, call)
            # `over` is the number of characters to save; the newest message is never elided.
            over = view.chars(call) - self.max_chars
            n = min(
                self._count_needed(elidable, over), elidable.before(_newest_position(view, call))
            )
            for p, old in elidable.window.set_old_count(n):
                view.change(p, self.placeholder if old else UNDO_CHANGE, since=call)
            if over > elidable.saved_chars(n):
                self._cut_rest(view, elidable, call)

    def _count_needed(self, elidable: _Elidable, over: int) -> int:
        """Return how many must be elided to save `over` characters, in whole steps."""
        if over <= 0:
            return 0
        return -(-elidable.count(over) // self.step) * self.step

    def _cut_rest(self, view: ScheduleView, elidable: _Elidable, call: int) -> None:
        """Cut the remaining results to equal shares of the remaining budget, for one call."""
        sizes = {p: elidable.sizes[p][0] for p in elidable.unelided() if view.role(p) == TOOL}
        if not sizes:
            return
        freed = elidable.saved_chars(elidable.window.old)
        free = self.max_chars - (view.chars(call) - freed - sum(sizes.values()))
        # What the budget leaves for results, in equal shares, less the note of the cut.
        share = max(free // len(sizes) - len(TRUNCATED_HERE), self.min_chars)
        for p, size in sizes.items():
            if size > share + len(TRUNCATED_HERE):
                view.change(p, partial(_cut_to_share, share=share), since=call, until=call + 1)


class _Elidable:
    """The messages that may be elided, the oldest first, and the characters that this saves.

    Running sums over the window answer "how many must go?" by bisection; a change of a message
    invalidates the sums from its place on.
    """

    def __init__(self, placeholder: str) -> None:
        self.placeholder, self.window = placeholder, PositionsByAge()
        self.sizes: dict[int, tuple[int, int]] = {}
        """For each position its characters, and the characters that eliding it saves."""
        self._nominal_sums, self._saved_sums = [0], [0]
        """Sums of savings over the first n: by the placeholder's length, and as measured."""
        self._unchanged: set[int] = set()
        """Positions that eliding would not make smaller, in tokens."""

    def update(self, view: ScheduleView, p: int, call: int) -> None:
        """Add, update or remove a message by its state at a call."""
        is_elided = p in self.window and self.window.is_old(p)
        if p in self.window:
            self._truncate_sums(p)
            self.window.remove(p)
            self._unchanged.discard(p)
        if self._is_elidable(view, p, call):
            size = view.state_before(p, call).chars
            saved = size - view.state_after_change(p, self.placeholder, call).chars
            self.sizes[p] = size, saved
            if not saved:
                self._unchanged.add(p)
            is_old = self.window.insert(p)
            self._truncate_sums(p)
            if is_old and not is_elided:
                view.change(p, self.placeholder, since=call)
            is_elided = is_elided and not is_old
        if is_elided:
            view.change(p, UNDO_CHANGE, since=call)

    def _is_elidable(self, view: ScheduleView, p: int, call: int) -> bool:
        state = view.state_before(p, call)
        if state.message is None or state.chars <= len(self.placeholder) or view.stays(p, call):
            return False
        return view.role(p) == TOOL or message_content_and_truncation.is_text_only(state.message)

    def _truncate_sums(self, p: int) -> None:
        """Drop the sums that include a position."""
        n = bisect_left(self.window.positions, p) + 1
        del self._nominal_sums[n:], self._saved_sums[n:]

    def before(self, newest: int) -> int:
        """Return the number of elidable messages before a position."""
        return bisect_left(self.window.positions, newest)

    def count(self, over: int) -> int:
        """Return how many to elide to save `over` characters; one more than all if not enough."""
        for p in self.window.positions[len(self._nominal_sums) - 1 :]:
            size, saved = self.sizes[p]
            self._nominal_sums.append(self._nominal_sums[-1] + size - len(self.placeholder))
            self._saved_sums.append(self._saved_sums[-1] + saved)
        return bisect_left(self._nominal_sums, over, 1)

    def saved_chars(self, n: int) -> int:
        """Return the characters that eliding the first n saves."""
        return self._saved_sums[n]

    def unelided(self) -> list[int]:
        """Return the positions whose text is in the prompt as it is."""
        window = self.window
        return [
            *sorted(p for p in self._unchanged if window.is_old(p)),
            *window.positions[window.old :],
        ]


def _newest_position(view: ScheduleView, call: int) -> int:
    """Return the position of the newest message, which is never elided."""
    p = view.count_arrived(call)
    if view.before.get_appended(call) is not None:
        return p
    while p and view.message(p - 1, call) is None:
        p -= 1
    return p - 1


def _cut_to_share(result: Message, share: int) -> Message:
    return message_content_and_truncation.replace_text(
        result,
        message_content_and_truncation.truncate_end(get_plain_text(result), share, TRUNCATED_HERE),
    )
