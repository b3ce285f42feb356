"""A session: the append-only log of messages and edits, and the views derived from it.

The log never changes. A compaction appends an `Edit`; a branch is a pointer (`leaf`) to another
entry. Entries form a tree by `parents`, and the path from the root to the leaf is the current
conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from ctxkit._internal.formatting_and_sanitizing import format_count, quote_line, sanitize_line
from ctxkit._internal.lazy_exports_and_late_bound_calls import call_hook
from ctxkit.errors import BadArguments
from ctxkit.session.compactions_and_prunings import RecordedPrunings, count_compactions
from ctxkit.session.messages import (
    ATTACHMENT_KEY,
    Edit,
    Fault,
    Message,
    SizeOnly,
    Text,
    ToolSchema,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    SentItem: TypeAlias = Any
    """An `engine.run_segments_and_prompts.SentItem`."""


LogEntry = Message | Edit

# Log, path and prompts.
#
# `log` holds all entries in the order of writing, `parents` makes them a tree, and `path` is the
# branch from the root to the leaf. Everything below is derived from the path and cached: messages,
# edits, turns, calls. A prompt is a fold over the path: a visible message is appended, an edit
# replaces its targets (`apply_edit`). `views` makes one pass for all prompts: O(entries + sum of
# the prompts after edits), as prompts between two edits share one list. Invariant: values never
# change; `append` and `branch` return another session.


class ModelCall(msgspec.Struct, frozen=True, gc=False):
    """One request to a model and its reply.

    Not tracked by the garbage collector, as it is in no reference cycle and there may be thousands.
    """

    index: int
    """Number of the call in the session, from 0."""
    position: int
    """Position of the reply in `session.path`; the entries before it make up the prompt."""
    turn: int
    agent: str
    message: Message
    """The reply."""


class Session(msgspec.Struct, frozen=True, dict=True, kw_only=True, omit_defaults=True):
    """One agent's session: an append-only log of messages and edits in the order of writing.

    A main session does not contain its subagents' messages: those are sessions of their own in
    `children`.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("billing"))
        >>> len(session.calls) > 0 and session.has_usage
        True
    """

    id: str
    """Unique among the sessions of one program."""
    format: str = "native"
    """Name of the format that it was read from, or `live`, or `replay`."""
    log: tuple[Message | Edit, ...] = ()
    """All entries in the order of writing, branches included."""
    parents: tuple[int, ...] = ()
    """For each entry its parent's index in the log (-1: a root). Empty: the entry before it."""
    leaf: int = -1
    """Index of the last entry of the current conversation; -1: the last one of the log."""
    agent: str = "main"
    """Agent of all messages that have none."""
    product: str | None = None
    """The program that wrote the log, as it calls itself (`pi`, `claude-code`, `codex`, ...)."""
    version: str | None = None
    """Version of that program."""
    cwd: str | None = None
    """Working folder of the session."""
    title: str | None = None
    """Title that a person or a program gave it."""
    started: float | None = None
    """Seconds since 1970, UTC."""
    model: str | None = None
    """Model of all replies that name none."""
    context_window: int | None = None
    """The model's context window in tokens, where the log has it."""
    tools: tuple[ToolSchema, ...] = ()
    """Tools offered to the model, as far as the log has them."""
    children: tuple[Session, ...] = ()
    parent: str | None = None
    """Id of the session of which this one is a subagent or a continuation."""
    path_: str | None = None
    """The file or folder it was read from."""
    skipped: dict[str, int] = {}
    """Records that the reader skipped, counted by kind."""
    faults: tuple[Fault, ...] = ()
    """Places that could not be read."""
    details: dict[str, Any] = {}
    """Further JSON values of the format."""
    notes: tuple[str, ...] = ()
    """What the log does not show or shows wrongly, as sentences to print beside its figures."""
    origin: Session | None = None
    """The recorded session of a replay."""

    # -- the current path -------------------------------------------------------------------------

    @cached_property
    def indices(self) -> tuple[int, ...]:
        """Indices into `log` of the entries from the root to the leaf."""
        last = self.leaf if self.leaf >= 0 else len(self.log) - 1
        if not self.parents:
            return tuple(range(last + 1))
        out: list[int] = []
        visited: set[int] = set()  # a damaged log may have a cycle
        while last >= 0 and last not in visited:
            visited.add(last)
            out.append(last)
            last = self.parents[last]
        return tuple(reversed(out))

    @cached_property
    def path(self) -> tuple[LogEntry, ...]:
        """The messages and edits of the current conversation, in order."""
        if not self.parents and self.leaf in (-1, len(self.log) - 1):
            return self.log
        return tuple(self.log[i] for i in self.indices)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages of the path, in order, whether still in the prompt or not."""
        return tuple([e for e in self.path if isinstance(e, Message)])

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """The compactions of the path, in order."""
        return tuple([e for e in self.path if isinstance(e, Edit)])

    # -- turns and calls --------------------------------------------------------------------------

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """For each entry of `path` its turn from 0: as recorded, else one per user input."""
        out: list[int] = []
        turn, answered = 0, False
        for entry in self.path:
            if isinstance(entry, Message):
                # as recorded, or else by a rule: a user message opens a turn only after a reply
                if entry.turn is not None:
                    turn, answered = entry.turn, False
                elif entry.role in ("assistant", "tool"):
                    answered = True
                elif entry.role == "user" and answered and ATTACHMENT_KEY not in entry.details:
                    turn, answered = turn + 1, False
            out.append(turn)
        return tuple(out)

    @cached_property
    def calls(self) -> tuple[ModelCall, ...]:
        """The requests of this session, failed ones included, counted from 0."""
        turns, agent = self.turns, self.agent
        out: list[ModelCall] = []
        for i, e in enumerate(self.path):
            if isinstance(e, Message) and e.role == "assistant":
                out.append(ModelCall(len(out), i, turns[i], e.agent or agent, e))
        return tuple(out)

    @cached_property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents that wrote messages, in order of appearance."""
        authored = (e for e in self.messages if e.role != "user")
        return tuple(dict.fromkeys(e.agent or self.agent for e in authored)) or (self.agent,)

    def call(self, index: int) -> ModelCall:
        """Return a call by its number; negatives count from the end.

        Raises:
            BadArguments: the session has no such call.
        """
        try:
            return self.calls[index]
        except IndexError:
            n = len(self.calls)
            calls = f"it has calls 0 to {n - 1}" if n else "it has no calls"
            raise BadArguments(
                f"Session {quote_line(self.id)} has no call {index}: {calls}."
            ) from None

    # -- prompts ----------------------------------------------------------------------------------

    def view(self, call: int | None = None) -> tuple[Message, ...]:
        """Return the messages of a call's prompt, pruned as the log records it.

        Args:
            call: number of the call, negatives from the end; None: the next call, as if nothing
                were compacted and nothing more were pruned before it.

        Raises:
            BadArguments: the session has no such call.
        """
        index = None if call is None else self.call(call).index
        stop = len(self.path) if index is None else self.calls[index].position
        view: tuple[Message, ...] = ()
        for visible, _ in _iter_views(self.path[:stop]):
            view = tuple(visible)
        return tuple(self.prunings.at(index).apply(view)) if self.prunings else view

    def views(self) -> Iterator[tuple[ModelCall, ListPrefix[Message]]]:
        """Yield every call with the messages of its prompt, in one pass.

        Prompts that extend each other share one list (`ListPrefix.added_since` gives the new
        messages); each compares, slices and hashes like the tuple that `view` returns.
        """
        calls, prunings = iter(self.calls), self.prunings
        following = next(calls, None)
        for visible, position in _iter_views(self.path, each=True):
            # a call is given its prompt before its own reply is added
            while following is not None and following.position == position:
                pruned = prunings.at(following.index)
                is_pruned = bool(pruned.changes or pruned.added)
                yield following, ListPrefix(pruned.apply(visible) if is_pruned else visible)
                following = next(calls, None)

    @cached_property
    def prunings(self) -> RecordedPrunings:
        """The prunings of single prompts that the log records; none for a replay."""
        is_replay = self.format == "replay" or self.origin is not None
        return RecordedPrunings(() if is_replay else (c.message for c in self.calls))

    @property
    def prompt_source(self) -> Any:
        """The run that has the sent prompts (`engine.Run`, `engine.sent_prompts`);
        None for a recorded session whose log has no prunings.

        It is not a field: it is neither compared nor written, and a changed copy has its log's.
        """
        if "prompt_source" not in self.__dict__ and self.prunings:
            self.__dict__["prompt_source"] = call_hook("session.prompt_source", self)
        return self.__dict__.get("prompt_source")

    def set_prompt_source(self, by: Any) -> Session:
        """Set the object that has the sent prompts, in place; return this session.

        Args:
            by: the object; its `sent(call)` returns the prompt of a call, its `left_out(call)` the
                rows that a pruning left out.
        """
        self.__dict__["prompt_source"] = by
        return self

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return the prompt that was sent at a call, message by message.

        Args:
            call: number of the call, negatives from the end; None: the next call, as if nothing
                were compacted before it.

        Returns:
            Items with `message`, `tokens`, `raw_tokens` (before any change), `changed_by`, `row`
            and `pruned`; see `engine.replay.get_sent_prompt`.

        Raises:
            BadArguments: the session has no such call.
        """
        items: tuple[SentItem, ...] = call_hook("session.sent", self, call)
        return items

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return the messages that a pruning left out of a call's prompt, with the rule's name.

        The keys are numbers among the messages that can be sent. A recorded session has none.

        Args:
            call: number of the call, negatives from the end; None: the next call.
        """
        if self.prompt_source is None:
            return {}
        index = None if call is None else self.call(call).index
        left_out: dict[int, str] = self.prompt_source.left_out(index)
        return left_out

    # -- what the log records ---------------------------------------------------------------------

    @cached_property
    def has_text(self) -> bool:
        """True where at least one message has text."""
        return any(isinstance(p, Text) and p.text for m in self.messages for p in m.parts)

    @cached_property
    def has_sizes(self) -> bool:
        """True where content is present or its size is recorded."""
        return self.has_text or any(isinstance(p, SizeOnly) for m in self.messages for p in m.parts)

    @cached_property
    def has_usage(self) -> bool:
        """True where at least one call has recorded prompt tokens."""
        return any(
            c.message.usage is not None and c.message.usage.prompt_tokens for c in self.calls
        )

    @cached_property
    def has_cache(self) -> bool:
        """True where at least one call records cached and uncached input separately."""
        return any(
            c.message.usage is not None and c.message.usage.cache_read_tokens is not None
            for c in self.calls
        )

    @cached_property
    def has_time(self) -> bool:
        """True where at least one call has a time."""
        return any(c.message.time is not None for c in self.calls)

    # -- growing and branching: a new session with the same log------------------------------------

    def append(self, *entries: LogEntry) -> Session:
        """Return the session with entries added after its leaf."""
        log = (*self.log, *entries)
        at_end = self.leaf in (-1, len(self.log) - 1)
        # a log without branches needs no parents: each entry follows the one before it
        if at_end and not self.parents:
            return self._with(log=log, leaf=-1)
        first = self.leaf if self.leaf >= 0 else len(self.log) - 1
        new = (first, *range(len(self.log), len(log) - 1)) if entries else ()
        return self._with(log=log, parents=self._tree() + new, leaf=-1)

    def branch(self, entry: str | int) -> Session:
        """Return the session continued from an earlier entry; the log keeps all entries.

        Args:
            entry: id of the entry, or its index in `log`.

        Raises:
            BadArguments: there is no such entry.
        """
        index = entry if isinstance(entry, int) else self._index(entry)
        if not -len(self.log) <= index < len(self.log):
            raise BadArguments(
                f"Session {quote_line(self.id)} has no entry {entry}: it has {len(self.log)}."
            )
        return self._with(leaf=index % len(self.log), parents=self._tree())

    def _tree(self) -> tuple[int, ...]:
        return self.parents or tuple(range(-1, len(self.log) - 1))

    def _index(self, entry: str) -> int:
        for i, e in enumerate(self.log):
            if e.id == entry:
                return i
        raise BadArguments(f"Session {quote_line(self.id)} has no entry {entry!r}.")

    def _with(self, **changes: Any) -> Session:
        return msgspec.structs.replace(self, **changes)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        bundle: dict[str, str] = call_hook("session.display", self)
        return bundle

    def __repr__(self) -> str:
        n, c, compactions = (
            len(self.messages),
            len(self.calls),
            format_count(count_compactions(self)),
        )
        return (
            f"<Session {sanitize_line(self.id)} {sanitize_line(self.format, 20)}: {n} messages, "
            f"{c} calls, {compactions} compactions>"
        )


