"""A session: the append-only log of messages and edits, and the views derived from it.

The log never changes. A compaction appends an `Edit`; a branch is a pointer (`leaf`) to another
entry. Entries form a tree by `parents`, and the path from the root to the leaf is the conversation
that stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from ctxkit._internal.formatting import sanitize_line
from ctxkit._internal.hooks import call_hook
from ctxkit.errors import BadArguments
from ctxkit.session.messages import Edit, Fault, Message, SizeOnly, Text, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeAlias

    SentItem: TypeAlias = Any
    """An `engine.sent.SentItem`."""


LogEntry = Message | Edit


class ModelCall(msgspec.Struct, frozen=True, gc=False):
    """One request to a model and its reply.

    `position` is the reply's place in `session.path`; everything before it, edits applied, was the
    prompt. It is in no circle, so the collector need not look at it: fifty thousand open at once.
    """

    index: int
    position: int
    turn: int
    agent: str
    message: Message


class Session(msgspec.Struct, frozen=True, dict=True, kw_only=True, omit_defaults=True):
    """Everything that happened in one agent's session, in the order in which it was written.

    A main session does not contain its subagents' messages: those are sessions of their own in
    `children`.
    """

    id: str
    format: str = "native"
    """Name of the reader that made it, or `live`, or `replay`."""
    log: tuple[Message | Edit, ...] = ()
    parents: tuple[int, ...] = ()
    """For each entry its parent's index in the log (-1: a root). Empty: each follows the last."""
    leaf: int = -1
    """Index of the entry at which the conversation stands; -1: the last one."""
    agent: str = "main"
    """Agent of all messages that name none."""
    product: str | None = None
    """The program that wrote the log, as it calls itself (`pi`, `claude-code`, `codex`, ...)."""
    version: str | None = None
    cwd: str | None = None
    title: str | None = None
    started: float | None = None
    """Seconds since 1970, UTC."""
    model: str | None = None
    context_window: int | None = None
    tools: tuple[ToolSchema, ...] = ()
    children: tuple[Session, ...] = ()
    parent: str | None = None
    """Id of the session that this one is a subagent or a continuation of."""
    path_: str | None = None
    """The file or folder it was read from."""
    skipped: dict[str, int] = {}
    """What the reader passed over, by name, with counts."""
    faults: tuple[Fault, ...] = ()
    """Places that could not be read."""
    details: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    """What its log cannot say or says wrongly: what figures that rest on it must tell."""
    origin: Session | None = None
    """Of a replay: the recorded session that it was made from."""

    # -- the path that stands ---------------------------------------------------------------------

    @cached_property
    def indices(self) -> tuple[int, ...]:
        """Indices into `log` of the entries from the root to the leaf."""
        last = self.leaf if self.leaf >= 0 else len(self.log) - 1
        if not self.parents:
            return tuple(range(last + 1))
        out: list[int] = []
        seen: set[int] = set()
        while last >= 0 and last not in seen:
            seen.add(last)
            out.append(last)
            last = self.parents[last]
        return tuple(reversed(out))

    @cached_property
    def path(self) -> tuple[LogEntry, ...]:
        """The entries that stand, in order: what was said and what was edited."""
        if not self.parents and self.leaf in (-1, len(self.log) - 1):
            return self.log
        return tuple(self.log[i] for i in self.indices)

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages that stand, in order, whether still visible or not."""
        return tuple([e for e in self.path if isinstance(e, Message)])

    @cached_property
    def edits(self) -> tuple[Edit, ...]:
        """The compactions that stand, in order."""
        return tuple([e for e in self.path if isinstance(e, Edit)])

    # -- turns and calls --------------------------------------------------------------------------

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """For each entry of `path` its turn from 0: as recorded, else one turn an input."""
        out: list[int] = []
        turn, answered = 0, False
        for entry in self.path:
            if isinstance(entry, Message):
                if entry.turn is not None:
                    turn, answered = entry.turn, False
                elif entry.role in ("assistant", "tool"):
                    answered = True
                elif entry.role == "user" and answered:
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
        """Names of the agents that speak in this session, in order of appearance."""
        speak = (e for e in self.messages if e.role != "user")  # what is heard is no voice
        return tuple(dict.fromkeys(e.agent or self.agent for e in speak)) or (self.agent,)

    def call(self, index: int) -> ModelCall:
        """Return a call by its number; negatives count from the end.

        Raises:
            BadArguments: the session has no such call.
        """
        try:
            return self.calls[index]
        except IndexError:
            n = len(self.calls)
            known = f"it has calls 0 to {n - 1}" if n else "it has no calls"
            raise BadArguments(f"Session {self.id!r} has no call {index}: {known}.") from None

    # -- what is shown ----------------------------------------------------------------------------

    def view(self, call: int | None = None) -> tuple[Message, ...]:
        """Return the messages shown at a call (negatives from the end); None: shown next."""
        stop = len(self.path) if call is None else self.call(call).position
        shown: tuple[Message, ...] = ()
        for shown_, _ in _iter_views(self.path[:stop]):
            shown = tuple(shown_)
        return shown

    def views(self) -> Iterator[tuple[ModelCall, ListPrefix[Message]]]:
        """Yield every call with the messages of its prompt, in one pass.

        Prompts of which one goes on the other share their messages (`Beginning.added_since` says
        what is new); each is compared, sliced and hashed as the tuple that `view` returns.
        """
        calls = iter(self.calls)
        following = next(calls, None)
        for shown, position in _iter_views(self.path, each=True):
            while following is not None and following.position == position:
                yield following, ListPrefix(shown)
                following = next(calls, None)

    @property
    def behind(self) -> Any:
        """What knows the prompts that went out (`engine.Run`, `agent.live_context.SessionPrompts`);
        None: a record knows its own.

        It stands beside the fields: it is neither compared nor written, and a changed copy has
        none.
        """
        return self.__dict__.get("behind")

    def backed(self, by: Any) -> Session:
        """Return this session, known to come from a run."""
        self.__dict__["behind"] = by
        return self

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return what went out at a call: `message`, `tokens`, `raw_tokens`, `changed_by` of each
        item.

        Negatives count from the end; None: what goes out next, if nothing is compacted. See
        `engine.replay.sent_prompt`, which works it out when it is asked for.

        Raises:
            BadArguments: the session has no such call.
        """
        items: tuple[SentItem, ...] = call_hook("session.sent", self, call)
        return items

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return which messages stood at a call and were left out of it by a rule, and by which.

        By their number among the messages that can be sent; None: the next call. Only rules that
        prune leave out what stands, so a record has none.
        """
        if self.behind is None:
            return {}
        found: dict[int, str] = self.behind.left_out(
            None if call is None else self.call(call).index
        )
        return found

    # -- what the log can say ---------------------------------------------------------------------

    @cached_property
    def has_text(self) -> bool:
        """True where at least one message carries text."""
        return any(isinstance(p, Text) and p.text for m in self.messages for p in m.parts)

    @cached_property
    def has_sizes(self) -> bool:
        """True where content is present or its size is recorded."""
        return self.has_text or any(isinstance(p, SizeOnly) for m in self.messages for p in m.parts)

    @cached_property
    def has_usage(self) -> bool:
        """True where at least one call has the provider's prompt size."""
        return any(
            c.message.usage is not None and c.message.usage.prompt_tokens for c in self.calls
        )

    @cached_property
    def has_cache(self) -> bool:
        """True where at least one call tells cached from uncached input."""
        return any(
            c.message.usage is not None and c.message.usage.cache_read_tokens is not None
            for c in self.calls
        )

    @cached_property
    def has_time(self) -> bool:
        """True where calls carry times."""
        return any(c.message.time is not None for c in self.calls)

    # -- growing and branching: a new session, the same log ---------------------------------------

    def append(self, *entries: LogEntry) -> Session:
        """Return the session with entries written after its leaf."""
        log = (*self.log, *entries)
        at_end = self.leaf in (-1, len(self.log) - 1)
        if at_end and not self.parents:
            return self._with(log=log, leaf=-1)
        first = self.leaf if self.leaf >= 0 else len(self.log) - 1
        new = (first, *range(len(self.log), len(log) - 1)) if entries else ()
        return self._with(log=log, parents=self._tree() + new, leaf=-1)

    def branch(self, entry: str | int) -> Session:
        """Return the session standing at an earlier entry (its id, or its index in `log`); nothing
        is lost.

        Raises:
            BadArguments: there is no such entry.
        """
        index = entry if isinstance(entry, int) else self._index(entry)
        if not -len(self.log) <= index < len(self.log):
            raise BadArguments(f"Session {self.id!r} has no entry {entry}: it has {len(self.log)}.")
        return self._with(leaf=index % len(self.log), parents=self._tree())

    def _tree(self) -> tuple[int, ...]:
        return self.parents or tuple(range(-1, len(self.log) - 1))

    def _index(self, entry: str) -> int:
        for i, e in enumerate(self.log):
            if e.id == entry:
                return i
        raise BadArguments(f"Session {self.id!r} has no entry {entry!r}.")

    def _with(self, **changes: Any) -> Session:
        return msgspec.structs.replace(self, **changes)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:  # noqa: ARG002
        bundle: dict[str, str] = call_hook("session.display", self)
        return bundle

    def __repr__(self) -> str:
        n, c, e = len(self.messages), len(self.calls), len(self.edits)
        return (
            f"<Session {sanitize_line(self.id)} {sanitize_line(self.format, 20)}: {n} messages, "
            f"{c} calls, {e}"
            " compactions>"
        )


