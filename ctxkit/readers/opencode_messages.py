"""OpenCode's messages as ours: call and result are one part there; two kinds of compaction."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Fault, Message, Text
from ctxkit.readers.damaged import each_of
from ctxkit.readers.fields import as_text, items, mapping, text, time, word
from ctxkit.readers.logs import TOO_MANY, ReaderLog
from ctxkit.readers.opencode_parts import ordinal, steps_of, to_files, to_parts, to_usage
from ctxkit.readers.parts import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.session import Session


def to_session(info: dict[str, Any], messages: list[Any], faults: Iterable[Fault] = ()) -> Session:
    """Return a session of its `info` and its messages, each with its parts."""
    teller = _Teller()
    teller.log.faults += faults
    each_of(messages, "message", teller.take, teller.log.faults)
    teller.close(info)
    model = mapping(info.get("model"))
    return teller.log.session(
        id=text(info.get("id")) or "opencode",
        format="opencode",
        product="opencode",
        version=word(info.get("version")),
        agent=text(info.get("agent")) or "main",
        cwd=word(info.get("directory")),
        title=word(info.get("title")),
        model=word(model.get("id")) or teller.model,
        started=time(mapping(info.get("time")).get("created")),
        parent=word(info.get("parentID")),
    )


class _Teller:
    """Writes OpenCode's messages, in which a call and its result are one part, as ours."""

    def __init__(self) -> None:
        self.log = ReaderLog()
        self.model: str | None = None
        self._pruned: list[tuple[float, str]] = []
        """A heap of results that will be cleared, and when."""
        self._numbered: list[list[str]] = []
        """Our ids by OpenCode's message, as the compress plug-in numbers them (m0001 is first)."""

    def take(self, raw: dict[str, Any]) -> None:
        info, parts = (
            mapping(raw.get("info")),
            [p for p in items(raw.get("parts")) if type(p) is dict],
        )
        self._prune(time(mapping(info.get("time")).get("created")))
        before = len(self.log.entries)
        if info.get("role") == "user":
            self._user(info, parts)
        elif info.get("role") == "assistant":
            for told, some in steps_of(info, parts):
                self._assistant(told, some)
        elif info.get("role") == "system":
            self.log.say("system", to_parts(parts, {}), info.get("id"))
        else:
            count(self.log.skipped, "message: " + (text(info.get("role")) or "no role"))
            return
        self._numbered.append([e.id for e in self.log.entries[before:] if isinstance(e, Message)])
        for p in parts:
            if p.get("tool") == "compress" and mapping(p.get("state")).get("status") == "completed":
                self._compress(mapping(p["state"]))

    def _prune(self, until: float | None) -> None:
        """Write which old results OpenCode cleared before a message; marks stand in their place."""
        due = list[tuple[float, str]]()
        while self._pruned and (until is None or self._pruned[0][0] <= until):
            due.append(heappop(self._pruned))
        if not due:
            return
        due.sort(key=lambda each: self.log.where[each[1]])
        shown = set(self.log.shown) if self.log.may_edit() else set[str]()
        found = (self.log.entries[self.log.where[own]] for _, own in due if own in shown)
        gone = [m for m in found if isinstance(m, Message)]
        if not gone:
            return
        self.log.add(
            Edit(
                kind="replaced",
                id=self.log.new_id(),
                targets=tuple(m.id for m in gone),
                inserted=tuple(replace(m, parts=(Text(_CLEARED),)) for m in gone),
                method="prune",
                time=max(t for t, _ in due),
            )
        )

    def close(self, info: dict[str, Any]) -> None:
        """Write what was cleared last, and stand where the user has gone back to."""
        self._prune(None)
        back = self.log.where.get(text(mapping(info.get("revert")).get("messageID")), -1)
        if back >= 0:
            self.log.stand(self.log.parents[back])

    def _user(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        said = [p for p in parts if p.get("ignored") is not True]
        synthetic = bool(said) and all(
            p.get("synthetic") is True for p in said if p.get("type") == "text"
        )
        self.log.say(
            "user",
            to_parts(said or parts, self.log.skipped),
            info.get("id"),
            time=time(mapping(info.get("time")).get("created")),
            kind=text(info.get("kind"))
            or ("injected" if synthetic and not any(p.get("type") == "file" for p in said) else ""),
            visible=bool(said) or not parts,
        )

    def _assistant(self, info: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        when = mapping(info.get("time"))
        begun, ended = time(when.get("created")), time(when.get("completed"))
        tools = [p for p in parts if p.get("type") == "tool"]
        error = mapping(info.get("error"))
        said = text(mapping(error.get("data")).get("message")) or text(error.get("name"))
        self.model = self.model or word(info.get("modelID"))
        reply = Message(
            role="assistant",
            id=self.log.new_id(info.get("id")),
            parts=tuple(to_parts(parts, self.log.skipped)),
            agent=word(info.get("agent")) or word(info.get("mode")),
            time=ended or begun,
            usage=to_usage(info),
            model=word(info.get("modelID")),
            stop="error"
            if error
            else _STOPS.get(text(info.get("finish")), word(info.get("finish"))),
            latency=ended - begun if begun and ended and ended >= begun else None,
            is_error=bool(error),
            error=said[:2000] or None,
        )
        if info.get("summary") is True:
            self._summary(reply, word(info.get("reason")))
            return
        self.log.add(reply)
        for p in tools:
            self._result(p)

    def _result(self, raw: dict[str, Any]) -> None:
        state = mapping(raw.get("state"))
        status, when = text(state.get("status")), mapping(state.get("time"))
        if status not in ("completed", "error"):
            count(self.log.skipped, "tool without a result: " + (status or "no status"))
            return
        wrong = status == "error"
        said = as_text(state.get("error" if wrong else "output"))
        files = [
            f
            for a in items(state.get("attachments"))
            for f in to_files(mapping(a), self.log.skipped)
        ]
        child = word(mapping(state.get("metadata")).get("sessionId"))
        own, pruned = self.log.new_id(raw.get("id")), time(when.get("compacted"))
        if pruned is not None:
            heappush(self._pruned, (pruned, own))
        self.log.add(
            Message(
                role="tool",
                id=own,
                parts=(*([Text(said)] if said else []), *files),
                time=time(when.get("end")),
                tool=word(raw.get("tool")),
                call_id=word(raw.get("callID")),
                is_error=wrong,
                details={"session": child} if child else {},
            )
        )

    def _summary(self, reply: Message, trigger: str | None) -> None:
        """The built-in compaction: a reply that is a summary; the context starts at it."""
        summary = Message(role="summary", id=self.log.new_id(), parts=reply.parts, time=reply.time)
        edit = Edit(
            kind="summarised",
            id=reply.id,
            inserted=(summary,),
            method="compaction",
            trigger=trigger,
            time=reply.time,
            tokens_before=reply.usage.prompt_tokens if reply.usage else None,
            usage=reply.usage,
            model=reply.model,
        )
        self.log.compact(edit, ())

    def _compress(self, state: dict[str, Any]) -> None:
        """Write the plug-in's edits: a range, ends included, becomes the model's own summary."""
        given = mapping(state.get("input"))
        for part in items(given.get("content")):
            may = self.log.may_edit()
            shown = set(self.log.shown) if may else set[str]()
            told = self._numbered if may else []
            first, last = (ordinal(mapping(part).get(k)) for k in ("startId", "endId"))
            if first is None or last is None or not text(part.get("summary")):
                count(self.log.skipped, "compress: a range that could not be read")
                continue
            when = time(mapping(state.get("time")).get("end"))
            summary = Message(
                role="summary", id=self.log.new_id(), parts=(Text(part["summary"]),), time=when
            )
            self.log.add(
                Edit(
                    kind="summarised",
                    id=self.log.new_id(),
                    targets=tuple(i for ids in told[first - 1 : last] for i in ids if i in shown),
                    inserted=(summary,),
                    reason=text(given.get("topic"))[:200] if may else TOO_MANY,
                    trigger="tool",
                    method="compress",
                    time=when,
                )
            )


_CLEARED = "[Old tool result content cleared]"
"""What OpenCode sends in the place of a result that it has pruned (`session/message-v2.ts`)."""
_STOPS = {"tool-calls": "tool", "stop": "stop", "length": "length"}
