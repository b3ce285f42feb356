"""Plain values behind the explorer: messages of a call, filters, search, the tree of subagents."""

from __future__ import annotations

import json
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ctxkit._internal.formatting_and_sanitizing import (
    format_message_number,
    format_tokens,
    format_usd,
    pluralize,
    sanitize_line,
    sanitize_text,
)
from ctxkit.agent.tools import file_search_worker
from ctxkit.agent.tools.file_search import kill_after, start_search_worker
from ctxkit.errors import BadArguments
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames.per_session import rows
from ctxkit.metrics.prompt_composition import count_groups_by_call
from ctxkit.metrics.prompt_sizes_and_contents import get_prompt_contents, get_prompt_sizes
from ctxkit.session.messages import Attachment, Edit, Message, SizeOnly, Text, Thinking, ToolCall
from ctxkit.session.titles import get_title
from ctxkit.session.tool_call_paths_and_descriptions import (
    describe_message,
    get_call_path,
    pair_with_calls,
)
from ctxkit.tokens.context_windows import get_context_window
from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ctxkit.metrics.prompt_composition import GroupTokensByCall
    from ctxkit.session.messages import Provenance
    from ctxkit.session.session import Session
    from ctxkit.tokens.message_sizes_from_recorded_prompts import MessageSizes


MAX_TEXT_CHARS = 20_000
"""Maximum number of characters of one message that are sent to the browser."""
MAX_SIZED_AT_ONCE = 5_000
"""Entries of a session that are sized before it is shown; a longer one is sized behind."""


class MessageLine(NamedTuple):
    """A message as one line of the list."""

    position: int
    """Its place in the list, from 0."""
    message: Message
    """As it was sent."""
    tokens: int | None
    """None: not known yet."""
    raw_tokens: int = 0
    """Its tokens before it was changed."""
    changed_by: str | None = None
    call: int | None = None
    """In a list of the whole session, the first call that it could go with."""
    number: int | None = None
    """Its position in `session.path`, as all views number messages; None: it was inserted."""

    @property
    def name(self) -> str:
        """The role, or the tool for a result; marked where it failed."""
        m = self.message
        return sanitize_line(("✗ " if is_failed_message(m) else "") + (m.tool or m.role), 30)

    @property
    def change(self) -> str:
        """The change of the message in words; empty if it was sent unchanged."""
        if self.changed_by is None:
            return ""
        was = f", {self.raw_tokens:,} tokens before" if self.raw_tokens else ""
        return sanitize_line(f"by {self.changed_by}{was}", 100)


@dataclass(frozen=True)
class CallView:
    """The displayed values of one call; `call` is None if the session has no call."""

    call: int | None
    turn: int
    model: str | None
    tokens: int | None
    source: Provenance | None
    items: Sequence[MessageLine]

    groups: tuple[tuple[str, int], ...]
    """Tokens of each part of the prompt, in the order of the context report; they sum up to the
    prompt. Empty where they are not worked out yet.
    """
    limit: int | None
    """The model's window, where the log or the price table names it."""

    @cached_property
    def largest(self) -> Sequence[MessageLine]:
        """The messages, the largest first; as sent where no size is known yet."""
        if isinstance(self.items, LazyMessageLines):
            return self.items
        return tuple(sorted(self.items, key=lambda i: (-(i.tokens or 0), i.position)))


class LazyMessageLines(Sequence["MessageLine"]):
    """The lines of messages whose sizes are not known yet; each is made at its first use."""

    def __init__(self, messages: Sequence[Message], number_by_id: Mapping[int, int]) -> None:
        self._messages, self._number_by_id = messages, number_by_id

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, at: int) -> MessageLine: ...
    @overload
    def __getitem__(self, at: slice) -> list[MessageLine]: ...
    def __getitem__(self, at: int | slice) -> MessageLine | list[MessageLine]:
        rows = range(len(self._messages))[at]
        if isinstance(rows, int):
            return self._line(rows)
        return [self._line(i) for i in rows]

    def _line(self, i: int) -> MessageLine:
        message = self._messages[i]
        return MessageLine(i, message, None, number=self._number_by_id.get(id(message)))