def with_unique_ids(sessions: Iterable[Session]) -> list[Session]:
    """Return sessions with distinct ids: the second with an id gets `id (2)`, the third `id (3)`.

    A subagent whose parent comes before it refers to the parent by its new id.

    Args:
        sessions: sessions in the order in which they are numbered.

    Returns:
        As many sessions in the same order; one whose id is unique is the same object.

    Example:
        >>> import ctxkit as ck
        >>> chat = ck.read(ck.samples.path("chat"))
        >>> [session.id == chat.id for session in with_unique_ids([chat, chat])]
        [True, False]
    """
    sessions = list(sessions)
    out: list[Session] = []
    counts: dict[str, int] = {}
    new_ids: dict[str, str] = {}
    used = {s.id for s in sessions}
    for session in sessions:
        n = counts[session.id] = counts.get(session.id, 0) + 1
        new_id = session.id
        while n > 1 and (new_id := f"{session.id} ({n})") in used:
            n = counts[session.id] = n + 1
        new_ids[session.id] = new_id
        used.add(new_id)
        parent = new_ids.get(session.parent or "", session.parent)
        if new_id == session.id and parent == session.parent:
            out.append(session)
        else:
            copy = msgspec.structs.replace(session, id=new_id, parent=parent)
            out.append(copy.set_prompt_source(session.prompt_source))
    return out


