"""GitHub Copilot CLI: `events.jsonl` of a session, one event a line; events of subagents as its
children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Fault
from ctxkit.readers.copilot_threads import CopilotThread
from ctxkit.readers.damaged import each_line
from ctxkit.readers.fields import mapping, number, text, time, word
from ctxkit.readers.parts import count

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "copilot-cli"
ALIASES = ("copilot", "github-copilot")
CAN = (
    "text, thinking, calls and results, output tokens, window, times, compactions with their usage,"
    " subagents; a session's totals; usage per call where events were streamed (assistant.usage)"
)
CANNOT = (
    "the prompt of a call (kept files leave assistant.usage out); what a truncation took; money"
    " (credits only)"
)
TRAITS = (
    (
        "all",
        "inputTokens holds the cached tokens; a truncation is a mark without the messages it took",
    ),
)
_FIRST = {"session.start", "session.resume"}


def sniff(source: Source) -> bool:
    """Say whether the first lines are events with a type in two words, data and an id."""
    head = source.head[:8]
    return any(
        text(r.get("type")) in _FIRST and type(r.get("data")) is dict and "id" in r for r in head
    ) or (bool(head) and all(_is_event(r) for r in head))


def _is_event(record: dict[str, Any]) -> bool:
    kind = text(record.get("type")).partition(".")
    return (
        kind[0] in _ROOMS
        and bool(kind[2])
        and type(record.get("data")) is dict
        and "parentId" in record
    )


_ROOMS = {"session", "user", "assistant", "tool", "hook", "subagent", "system", "skill"}


def read(source: Source) -> list[Session]:
    """Return the one session of a file."""
    reading = _Reading()
    faults = list[Fault]()
    each_line(source.stream(), reading.take, faults)
    faults += source.faults
    named, folder = source.path.stem, source.path.parent.name
    return [reading.session(folder if named == "events" and folder else named, faults)]


class _Reading:
    """A session while its events go by."""

    def __init__(self) -> None:
        self.main = CopilotThread("main", None)
        self.others: dict[str, CopilotThread] = {}
        self.skipped: dict[str, int] = {}
        self.meta: dict[str, Any] = {}
        self.model: str | None = None
        self.window: int | None = None
        self.totals: dict[str, Any] = {}

    def take(self, record: dict[str, Any]) -> None:
        """Take one event."""
        kind, data = text(record.get("type")), mapping(record.get("data"))
        when = time(record.get("timestamp"))
        thread = self._thread(record, data, when)
        if kind in ("user.message", "system.message"):
            thread.heard(kind, record, data, when)
        elif kind == "assistant.message":
            thread.said(record, data, when, self.model)
        elif kind == "assistant.usage":
            thread.billed(data)
        elif kind == "tool.execution_complete":
            thread.answered(record, data, when)
        elif kind == "session.compaction_complete":
            if data.get("success") is True:
                thread.compacted(record, data, when)
            else:
                count(self.skipped, "compaction that failed")
        elif kind == "session.truncation":
            self.window = number(data.get("tokenLimit")) or self.window
            thread.truncated(record, data, when)
        elif kind == "session.context_cleared":
            thread.cleared(record, when)
        else:
            self._about(kind, data)

    def _thread(
        self, record: dict[str, Any], data: dict[str, Any], when: float | None
    ) -> CopilotThread:
        own = word(record.get("agentId")) or word(data.get("parentToolCallId"))
        if own is None:
            return self.main
        if own not in self.others:
            self.others[own] = CopilotThread(own, when)
        return self.others[own]

    def _about(self, kind: str, data: dict[str, Any]) -> None:
        if kind in _FIRST and not self.meta:
            self.meta = data
            self.model = word(data.get("selectedModel")) or self.model
        elif kind == "session.model_change":
            self.model = word(data.get("newModel")) or word(data.get("model")) or self.model
        elif kind in ("session.compaction_start", "session.usage_info"):
            self.window = number(data.get("tokenLimit")) or self.window
        elif kind == "session.shutdown":
            self.totals = {
                k: data[k] for k in ("modelMetrics", "totalPremiumRequests") if k in data
            }
        elif kind == "subagent.started":
            thread = self.others.get(text(data.get("toolCallId")))
            if thread is not None:
                thread.name = word(data.get("agentName")) or thread.name
        elif kind != "tool.execution_start":  # the reply has said what is called
            count(self.skipped, kind or "no type")

    def session(self, name: str, faults: list[Fault]) -> Session:
        """Return what was read."""
        own = word(self.meta.get("sessionId")) or name
        children = tuple(
            t.log.session(
                id=f"{own}/{key}",
                format=NAME,
                product=NAME,
                agent=t.name,
                parent=own,
                started=t.begun,
            )
            for key, t in self.others.items()
            if t.log.entries
        )
        return self.main.log.session(
            id=own,
            format=NAME,
            product=word(self.meta.get("producer")) or NAME,
            version=word(self.meta.get("copilotVersion")),
            cwd=word(mapping(self.meta.get("context")).get("cwd")),
            started=time(self.meta.get("startTime")),
            model=self.model,
            context_window=self.window,
            children=children,
            skipped=self.skipped,
            faults=tuple(faults),
            details={"totals": self.totals} if self.totals else {},
        )