# Two levels of detail. What comes from the log alone is there at once. The size of each message
# needs a token count of its text, O(characters of the session), so a session with more than
# `MAX_SIZED_AT_ONCE` entries starts without: `at` then returns lines without sizes, made on demand,
# and no groups. `measure` may run in another thread. It assigns `_layers` last, which `measured`
# tests, so a reader that sees the flag finds all sizes.
class ExplorerSession:
    """The calls of a session as the explorer shows them.

    Sizes of messages are computed once; in a long session only when `measure` is called.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.prompts, self.source = get_prompt_sizes(session)
        self._sizes: MessageSizes | None = None
        self._layers: GroupTokensByCall | None = None
        if len(session.path) <= MAX_SIZED_AT_ONCE:
            self.measure()

    def __len__(self) -> int:
        return len(self.session.calls)

    @property
    def measured(self) -> bool:
        """True where the size of each message is known."""
        return self._layers is not None

    def measure(self) -> None:
        """Work out the size of each message, which takes seconds where they are many."""
        sized = measure_sizes(self.session) if self.session.prompt_source is None else None
        groups_by_call = count_groups_by_call(self.session, sized=sized)
        self._sizes, self._layers = sized, groups_by_call

    def at(self, call: int | None) -> CallView:
        """Return the view of a call; None: of the next prompt."""
        if call is None:
            model, limit = self.session.model, self.session.context_window
            return CallView(None, 0, model, None, None, self._prompt_contents(None), (), limit)
        at = self.session.call(call)
        model = at.message.model or self.session.model
        limit = get_context_window(self.session, model, at.message).tokens
        tokens_by_group = self._layers.groups if self._layers is not None else {}
        groups = tuple((name, tokens[at.index]) for name, tokens in tokens_by_group.items())
        filled_groups = tuple(each for each in groups if each[1])
        size, source = self.prompts[at.index], self.source
        if size is None and self._layers is not None and at.message.kind != "turn":
            # The call was not billed: as in the report, its prompt is the sum of its parts.
            size, source = sum(tokens for _, tokens in groups) or None, self._layers.source
        sent = self._prompt_contents(at.index)
        return CallView(at.index, at.turn, model, size, source, sent, filled_groups, limit)

    @cached_property
    def whole(self) -> tuple[MessageLine, ...]:
        """Every message of the log, inserted ones too, with the first call that could send it."""
        return tuple(self._every_line())

    def find_tool_call(self, message: Message) -> ToolCall | None:
        """Return the call that a result answers, where it is known."""
        return self._tool_calls_by_id.get(id(message))

    def files(self, message: Message) -> Iterator[str]:
        """Yield the files of a message: those of its calls, or of the call that it answers."""
        tool_call = self.find_tool_call(message)
        for call in (tool_call,) if tool_call is not None else message.tool_calls:
            path = get_call_path(call)
            if path:
                yield sanitize_line(path, 200)

    def _prompt_contents(self, index: int | None) -> Sequence[MessageLine]:
        if self._sizes is None and self.session.prompt_source is None:
            return LazyMessageLines(self.session.view(index), self._number_by_id)
        contents = get_prompt_contents(self.session, index, sized=self._sizes)
        return tuple(
            MessageLine(
                i,
                s.message,
                None if self.source is None else s.tokens,
                s.raw_tokens,
                s.changed_by,
                number=s.position,
            )
            for i, s in enumerate(contents.messages)
        )

    def describe_line(self, line: MessageLine) -> tuple[str, str]:
        """Return the number and the name of a message, as all views give them."""
        name = describe_message(line.message, self.find_tool_call(line.message), self.session.cwd)
        return format_message_number(line.number), "✗ " * is_failed_message(line.message) + name

    @cached_property
    def _number_by_id(self) -> Mapping[int, int]:
        return {id(e): i for i, e in enumerate(self.session.path)}

    def _every_line(self) -> Iterator[MessageLine]:
        places, n = [c.position for c in self.session.calls], -1
        numbers = self._number_by_id
        for position, entry in enumerate(self.session.path):
            by = (entry.method or entry.kind) if isinstance(entry, Edit) else None
            # a reply is what its own call said; all else goes with the next one
            call = bisect_left(places, position)
            for message in entry.inserted if isinstance(entry, Edit) else (entry,):
                n += 1
                size = None if self._sizes is None else self._sizes.of(message)
                at = min(call, len(places) - 1) if places else None
                yield MessageLine(n, message, size, 0, by, at, numbers.get(id(message)))

    def forget(self) -> None:
        """Make the whole list again, now that sizes are known."""
        self.__dict__.pop("whole", None)

    @cached_property
    def _tool_calls_by_id(self) -> Mapping[int, ToolCall]:
        # Keyed by identity: two results may be equal and answer different calls.
        return {id(m): c for m, c in pair_with_calls(self.session.messages) if c is not None}


def is_failed_message(message: Message) -> bool:
    """Return whether a message is a failed call, or the result of a tool that failed.

    Args:
        message: a message of any role.

    Returns:
        True also for a reply whose model call ended with an error.
    """
    return bool(message.is_error) or message.error is not None


def get_message_preview(message: Message) -> str:
    """Return the beginning of a message, for a list.

    Args:
        message: a message of any role.

    Returns:
        At most 400 characters of its first part with content; not sanitised.
    """
    for part in message.parts:
        if isinstance(part, (Text, Thinking)) and part.text.strip():
            return part.text[:400]
        if isinstance(part, ToolCall):
            return f"{part.name} {_argument_text(part)[:300]}"
        if isinstance(part, Attachment):
            return f"[{part.kind}: {part.media_type}]"
        if isinstance(part, SizeOnly):
            return f"[{part.kind}: only its size is known]"
    return message.error or ""


def format_full_text(message: Message, limit: int = MAX_TEXT_CHARS) -> str:
    """Return the whole message as text; a longer one is shortened, and its last line says so.

    Args:
        message: a message of any role; its parts are joined, thinking and arguments included.
        limit: characters.

    Returns:
        Text without control characters; it is not escaped for HTML.
    """
    blocks = [_part_text(part) for part in message.parts]
    if message.error:
        blocks.append(f"[failed]\n{message.error}")
    text = sanitize_text("\n\n".join(b for b in blocks if b))
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n… the first {limit:,} of {len(text):,} characters"


def get_searchable_text(message: Message) -> str:
    """Return the text that a search reads: text, thinking, calls with arguments, failures.

    Args:
        message: a message of any role.

    Returns:
        Text, calls and the error, a part a line.
    """
    calls = [f"{p.name} {_argument_text(p)}" for p in message.tool_calls]
    return "\n".join(filter(None, [message.text, *calls, message.error]))


def _part_text(part: object) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Thinking):
        hidden = ""
        if part.hidden:
            hidden = f" (and {part.hidden:,} characters that only the provider can read)"
        return f"[thinking{hidden}]\n{part.text}"
    if isinstance(part, ToolCall):
        return f"[calls {part.name}]\n{_argument_text(part, indent=1)}"
    if isinstance(part, Attachment):
        return f"[{part.kind}: {part.media_type}, {len(part.data):,} characters of base64]"
    if isinstance(part, SizeOnly):
        return f"[{part.kind}: the log gives only its size]"
    return ""


def _argument_text(part: ToolCall, indent: int | None = None) -> str:
    if part.raw is not None:
        return part.raw
    return json.dumps(part.arguments, indent=indent, ensure_ascii=False, default=str)


_MAX_CHOICES = 200
"""Tools and files that are offered."""


class MessageFilter(NamedTuple):
    """The filter of the message list; empty fields match everything."""

    whole: bool = False
    """Of the whole session, not of one call."""
    largest: bool = True
    """The largest first, not as sent."""
    role: str = ""
    tool: str = ""
    file: str = ""
    errors: bool = False
    words: str = ""
    regex: bool = False

    @classmethod
    def of(cls, request: dict[str, Any]) -> MessageFilter:
        """Return the filter of a browser's request; invalid values are left out."""

        def text(name: str) -> str:
            value = request.get(name)
            return value[:1000] if isinstance(value, str) else ""

        whole, largest, errors, regex = (
            request.get(name) is True for name in ("whole", "largest", "errors", "regex")
        )
        role, tool, file, words = map(text, ("role", "tool", "file", "words"))
        return cls(whole, largest, role, tool, file, errors, words, regex)