def with_unique_ids(sessions: Iterable[Session]) -> list[Session]:
    """Return sessions under ids that tell them apart: the second of an id becomes `id (2)`, the
    third `id (3)`.

    The same session given twice is two; a parent that is given before its subagents is told to them
    under its new id.
    """
    out: list[Session] = []
    used: dict[str, int] = {}
    now: dict[str, str] = {}
    given = list(sessions)
    taken = {s.id for s in given}
    for session in given:
        n = used[session.id] = used.get(session.id, 0) + 1
        own = session.id
        while n > 1 and (own := f"{session.id} ({n})") in taken:
            n = used[session.id] = n + 1
        now[session.id] = own
        taken.add(own)
        parent = now.get(session.parent or "", session.parent)
        same = own == session.id and parent == session.parent
        copy = session if same else msgspec.structs.replace(session, id=own, parent=parent)
        out.append(copy if same else copy.backed(session.behind))
    return out


def _iter_views(
    path: Iterable[LogEntry], *, each: bool = False
) -> Iterator[tuple[list[Message], int]]:
    """Yield what is shown before each entry (`each`), and at the end."""
    shown: list[Message] = []
    position = -1
    for position, entry in enumerate(path):
        if each:
            yield shown, position
        if isinstance(entry, Edit):
            shown = apply_edit(shown, entry)
        elif entry.visible:
            shown.append(entry)
    yield shown, position + 1


def apply_edit(shown: list[Message], edit: Edit) -> list[Message]:
    """Return the view after an edit; targets that are not shown are passed over."""
    if not edit.targets and edit.kind in ("dropped", "summarised"):
        return [*shown, *edit.inserted]
    targets = set(edit.targets)
    if edit.kind in ("shortened", "replaced"):
        new = dict(zip(edit.targets, edit.inserted, strict=False))
        return [new.get(m.id, m) for m in shown]
    at = next((i for i, m in enumerate(shown) if m.id in targets), len(shown))
    kept = [m for m in shown[at:] if m.id not in targets]
    return [*shown[:at], *edit.inserted, *kept]


T_co = TypeVar("T_co", covariant=True)


class ListPrefix(Sequence[T_co]):
    """The first values of a list to which values are added and of which none is changed.

    A tuple in all but its size; slices and sums of it are tuples.
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
        """Return what was added to the list since an earlier beginning of it; None: that is of
        another list.
        """
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
