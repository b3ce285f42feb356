"""Rollouts of Codex CLI, read line by line: items, events, compactions, rollbacks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.chat_messages import parse_tool_schemas
from ctxkit.formats.codex_items import (
    CALL_TYPES,
    OUTPUT_TYPES,
    SERVER_CALL_TYPES,
    SUMMARY_TYPES,
    ReplyAssembler,
    initial_context_ids,
    is_context_wrapper,
    make_message_key,
    parse_call_item,
    parse_content,
    parse_output_item,
    parse_reasoning_item,
    parse_sealed_summary,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    parse_timestamp,
    read_each_line,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS
from ctxkit.session.messages import Edit, Fault, Image, Message, Part, Text, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session


NAME = "codex"
CAN = (
    "text, system prompt, calls and results, usage per call (cache reads), window, times,"
    " compactions"
)
CANNOT = "encrypted reasoning (its size only), money"
TRAITS = (
    (
        "all",
        (
            "a failed command is told by its exit code; the window is recorded; summaries are not "
            "priced: estimated"
        ),
    ),
    (
        "all",
        (
            "reasoning of earlier turns leaves the prompt without a mark: an unmarked fall, where "
            "it is large"
        ),
    ),
)

_TYPES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}


def sniff(source: Source) -> bool:
    """Say whether the lines are Codex's (type and payload), or bare items of its first versions."""
    for record in source.head[:4]:
        if as_str(record.get("type")) in _TYPES and type(record.get("payload")) is dict:
            return True
    return _is_bare(source) or _is_first(source.document)


def _is_bare(source: Source) -> bool:
    first = source.head[0] if len(source.head) > 1 else {}
    return (
        "instructions" in first
        and "timestamp" in first
        and "type" not in first
        and type(first.get("id")) is str
    )


def _is_first(document: Any) -> bool:
    """Say whether this is an object of the first (TypeScript) versions: a session and its items."""
    about = as_dict(as_dict(document).get("session"))
    return "instructions" in about and "timestamp" in about and type(document.get("items")) is list


def read(source: Source) -> list[Session]:
    """Read a rollout's one session; each call is one reply with the usage of its token count."""
    faults = list[Fault]()
    records: Iterable[tuple[int, Any]] = source.stream()
    early = [r.get("payload") for r in source.head[:12] if r.get("type") == "response_item"]
    bare = _is_bare(source)
    if _is_first(source.document):
        document, bare = as_dict(source.document), True
        records = [(0, document["session"]), *((0, r) for r in as_list(document.get("items")))]
    reading = RolloutReader(early, bare=bare)
    read_each_line(records, reading.record, faults)
    if not reading.log.entries and not reading.meta:
        raise ReadError(
            "expected lines of session_meta and response_item; found none.", source.path
        )
    faults += source.faults
    return [_session(reading, source.path.stem, faults)]


def _session(reading: RolloutReader, name: str, faults: list[Fault]) -> Session:
    reading.replies.flush()
    meta, log = reading.meta, reading.log
    spawn = as_dict(as_dict(as_dict(meta.get("source")).get("subagent")).get("thread_spawn"))
    parent = str_or_none(meta.get("parent_thread_id")) or str_or_none(spawn.get("parent_thread_id"))
    return log.session(
        id=str_or_none(meta.get("id")) or name,
        format=NAME,
        agent=str_or_none(meta.get("agent_nickname"))
        or str_or_none(spawn.get("agent_nickname"))
        or "main",
        product=str_or_none(meta.get("originator")) or NAME,
        version=str_or_none(meta.get("cli_version")),
        cwd=str_or_none(meta.get("cwd")),
        title=reading.title,
        started=parse_timestamp(meta.get("timestamp")),
        model=reading.replies.model,
        context_window=reading.replies.window,
        tools=reading.tools,
        parent=parent or str_or_none(meta.get("forked_from_id")),
        skipped=dict(reading.skipped),
        faults=tuple(sorted(faults, key=lambda f: f.line)),
    )


