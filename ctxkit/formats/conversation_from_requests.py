"""Conversation reconstructed from chat requests, each of which repeats the messages before."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.chat_messages import fill_tool_names, parse_chat_message, parse_tool_schemas
from ctxkit.formats.session_builder import MAX_PARTS, SessionBuilder
from ctxkit.formats.untrusted_fields import (
    DAMAGE_ERRORS,
    as_dict,
    as_list,
    as_str,
    describe_damage,
    str_or_none,
)
from ctxkit.session.messages import Edit, Fault, Message, Text, ToolCall, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.session import Session


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
        """Parse a raw message, with the tools of its results; a damaged one becomes a fault."""
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
        """Return the end of what replaced the old messages where none of them is left: all."""
        return len(messages)

    def add_reply(self, raw: Any, **fields: Any) -> None:
        """Add the reply of a call, which the next request will repeat."""
        messages = self.parse_message(raw, **fields)
        self._last_request = [*self._last_request, raw]
        self._ids_by_raw_message = [*self._ids_by_raw_message, self.add(messages)]

    def session(self, session_id: str, **fields: Any) -> Session:
        """Return the conversation as a session."""
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
