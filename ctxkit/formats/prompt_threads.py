"""Conversations rebuilt from traces whose calls carry the whole prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Edit, EditKind, Message, Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.session.messages import ToolSchema
    from ctxkit.session.session import Session

KeyedMessage = tuple[int, Message]
"""A message with what it is recognised by."""
_encode = msgspec.json.Encoder().encode
_LOOK = 12
"""A call is compared with at most so many threads, the latest first."""


def key_message(message: Message) -> KeyedMessage:
    """Return a message with its key: who spoke, text, calls; not thinking or ids, which change."""
    side = message.role if message.role in ("assistant", "system") else "input"
    words = tuple(p.text for p in message.parts if type(p) is Text)
    calls = tuple((p.name, _encode(p.arguments)) for p in message.parts if type(p) is ToolCall)
    rest = sum(1 for p in message.parts if type(p) is not Text and type(p) is not ToolCall)
    return hash(
        (side, words, calls, rest if not words and not calls else 0, message.call_id)
    ), message


class PromptThread:
    """One conversation: its log, and the keys of what is shown."""

    def __init__(self, agent: str | None) -> None:
        self.log = SessionBuilder()
        self.agent = agent
        self.since = 0
        """Index of the first entry that the latest call wrote."""
        self.compacted = False
        """True where the trace says that the latest call saw a compacted view."""
        self._keys: list[int] = []
        self._ids: list[str] = []
        self._silent: int | None = None
        """Index of a last reply of which the trace holds no content."""

    def common(self, prompt: Sequence[KeyedMessage]) -> int:
        """Return how many messages of a prompt are shown already, system prompts not counted."""
        n = 0
        for (key, _), known in zip(prompt, self._keys, strict=False):
            if key != known:
                break
            n += 1
        rest = set(self._keys[n:]) if n < len(prompt) else set[int]()
        return sum(
            1 for i, (k, m) in enumerate(prompt) if m.role != "system" and (i < n or k in rest)
        )

    @property
    def size(self) -> int:
        """How many messages are shown."""
        return len(self._keys)

    def prompt(self, prompt: Sequence[KeyedMessage]) -> int:
        """Bring what is shown to a prompt's; return how many messages were looked at one by one."""
        n = next(
            (i for i, (p, k) in enumerate(zip(prompt, self._keys, strict=False)) if p[0] != k), None
        )
        if n is None:  # the usual case: everything shown is still there, and more
            n = min(len(prompt), len(self._keys))
        looked = len(prompt) + len(self._keys) - 2 * n
        matched = self._match(prompt, n)
        gone = [i for i in range(n, len(self._keys)) if i not in matched]
        paired = set(matched.values())
        if (
            gone
        ):  # what the trace itself marks as a summary came in their place, if nothing else did
            marked = (j for j, (_, m) in enumerate(prompt[n:], n) if m.role == "summary")
            last = max([*paired, *marked], default=n - 1)
        else:
            last = max(paired, default=n - 1)
        inner = [p for j, p in enumerate(prompt[n : last + 1], n) if j not in paired]
        if gone:
            self._edit(gone, inner)
            inner = []
        for said_ in [*inner, *prompt[last + 1 :]]:
            self._hear(said_)
        return looked

    def _match(self, prompt: Sequence[KeyedMessage], n: int) -> dict[int, int]:
        """Return pairs in order, from `n` on: place in the log's view to place in the prompt."""
        places: dict[int, list[int]] = {}
        for i in range(len(self._keys) - 1, n - 1, -1):
            places.setdefault(self._keys[i], []).append(i)
        out: dict[int, int] = {}
        at = n - 1
        for j in range(n, len(prompt)):
            waiting = places.get(prompt[j][0], [])
            while waiting and waiting[-1] <= at:
                waiting.pop()
            if waiting:
                at = waiting.pop()
                out[at] = j
        return out

    def _edit(self, gone: list[int], new: list[KeyedMessage]) -> None:
        made = [replace(m, id=self.log.new_id(m.id), role="summary", usage=None) for _, m in new]
        kind: EditKind = "summarised" if made else "dropped"
        targets = tuple(self._ids[i] for i in gone)
        why = "no longer in the next prompt"
        edit = Edit(
            kind=kind,
            id=self.log.new_id(),
            targets=targets,
            inserted=tuple(made),
            reason=why,
            source="derived",
        )
        self.log.add(edit)
        left = set(gone)
        at = gone[0]
        pairs = list(zip(self._keys, self._ids, strict=True))
        kept = [p for i, p in enumerate(pairs[at:], at) if i not in left]
        shown = pairs[:at] + [(k, m.id) for (k, _), m in zip(new, made, strict=True)] + kept
        self._keys, self._ids = [k for k, _ in shown], [i for _, i in shown]

    def _hear(self, said_: KeyedMessage) -> None:
        key, message = said_
        if self._silent is not None and message.role == "assistant":
            index, self._silent = self._silent, None
            entry = self.log.entries[index]
            if isinstance(
                entry, Message
            ):  # the reply that the trace left out is in the next prompt
                self.log.replace(index, replace(entry, parts=message.parts))
                self._keys.append(key)
                self._ids.append(entry.id)
                return
        kind = message.kind or ("earlier" if message.role == "assistant" else "")
        self._add(key, replace(message, id=self.log.new_id(message.id), kind=kind))

    def finish(self, final: Sequence[KeyedMessage]) -> None:
        """Write what came after the last call: the end of the final messages, not yet shown."""
        known = set(self._keys)
        n = len(final)
        while n and final[n - 1][0] not in known:
            n -= 1
        for said_ in final[n:]:
            self._hear(said_)

    def reply(self, reply: Message) -> None:
        """Write the reply of a call."""
        made = replace(reply, id=self.log.new_id(reply.id))
        if made.parts:
            self._silent = None
            self._add(key_message(made)[0], made)
        else:
            self._silent = self.log.add(made)

    def _add(self, key: int, message: Message) -> None:
        self.log.add(message)
        self._keys.append(key)
        self._ids.append(message.id)


