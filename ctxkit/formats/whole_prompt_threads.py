"""Conversations reconstructed from traces in which each call has its whole prompt."""

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

# Assignment of calls to threads and alignment of prompts.
#
# A trace interleaves the calls of several agents. A call continues the thread whose visible
# messages share most with its prompt, if at least a quarter of the smaller of both is shared;
# otherwise it begins a new thread. At most _MAX_THREADS_COMPARED are compared, the latest first.
# Within a thread the prompt is compared with the visible messages by key: the longest common prefix
# first, then a greedy common subsequence. Visible messages without a match were removed; prompt
# messages between the matches were inserted in their place (a summary), those after are new.
# Messages are compared by a hash of speaker, text and calls. Thinking and ids differ between the
# reply and its repetition in the next prompt and are ignored.
# Cost: the usual call, which only grows, is O(prompt); `work` counts changed messages, so that
# readers can bound the rest.
KeyedMessage = tuple[int, Message]
"""A message with the key that it is compared by."""
_encode = msgspec.json.Encoder().encode
_MAX_THREADS_COMPARED = 12
"""Largest number of threads that a call is compared with."""


def key_message(message: Message) -> KeyedMessage:
    """Return a message with its key, a hash of speaker, text and calls."""
    speaker = message.role if message.role in ("assistant", "system") else "input"
    texts = tuple(p.text for p in message.parts if type(p) is Text)
    calls = tuple((p.name, _encode(p.arguments)) for p in message.parts if type(p) is ToolCall)
    n_other_parts = sum(1 for p in message.parts if type(p) is not Text and type(p) is not ToolCall)
    return hash(
        (speaker, texts, calls, n_other_parts if not texts and not calls else 0, message.call_id)
    ), message


class PromptThread:
    """One conversation: its builder, and the keys of its visible messages."""

    def __init__(self, agent: str | None) -> None:
        self.log = SessionBuilder()
        self.agent = agent
        self.first_new_index = 0
        """Index of the first entry that the latest call added."""
        self.is_compacted = False
        """True if the trace marks the latest call as one with a compacted prompt."""
        self._visible_keys: list[int] = []
        self._visible_ids: list[str] = []
        self._empty_reply: int | None = None
        """Index of the last reply if the trace does not have its content."""

    def count_shared(self, prompt: Sequence[KeyedMessage]) -> int:
        """Count the messages of a prompt that are visible, without system prompts."""
        n_prefix = 0
        for (key, _), visible_key in zip(prompt, self._visible_keys, strict=False):
            if key != visible_key:
                break
            n_prefix += 1
        remaining_keys = (
            set(self._visible_keys[n_prefix:]) if n_prefix < len(prompt) else set[int]()
        )
        return sum(
            1
            for i, (k, m) in enumerate(prompt)
            if m.role != "system" and (i < n_prefix or k in remaining_keys)
        )

    @property
    def visible_count(self) -> int:
        """Number of visible messages."""
        return len(self._visible_keys)

    def apply_prompt(self, prompt: Sequence[KeyedMessage]) -> int:
        """Make a prompt's messages the visible ones; return how many were compared one by one."""
        n_prefix = next(
            (
                i
                for i, (p, k) in enumerate(zip(prompt, self._visible_keys, strict=False))
                if p[0] != k
            ),
            None,
        )
        if n_prefix is None:  # the usual case: the prompt only grew
            n_prefix = min(len(prompt), len(self._visible_keys))
        n_compared = len(prompt) + len(self._visible_keys) - 2 * n_prefix
        prompt_index_by_visible = self._match_visible(prompt, n_prefix)
        removed = [
            i for i in range(n_prefix, len(self._visible_keys)) if i not in prompt_index_by_visible
        ]
        matched_indices = set(prompt_index_by_visible.values())
        # What was inserted ends at the last match, or at a message that the trace marks as summary.
        if removed:
            summary_indices = (
                j for j, (_, m) in enumerate(prompt[n_prefix:], n_prefix) if m.role == "summary"
            )
            last_old = max([*matched_indices, *summary_indices], default=n_prefix - 1)
        else:
            last_old = max(matched_indices, default=n_prefix - 1)
        between = [
            p
            for j, p in enumerate(prompt[n_prefix : last_old + 1], n_prefix)
            if j not in matched_indices
        ]
        if removed:
            self._add_edit(removed, between)
            between = []
        for keyed in [*between, *prompt[last_old + 1 :]]:
            self._add_input(keyed)
        return n_compared

    def _match_visible(self, prompt: Sequence[KeyedMessage], start: int) -> dict[int, int]:
        """Match messages from `start` on; return prompt index by visible index."""
        positions: dict[int, list[int]] = {}
        for i in range(len(self._visible_keys) - 1, start - 1, -1):
            positions.setdefault(self._visible_keys[i], []).append(i)
        pairs: dict[int, int] = {}
        last_position = start - 1
        for j in range(start, len(prompt)):
            candidates = positions.get(prompt[j][0], [])
            while candidates and candidates[-1] <= last_position:
                candidates.pop()
            if candidates:
                last_position = candidates.pop()
                pairs[last_position] = j
        return pairs

    def _add_edit(self, removed: list[int], inserted: list[KeyedMessage]) -> None:
        messages = [
            replace(m, id=self.log.new_id(m.id), role="summary", usage=None) for _, m in inserted
        ]
        kind: EditKind = "summarised" if messages else "dropped"
        targets = tuple(self._visible_ids[i] for i in removed)
        reason = "no longer in the next prompt"
        edit = Edit(
            kind=kind,
            id=self.log.new_id(),
            targets=targets,
            inserted=tuple(messages),
            reason=reason,
            source="derived",
        )
        self.log.add(edit)
        removed_set = set(removed)
        first_removed = removed[0]
        pairs = list(zip(self._visible_keys, self._visible_ids, strict=True))
        remaining = [
            p for i, p in enumerate(pairs[first_removed:], first_removed) if i not in removed_set
        ]
        visible = (
            pairs[:first_removed]
            + [(k, m.id) for (k, _), m in zip(inserted, messages, strict=True)]
            + remaining
        )
        self._visible_keys, self._visible_ids = [k for k, _ in visible], [i for _, i in visible]

    def _add_input(self, keyed: KeyedMessage) -> None:
        key, message = keyed
        if self._empty_reply is not None and message.role == "assistant":
            index, self._empty_reply = self._empty_reply, None
            entry = self.log.entries[index]
            if isinstance(entry, Message):  # the next prompt has the reply that the trace lacked
                self.log.replace(index, replace(entry, parts=message.parts))
                self._visible_keys.append(key)
                self._visible_ids.append(entry.id)
                return
        kind = message.kind or ("earlier" if message.role == "assistant" else "")
        self._append(key, replace(message, id=self.log.new_id(message.id), kind=kind))

    def add_final(self, final: Sequence[KeyedMessage]) -> None:
        """Add the end of the final messages, after the last that is visible."""
        visible_keys = set(self._visible_keys)
        n_new = len(final)
        while n_new and final[n_new - 1][0] not in visible_keys:
            n_new -= 1
        for keyed in final[n_new:]:
            self._add_input(keyed)

    def add_reply(self, reply: Message) -> None:
        """Add the reply of a call."""
        message = replace(reply, id=self.log.new_id(reply.id))
        if message.parts:
            self._empty_reply = None
            self._append(key_message(message)[0], message)
        else:
            self._empty_reply = self.log.add(message)

    def _append(self, key: int, message: Message) -> None:
        self.log.add(message)
        self._visible_keys.append(key)
        self._visible_ids.append(message.id)