class FilterResult(NamedTuple):
    """The lines that match a filter, in order, and a note on the search."""

    lines: Sequence[MessageLine]
    note: str = ""


def filter_messages(
    explorer_session: ExplorerSession, items: Sequence[MessageLine], message_filter: MessageFilter
) -> FilterResult:
    """Return the lines that match a filter.

    Args:
        explorer_session: the session of the messages; it knows the files that each names.
        items: lines of one call, or of the whole session.
        message_filter: the filter; empty fields match everything.

    Returns:
        The lines, the largest first if that is wanted and sizes are known, and a note where the
        search ran out of time.

    Raises:
        BadArguments: the pattern is no regular expression.
    """
    lines, note = items, ""
    if message_filter.role or message_filter.tool or message_filter.file or message_filter.errors:
        lines = [i for i in items if _matches_filter(explorer_session, i, message_filter)]
    if message_filter.words:
        # The search is the slow step, so it runs last, on the lines that the filters left.
        result = search_texts(
            (get_searchable_text(i.message) for i in lines),
            message_filter.words,
            regex=message_filter.regex,
        )
        note, lines = _search_note(result, lines), [lines[row] for row in result.rows]
    if message_filter.largest and explorer_session.measured:
        lines = sorted(lines, key=lambda i: (-(i.tokens or 0), i.position))
    return FilterResult(lines, note)


