"""SWE-agent trajectories: the history of chat messages, with actions written as text or as tool
calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.messages import Message, Part, Text, ToolCall
from ctxkit.readers.damaged import each_of
from ctxkit.readers.fields import items, mapping, number, real, text, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import count, to_calls, to_parts
from ctxkit.readers.processors import with_processor

if TYPE_CHECKING:
    from ctxkit.readers.source import Source
    from ctxkit.session import Session

NAME = "swe-agent"
ALIASES = ("sweagent",)
CAN = (
    "text, system prompt, demonstrations, thoughts, actions (as calls) and observations (as"
    " results); totals of the run"
)
CANNOT = (
    "usage per call (totals stand in Session.details), times, tool schemas, what history"
    " processors cut"
)
BLIND = ("compactions", "tool errors")
TRAITS = (
    (
        "all",
        (
            "tokens and money of the whole run are recorded; whether a history processor ran is "
            "inferred from the tokens sent"
        ),
    ),
)
_OWN = {"is_demo", "message_type", "thought", "action"}


def sniff(source: Source) -> bool:
    """Say whether this is a trajectory: a history whose messages carry SWE-agent's own fields."""
    document = source.document
    if type(document) is not dict:
        return False
    if "environment" in document and type(document.get("trajectory")) is list:
        return True
    history = map(mapping, items(document.get("history"))[:12])
    return any("role" in m and not _OWN.isdisjoint(m) for m in history)


def read(source: Source) -> list[Session]:
    """Return the one session of the file; without a history it is put together from the steps."""
    document = mapping(source.document)
    teller = _Teller()
    history = items(document.get("history")) or _from_steps(items(document.get("trajectory")))
    each_of(history, "message", teller.take, teller.log.faults)
    info = mapping(document.get("info"))
    return [
        with_processor(
            teller.log.session(
                id=source.path.name.split(".")[0] or "swe-agent",
                format=NAME,
                product="swe-agent",
                version=word(info.get("swe_agent_version")),
                agent=teller.agent or "main",
                details=_totals(info, items(document.get("trajectory"))),
            )
        )
    ]


def _totals(info: dict[str, Any], steps: list[Any]) -> dict[str, Any]:
    stats = mapping(info.get("model_stats"))
    totals = {
        "exit_status": word(info.get("exit_status")),
        "cost_usd": real(stats.get("instance_cost")),
        "input_tokens": number(stats.get("tokens_sent")),
        "output_tokens": number(stats.get("tokens_received")),
        "api_calls": number(stats.get("api_calls")),
        "steps": len(steps) or None,
    }
    return {k: v for k, v in totals.items() if v}


def _from_steps(steps: list[Any]) -> list[dict[str, Any]]:
    out = []
    for step in map(mapping, steps):
        said = {"role": "assistant", "content": text(step.get("response"))}
        out += [{**said, "thought": step.get("thought"), "action": step.get("action")}]
        out += [{"role": "user", "content": text(step.get("observation"))}]
    return out


class _Teller:
    """Writes the history: an action becomes a tool call, the observation after it its result."""

    def __init__(self) -> None:
        self.log = ReaderLog()
        self.agent: str | None = None
        self._waiting: dict[str, ToolCall] = {}

    def take(self, raw: dict[str, Any]) -> None:
        role = text(raw.get("role"))
        self.agent = self.agent or word(raw.get("agent"))
        parts, _ = to_parts(raw.get("content"), self.log.skipped)
        agent = word(raw.get("agent"))
        if raw.get("is_demo") is True:
            # A demonstration is part of the prompt and never was a call, whatever role it plays.
            self.log.say("user", parts, agent=agent, kind="demo")
        elif role == "assistant":
            self._action(raw, parts, agent)
        elif role in ("user", "tool"):
            self._observation(raw, parts, agent, is_tool=role == "tool")
        elif role == "system":
            self.log.say("system", parts, agent=agent)
        else:
            count(self.log.skipped, "message: " + (role or "no role"))

    def _action(self, raw: dict[str, Any], parts: list[Part], agent: str | None) -> None:
        calls = to_calls(raw.get("tool_calls"))
        action, id_ = text(raw.get("action")), self.log.new_id()
        if not calls and action.strip():
            # The reply's text is the thought and the action in a block of its own: each is kept
            # once.
            words = action.split(None, 1)
            calls = [ToolCall(f"action-{id_}", words[0][:80], {"command": action})]
            thought = text(raw.get("thought"))
            parts = [Text(thought)] if thought else []
        self._waiting = {c.id: c for c in calls}
        self.log.add(
            Message(
                role="assistant",
                id=id_,
                parts=(*parts, *calls),
                agent=agent,
                stop="tool" if calls else None,
            )
        )

    def _observation(
        self, raw: dict[str, Any], parts: list[Part], agent: str | None, *, is_tool: bool
    ) -> None:
        ids = [i for i in items(raw.get("tool_call_ids")) if type(i) is str]
        named = (
            next((i for i in ids if i in self._waiting), None)
            if ids
            else next(iter(self._waiting), None)
        )
        asked = None if named is None else self._waiting.pop(named)
        id_ = self.log.new_id()
        if asked is None and not is_tool:
            self.log.add(Message(role="user", id=id_, parts=tuple(parts), agent=agent))
            return
        called = asked.id if asked else (ids[0] if ids else None)
        tool = asked.name if asked else None
        self.log.add(
            Message(role="tool", id=id_, parts=tuple(parts), agent=agent, tool=tool, call_id=called)
        )