def threads_to_session(
    threads: Sequence[PromptThread], id_: str, tools: tuple[ToolSchema, ...] = (), **fields: Any
) -> Session:
    """Return the first thread as a session with the others as its children.

    Args:
        threads: the threads; without any, the session is empty.
        id_: the session's id.
        tools: the tools of the first thread.
        fields: fields of all sessions.
    """
    main, *others = [
        thread.log.session(
            id=f"{id_}/{i}" if i else id_,
            agent=thread.agent or ("subagent" if i else "main"),
            model=next((e.model for e in thread.log.entries if e.model), None),
            parent=id_ if i else None,
            **fields,
        )
        for i, thread in enumerate(threads or [PromptThread(None)])
    ]
    return replace(main, tools=tools, children=tuple(others))


class PromptThreads:
    """All conversations of a trace, in order of their first call."""

    def __init__(self) -> None:
        self.all: list[PromptThread] = []
        self.work = 0
        """Number of messages added or removed over all calls, which readers bound."""

    def add_call(
        self,
        prompt: Sequence[KeyedMessage],
        reply: Message,
        agent: str | None = None,
        *,
        compacted: bool = False,
    ) -> PromptThread:
        """Add a call to the thread that it continues, or to a new one.

        Args:
            prompt: the messages of its prompt.
            reply: its reply.
            agent: the agent; None: unknown, any thread matches.
            compacted: True if the call continues the agent's latest thread even if the prompt
                shares nothing with it.

        Returns:
            The thread.
        """
        thread = self._find_thread(prompt, agent)
        if thread is None and compacted:
            thread = self.latest(agent)
        if thread is None:
            thread = PromptThread(agent)
            self.all.append(thread)
        thread.first_new_index = len(thread.log.entries)
        self.work += thread.apply_prompt(prompt)
        thread.add_reply(reply)
        return thread

    def latest(self, agent: str | None) -> PromptThread | None:
        """Return the thread that an agent began last, or None."""
        return next((t for t in reversed(self.all) if t.agent == agent), None)

    def _find_thread(
        self, prompt: Sequence[KeyedMessage], agent: str | None
    ) -> PromptThread | None:
        best_thread: PromptThread | None = None
        most_common = 0
        for thread in self.all[-_MAX_THREADS_COMPARED:][::-1]:
            if agent is not None and thread.agent is not None and agent != thread.agent:
                continue
            if not prompt:
                return thread
            n_common = thread.count_shared(prompt)
            if n_common > most_common and 4 * n_common >= min(len(prompt), thread.visible_count):
                best_thread, most_common = thread, n_common
        return best_thread