def _search_note(result: SearchHits, lines: Sequence[MessageLine]) -> str:
    if result.until is None:
        return ""
    return (
        f"The search was ended after two seconds at message {result.until:,} of {len(lines):,}: "
        "use a simpler pattern, or fewer messages."
    )


def _matches_filter(
    explorer_session: ExplorerSession, item: MessageLine, message_filter: MessageFilter
) -> bool:
    m = item.message
    return (
        (not message_filter.role or m.role == message_filter.role)
        and (not message_filter.errors or is_failed_message(m))
        and (not message_filter.tool or message_filter.tool in _count_tools(explorer_session, item))
        and (not message_filter.file or message_filter.file in explorer_session.files(m))
    )


def _count_tools(explorer_session: ExplorerSession, item: MessageLine) -> list[str]:
    tool_call = explorer_session.find_tool_call(item.message)
    calls = (tool_call,) if tool_call is not None else item.message.tool_calls
    return [sanitize_line(n, 60) for n in (*(c.name for c in calls), item.message.tool) if n]


def count_filter_choices(explorer_session: ExplorerSession) -> dict[str, list[list[Any]]]:
    """Return the roles, tools and files of a session with how many messages each has.

    Args:
        explorer_session: the session with the messages.

    Returns:
        Pairs of a value and its number of messages, by field, for the menus of the filter.
    """
    every = explorer_session.whole
    return {
        "role": _sort_counts(i.message.role for i in every),
        "tool": _sort_counts(
            name for i in every for name in dict.fromkeys(_count_tools(explorer_session, i))
        ),
        "file": _sort_counts(
            f for i in every for f in dict.fromkeys(explorer_session.files(i.message))
        ),
        "errors": [["", sum(is_failed_message(i.message) for i in every)]],
    }


def _sort_counts(names: Iterable[str]) -> list[list[Any]]:
    return [[name, n] for name, n in Counter(names).most_common(_MAX_CHOICES)]


SEARCH_SECONDS = 2.0
"""Time limit of a search."""
# Texts between two reads of the clock; characters of a batch; hits that end a search.
_EACH, _BATCH = 256, 64_000
_HITS = 10_000_000


class SearchHits(NamedTuple):
    """The result of a search: numbers of the texts with hits, in order."""

    rows: list[int]
    until: int | None
    """The text at which the time was over; None: all were looked at."""


# Words are looked for here, with a look at the clock each 256 texts. A regular expression may take
# for ever, and Python cannot stop it, so it runs in a process that is killed when the time is over.
# That process takes whole batches of some 64,000 characters, since handing over one text takes
# longer than searching it; `_Batches` remembers at which line each text begins, and finds the text
# of a hit by bisection. What was found before the end is returned, with the text where it stopped.
def search_texts(
    texts: Iterable[str], words: str, *, regex: bool, seconds: float = SEARCH_SECONDS
) -> SearchHits:
    """Find texts with a phrase, in any case, or with a line that matches a regular expression.

    An expression runs in a process of its own, for it may never end, and sees the first 4,000
    characters of a line.

    Args:
        texts: texts to search.
        words: a phrase, or the regular expression.
        regex: `words` is a regular expression.
        seconds: time limit of the search.

    Returns:
        The texts that match, and whether the search was complete.

    Raises:
        BadArguments: it is no regular expression.
    """
    return _search_pattern(texts, words, seconds) if regex else _search_words(texts, words, seconds)


