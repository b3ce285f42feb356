"""Conversations reconstructed from requests, each of which holds the whole prompt."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import (
    fill_tool_names,
    parse_chat_message,
    parse_tool_schemas,
)
from ctxkit.formats.session_builder import MAX_PARTS, SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    DAMAGE_ERRORS,
    as_dict,
    as_list,
    as_str,
    describe_damage,
    str_or_none,
)
from ctxkit.session.messages import Edit, EditKind, Fault, Message, Text, ToolCall, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ctxkit.session.session import Session


# `ChatConversation` builds one conversation from the requests and replies of a client in order.
# Messages that a later prompt lacks become an edit.
#
# Alignment of a request with the visible messages, in three steps:
#   1. longest common prefix of the raw messages with those of the last request (plus its reply)
#   2. the remaining messages are compared by key (role, text, calls) with the remaining visible ids
#   3. where they differ, two greedy common subsequences are computed, from the start and from the
#      end, and the longer one is taken. Visible messages without a match were removed: they become
#      the targets of a derived edit, and unmatched new messages before the last match become its
#      inserted messages (a summary). Everything after the last match is new.
# Step 1 is O(n) per request; step 3 is O(m log m) in the remaining messages and runs only if some
# are missing.


class ChatConversation:
    """Builder of one conversation from requests and replies."""

    def __init__(self, format_: str) -> None:
        self.format = format_
        self.log = SessionBuilder()
        self.skipped: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.tool_by_call: dict[str, str] = {}
        self.tools: tuple[ToolSchema, ...] = ()
        self.model: str | None = None
        self.inputs = 0
        """Number of input items so far, for APIs whose items are counted rather than compared."""
        self._last_request: list[Any] = []
        """The raw messages of the last request and its reply."""
        self._ids_by_raw_message: list[list[str]] = []
        """The ids of the messages parsed from each of them."""
        self._key_by_id: dict[str, Any] = {}

    def parse_message(self, raw: Any, **fields: Any) -> list[Message]:
        """Parse a raw message, with the tools of its results; a damaged one becomes a fault.

        Args:
            raw: a message of the API, undecoded further than JSON.
            **fields: fields of the new messages, and `line`, the line of the log (from 1) for the
                fault.
        """
        try:
            return fill_tool_names(
                parse_chat_message(raw, self.log, self.skipped, **fields), self.tool_by_call
            )
        except DAMAGE_ERRORS as e:
            self.faults.append(Fault(fields.get("line", 0), describe_damage(e)))
            return []

    def add(self, messages: Iterable[Message]) -> list[str]:
        """Append messages; return their ids."""
        ids = []
        for message in messages:
            self.log.add(message)
            self._key_by_id[message.id] = make_message_key(message)
            ids.append(message.id)
        return ids

    def read_settings(self, request: dict[str, Any]) -> None:
        """Read the tools and the model of a request."""
        if request.get("tools"):
            self.tools = parse_tool_schemas(request["tools"])
        self.model = str_or_none(request.get("model")) or self.model

    def read_request(self, raw_messages: list[Any]) -> None:
        """Read the messages of a request: append new ones, add an edit for missing ones."""
        n_same = 0
        for old, new in zip(self._last_request, raw_messages, strict=False):
            if old != new:
                break
            n_same += 1
        same_ids = self._ids_by_raw_message[:n_same]
        missing_ids = self.log.visible_ids[sum(map(len, same_ids)) :]
        parsed = [self.parse_message(raw) for raw in raw_messages[n_same:]]
        new_messages = [m for messages in parsed for m in messages]
        id_by_new_id = self._add_or_match(new_messages, missing_ids)
        self._last_request = raw_messages
        self._ids_by_raw_message = [
            *same_ids,
            *([id_by_new_id.get(m.id, m.id) for m in messages] for messages in parsed),
        ]

    def _add_or_match(self, messages: list[Message], missing_ids: list[str]) -> dict[str, str]:
        """Add what is new; return the ids of the messages that are already visible, by new id."""
        id_by_new_id: dict[str, str] = {}
        position = 0
        while (
            position < len(messages)
            and position < len(missing_ids)
            and make_message_key(messages[position]) == self._key_by_id.get(missing_ids[position])
        ):
            id_by_new_id[messages[position].id] = missing_ids[position]
            position += 1
        if position < len(missing_ids):
            position = self._add_edit(messages, position, missing_ids[position:], id_by_new_id)
        self.add(messages[position:])
        return id_by_new_id

    def _add_edit(
        self,
        messages: list[Message],
        start: int,
        missing_ids: list[str],
        id_by_new_id: dict[str, str],
    ) -> int:
        """Add the edit that explains missing messages; return the index of the first new one."""
        keys = [make_message_key(message) for message in messages[start:]]
        end, inserted = start, []
        for n, i in _align_keys(keys, [self._key_by_id.get(i) for i in missing_ids]):
            id_by_new_id[messages[start + n].id] = missing_ids[i]
            end = max(end, start + n + 1)
        if end == start:
            end = self.count_replacement(messages, start)
        for message in messages[start:end]:
            if message.id not in id_by_new_id:
                self._key_by_id[message.id] = make_message_key(message)
                inserted.append(message)
        repeated_ids = set(id_by_new_id.values())
        self.log.add(
            Edit(
                kind="summarised" if inserted else "dropped",
                id=self.log.new_id(),
                targets=tuple(i for i in missing_ids if i not in repeated_ids),
                inserted=tuple(inserted),
                method="request",
                source="derived",
                reason="the next request no longer holds them",
            )
        )
        return end

    def count_replacement(self, messages: list[Message], start: int) -> int:  # noqa: ARG002
        """Return the end of what replaced the old messages where none of them is left: all.

        Args:
            messages: messages of the new request.
            start: index of the first message that replaced old ones.
        """
        return len(messages)

    def add_reply(self, raw: Any, **fields: Any) -> None:
        """Add the reply of a call, which the next request will repeat.

        Args:
            raw: the message of the response.
            **fields: as for `parse_message`.
        """
        messages = self.parse_message(raw, **fields)
        self._last_request = [*self._last_request, raw]
        self._ids_by_raw_message = [*self._ids_by_raw_message, self.add(messages)]

    def session(self, session_id: str, **fields: Any) -> Session:
        """Return the conversation as a session.

        Args:
            session_id: id of the session.
            **fields: further fields of `Session`, which the conversation does not know.
        """
        return self.log.session(
            id=session_id,
            format=self.format,
            model=self.model,
            tools=self.tools,
            skipped=dict(self.skipped),
            faults=tuple(self.faults),
            **fields,
        )


def make_message_key(message: Message) -> Any:
    """Return the key by which a message is recognised in the next request."""
    texts = tuple(p.text for p in message.parts if type(p) is Text and p.text)
    return (
        message.role,
        texts,
        tuple(p.id for p in message.parts if type(p) is ToolCall),
        message.call_id,
    )


def _align_keys(new_keys: list[Any], old_keys: list[Any]) -> list[tuple[int, int]]:
    """Return a common subsequence of two key lists as pairs of indices.

    Many messages are equal ("continue"), so that a greedy match can go wrong. It is done from the
    end, where messages survive a compaction, and from the start; the longer result is returned.
    """
    reversed_pairs = _align_greedily(new_keys[::-1], old_keys[::-1])
    from_end = [(len(new_keys) - 1 - n, len(old_keys) - 1 - i) for n, i in reversed_pairs]
    from_start = _align_greedily(new_keys, old_keys)
    return from_start if len(from_start) > len(from_end) else from_end


def _align_greedily(new_keys: list[Any], old_keys: list[Any]) -> list[tuple[int, int]]:
    """Match each new key with the first equal old key after the last match."""
    positions: dict[Any, list[int]] = {}
    for i, key in enumerate(old_keys):
        positions.setdefault(key, []).append(i)
    pairs, next_position = [], 0
    for n, key in enumerate(new_keys):
        candidates = positions.get(key, ())
        i = bisect_left(candidates, next_position)
        if i < len(candidates):
            pairs.append((n, candidates[i]))
            next_position = candidates[i] + 1
    return pairs


def merge_reply_items(messages: list[Message]) -> list[Message]:
    """Merge neighbouring assistant messages, for APIs that return a reply as several items."""
    merged: list[Message] = []
    for message in messages:
        if (
            message.role == "assistant"
            and merged
            and merged[-1].role == "assistant"
            and len(merged[-1].parts) < MAX_PARTS
        ):
            merged[-1] = msgspec.structs.replace(
                merged[-1],
                parts=merged[-1].parts + message.parts,
                usage=message.usage or merged[-1].usage,
                stop=message.stop or merged[-1].stop,
            )
        else:
            merged.append(message)
    return merged


def is_chat_message(raw: Any) -> bool:
    """Return True if a value looks like a message of a chat API."""
    if type(raw) is not dict or type(raw.get("role")) is not str:
        return False
    return raw["role"] in _MESSAGE_ROLES and (
        "content" in raw or "tool_calls" in raw or "function_call" in raw
    )


_MESSAGE_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}


def is_chat_list(value: Any) -> bool:
    """Return True for a list that begins with messages."""
    return type(value) is list and bool(value) and all(is_chat_message(m) for m in value[:3])


def get_content_block_types(messages: Any) -> set[str]:
    """Return the types of the content blocks of the first messages."""
    types: set[str] = set()
    for message in as_list(messages)[:64]:
        for block in as_list(as_dict(message).get("content"))[:16]:
            types.add(as_str(as_dict(block).get("type")))
    return types


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


def make_keyed_message(message: Message) -> KeyedMessage:
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
            self._append(make_keyed_message(message)[0], message)
        else:
            self._empty_reply = self.log.add(message)

    def _append(self, key: int, message: Message) -> None:
        self.log.add(message)
        self._visible_keys.append(key)
        self._visible_ids.append(message.id)


def build_session_from_threads(
    threads: Sequence[PromptThread],
    session_id: str,
    tools: tuple[ToolSchema, ...] = (),
    **fields: Any,
) -> Session:
    """Return the first thread as a session with the others as its children.

    Args:
        threads: the threads; without any, the session is empty.
        session_id: the session's id.
        tools: the tools of the first thread.
        fields: fields of all sessions.
    """
    main, *others = [
        thread.log.session(
            id=f"{session_id}/{i}" if i else session_id,
            agent=thread.agent or ("subagent" if i else "main"),
            model=next((e.model for e in thread.log.entries if e.model), None),
            parent=session_id if i else None,
            **fields,
        )
        for i, thread in enumerate(threads or [PromptThread(None)])
    ]
    return replace(main, tools=tools, children=tuple(others))


# `PromptThreads` sorts the calls of a trace into the threads (agents) that they continue.
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
