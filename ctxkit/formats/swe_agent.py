"""SWE-agent trajectories; which history processor ran, inferred from tokens sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit import tokens
from ctxkit.formats.chat_messages import count_skipped, parse_parts, parse_tool_calls
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    read_each_object,
    str_or_none,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Message, Part, Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session


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
    history = map(as_dict, as_list(document.get("history"))[:12])
    return any("role" in m and not _OWN.isdisjoint(m) for m in history)


def read(source: Source) -> list[Session]:
    """Return the one session of the file; without a history it is put together from the steps."""
    document = as_dict(source.document)
    teller = _HistoryReader()
    history = as_list(document.get("history")) or _from_steps(as_list(document.get("trajectory")))
    read_each_object(history, "message", teller.take, teller.log.faults)
    info = as_dict(document.get("info"))
    return [
        infer_history_processor(
            teller.log.session(
                id=source.path.name.split(".")[0] or "swe-agent",
                format=NAME,
                product="swe-agent",
                version=str_or_none(info.get("swe_agent_version")),
                agent=teller.agent or "main",
                details=_totals(info, as_list(document.get("trajectory"))),
            )
        )
    ]


def _totals(info: dict[str, Any], steps: list[Any]) -> dict[str, Any]:
    stats = as_dict(info.get("model_stats"))
    totals = {
        "exit_status": str_or_none(info.get("exit_status")),
        "cost_usd": float_or_none(stats.get("instance_cost")),
        "input_tokens": count_or_none(stats.get("tokens_sent")),
        "output_tokens": count_or_none(stats.get("tokens_received")),
        "api_calls": count_or_none(stats.get("api_calls")),
        "steps": len(steps) or None,
    }
    return {k: v for k, v in totals.items() if v}


def _from_steps(steps: list[Any]) -> list[dict[str, Any]]:
    out = []
    for step in map(as_dict, steps):
        said = {"role": "assistant", "content": as_str(step.get("response"))}
        out += [{**said, "thought": step.get("thought"), "action": step.get("action")}]
        out += [{"role": "user", "content": as_str(step.get("observation"))}]
    return out


class _HistoryReader:
    """Writes the history: an action becomes a tool call, the observation after it its result."""

    def __init__(self) -> None:
        self.log = SessionBuilder()
        self.agent: str | None = None
        self._waiting: dict[str, ToolCall] = {}

    def take(self, raw: dict[str, Any]) -> None:
        role = as_str(raw.get("role"))
        self.agent = self.agent or str_or_none(raw.get("agent"))
        parts, _ = parse_parts(raw.get("content"), self.log.skipped)
        agent = str_or_none(raw.get("agent"))
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
            count_skipped(self.log.skipped, "message: " + (role or "no role"))

    def _action(self, raw: dict[str, Any], parts: list[Part], agent: str | None) -> None:
        calls = parse_tool_calls(raw.get("tool_calls"))
        action, id_ = as_str(raw.get("action")), self.log.new_id()
        if not calls and action.strip():
            # The reply's text is the thought and the action in a block of its own: each is kept
            # once.
            words = action.split(None, 1)
            calls = [ToolCall(f"action-{id_}", words[0][:80], {"command": action})]
            thought = as_str(raw.get("thought"))
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
        ids = [i for i in as_list(raw.get("tool_call_ids")) if type(i) is str]
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


KEPT_OBSERVATIONS = 5
"""Observations that SWE-agent's own default kept whole; older ones became a line."""
MASKED_LINE_TOKENS = 12
"""Tokens of that line."""
_MIN_FACTOR = 1.3
"""A factor between what was sent and an estimate that the counting alone does not explain."""


def infer_history_processor(session: Session) -> Session:
    """Return a session with what its total of sent tokens tells: was all history sent each time?

    `details["history_processor"]` then names the preset that does the same (`swe_agent_mask`, with
    the observations it kept), or `none`; missing where the total fits both, or there is none.
    """
    sent = session.details.get("input_tokens")
    if not sent:
        return session
    whole, masked = _estimates(session)
    if whole < _MIN_FACTOR * masked:
        return session
    ran = whole > _MIN_FACTOR * sent and abs(masked - sent) < abs(whole - sent)
    if not ran and whole * _MIN_FACTOR < sent:
        return session
    found = {"name": "swe_agent_mask", "n": KEPT_OBSERVATIONS} if ran else {"name": "none"}
    told = (
        f"The run says that it sent {sent:,} tokens; its whole history at each call would be about "
        f"{whole:,}, with all but the last {KEPT_OBSERVATIONS} observations masked about "
        f"{masked:,}: "
    )
    told += (
        "such a history processor ran (swe_agent_mask, inferred)."
        if ran
        else "no history processor ran (inferred)."
    )
    details = {**session.details, "history_processor": found}
    return msgspec.structs.replace(session, details=details, notes=(*session.notes, told))


def _estimates(session: Session) -> tuple[int, int]:
    """Tokens of all prompts together as the history stands, and with old observations masked."""
    counter = tokens.get_counter("chars/4")
    whole = masked = total = 0
    observed: list[int] = []
    gone = 0
    for m in session.messages:
        if m.role == "assistant":
            whole, masked = whole + total, masked + total - gone
        n = counter.message(m)
        total += n
        if m.role == "tool":
            observed.append(n)
            if len(observed) > KEPT_OBSERVATIONS:
                gone += max(observed[-KEPT_OBSERVATIONS - 1] - MASKED_LINE_TOKENS, 0)
    return whole, masked