def threads_to_session(
    threads: Sequence[PromptThread], id_: str, tools: tuple[ToolSchema, ...] = (), **about: Any
) -> Session:
    """Return the first of some threads as a session, with the others as its children (of none an
    empty one); `about` are fields of all of them, the `tools` the first one's.
    """
    main, *others = [
        t.log.session(
            id=f"{id_}/{i}" if i else id_,
            agent=t.agent or ("subagent" if i else "main"),
            model=next((e.model for e in t.log.entries if e.model), None),
            parent=id_ if i else None,
            **about,
        )
        for i, t in enumerate(threads or [PromptThread(None)])
    ]
    return replace(main, tools=tools, children=tuple(others))


class PromptThreads:
    """All conversations of a trace, in order of their first call."""

    def __init__(self) -> None:
        self.all: list[PromptThread] = []
        self.work = 0
        """Messages new or gone, over all calls: readers bound it, so that no file is quadratic."""

    def call(
        self,
        prompt: Sequence[KeyedMessage],
        reply: Message,
        agent: str | None = None,
        *,
        compacted: bool = False,
    ) -> PromptThread:
        """Write one call (prompt and reply) to the thread it goes on from, or to a new one; return
        that thread.

        `compacted` says that it goes on from the agent's latest one, where it goes on from none by
        what it holds.
        """
        thread = self._find(prompt, agent)
        if thread is None and compacted:
            thread = self.latest(agent)
        if thread is None:
            thread = PromptThread(agent)
            self.all.append(thread)
        thread.since = len(thread.log.entries)
        self.work += thread.prompt(prompt)
        thread.reply(reply)
        return thread

    def latest(self, agent: str | None) -> PromptThread | None:
        """Return the conversation that an agent began last; None where it has none."""
        return next((t for t in reversed(self.all) if t.agent == agent), None)

    def _find(self, prompt: Sequence[KeyedMessage], agent: str | None) -> PromptThread | None:
        best: PromptThread | None = None
        most = 0
        for thread in self.all[-_LOOK:][::-1]:
            if agent is not None and thread.agent is not None and agent != thread.agent:
                continue
            if not prompt:
                return thread
            n = thread.common(prompt)
            if n > most and 4 * n >= min(len(prompt), thread.size):
                best, most = thread, n
        return best
