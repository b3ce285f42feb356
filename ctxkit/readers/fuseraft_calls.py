"""fuseraft's events told as calls: a reply for each response, sizes for what has no text,
sub-agents apart.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ctxkit.messages import Message, Part, Sized, Text, ToolCall, Usage
from ctxkit.readers.fields import as_text, mapping, number, real, text, time, word
from ctxkit.readers.fuseraft_compactions import CompactedTurns
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count
from ctxkit.readers.usages import uncached
from ctxkit.session import Session

_OPEN = 200
"""Calls of a turn that may wait for an answer."""
_QUIET = {"compaction_start", "turn_start", "model_call", "session_end", "agent_start"}


class _Line:
    """One agent's calls as they come: the log they go to, the context announced, the calls without
    an answer.
    """

    def __init__(self, log: ReaderLog) -> None:
        self.log = log
        self.context: dict[str, Any] = {}
        self.asked: float | None = None
        self.reply: int | None = None
        """Place of the last reply in the log."""
        self.open: list[ToolCall] = []
        self._more: list[Part] = []
        """Parts that the last reply gets besides, once it is complete."""
        self.calls = 0
        """Calls since the turn began."""

    def extend(self, part: Part) -> None:
        """Give the last reply a part."""
        if self.reply is not None:
            self._more.append(part)

    def close(self, **fields: Any) -> None:
        """Complete the last reply with its parts, and with other fields."""
        entry = None if self.reply is None else self.log.entries[self.reply]
        if self.reply is not None and isinstance(entry, Message):
            parts = (*entry.parts, *self._more)
            if not parts and entry.usage is not None and entry.usage.output_tokens:
                parts = (Sized("reply", tokens=entry.usage.output_tokens),)
            self.log.replace(self.reply, replace(entry, parts=parts, **fields))
        self._more = []


class Teller:
    """Writes the events of one session."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self._log, self.skipped = ReaderLog(), dict[str, int]()
        self._lines: dict[str, _Line] = {}
        self._below: dict[str, tuple[_Line, Session]] = {}
        """Sub-agents at work, by the name of their parent."""
        self._children: list[Session] = []
        self._start: dict[str, Any] = {}
        self._started: float | None = None
        self._model: str | None = None
        self._count = 0
        self._cuts = CompactedTurns(self._log)

    def take(self, record: dict[str, Any]) -> None:
        """Write one event; one that is not known is counted."""
        kind, payload = text(record.get("event_type")), mapping(record.get("payload"))
        when, turn = time(record.get("ts")), number(record.get("turn"))
        agent = text(record.get("agent"))
        self._started = self._started or when
        do = getattr(self, f"_{kind}", None) if kind in _KNOWN else None
        if do is not None:
            do(payload, when, turn, agent)
        elif kind not in _QUIET:
            count(self.skipped, "event: " + (kind or "no type"))
        if kind == "model_call":
            self._line(agent).asked = when
        elif kind == "turn_start":
            self._line(agent).calls = 0

    def _line(self, agent: str) -> _Line:
        below = self._below.get(agent)
        return below[0] if below else self._lines.setdefault(agent, _Line(self._log))

    def _session_start(self, payload: dict[str, Any], *_: Any) -> None:
        self._start = payload
        self._model = word(payload.get("model")) or self._model

    def _user_input(
        self, payload: dict[str, Any], when: float | None, turn: int | None, _: str
    ) -> None:
        said = as_text(payload.get("content"))
        self._log.add(
            Message(role="user", id=self._log.new_id(), parts=(Text(said),), time=when, turn=turn)
        )

    def _inner_call_context(self, payload: dict[str, Any], _w: Any, _t: Any, agent: str) -> None:
        chars = mapping(payload.get("content_chars"))
        told = {
            "est_tokens": number(payload.get("est_tokens")),
            **{f"{k}_chars": number(v) for k, v in chars.items()},
        }
        told |= {f"{k}_messages": number(v) for k, v in mapping(payload.get("msg_counts")).items()}
        self._line(agent).context = {k[:60]: v for k, v in list(told.items())[:40] if v is not None}

    def _model_response(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        given, output = number(payload.get("input_tokens")), number(payload.get("output_tokens"))
        usage = (
            None
            if given is None and output is None
            else Usage(input_tokens=given, output_tokens=output)
        )
        self._reply(
            payload, when, turn, agent, usage=usage, stop=word(payload.get("finish_reason"))
        )

    def _model_error(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        said = (text(payload.get("error")) or text(payload.get("message")))[:2000]
        self._reply(
            payload, when, turn, agent, stop="error", is_error=True, error=said or "the call failed"
        )

    _model_timeout = _model_error

    def _reply(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str, **more: Any
    ) -> None:
        line = self._line(agent)
        line.close()
        took = when - line.asked if when and line.asked and when >= line.asked else None
        made = Message(
            role="assistant",
            id=line.log.new_id(),
            agent=agent or None,
            turn=turn,
            time=when,
            model=word(payload.get("model")) or self._model,
            latency=took,
            details={"context": line.context} if line.context else {},
            **more,
        )
        line.reply, line.open, line.asked, line.context = line.log.add(made), [], None, {}
        line.calls += 1

    def _tool_call(self, payload: dict[str, Any], _w: Any, turn: int | None, agent: str) -> None:
        line = self._line(agent)
        name = text(payload.get("tool_name")) or text(payload.get("tool"))
        args = payload.get("args", payload.get("arg"))
        given = args if type(args) is dict else {}
        self._count += 1
        call = ToolCall(
            f"call-{self._count}", name, given, None if given or args is None else as_text(args)
        )
        if line.reply is None:  # a log without calls: the tools stand for a turn
            made = Message(
                role="assistant", id=line.log.new_id(), agent=agent or None, turn=turn, kind="turn"
            )
            line.reply = line.log.add(made)
        line.open = [*line.open[-_OPEN:], call]
        line.extend(call)

    def _tool_result(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        line = self._line(agent)
        name = text(payload.get("tool_name")) or text(payload.get("tool"))
        call = next((c for c in line.open if c.name == name), None)
        if call is not None:
            line.open.remove(call)
        line.log.add(
            Message(
                role="tool",
                id=line.log.new_id(),
                parts=(Sized("tool_result", chars=number(payload.get("result_chars"))),),
                agent=agent or None,
                turn=turn,
                time=when,
                tool=name or None,
                call_id=call.id if call else None,
                is_error="error" in payload,
                error=as_text(payload.get("error"))[:2000] or None,
            )
        )

    _tool_error = _tool_timeout = _tool_result

    def _assistant_response(self, payload: dict[str, Any], _w: Any, _t: Any, agent: str) -> None:
        said = as_text(payload.get("content"))
        if said:
            self._line(agent).extend(Text(said))

    def _turn_end(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        """The sums of a turn: usage where the log has no calls, else what only the sums know (the
        cache).
        """
        line = self._line(agent)
        cached = number(payload.get("cached_input_tokens"))
        if line.calls:
            entry = None if line.reply is None else line.log.entries[line.reply]
            if cached is not None and line.reply is not None and isinstance(entry, Message):
                line.close(details={**entry.details, "turn_cached_input_tokens": cached})
        else:
            self._whole_turn(line, payload, when, turn, agent)
        line.close()
        line.calls, line.open = 0, []

    def _whole_turn(
        self, line: _Line, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        given, output = number(payload.get("input_tokens")), number(payload.get("output_tokens"))
        if given is None and output is None:
            return
        cached = number(payload.get("cached_input_tokens"))
        fresh = uncached(given, cached)
        usage = Usage(input_tokens=fresh, cache_read_tokens=cached, output_tokens=output)
        took = real(payload.get("elapsed_ms"))
        entry = None if line.reply is None else line.log.entries[line.reply]
        if (
            line.reply is not None
            and isinstance(entry, Message)
            and entry.kind == "turn"
            and entry.usage is None
        ):
            line.close(usage=usage, time=when)
        else:
            made = Message(
                role="assistant",
                id=line.log.new_id(),
                agent=agent or None,
                turn=turn,
                time=when,
                kind="turn",
            )
            line.log.add(
                replace(
                    made,
                    usage=usage,
                    model=self._model,
                    latency=None if took is None else took / 1000,
                )
            )
        line.reply = None

    def _agent_end(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        if not self._line(agent).calls:
            self._whole_turn(self._line(agent), payload, when, turn, agent)

    # -- compactions and sub-agents ---------------------------------------------------------------

    def _compaction(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        self._cuts.by_turns(payload, when, turn, agent)

    def _compaction_end(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        if payload.get("outcome") == "compacted":
            self._cuts.by_size(payload, when, turn, agent)
        else:
            count(
                self.skipped, f"compaction: {word(payload.get('outcome')) or 'without an outcome'}"
            )

    def _sub_agent_start(
        self, payload: dict[str, Any], when: float | None, turn: int | None, agent: str
    ) -> None:
        if agent in self._below:  # its end is missing
            self._close(agent)
        log = ReaderLog()
        id_ = f"{self.id}/{len(self._children) + len(self._below)}"
        name = text(payload.get("mode")) or "subagent"
        log.add(
            Message(
                role="user",
                id=log.new_id(),
                parts=(Text(as_text(payload.get("query"))),),
                time=when,
                turn=turn,
            )
        )
        child = Session(
            id=id_,
            format="fuseraft-events",
            product="fuseraft",
            agent=name,
            parent=self.id,
            started=when,
        )
        self._below[agent] = (_Line(log), child)

    _sub_agent_tool_call = _tool_call

    def _sub_agent_end(self, payload: dict[str, Any], _w: Any, _t: Any, agent: str) -> None:
        chars = number(payload.get("summary_chars"))
        if agent in self._below and chars is not None:
            self._below[agent][0].extend(Sized("text", chars=chars))
        self._close(agent, word(payload.get("outcome")))

    def _close(self, agent: str, outcome: str | None = None) -> None:
        if agent not in self._below:
            return
        line, child = self._below.pop(agent)
        line.close()
        own = tuple(
            replace(e, agent=None) if isinstance(e, Message) else e for e in line.log.entries
        )
        self._children.append(
            replace(child, log=own, details={"outcome": outcome} if outcome else {})
        )

    def session(self, beside: dict[str, Any]) -> Session:
        """Return the session as far as it was told, with what the files beside it say."""
        for agent in list(self._below):
            self._close(agent)
        for line in self._lines.values():
            line.close()
        tools = number(self._start.get("tool_count"))
        told = {"tool_count": tools} if tools is not None else {}
        if self._start.get("resumed") is True:
            told["resumed"] = 1
        return Session(
            id=self.id,
            format="fuseraft-events",
            product="fuseraft",
            agent=next((a for a in self._lines if a), "main"),
            cwd=word(self._start.get("cwd")),
            model=self._model,
            started=self._started,
            log=tuple(self._log.entries),
            children=tuple(self._children),
            skipped=self.skipped,
            details={**told, **beside},
        )


_KNOWN = {
    "session_start",
    "user_input",
    "inner_call_context",
    "model_response",
    "model_error",
    "model_timeout",
    "tool_call",
    "tool_result",
    "tool_error",
    "tool_timeout",
    "assistant_response",
    "turn_end",
    "agent_end",
    "compaction",
    "compaction_end",
    "sub_agent_start",
    "sub_agent_tool_call",
    "sub_agent_end",
}
"""Events that are written; the others are counted."""
