"""A rollout of Codex, line by line: replies, events, compactions and turns taken back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from ctxkit.messages import Edit, Image, Message, Part, Text, ToolSchema
from ctxkit.readers.codex_items import (
    CALLS,
    OUTPUTS,
    SERVER,
    SUMMARIES,
    hidden,
    is_wrapper,
    key_of,
    opening,
    parts_of,
    to_call,
    to_output,
    to_thinking,
)
from ctxkit.readers.codex_replies import RolloutReplies
from ctxkit.readers.fields import as_text, items, mapping, number, text, time, word
from ctxkit.readers.logs import TOO_MANY
from ctxkit.readers.usages import to_schemas


class Rollout:
    """What is known while the lines go by.

    Args:
        early: the first items, which may hold the system prompt already.
        bare: True where lines are items without a payload, as the first versions wrote them.
    """

    def __init__(self, early: list[Any], *, bare: bool) -> None:
        self.replies = RolloutReplies()
        self.log = self.replies.log
        self.skipped: Counter[str] = Counter()
        self.meta: dict[str, Any] = {}
        self.title: str | None = None
        self.tools: tuple[ToolSchema, ...] = ()
        self._early, self._bare = early, bare
        self._keys: dict[str, bytes] = {}
        self._brought: dict[str, Message] = {}
        """Messages that only a compaction brought, by id."""

    def record(self, record: dict[str, Any]) -> None:
        """Take one line.

        Raises:
            ValueError: its payload is no object.
        """
        kind, payload = record.get("type"), record.get("payload")
        if kind in {"response_item", "event_msg", "compacted", "session_meta"}:
            if type(payload) is not dict:
                raise ValueError("expected 'payload' to be an object")
            if kind == "event_msg":
                self._event(payload, record)
            elif kind == "response_item":
                self.item(payload, time(record.get("timestamp")))
            elif kind == "compacted":
                self._compacted(payload, time(record.get("timestamp")))
            else:
                self.begin(payload)
        elif kind == "turn_context":
            self.replies.model = word(mapping(payload).get("model")) or self.replies.model
        elif "payload" in record:
            self.skipped[kind if type(kind) is str else "no type"] += 1
        elif kind is None and "instructions" in record:
            self.begin(record)
        elif self._bare:
            self.item(record, time(record.get("timestamp")))
        else:
            self.skipped[kind if type(kind) is str else "no type"] += 1

    def begin(self, payload: dict[str, Any]) -> None:
        """Take what the session says of itself; a copy of an older session says it again."""
        if self.meta:
            self.skipped["session_meta"] += 1
            return
        self.meta = payload
        self.tools = to_schemas(mapping(payload.get("dynamic_tools")).get("tools"))
        said = word(mapping(payload.get("base_instructions")).get("text")) or word(
            payload.get("instructions")
        )
        if said is not None and not any(
            said[:2000] in as_text(e) or said in _said(e) for e in self._early
        ):
            self.log.say("system", (Text(said),))

    # -- items: what goes to the model and comes from it ------------------------------------------

    def item(self, p: dict[str, Any], when: float | None) -> None:
        """Take one item; a message may do without its type."""
        kind = p.get("type", "message" if "role" in p else None)
        if kind == "message" and p.get("role") != "assistant":
            self._input(p, when)
        elif kind == "message":
            self.replies.say(p, list(parts_of(p.get("content"), self.skipped)), when)
        elif kind == "reasoning":
            self.replies.say(p, [to_thinking(p)], when)
        elif kind in CALLS:
            self._call(p, str(kind), when)
        elif kind in OUTPUTS:
            parts, failed, details = to_output(p, self.skipped)
            self.replies.answer(text(p.get("call_id")), parts, when, failed=failed, details=details)
        elif kind == "agent_message":
            self._heard("user", parts_of(p.get("content"), self.skipped), when, "agent", p)
        elif kind in SUMMARIES:
            self._heard("summary", hidden(p, "compaction"), when, "", p)
        else:
            self.skipped[f"response_item {kind}" if type(kind) is str else "response_item"] += 1

    def _input(self, p: dict[str, Any], when: float | None) -> None:
        role, parts = p.get("role"), parts_of(p.get("content"), self.skipped)
        if role in ("developer", "system"):
            self._heard("system", parts, when, "developer" if role == "developer" else "", p)
        else:
            self._heard("user", parts, when, "wrapper" if is_wrapper(parts) else "", p)

    def _heard(
        self, role: Any, parts: tuple[Part, ...], when: float | None, kind: str, p: dict[str, Any]
    ) -> None:
        self.replies.flush()
        self.replies.heard(
            Message(role=role, id=self.log.new_id(p.get("id")), parts=parts, time=when, kind=kind)
        )

    def _call(self, p: dict[str, Any], kind: str, when: float | None) -> None:
        own = word(p.get("call_id")) or word(p.get("id")) or self.log.new_id()
        self.replies.call(p, to_call(p, kind, own), when)
        if kind in SERVER:
            data = word(p.get("result"))
            self.replies.answer(
                own, (Image("image/png", data),) if data else (), when, kind="server"
            )

    # -- events -----------------------------------------------------------------------------------

    def _event(self, p: dict[str, Any], record: dict[str, Any]) -> None:
        kind = p.get("type")
        if kind == "token_count":
            self.replies.count(mapping(p.get("info")), record)
        elif kind in ("error", "stream_error"):
            self.replies.failed("error", word(p.get("message")), time(record.get("timestamp")))
        elif kind == "turn_aborted":
            self.replies.failed("aborted", word(p.get("reason")), time(record.get("timestamp")))
        elif kind == "thread_rolled_back":
            self._take_back(number(p.get("num_turns")) or 0)
        else:
            self.skipped[f"event {kind}" if type(kind) is str else "event"] += 1
            if kind == "thread_name_updated":
                self.title = word(p.get("thread_name")) or self.title
            elif kind == "task_started":
                self.replies.window = number(p.get("model_context_window")) or self.replies.window

    def _take_back(self, turns: int) -> None:
        """Stand before the last inputs: what followed them is a branch that was left."""
        self.replies.close()
        path = self.log.path(self.log.at) if turns else None
        entries = [self.log.entries[i] for i in path or ()]
        begun = [i for i, e in zip(path or (), entries, strict=True) if _is_input(e)]
        if begun:
            self.log.stand(self.log.parents[begun[-turns] if turns <= len(begun) else begun[0]])

    # -- compactions ------------------------------------------------------------------------------

    def _compacted(self, p: dict[str, Any], when: float | None) -> None:
        """Let the replacement stand for all that was shown; what it repeats keeps its id."""
        self.replies.close()
        edit_id, said = self.log.new_id(), text(p.get("message"))
        if not self.log.may_edit():
            self.log.add(
                Edit(kind="summarised", id=edit_id, method="compacted", time=when, reason=TOO_MANY)
            )
            return
        replacement, shown = p.get("replacement_history"), self._shown()
        kept = {m.id for m in shown if m.role == "system" and not m.kind}
        if type(replacement) is list:
            new = self._replacement(replacement, said)
        else:
            new = [Message(role="summary", parts=(Text(said),))]
            kept |= opening(shown)
        inserted = self._inserted(new, shown, kept, when)
        edit = Edit(kind="summarised", id=edit_id, inserted=inserted, method="compacted", time=when)
        self.log.compact(edit, kept)

    def _inserted(
        self, new: list[Message], shown: list[Message], kept: set[str], when: float | None
    ) -> tuple[Message, ...]:
        """Return what a replacement brings; what it repeats of what is shown is kept instead."""
        known: dict[bytes, list[str]] = {}
        for m in reversed(shown):
            known.setdefault(self._key(m), []).append(m.id)
        inserted = []
        for m in new:
            same = known.get(key_of(m))
            if same:
                kept.add(same.pop())
            else:
                inserted.append(msgspec.structs.replace(m, id=self.log.new_id(m.id), time=when))
                self._brought[inserted[-1].id] = inserted[-1]
        return tuple(inserted)

    def _shown(self) -> list[Message]:
        out = []
        for own in self.log.shown:
            place = self.log.where[own]
            entry = self.log.entries[place] if place >= 0 else self._brought.get(own)
            if isinstance(entry, Message):
                out.append(entry)
        return out

    def _key(self, m: Message) -> bytes:
        key = self._keys.get(m.id)
        if key is None:
            key = self._keys[m.id] = key_of(m)
        return key

    def _replacement(self, replacement: list[Any], said: str) -> list[Message]:
        """Return a replacement as messages (ids do not last); the last new one is the summary."""
        other = Rollout([], bare=False)
        other.skipped, other.replies.counts_first = self.skipped, False
        other.replies.called = dict(self.replies.called)
        for raw in replacement:
            if type(raw) is not dict:
                raise ValueError("expected the items of 'replacement_history' to be objects")
            other.item(raw, None)
        new = [m for m in other.log.entries if type(m) is Message]
        known = {self._key(m) for m in self._shown()}
        for i in range(len(new) - 1, -1, -1):
            m = new[i]
            if key_of(m) not in known and (
                m.role == "summary" or (m.role == "user" and (not said or said in m.text))
            ):
                new[i] = msgspec.structs.replace(m, role="summary")
                break
        return new


def _is_input(entry: Message | Edit) -> bool:
    return type(entry) is Message and entry.role == "user" and not entry.kind


def _said(payload: Any) -> str:
    return "".join(text(mapping(c).get("text")) for c in items(mapping(payload).get("content")))
