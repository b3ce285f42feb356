"""Rollouts of Codex CLI: JSON Lines of response items and events; token counts tell the calls apart."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.messages import Edit, Fault, Image, Message, Part, Sized, Text, Thinking, ToolCall, ToolSchema, Usage
from ctxkit.readers.dialects import to_parts
from ctxkit.readers.fields import DAMAGE, arguments, as_text, items, mapping, number, text, time, why, word
from ctxkit.readers.logs import MAX_PARTS, TOO_MANY, Log
from ctxkit.readers.usages import to_schemas
from ctxkit.session import Session

if TYPE_CHECKING:
    from ctxkit.readers.source import Source

NAME = "codex"
CAN = "text, system prompt, calls and results, usage per call (cache reads), window, times, compactions"
CANNOT = "encrypted reasoning (its size only), money"

_TYPES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted"}
_WRAPPERS = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<skill")
_CALLS = {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "web_search_call"}
_OUTPUTS = {"function_call_output", "custom_tool_call_output", "tool_search_output", "local_shell_call_output"}
_SUMMARIES = {"compaction", "compaction_summary", "context_compaction"}
_SERVER = {"web_search_call", "image_generation_call"}


def sniff(source: Source) -> bool:
    """Say whether the first lines are Codex's (a type and a payload), or bare items as the first versions wrote."""
    for record in source.head[:4]:
        if text(record.get("type")) in _TYPES and type(record.get("payload")) is dict:
            return True
    return _is_bare(source)


def _is_bare(source: Source) -> bool:
    first = source.head[0] if len(source.head) > 1 else {}
    return "instructions" in first and "timestamp" in first and "type" not in first and type(first.get("id")) is str


def read(source: Source) -> list[Session]:
    """Read the one session of a rollout; each call is one reply with the usage of its token count."""
    reading = _Rollout(source)
    for line, record in source.records:
        try:
            reading.record(record)
        except DAMAGE as e:
            reading.faults.append(Fault(line, why(e)))
    if not reading.log.entries and not reading.meta:
        raise ReadError("expected lines of session_meta and response_item; found none.", source.path)
    return [reading.session(source.path.stem)]