def _iter_views(
    path: Iterable[LogEntry], *, each: bool = False
) -> Iterator[tuple[list[Message], int]]:
    """Yield the visible messages before each entry (`each`), and at the end, with the position.

    One list grows until an edit replaces it by another; the caller must not change it.
    """
    visible: list[Message] = []
    position = -1
    for position, entry in enumerate(path):
        if each:
            yield visible, position
        if isinstance(entry, Edit):
            visible = apply_edit(visible, entry)
        elif entry.visible:
            visible.append(entry)
    yield visible, position + 1


def apply_edit(visible: list[Message], edit: Edit) -> list[Message]:
    """Return the visible messages after an edit; targets that are not visible are ignored.

    Args:
        visible: the messages that the next call would be sent.
        edit: what a policy, a person or a provider changed; see `Edit` for its kinds.

    Returns:
        A new list; `visible` stays as it is.

    Example:
        >>> from ctxkit.session import Message
        >>> old, new = Message(role="user", id="a"), Message(role="user", id="b")
        >>> [m.id for m in apply_edit([old, new], Edit(kind="dropped", id="e", targets=("a",)))]
        ['b']
    """
    if not edit.targets and edit.kind in ("dropped", "summarised"):
        return [*visible, *edit.inserted]
    targets = set(edit.targets)
    if edit.kind in ("shortened", "replaced"):
        new = dict(zip(edit.targets, edit.inserted, strict=False))
        return [new.get(m.id, m) for m in visible]
    at = next((i for i, m in enumerate(visible) if m.id in targets), len(visible))
    rest = [m for m in visible[at:] if m.id not in targets]
    return [*visible[:at], *edit.inserted, *rest]


