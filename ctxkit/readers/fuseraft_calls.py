"""fuseraft's events as calls: a reply a response, sizes for what has no text, sub-agents apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from ctxkit.messages import Message, Part, Sized, Text, ToolCall
from ctxkit.readers.fields import as_text, mapping, number, real, text, time, word
from ctxkit.readers.fuseraft_compactions import CompactedTurns, FuseraftEvent
from ctxkit.readers.fuseraft_files import turn_usage
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count
from ctxkit.readers.usages import uncached
from ctxkit.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

_OPEN = 200
"""Calls of a turn that may wait for an answer."""
_QUIET = {"compaction_start", "turn_start", "model_call", "session_end", "agent_start"}


class _Line:
    """One agent's calls as they come: their log, the context announced, calls without an answer."""

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
        self._log = ReaderLog()
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
        kind, told = text(record.get("event_type")), mapping(record.get("payload"))
        when, turn = time(record.get("ts")), number(record.get("turn"))
        e = FuseraftEvent(told, when, turn, text(record.get("agent")))
        self._started = self._started or when
        if kind in self._TAKES:
            self._TAKES[kind](self, e)
        elif kind not in _QUIET:
            count(self._log.skipped, "event: " + (kind or "no type"))
        if kind == "model_call":
            self._line(e.agent).asked = when
        elif kind == "turn_start":
            self._line(e.agent).calls = 0

    def _line(self, agent: str) -> _Line:
        below = self._below.get(agent)
        return below[0] if below else self._lines.setdefault(agent, _Line(self._log))

    def _session_start(self, e: FuseraftEvent) -> None:
        self._start = e.told
        self._model = word(e.told.get("model")) or self._model

    def _user_input(self, e: FuseraftEvent) -> None:
        said = as_text(e.told.get("content"))
        self._log.say("user", (Text(said),), time=e.when, turn=e.turn)

    def _inner_call_context(self, e: FuseraftEvent) -> None:
        chars = mapping(e.told.get("content_chars"))
        told = {
            "est_tokens": number(e.told.get("est_tokens")),
            **{f"{k}_chars": number(v) for k, v in chars.items()},
        }
        told |= {f"{k}_messages": number(v) for k, v in mapping(e.told.get("msg_counts")).items()}
        self._line(e.agent).context = {
            k[:60]: v for k, v in list(told.items())[:40] if v is not None
        }

    def _model_response(self, e: FuseraftEvent) -> None:
        self._reply(e, usage=turn_usage(e.told), stop=word(e.told.get("finish_reason")))

    def _model_error(self, e: FuseraftEvent) -> None:
        said = (text(e.told.get("error")) or text(e.told.get("message")))[:2000]
        self._reply(e, stop="error", is_error=True, error=said or "the call failed")

    def _reply(self, e: FuseraftEvent, **more: Any) -> None:
        line = self._line(e.agent)
        line.close()
        took = e.when - line.asked if e.when and line.asked and e.when >= line.asked else None
        line.reply = line.log.say(
            "assistant",
            agent=e.agent or None,
            turn=e.turn,
            time=e.when,
            model=word(e.told.get("model")) or self._model,
            latency=took,
            details={"context": line.context} if line.context else {},
            **more,
        )
        line.open, line.asked, line.context = [], None, {}
        line.calls += 1

    def _tool_call(self, e: FuseraftEvent) -> None:
        line = self._line(e.agent)
        name = text(e.told.get("tool_name")) or text(e.told.get("tool"))
        args = e.told.get("args", e.told.get("arg"))
        given = args if type(args) is dict else {}
        self._count += 1
        call = ToolCall(
            f"call-{self._count}", name, given, None if given or args is None else as_text(args)
        )
        if line.reply is None:  # a log without calls: the tools stand for a turn
            line.reply = line.log.say("assistant", agent=e.agent or None, turn=e.turn, kind="turn")
        line.open = [*line.open[-_OPEN:], call]
        line.extend(call)

    def _tool_result(self, e: FuseraftEvent) -> None:
        line = self._line(e.agent)
        name = text(e.told.get("tool_name")) or text(e.told.get("tool"))
        call = next((c for c in line.open if c.name == name), None)
        if call is not None:
            line.open.remove(call)
        line.log.say(
            "tool",
            (Sized("tool_result", chars=number(e.told.get("result_chars"))),),
            agent=e.agent or None,
            turn=e.turn,
            time=e.when,
            tool=name or None,
            call_id=call.id if call else None,
            is_error="error" in e.told,
            error=as_text(e.told.get("error"))[:2000] or None,
        )

    def _assistant_response(self, e: FuseraftEvent) -> None:
        said = as_text(e.told.get("content"))
        if said:
            self._line(e.agent).extend(Text(said))

    def _turn_end(self, e: FuseraftEvent) -> None:
        """Take a turn's sums: usage if the log has no calls, else what only they know (cache)."""
        line = self._line(e.agent)
        cached = number(e.told.get("cached_input_tokens"))
        if line.calls:
            entry = None if line.reply is None else line.log.entries[line.reply]
            if cached is not None and line.reply is not None and isinstance(entry, Message):
                line.close(details={**entry.details, "turn_cached_input_tokens": cached})
        else:
            self._whole_turn(line, e)
        line.close()
        line.calls, line.open = 0, []

    def _whole_turn(self, line: _Line, e: FuseraftEvent) -> None:
        usage, cached = turn_usage(e.told), number(e.told.get("cached_input_tokens"))
        if usage is None:
            return
        fresh = uncached(usage.input_tokens, cached)
        usage = replace(usage, input_tokens=fresh, cache_read_tokens=cached)
        took = real(e.told.get("elapsed_ms"))
        entry = None if line.reply is None else line.log.entries[line.reply]
        if (
            line.reply is not None
            and isinstance(entry, Message)
            and entry.kind == "turn"
            and entry.usage is None
        ):
            line.close(usage=usage, time=e.when)
        else:
            line.log.say(
                "assistant",
                agent=e.agent or None,
                turn=e.turn,
                time=e.when,
                kind="turn",
                usage=usage,
                model=self._model,
                latency=None if took is None else took / 1000,
            )
        line.reply = None

    def _agent_end(self, e: FuseraftEvent) -> None:
        if not self._line(e.agent).calls:
            self._whole_turn(self._line(e.agent), e)

    # -- compactions and sub-agents ---------------------------------------------------------------

    def _compaction(self, e: FuseraftEvent) -> None:
        self._cuts.by_turns(e)

    def _compaction_end(self, e: FuseraftEvent) -> None:
        if e.told.get("outcome") == "compacted":
            self._cuts.by_size(e)
        else:
            outcome = word(e.told.get("outcome")) or "without an outcome"
            count(self._log.skipped, f"compaction: {outcome}")

    def _sub_agent_start(self, e: FuseraftEvent) -> None:
        if e.agent in self._below:  # its end is missing
            self._close(e.agent)
        log = ReaderLog()
        log.say("user", (Text(as_text(e.told.get("query"))),), time=e.when, turn=e.turn)
        child = Session(
            id=f"{self.id}/{len(self._children) + len(self._below)}",
            format="fuseraft-events",
            product="fuseraft",
            agent=text(e.told.get("mode")) or "subagent",
            parent=self.id,
            started=e.when,
        )
        self._below[e.agent] = (_Line(log), child)

    def _sub_agent_end(self, e: FuseraftEvent) -> None:
        chars = number(e.told.get("summary_chars"))
        if e.agent in self._below and chars is not None:
            self._below[e.agent][0].extend(Sized("text", chars=chars))
        self._close(e.agent, word(e.told.get("outcome")))

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
        return self._log.session(
            id=self.id,
            format="fuseraft-events",
            product="fuseraft",
            agent=next((a for a in self._lines if a), "main"),
            cwd=word(self._start.get("cwd")),
            model=self._model,
            started=self._started,
            children=tuple(self._children),
            details={**told, **beside},
        )

    _TAKES: ClassVar[dict[str, Callable[[Teller, FuseraftEvent], None]]] = {
        "session_start": _session_start,
        "user_input": _user_input,
        "inner_call_context": _inner_call_context,
        "model_response": _model_response,
        **dict.fromkeys(("model_error", "model_timeout"), _model_error),
        **dict.fromkeys(("tool_call", "sub_agent_tool_call"), _tool_call),
        **dict.fromkeys(("tool_result", "tool_error", "tool_timeout"), _tool_result),
        "assistant_response": _assistant_response,
        "turn_end": _turn_end,
        "agent_end": _agent_end,
        "compaction": _compaction,
        "compaction_end": _compaction_end,
        "sub_agent_start": _sub_agent_start,
        "sub_agent_end": _sub_agent_end,
    }
    """How the events that are written are taken; the others are counted."""