class _Rollout:
    """What is known while the lines go by."""

    def __init__(self, source: Source) -> None:
        self.log = Log()
        self.faults = list(source.faults)
        self.skipped: Counter[str] = Counter()
        self.early = [r.get("payload") for r in source.head[:12] if r.get("type") == "response_item"]
        self.bare = _is_bare(source)
        self.meta: dict[str, Any] = {}
        self.model: str | None = None
        self.window: int | None = None
        self.called: dict[str, str] = {}
        self.keys: dict[str, bytes] = {}
        self.brought: dict[str, Message] = {}
        """Messages that only a compaction brought, by id."""
        self.total: Any = None
        self.title: str | None = None
        self.tools: tuple[ToolSchema, ...] = ()
        # Versions up to about 0.57 write the count of a call before its items, later ones after them.
        self.counts_first: bool | None = None
        self.pending: tuple[Usage, float | None, int | None] | None = None
        self.open: int | None = None
        """Index of the reply that further items belong to."""
        self.unpaid: int | None = None
        """Index of the last reply without usage."""
        self.answered = False

    def record(self, record: dict[str, Any]) -> None:
        kind, payload = record.get("type"), record.get("payload")
        if kind == "response_item" or kind == "event_msg" or kind == "compacted" or kind == "session_meta":  # noqa: PLR1714  this runs for every line
            if type(payload) is not dict:
                raise ValueError("expected 'payload' to be an object")
            if kind == "event_msg":
                self._event(payload, record)
            elif kind == "response_item":
                self.item(payload, time(record.get("timestamp")))
            elif kind == "compacted":
                self._compacted(payload, time(record.get("timestamp")))
            else:
                self._meta(payload)
        elif kind == "turn_context":
            self.model = word(mapping(payload).get("model")) or self.model
        elif "payload" in record:
            self.skipped[kind if type(kind) is str else "no type"] += 1
        elif kind is None and "instructions" in record:
            self._meta(record)
        elif self.bare:
            self.item(record, time(record.get("timestamp")))
        else:
            self.skipped[kind if type(kind) is str else "no type"] += 1

    def _meta(self, payload: dict[str, Any]) -> None:
        if self.meta:
            self.skipped["session_meta"] += 1
            return
        self.meta = payload
        self.tools = to_schemas(mapping(payload.get("dynamic_tools")).get("tools"))
        said = word(mapping(payload.get("base_instructions")).get("text")) or word(payload.get("instructions"))
        if said is not None and not any(said[:2000] in as_text(e) or said in _said(e) for e in self.early):
            self._add(Message(role="system", id=self.log.new_id(), parts=(Text(said),)))

    # -- items: what goes to the model and comes from it ---------------------------------------------------------

    def item(self, p: dict[str, Any], when: float | None) -> None:
        kind = p.get("type")
        if kind == "message" and p.get("role") != "assistant":
            self._input(p, when)
        elif kind == "message":
            self._say(p, list(_parts(p.get("content"), self.skipped)), when)
        elif kind == "reasoning":
            self._say(p, [_thinking(p)], when)
        elif kind in _CALLS or kind == "image_generation_call":
            self._call(p, str(kind), when)
        elif kind in _OUTPUTS:
            self._output(p, when)
        elif kind == "agent_message":
            parts = _parts(p.get("content"), self.skipped)
            self._heard("user", parts, when, "agent", p)
        elif kind in _SUMMARIES:
            self._heard("summary", _hidden(p, "compaction"), when, "", p)
        else:
            self.skipped[f"response_item {kind}" if type(kind) is str else "response_item"] += 1

    def _input(self, p: dict[str, Any], when: float | None) -> None:
        role, parts = p.get("role"), _parts(p.get("content"), self.skipped)
        if role in ("developer", "system"):
            self._heard("system", parts, when, "developer" if role == "developer" else "", p)
        else:
            said = parts[0].text if parts and type(parts[0]) is Text else ""
            self._heard("user", parts, when, "wrapper" if said.startswith(_WRAPPERS) else "", p)

    def _heard(self, role: Any, parts: tuple[Part, ...], when: float | None, kind: str, p: dict[str, Any]) -> None:
        self._flush()
        self.open = None
        own = self.log.new_id(p.get("id"))
        self._add(Message(role=role, id=own, parts=parts, time=when, kind=kind))

    def _add(self, message: Message) -> int:
        return self.log.add(message)

    def _say(self, p: dict[str, Any], parts: list[Part], when: float | None) -> None:
        """Add what the model said to the reply that is open, or begin one."""
        if self.counts_first is None:
            self.counts_first = self.pending is not None
        if not self.counts_first and self.answered:
            self.open = None
        if self.open is not None:
            old = self.log.entries[self.open]
            if type(old) is Message and len(old.parts) < MAX_PARTS:
                self.log.replace(self.open, msgspec.structs.replace(old, parts=(*old.parts, *parts)))
                return
        usage, ended, window = self.pending or (None, when, self.window)
        self.pending, self.answered = None, False
        self.open = self._add(
            Message(
                role="assistant",
                id=self.log.new_id(p.get("id")),
                parts=tuple(parts),
                time=ended if ended is not None else when,
                usage=usage,
                model=self.model,
                context_window=window,
            )
        )
        self.unpaid = self.open if usage is None else None

    def _call(self, p: dict[str, Any], kind: str, when: float | None) -> None:
        own = word(p.get("call_id")) or word(p.get("id")) or self.log.new_id()
        if kind in ("function_call", "custom_tool_call"):
            name = text(p.get("name"))
            given, raw = arguments(p.get("arguments", p.get("input")))
        else:
            name = kind.removesuffix("_call")
            given, raw = arguments(p.get("action", p.get("arguments", p.get("revised_prompt"))))
        self.called[own] = name
        self._say(p, [ToolCall(own, name, given, raw)], when)
        if kind in _SERVER:  # the provider ran it; what it found is not in the log, but for pictures
            data = word(p.get("result"))
            picture: tuple[Part, ...] = (Image("image/png", data),) if data else ()
            self._answer(own, picture, when, kind="server")

    def _output(self, p: dict[str, Any], when: float | None) -> None:
        output = p.get("output", p.get("tools"))
        details: dict[str, Any] = {}
        failed = p.get("status") in ("failed", "error")
        if type(output) is str and output.startswith('{"output":'):
            inner, raw = arguments(output)
            if raw is None and type(inner.get("output")) is str:
                output, about = inner["output"], mapping(inner.get("metadata"))
                if type(about.get("exit_code")) is int:
                    details = {"exit_code": about["exit_code"]}
        elif type(output) is dict:
            failed = failed or output.get("success") is False
            output = output.get("content", output.get("text", output))
        parts = _parts(output if type(output) in (str, list) else as_text(output), self.skipped)
        self._answer(text(p.get("call_id")), parts, when, failed=failed, details=details)

    def _answer(
        self,
        call: str,
        parts: tuple[Part, ...],
        when: float | None,
        *,
        kind: str = "",
        failed: bool = False,
        details: dict[str, Any] | None = None,
    ) -> None:
        self.answered = self.answered or not kind
        self._add(
            Message(
                role="tool",
                id=self.log.new_id(),
                kind=kind,
                parts=parts,
                time=when,
                tool=self.called.get(call),
                call_id=call or None,
                is_error=failed,
                details=details or {},
            )
        )

    # -- events: counts, failures --------------------------------------------------------------------------------

    def _event(self, p: dict[str, Any], record: dict[str, Any]) -> None:
        kind = p.get("type")
        if kind == "token_count":
            self._count(mapping(p.get("info")), record)
        elif kind in ("error", "stream_error"):
            self._failed("error", word(p.get("message")), time(record.get("timestamp")))
        elif kind == "turn_aborted":
            self._failed("aborted", word(p.get("reason")), time(record.get("timestamp")))
        else:
            self.skipped[f"event {kind}" if type(kind) is str else "event"] += 1
            if kind == "thread_name_updated":
                self.title = word(p.get("thread_name")) or self.title
            elif kind == "task_started":
                self.window = number(p.get("model_context_window")) or self.window

    def _count(self, info: dict[str, Any], record: dict[str, Any]) -> None:
        """Take the count of one call; one whose total did not grow repeats the one before."""
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        if type(last) is not dict or (total is not None and total == self.total):
            return
        self.total = total
        self.window = number(info.get("model_context_window")) or self.window
        usage = _usage(last)
        if usage is None:
            return
        when = time(record.get("timestamp"))
        if self.counts_first is None:
            self.counts_first = self.unpaid is None
        if self.counts_first:
            self._flush()
            self.pending, self.open = (usage, when, self.window), None
            return
        self._pay(usage, when)

    def _pay(self, usage: Usage, when: float | None) -> None:
        old = self.log.entries[self.unpaid] if self.unpaid is not None else None
        if type(old) is Message and self.unpaid is not None:
            paid = msgspec.structs.replace(old, usage=usage, time=when or old.time, context_window=self.window)
            self.log.replace(self.unpaid, paid)
        else:
            self.pending = (usage, when, self.window)
            self._flush()
        self.open = self.unpaid = None

    def _flush(self) -> None:
        """Write a call that was counted and of which no item came."""
        if self.pending is None:
            return
        usage, when, window = self.pending
        self.pending = None
        self._add(
            Message(
                role="assistant",
                id=self.log.new_id(),
                time=when,
                usage=usage,
                model=self.model,
                context_window=window,
                visible=False,
            )
        )

    def _failed(self, stop: str, said: str | None, when: float | None) -> None:
        self._flush()
        self._add(
            Message(
                role="assistant",
                id=self.log.new_id(),
                time=when,
                model=self.model,
                visible=False,
                is_error=True,
                error=None if said is None else said[:500],
                stop=stop,
            )
        )
        self.open = None

    # -- compactions ---------------------------------------------------------------------------------------------

    def _compacted(self, p: dict[str, Any], when: float | None) -> None:
        """Let the replacement stand for all that was shown; what it repeats keeps its id."""
        self._flush()
        self.open = self.unpaid = None
        edit_id, said = self.log.new_id(), text(p.get("message"))
        if not self.log.may_edit():
            self.log.add(Edit(kind="summarised", id=edit_id, method="compacted", time=when, reason=TOO_MANY))
            return
        replacement = p.get("replacement_history")
        if type(replacement) is list:
            new = self._replacement(replacement, said)
        else:
            new = [Message(role="summary", parts=(Text(said),))]
        shown = self._shown()
        known: dict[bytes, list[str]] = {}
        for m in reversed(shown):
            known.setdefault(self._key(m), []).append(m.id)
        kept = {m.id for m in shown if m.role == "system" and not m.kind}
        if type(replacement) is not list:
            kept |= _opening(shown)
        inserted = []
        for m in new:
            same = known.get(_key(m))
            if same:
                kept.add(same.pop())
            else:
                inserted.append(msgspec.structs.replace(m, id=self.log.new_id(m.id), time=when))
                self.brought[inserted[-1].id] = inserted[-1]
        self.log.compact(
            Edit(kind="summarised", id=edit_id, inserted=tuple(inserted), method="compacted", time=when), kept
        )

    def _shown(self) -> list[Message]:
        out = []
        for own in self.log.shown:
            place = self.log.where[own]
            entry = self.log.entries[place] if place >= 0 else self.brought.get(own)
            if isinstance(entry, Message):
                out.append(entry)
        return out

    def _key(self, m: Message) -> bytes:
        key = self.keys.get(m.id)
        if key is None:
            key = self.keys[m.id] = _key(m)
        return key

    def _replacement(self, replacement: list[Any], said: str) -> list[Message]:
        """Return the items of a replacement as messages (without lasting ids); the last that is new is the summary."""
        other = _Rollout.__new__(_Rollout)
        other.__dict__.update(self.__dict__)
        other.log, other.called = Log(), dict(self.called)
        other.counts_first, other.pending, other.open, other.unpaid, other.answered = False, None, None, None, False
        for raw in replacement:
            if type(raw) is not dict:
                raise ValueError("expected the items of 'replacement_history' to be objects")
            other.item(raw, None)
        new = [msgspec.structs.replace(m, model=None) for m in other.log.entries if type(m) is Message]
        known = {self._key(m) for m in self._shown()}
        for i in range(len(new) - 1, -1, -1):
            m = new[i]
            if _key(m) not in known and (m.role == "summary" or (m.role == "user" and (not said or said in m.text))):
                new[i] = msgspec.structs.replace(m, role="summary")
                break
        return new

    def session(self, name: str) -> Session:
        self._flush()
        meta, log = self.meta, self.log
        parents, leaf = log.tree()
        source = meta.get("source")
        sub = mapping(mapping(source).get("subagent"))
        spawn = mapping(sub.get("thread_spawn"))
        parent = word(meta.get("parent_thread_id")) or word(spawn.get("parent_thread_id"))
        return Session(
            id=word(meta.get("id")) or name,
            format=NAME,
            log=tuple(log.entries),
            parents=parents,
            leaf=leaf,
            agent=word(meta.get("agent_nickname")) or word(spawn.get("agent_nickname")) or "main",
            product=word(meta.get("originator")) or NAME,
            version=word(meta.get("cli_version")),
            cwd=word(meta.get("cwd")),
            title=self.title,
            started=time(meta.get("timestamp")),
            model=self.model,
            context_window=self.window,
            tools=self.tools,
            parent=parent or word(meta.get("forked_from_id")),
            skipped=dict(self.skipped),
            faults=tuple(sorted(self.faults, key=lambda f: f.line)),
        )