def _search_words(texts: Iterable[str], words: str, seconds: float) -> SearchHits:
    low, end, rows = words.casefold(), time.monotonic() + seconds, list[int]()
    for i, text in enumerate(texts):
        if not i % _EACH and time.monotonic() > end:
            return SearchHits(rows, i)
        if low in text.casefold():
            rows.append(i)
    return SearchHits(rows, None)


def _search_pattern(texts: Iterable[str], pattern: str, seconds: float) -> SearchHits:
    batches = _Batches()
    numbered = enumerate(batches.of(texts))
    process = start_search_worker(
        pattern, _HITS, ({"name": str(i), "first": 1, "text": text} for i, text in numbered)
    )
    with kill_after(process, seconds) as late:
        hits, batch = list[tuple[int, int]](), 0
        out: Any = process.stdout
        # A line that begins with NUL names the batch that the worker begins; any other line is a
        # hit, `batch:line: text`.
        for reply in out:
            name, _, rest = reply.partition(b":")
            if reply.startswith(b"\0"):
                batch = int(json.loads(reply[1:]))
            else:
                hits.append((int(name), int(rest.partition(b":")[0])))
        errors: Any = process.stderr
        wrong = errors.read().decode("utf-8", "replace")
        process.wait()
    if process.returncode == file_search_worker.BAD_PATTERN_STATUS:
        raise BadArguments(f"That is no regular expression: {wrong[:200].strip().rstrip('.')}.")
    rows = dict.fromkeys(batches.row(*hit) for hit in hits)
    return SearchHits(list(rows), batches.row(batch, 1) if late.is_set() else None)


class _Batches:
    """Texts put together, for each that is handed over alone takes a while."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._lines: list[list[int]] = []

    def row(self, batch: int, line: int) -> int:
        """Return which text a line of a batch is of."""
        if batch >= len(self._first):
            return 0
        return self._first[batch] + bisect_right(self._lines[batch], line) - 1

    def of(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield batches of whole texts."""
        for group in _group_texts(texts):
            starts, line = list[int](), 1
            for text in group:
                starts.append(line)
                line += text.count("\n") + 1
            # Number of the first text: that of the batch before plus the length of that batch.
            self._first.append(self._first[-1] + len(self._lines[-1]) if self._first else 0)
            self._lines.append(starts)
            yield "\n".join(group)


def _group_texts(texts: Iterable[str]) -> Iterator[list[str]]:
    group, size = list[str](), 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size > _BATCH:
            yield group
            group, size = [], 0
    if group:
        yield group


_MAX_TREE, _PRICED = 500, 50
"""Sessions in the tree, and those whose cost is worked out."""


class SessionTreeNode(NamedTuple):
    """A session of the tree."""

    session: Session
    depth: int

    @property
    def title(self) -> str:
        """Title of the session; of a subagent its own name first."""
        name = get_title(self.session, 80)
        agent = self.session.agent
        return name if not self.depth or agent in ("", "main") else f"{agent}: {name}"


def list_session_tree(session: Session) -> list[SessionTreeNode]:
    """Return a session and its subagents, each before its own ones.

    Args:
        session: the root.

    Returns:
        At most `_MAX_TREE` sessions with their depth, the root first at 0.
    """
    return list(islice(_iter_tree(session, 0), _MAX_TREE))


def describe_session_tree(family: list[SessionTreeNode]) -> list[str]:
    """Return a sentence per session: calls, largest prompt, cost.

    Args:
        family: as `list_session_tree` returns it.

    Returns:
        Sentences in the same order; in a large tree only the calls, as bills take time.
    """
    priced = len(family) <= _PRICED
    table = rows([one.session for one in family]) if priced else {}
    out = []
    for i, one in enumerate(family):
        parts = [pluralize(len(one.session.calls), "call")]
        if priced:
            parts += [
                f"peak {format_tokens(table['peak_tokens'][i])}",
                format_usd(table["cost_usd"][i]),
            ]
        out.append(" · ".join(parts))
    return out


def _iter_tree(session: Session, depth: int) -> Iterator[SessionTreeNode]:
    yield SessionTreeNode(session, depth)
    for child in session.children:
        yield from _iter_tree(child, depth + 1)


@register_view_values("explore")
def _read_figures(session: Session) -> dict[str, Any]:
    if not session.calls or session.calls[-1].message.kind == "turn":
        return {}
    view = ExplorerSession(session)
    if view.prompts[-1] is None and not view.measured:
        view.measure()
    return {"last_prompt_tokens": view.at(len(view) - 1).tokens}