T_co = TypeVar("T_co", covariant=True)


class ListPrefix(Sequence[T_co]):
    """The first values of a list that only grows, without a copy of them.

    It behaves like a tuple; slices and sums of it are tuples.

    Args:
        values: the list; values that are appended to it later are not in the prefix.

    Example:
        >>> values = [1, 2]
        >>> prefix = ListPrefix(values)
        >>> values.append(3)
        >>> len(prefix), prefix[-1]
        (2, 2)
    """

    __slots__ = ("_n", "_values")

    def __init__(self, values: list[T_co]) -> None:
        self._values, self._n = values, len(values)

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[T_co]:
        return islice(self._values, self._n)

    @overload
    def __getitem__(self, at: int) -> T_co: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return tuple(self._values[i] for i in range(self._n)[at])
        return self._values[range(self._n)[at]]

    def added_since(self, earlier: object) -> Sequence[T_co] | None:
        """Return the values added since an earlier prefix; None if that is of another list."""
        if isinstance(earlier, ListPrefix) and earlier._values is self._values:  # noqa: SLF001
            return self._values[earlier._n : self._n]  # noqa: SLF001
        return None

    def __add__(self, more: Sequence[Any]) -> tuple[Any, ...]:
        return (*self, *more)

    def __radd__(self, before: Sequence[Any]) -> tuple[Any, ...]:
        return (*before, *self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (tuple, ListPrefix)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