def _key(m: Message) -> bytes:
    return msgspec.json.encode((m.role if m.role != "summary" else "user", m.call_id, m.parts))


def _opening(shown: list[Message]) -> set[str]:
    """Return the ids of what stood before the first input: the context that Codex writes itself."""
    out: set[str] = set()
    for m in shown:
        if m.role not in ("system", "user") or (m.role == "user" and m.kind != "wrapper"):
            break
        out.add(m.id)
    return out


def _said(payload: Any) -> str:
    return "".join(text(mapping(c).get("text")) for c in items(mapping(payload).get("content")))


def _parts(content: Any, skipped: Counter[str]) -> tuple[Part, ...]:
    if type(content) is str:
        return (Text(content),) if content else ()
    parts, _ = to_parts(content, skipped)
    return tuple(p for p in parts if type(p) is not Image or p.data or p.url)


def _hidden(p: dict[str, Any], kind: str) -> tuple[Part, ...]:
    said, blob = word(p.get("summary")) or word(p.get("text")), text(p.get("encrypted_content"))
    return ((Text(said),) if said else ()) + ((Sized(kind, chars=len(blob)),) if blob else ())


def _thinking(p: dict[str, Any]) -> Thinking:
    said = [text(mapping(s).get("text")) for s in (*items(p.get("summary")), *items(p.get("content")))]
    return Thinking("\n".join(s for s in said if s), None, len(text(p.get("encrypted_content"))))


def _usage(last: dict[str, Any]) -> Usage | None:
    """Return the usage of a call; the input counts cached tokens too. All zeros mean that nothing was billed."""
    whole, cached = number(last.get("input_tokens")), number(last.get("cached_input_tokens"))
    write, output = number(last.get("cache_write_input_tokens")), number(last.get("output_tokens"))
    if not (whole or output):
        return None
    fresh = None if whole is None else max(whole - (cached or 0) - (write or 0), 0)
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=cached,
        cache_write_tokens=write,
        output_tokens=output,
        reasoning_tokens=number(last.get("reasoning_output_tokens")),
    )
