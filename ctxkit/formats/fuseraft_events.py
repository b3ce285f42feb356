"""Event logs of fuseraft: calls, sizes, compactions, sub-agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_messages import count_skipped, subtract_cached
from ctxkit.formats.fields import (
    as_dict,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    parse_timestamp,
    str_or_none,
    to_text,
)
from ctxkit.formats.fuseraft_common import parse_turn_usage, read_companion_files
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.source import Source
from ctxkit.session.messages import Edit, Message, Part, SizeOnly, Text, ToolCall
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NAME = "fuseraft-events"
ALIASES = ("fuseraft-repl",)
CAN = (
    "usage and occupancy per call, sizes by kind, requests, answers, tools with sizes, compactions,"
    " agents, subagents"
)
CANNOT = "what tools answered (sizes only), cache per call (per turn only), system prompt, money"


def sniff(source: Source) -> bool:
    """Say whether the first lines are events: a time, a type and a payload."""
    return any(
        type(r.get("event_type")) is str and ("ts" in r or "session" in r) for r in source.head[:3]
    )


def read(source: Source) -> list[Session]:
    """Return one session for each id in the file (older versions write all a project's in one)."""
    tellers: dict[str, EventReader] = {}
    faults = list(source.faults)
    for line, record in source.records:
        id_ = as_str(record.get("session")) or next(reversed(tellers), source.path.stem)
        if id_ not in tellers:
            tellers[id_] = EventReader(id_)
        with catch_damage(faults, line):
            tellers[id_].take(record)
    out = [t.session(read_companion_files(source, t.id)) for t in tellers.values()]
    if out:
        out[0] = replace(out[0], faults=tuple(faults))
    return out


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is a session: its `events.jsonl` is the event log of one session."""
    file = path / "events.jsonl"
    try:
        return (
            file.is_file()
            and any((path / name).exists() for name in _BESIDE)
            and sniff(Source(file))
        )
    except (OSError, ReadError):
        return False


def read_folder(path: Path) -> list[Session]:
    """Return the sessions of the folder's `events.jsonl`; `details` tell of the files beside it."""
    return read(Source(path / "events.jsonl"))


_BESIDE = {
    "ctx_snapshots.jsonl",
    "intents.json",
    "evidence.json",
    "tool-results",
    "context_summary.md",
    "ctx_viz.html",
}
"""What stands beside the events of one session: without any, a folder may hold other logs too."""

_MAX_OPEN_CALLS = 200
"""Calls of a turn that may wait for an answer."""
_QUIET = {"compaction_start", "turn_start", "model_call", "session_end", "agent_start"}


class _AgentCalls:
    """One agent's calls as they come: their log, the context announced, calls without an answer."""

    def __init__(self, log: SessionBuilder) -> None:
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
                parts = (SizeOnly("reply", tokens=entry.usage.output_tokens),)
            self.log.replace(self.reply, replace(entry, parts=parts, **fields))
        self._more = []


class EventReader:
    """Writes the events of one session."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self._log = SessionBuilder()
        self._lines: dict[str, _AgentCalls] = {}
        self._below: dict[str, tuple[_AgentCalls, Session]] = {}
        """Sub-agents at work, by the name of their parent."""
        self._children: list[Session] = []
        self._start: dict[str, Any] = {}
        self._started: float | None = None
        self._model: str | None = None
        self._count = 0
        self._cuts = CompactionRecorder(self._log)

    def take(self, record: dict[str, Any]) -> None:
        """Write one event; one that is not known is counted."""
        kind, told = as_str(record.get("event_type")), as_dict(record.get("payload"))
        when, turn = parse_timestamp(record.get("ts")), count_or_none(record.get("turn"))
        e = FuseraftEvent(told, when, turn, as_str(record.get("agent")))
        self._started = self._started or when
        if kind in self._TAKES:
            self._TAKES[kind](self, e)
        elif kind not in _QUIET:
            count_skipped(self._log.skipped, "event: " + (kind or "no type"))
        if kind == "model_call":
            self._line(e.agent).asked = when
        elif kind == "turn_start":
            self._line(e.agent).calls = 0

    def _line(self, agent: str) -> _AgentCalls:
        below = self._below.get(agent)
        return below[0] if below else self._lines.setdefault(agent, _AgentCalls(self._log))

    def _session_start(self, e: FuseraftEvent) -> None:
        self._start = e.told
        self._model = str_or_none(e.told.get("model")) or self._model

    def _user_input(self, e: FuseraftEvent) -> None:
        said = to_text(e.told.get("content"))
        self._log.say("user", (Text(said),), time=e.when, turn=e.turn)

    def _inner_call_context(self, e: FuseraftEvent) -> None:
        chars = as_dict(e.told.get("content_chars"))
        told = {
            "est_tokens": count_or_none(e.told.get("est_tokens")),
            **{f"{k}_chars": count_or_none(v) for k, v in chars.items()},
        }
        told |= {
            f"{k}_messages": count_or_none(v) for k, v in as_dict(e.told.get("msg_counts")).items()
        }
        self._line(e.agent).context = {
            k[:60]: v for k, v in list(told.items())[:40] if v is not None
        }

    def _model_response(self, e: FuseraftEvent) -> None:
        self._reply(
            e, usage=parse_turn_usage(e.told), stop=str_or_none(e.told.get("finish_reason"))
        )

    def _model_error(self, e: FuseraftEvent) -> None:
        said = (as_str(e.told.get("error")) or as_str(e.told.get("message")))[:2000]
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
            model=str_or_none(e.told.get("model")) or self._model,
            latency=took,
            details={"context": line.context} if line.context else {},
            **more,
        )
        line.open, line.asked, line.context = [], None, {}
        line.calls += 1

    def _tool_call(self, e: FuseraftEvent) -> None:
        line = self._line(e.agent)
        name = as_str(e.told.get("tool_name")) or as_str(e.told.get("tool"))
        args = e.told.get("args", e.told.get("arg"))
        given = args if type(args) is dict else {}
        self._count += 1
        call = ToolCall(
            f"call-{self._count}", name, given, None if given or args is None else to_text(args)
        )
        if line.reply is None:  # a log without calls: the tools stand for a turn
            line.reply = line.log.say("assistant", agent=e.agent or None, turn=e.turn, kind="turn")
        line.open = [*line.open[-_MAX_OPEN_CALLS:], call]
        line.extend(call)

    def _tool_result(self, e: FuseraftEvent) -> None:
        line = self._line(e.agent)
        name = as_str(e.told.get("tool_name")) or as_str(e.told.get("tool"))
        call = next((c for c in line.open if c.name == name), None)
        if call is not None:
            line.open.remove(call)
        line.log.say(
            "tool",
            (SizeOnly("tool_result", chars=count_or_none(e.told.get("result_chars"))),),
            agent=e.agent or None,
            turn=e.turn,
            time=e.when,
            tool=name or None,
            call_id=call.id if call else None,
            is_error="error" in e.told,
            error=to_text(e.told.get("error"))[:2000] or None,
        )

    def _assistant_response(self, e: FuseraftEvent) -> None:
        said = to_text(e.told.get("content"))
        if said:
            self._line(e.agent).extend(Text(said))

    def _turn_end(self, e: FuseraftEvent) -> None:
        """Take a turn's sums: usage if the log has no calls, else what only they know (cache)."""
        line = self._line(e.agent)
        cached = count_or_none(e.told.get("cached_input_tokens"))
        if line.calls:
            entry = None if line.reply is None else line.log.entries[line.reply]
            if cached is not None and line.reply is not None and isinstance(entry, Message):
                line.close(details={**entry.details, "turn_cached_input_tokens": cached})
        else:
            self._whole_turn(line, e)
        line.close()
        line.calls, line.open = 0, []

    def _whole_turn(self, line: _AgentCalls, e: FuseraftEvent) -> None:
        usage, cached = parse_turn_usage(e.told), count_or_none(e.told.get("cached_input_tokens"))
        if usage is None:
            return
        fresh = subtract_cached(usage.input_tokens, cached)
        usage = replace(usage, input_tokens=fresh, cache_read_tokens=cached)
        took = float_or_none(e.told.get("elapsed_ms"))
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
            outcome = str_or_none(e.told.get("outcome")) or "without an outcome"
            count_skipped(self._log.skipped, f"compaction: {outcome}")

    def _sub_agent_start(self, e: FuseraftEvent) -> None:
        if e.agent in self._below:  # its end is missing
            self._close(e.agent)
        log = SessionBuilder()
        log.say("user", (Text(to_text(e.told.get("query"))),), time=e.when, turn=e.turn)
        child = Session(
            id=f"{self.id}/{len(self._children) + len(self._below)}",
            format="fuseraft-events",
            product="fuseraft",
            agent=as_str(e.told.get("mode")) or "subagent",
            parent=self.id,
            started=e.when,
        )
        self._below[e.agent] = (_AgentCalls(log), child)

    def _sub_agent_end(self, e: FuseraftEvent) -> None:
        chars = count_or_none(e.told.get("summary_chars"))
        if e.agent in self._below and chars is not None:
            self._below[e.agent][0].extend(SizeOnly("text", chars=chars))
        self._close(e.agent, str_or_none(e.told.get("outcome")))

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
        tools = count_or_none(self._start.get("tool_count"))
        told = {"tool_count": tools} if tools is not None else {}
        if self._start.get("resumed") is True:
            told["resumed"] = 1
        return self._log.session(
            id=self.id,
            format="fuseraft-events",
            product="fuseraft",
            agent=next((a for a in self._lines if a), "main"),
            cwd=str_or_none(self._start.get("cwd")),
            model=self._model,
            started=self._started,
            children=tuple(self._children),
            details={**told, **beside},
        )

    _TAKES: ClassVar[dict[str, Callable[[EventReader, FuseraftEvent], None]]] = {
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


class FuseraftEvent(NamedTuple):
    """One event: what it tells, when, in which turn and of which agent (empty: of none)."""

    told: dict[str, Any]
    when: float | None
    turn: int | None
    agent: str


class CompactionRecorder:
    """Writes the compactions of one session into its log."""

    def __init__(self, log: SessionBuilder) -> None:
        self._log = log
        self._known: dict[str, Message] = {}
        self._seen = 0

    def by_turns(self, e: FuseraftEvent) -> None:
        """Write one whose event says how many turns stayed, or nothing of what did."""
        retained = count_or_none(e.told.get("turns_retained"))
        is_window = e.told.get("mode") == "window"
        kept, details = set[str](), dict[str, Any]()
        if retained is not None:
            kept = self._last(retained) if self._log.may_edit() else kept
            details = {"targets": "derived from the number of turns retained"}
        after = count_or_none(e.told.get("after_tokens"))
        summary = self._summary(after if retained is None else None, e)
        edit = Edit(
            kind="dropped" if is_window else "summarised",
            id=self._log.new_id(),
            inserted=() if is_window else (summary,),
            reason=to_text(e.told.get("focus"))[:200],
            trigger=str_or_none(e.told.get("source")) or str_or_none(e.told.get("reason")),
            method=str_or_none(e.told.get("mode")) or "compaction",
            agent=e.agent or None,
            time=e.when,
            tokens_before=count_or_none(e.told.get("before_tokens")),
            tokens_after=after,
            details=details,
        )
        self._log.compact(edit, kept)

    def by_size(self, e: FuseraftEvent) -> None:
        """Write one of a live session of this kit, which says only how large the rest is."""
        after = count_or_none(e.told.get("tokens_after"))
        counts = {f"messages_{k}": count_or_none(e.told.get(k)) for k in ("before", "after")}
        summary = self._summary(after, e)
        edit = Edit(
            kind="summarised",
            id=self._log.new_id(),
            inserted=(summary,),
            reason="what stayed is not in the log, only its size",
            trigger=str_or_none(e.told.get("trigger")),
            method="compaction",
            agent=e.agent or None,
            time=e.when,
            tokens_before=count_or_none(e.told.get("tokens_before")),
            tokens_after=after,
            details={k: n for k, n in counts.items() if n is not None},
        )
        self._log.compact(edit, ())

    def _summary(self, size: int | None, e: FuseraftEvent) -> Message:
        said, own = (SizeOnly("summary", tokens=size),), self._log.new_id()
        return Message(role="summary", id=own, parts=said, time=e.when, turn=e.turn)

    def _last(self, n: int) -> set[str]:
        """Return the ids of the last turns, and of what belongs to all of them."""
        for e in self._log.entries[self._seen :]:
            if isinstance(e, Message):
                self._known[e.id] = e
        self._seen = len(self._log.entries)
        found = [m for i in self._log.shown if (m := self._known.get(i)) is not None]
        turns = list(dict.fromkeys(m.turn for m in found if m.turn is not None))
        last = set(turns[max(len(turns) - n, 0) :])
        return {m.id for m in found if m.turn in last or m.role == "system"}
