"""A conversation rebuilt from chat requests that repeat it."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.formats.chat_messages import fill_tool_names, parse_chat_message, parse_tool_schemas
from ctxkit.formats.fields import (
    DAMAGE_ERRORS,
    as_dict,
    as_list,
    as_str,
    describe_damage,
    str_or_none,
)
from ctxkit.formats.session_builder import MAX_PARTS, SessionBuilder
from ctxkit.session.messages import Edit, Fault, Message, Text, ToolCall, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session.session import Session


class ChatConversation:
    """One conversation, request by request; each request may hold the whole of it."""

    def __init__(self, format_: str) -> None:
        self.format = format_
        self.log = SessionBuilder()
        self.skipped: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.asked: dict[str, str] = {}
        self.tools: tuple[ToolSchema, ...] = ()
        self.model: str | None = None
        self.inputs = 0
        """Items in the inputs so far, for an API whose items are counted rather than compared."""
        self._raws: list[Any] = []
        self._known: list[list[str]] = []
        """For each raw message of the last request the ids of ours."""
        self._keys: dict[str, Any] = {}

    def make(self, raw: Any, **more: Any) -> list[Message]:
        """Return a raw message as ours, its results' tools named; a damaged one is a fault."""
        try:
            return fill_tool_names(
                parse_chat_message(raw, self.log, self.skipped, **more), self.asked
            )
        except DAMAGE_ERRORS as e:
            self.faults.append(Fault(more.get("line", 0), describe_damage(e)))
            return []

    def add(self, made: Iterable[Message]) -> list[str]:
        """Write messages at the end; return their ids."""
        out = []
        for m in made:
            self.log.add(m)
            self._keys[m.id] = _key(m)
            out.append(m.id)
        return out

    def settings(self, request: dict[str, Any]) -> None:
        """Take the tools and the model of a request."""
        if request.get("tools"):
            self.tools = parse_tool_schemas(request["tools"])
        self.model = str_or_none(request.get("model")) or self.model

    def request(self, raws: list[Any]) -> None:
        """Take a request's messages: growth is new, what is gone was taken by an unmarked edit."""
        same = 0
        for old, new in zip(self._raws, raws, strict=False):
            if old != new:
                break
            same += 1
        known = self._known[:same]
        gone = self.log.shown[sum(map(len, known)) :]
        fresh = [self.make(raw) for raw in raws[same:]]
        flat = [m for made in fresh for m in made]
        names = self._matched(flat, gone)
        self._raws = raws
        self._known = [*known, *([names.get(m.id, m.id) for m in made] for made in fresh)]

    def _matched(self, flat: list[Message], gone: list[str]) -> dict[str, str]:
        """Write what is new among the messages; return the ids under which the others are known."""
        names: dict[str, str] = {}
        at = 0
        while at < len(flat) and at < len(gone) and _key(flat[at]) == self._keys.get(gone[at]):
            names[flat[at].id] = gone[at]
            at += 1
        if at < len(gone):
            at = self._edited(flat, at, gone[at:], names)
        self.add(flat[at:])
        return names

    def _edited(self, flat: list[Message], at: int, gone: list[str], names: dict[str, str]) -> int:
        """Write the edit that explains missing messages; return where what is new begins."""
        keys = [_key(m) for m in flat[at:]]
        end, inserted = at, []
        for n, i in _aligned(keys, [self._keys.get(i) for i in gone]):
            names[flat[at + n].id] = gone[i]
            end = max(end, at + n + 1)
        if end == at:
            end = len(flat)
        for m in flat[at:end]:
            if m.id not in names:
                self._keys[m.id] = _key(m)
                inserted.append(m)
        kept = set(names.values())
        self.log.add(
            Edit(
                kind="summarised" if inserted else "dropped",
                id=self.log.new_id(),
                targets=tuple(i for i in gone if i not in kept),
                inserted=tuple(inserted),
                method="request",
                source="derived",
                reason="the next request no longer holds them",
            )
        )
        return end

    def reply(self, raw: Any, **more: Any) -> None:
        """Take the reply of a call: the next request will repeat it."""
        made = self.make(raw, **more)
        self._raws = [*self._raws, raw]
        self._known = [*self._known, self.add(made)]

    def session(self, own: str, **more: Any) -> Session:
        """Return the conversation."""
        return self.log.session(
            id=own,
            format=self.format,
            model=self.model,
            tools=self.tools,
            skipped=dict(self.skipped),
            faults=tuple(self.faults),
            **more,
        )


def _key(m: Message) -> Any:
    said = tuple(p.text for p in m.parts if type(p) is Text and p.text)
    return m.role, said, tuple(p.id for p in m.parts if type(p) is ToolCall), m.call_id


def _aligned(new: list[Any], old: list[Any]) -> list[tuple[int, int]]:
    """Return pairs of places with equal keys, in the order of both.

    Equal messages are many ("continue"): found from the end, where what survives a compaction
    stands, and from the start; the longer alignment is taken.
    """
    ends = _greedy(new[::-1], old[::-1])
    last = [(len(new) - 1 - n, len(old) - 1 - i) for n, i in ends]
    first = _greedy(new, old)
    return first if len(first) > len(last) else last


def _greedy(new: list[Any], old: list[Any]) -> list[tuple[int, int]]:
    places: dict[Any, list[int]] = {}
    for i, key in enumerate(old):
        places.setdefault(key, []).append(i)
    out, at = [], 0
    for n, key in enumerate(new):
        found = places.get(key, ())
        i = bisect_left(found, at)
        if i < len(found):
            out.append((n, found[i]))
            at = found[i] + 1
    return out


def merge_reply_items(messages: list[Message]) -> list[Message]:
    """Return messages, neighbouring pieces of a reply as one (for APIs that reply in items)."""
    out: list[Message] = []
    for m in messages:
        if (
            m.role == "assistant"
            and out
            and out[-1].role == "assistant"
            and len(out[-1].parts) < MAX_PARTS
        ):
            out[-1] = msgspec.structs.replace(
                out[-1],
                parts=out[-1].parts + m.parts,
                usage=m.usage or out[-1].usage,
                stop=m.stop or out[-1].stop,
            )
        else:
            out.append(m)
    return out


def is_chat_message(raw: Any) -> bool:
    """Say whether a value looks like a message of a chat API."""
    if type(raw) is not dict or type(raw.get("role")) is not str:
        return False
    return raw["role"] in _ROLES and (
        "content" in raw or "tool_calls" in raw or "function_call" in raw
    )


_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}


def is_chat_list(value: Any) -> bool:
    """Say whether a value is a list that begins with messages."""
    return type(value) is list and bool(value) and all(is_chat_message(m) for m in value[:3])


def content_block_types(messages: Any) -> set[str]:
    """Return the types of the content blocks of the first messages."""
    found: set[str] = set()
    for m in as_list(messages)[:64]:
        for block in as_list(as_dict(m).get("content"))[:16]:
            found.add(as_str(as_dict(block).get("type")))
    return found