class RolloutReader:
    """What is known while the lines go by.

    Args:
        early: the first items, which may hold the system prompt already.
        bare: True where lines are items without a payload, as the first versions wrote them.
    """

    def __init__(self, early: list[Any], *, bare: bool) -> None:
        self.replies = ReplyAssembler()
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
                self.item(payload, parse_timestamp(record.get("timestamp")))
            elif kind == "compacted":
                self._compacted(payload, parse_timestamp(record.get("timestamp")))
            else:
                self.begin(payload)
        elif kind == "turn_context":
            self.replies.model = str_or_none(as_dict(payload).get("model")) or self.replies.model
        elif "payload" in record:
            self.skipped[kind if type(kind) is str else "no type"] += 1
        elif kind is None and "instructions" in record:
            self.begin(record)
        elif self._bare:
            self.item(record, parse_timestamp(record.get("timestamp")))
        else:
            self.skipped[kind if type(kind) is str else "no type"] += 1

    def begin(self, payload: dict[str, Any]) -> None:
        """Take what the session says of itself; a copy of an older session says it again."""
        if self.meta:
            self.skipped["session_meta"] += 1
            return
        self.meta = payload
        self.tools = parse_tool_schemas(as_dict(payload.get("dynamic_tools")).get("tools"))
        said = str_or_none(as_dict(payload.get("base_instructions")).get("text")) or str_or_none(
            payload.get("instructions")
        )
        if said is not None and not any(
            said[:2000] in to_text(e) or said in _said(e) for e in self._early
        ):
            self.log.say("system", (Text(said),))

    # -- items: what goes to the model and comes from it ------------------------------------------

    def item(self, p: dict[str, Any], when: float | None) -> None:
        """Take one item; a message may do without its type."""
        kind = p.get("type", "message" if "role" in p else None)
        if kind == "message" and p.get("role") != "assistant":
            self._input(p, when)
        elif kind == "message":
            self.replies.say(p, list(parse_content(p.get("content"), self.skipped)), when)
        elif kind == "reasoning":
            self.replies.say(p, [parse_reasoning_item(p)], when)
        elif kind in CALL_TYPES:
            self._call(p, str(kind), when)
        elif kind in OUTPUT_TYPES:
            parts, failed, details = parse_output_item(p, self.skipped)
            self.replies.answer(
                as_str(p.get("call_id")), parts, when, failed=failed, details=details
            )
        elif kind == "agent_message":
            self._heard("user", parse_content(p.get("content"), self.skipped), when, "agent", p)
        elif kind in SUMMARY_TYPES:
            self._heard("summary", parse_sealed_summary(p, "compaction"), when, "", p)
        else:
            self.skipped[f"response_item {kind}" if type(kind) is str else "response_item"] += 1

    def _input(self, p: dict[str, Any], when: float | None) -> None:
        role, parts = p.get("role"), parse_content(p.get("content"), self.skipped)
        if role in ("developer", "system"):
            self._heard("system", parts, when, "developer" if role == "developer" else "", p)
        else:
            self._heard("user", parts, when, "wrapper" if is_context_wrapper(parts) else "", p)

    def _heard(
        self, role: Any, parts: tuple[Part, ...], when: float | None, kind: str, p: dict[str, Any]
    ) -> None:
        self.replies.flush()
        self.replies.heard(
            Message(role=role, id=self.log.new_id(p.get("id")), parts=parts, time=when, kind=kind)
        )

    def _call(self, p: dict[str, Any], kind: str, when: float | None) -> None:
        own = str_or_none(p.get("call_id")) or str_or_none(p.get("id")) or self.log.new_id()
        self.replies.call(p, parse_call_item(p, kind, own), when)
        if kind in SERVER_CALL_TYPES:
            data = str_or_none(p.get("result"))
            self.replies.answer(
                own, (Image("image/png", data),) if data else (), when, kind="server"
            )

    # -- events -----------------------------------------------------------------------------------

    def _event(self, p: dict[str, Any], record: dict[str, Any]) -> None:
        kind = p.get("type")
        if kind == "token_count":
            self.replies.count(as_dict(p.get("info")), record)
        elif kind in ("error", "stream_error"):
            self.replies.failed(
                "error", str_or_none(p.get("message")), parse_timestamp(record.get("timestamp"))
            )
        elif kind == "turn_aborted":
            self.replies.failed(
                "aborted", str_or_none(p.get("reason")), parse_timestamp(record.get("timestamp"))
            )
        elif kind == "thread_rolled_back":
            self._take_back(count_or_none(p.get("num_turns")) or 0)
        else:
            self.skipped[f"event {kind}" if type(kind) is str else "event"] += 1
            if kind == "thread_name_updated":
                self.title = str_or_none(p.get("thread_name")) or self.title
            elif kind == "task_started":
                self.replies.window = (
                    count_or_none(p.get("model_context_window")) or self.replies.window
                )

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
        edit_id, said = self.log.new_id(), as_str(p.get("message"))
        if not self.log.may_edit():
            self.log.add(
                Edit(
                    kind="summarised",
                    id=edit_id,
                    method="compacted",
                    time=when,
                    reason=TOO_MANY_COMPACTIONS,
                )
            )
            return
        replacement, shown = p.get("replacement_history"), self._shown()
        kept = {m.id for m in shown if m.role == "system" and not m.kind}
        if type(replacement) is list:
            new = self._replacement(replacement, said)
        else:
            new = [Message(role="summary", parts=(Text(said),))]
            kept |= initial_context_ids(shown)
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
            same = known.get(make_message_key(m))
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
            key = self._keys[m.id] = make_message_key(m)
        return key

    def _replacement(self, replacement: list[Any], said: str) -> list[Message]:
        """Return a replacement as messages (ids do not last); the last new one is the summary."""
        other = RolloutReader([], bare=False)
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
            if make_message_key(m) not in known and (
                m.role == "summary" or (m.role == "user" and (not said or said in m.text))
            ):
                new[i] = msgspec.structs.replace(m, role="summary")
                break
        return new


def _is_input(entry: Message | Edit) -> bool:
    return type(entry) is Message and entry.role == "user" and not entry.kind


def _said(payload: Any) -> str:
    return "".join(as_str(as_dict(c).get("text")) for c in as_list(as_dict(payload).get("content")))
