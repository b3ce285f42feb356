"""Reader of SWE-agent trajectories; inference of the history processor from the tokens sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit import tokens
from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    parse_parts_and_results,
    parse_tool_calls,
)
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    read_each_object,
    str_or_none,
)
from ctxkit.session.messages import Message, Part, Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session


NAME = "swe-agent"
ALIASES = ("sweagent",)
CAN = (
    "text, system prompt, demonstrations, thoughts, actions (as calls) and observations (as"
    " results); totals of the run"
)
CANNOT = (
    "usage per call (totals are in Session.details), times, tool schemas, messages that history "
    "processors changed"
)
BLIND = ("compactions", "tool errors")
TRAITS = (
    (
        "all",
        (
            "tokens and cost of the whole run are recorded; whether a history processor ran is "
            "inferred from the tokens sent"
        ),
    ),
)
_SWE_AGENT_FIELDS = {"is_demo", "message_type", "thought", "action"}


def sniff(source: Source) -> bool:
    """Return True for a trajectory: a history whose messages have SWE-agent's own fields."""
    document = source.document
    if type(document) is not dict:
        return False
    if "environment" in document and type(document.get("trajectory")) is list:
        return True
    history = map(as_dict, as_list(document.get("history"))[:12])
    return any(
        "role" in message and not _SWE_AGENT_FIELDS.isdisjoint(message) for message in history
    )


def read(source: Source) -> list[Session]:
    """Read the session of the file, from its history or else from its steps."""
    document = as_dict(source.document)
    reader = _HistoryReader()
    history = as_list(document.get("history")) or _history_from_steps(
        as_list(document.get("trajectory"))
    )
    read_each_object(history, "message", reader.read_message, reader.builder.faults)
    info = as_dict(document.get("info"))
    return [
        _infer_history_processor(
            reader.builder.session(
                id=source.path.name.split(".")[0] or "swe-agent",
                format=NAME,
                product="swe-agent",
                version=str_or_none(info.get("swe_agent_version")),
                agent=reader.agent or "main",
                details=_read_totals(info, as_list(document.get("trajectory"))),
            )
        )
    ]


def _read_totals(info: dict[str, Any], steps: list[Any]) -> dict[str, Any]:
    model_stats = as_dict(info.get("model_stats"))
    totals = {
        "exit_status": str_or_none(info.get("exit_status")),
        "cost_usd": float_or_none(model_stats.get("instance_cost")),
        "input_tokens": count_or_none(model_stats.get("tokens_sent")),
        "output_tokens": count_or_none(model_stats.get("tokens_received")),
        "api_calls": count_or_none(model_stats.get("api_calls")),
        "steps": len(steps) or None,
    }
    return {name: value for name, value in totals.items() if value}


def _history_from_steps(steps: list[Any]) -> list[dict[str, Any]]:
    messages = []
    for step in map(as_dict, steps):
        reply = {"role": "assistant", "content": as_str(step.get("response"))}
        messages += [{**reply, "thought": step.get("thought"), "action": step.get("action")}]
        messages += [{"role": "user", "content": as_str(step.get("observation"))}]
    return messages


class _HistoryReader:
    """Reader of a history; an action becomes a tool call, the next observation its result."""

    def __init__(self) -> None:
        self.builder = SessionBuilder()
        self.agent: str | None = None
        self._pending_calls: dict[str, ToolCall] = {}

    def read_message(self, raw_message: dict[str, Any]) -> None:
        role = as_str(raw_message.get("role"))
        self.agent = self.agent or str_or_none(raw_message.get("agent"))
        parts, _ = parse_parts_and_results(raw_message.get("content"), self.builder.skipped)
        agent = str_or_none(raw_message.get("agent"))
        if raw_message.get("is_demo") is True:
            # A demonstration is part of the prompt and never was a call, whatever role it plays.
            self.builder.add_message("user", parts, agent=agent, kind="demo")
        elif role == "assistant":
            self._read_action(raw_message, parts, agent)
        elif role in ("user", "tool"):
            self._read_observation(raw_message, parts, agent, is_tool=role == "tool")
        elif role == "system":
            self.builder.add_message("system", parts, agent=agent)
        else:
            count_skipped(self.builder.skipped, "message: " + (role or "no role"))

    def _read_action(
        self, raw_message: dict[str, Any], parts: list[Part], agent: str | None
    ) -> None:
        calls = parse_tool_calls(raw_message.get("tool_calls"))
        action, message_id = as_str(raw_message.get("action")), self.builder.new_id()
        if not calls and action.strip():
            # The reply's text repeats thought and action, which are stored once, as parts.
            action_words = action.split(None, 1)
            calls = [ToolCall(f"action-{message_id}", action_words[0][:80], {"command": action})]
            thinking = as_str(raw_message.get("thought"))
            parts = [Text(thinking)] if thinking else []
        thinking_blocks, _ = parse_parts_and_results(
            raw_message.get("thinking_blocks"), self.builder.skipped
        )
        self._pending_calls = {c.id: c for c in calls}
        self.builder.add(
            Message(
                role="assistant",
                id=message_id,
                parts=(*thinking_blocks, *parts, *calls),
                agent=agent,
                stop="tool" if calls else None,
            )
        )

    def _read_observation(
        self, raw_message: dict[str, Any], parts: list[Part], agent: str | None, *, is_tool: bool
    ) -> None:
        ids = [i for i in as_list(raw_message.get("tool_call_ids")) if type(i) is str]
        pending_id = (
            next((i for i in ids if i in self._pending_calls), None)
            if ids
            else next(iter(self._pending_calls), None)
        )
        call = None if pending_id is None else self._pending_calls.pop(pending_id)
        message_id = self.builder.new_id()
        if call is None and not is_tool:
            self.builder.add(Message(role="user", id=message_id, parts=tuple(parts), agent=agent))
            return
        call_id = call.id if call else (ids[0] if ids else None)
        tool = call.name if call else None
        self.builder.add(
            Message(
                role="tool",
                id=message_id,
                parts=tuple(parts),
                agent=agent,
                tool=tool,
                call_id=call_id,
            )
        )


# Inference of the history processor.
#
# The run records only the total of tokens sent over all calls. Two totals are estimated from the
# history (chars/4): with the whole history in each prompt, and with all but the last
# KEPT_OBSERVATIONS observations masked by a line. If they differ by more than _MIN_RATIO, the
# recorded total shows which one was sent; otherwise nothing is inferred. O(messages).
KEPT_OBSERVATIONS = 5
"""Observations that SWE-agent's default history processor keeps; older ones become a line."""
MASKED_LINE_TOKENS = 12
"""Tokens of that line."""
_MIN_RATIO = 1.3
"""Ratios of two totals below this are within the error of the estimate."""


def _infer_history_processor(session: Session) -> Session:
    """Infer from the total of tokens sent whether a history processor masked observations.

    Returns:
        The session with `details["history_processor"]`: the preset that does the same
        (`swe_agent_mask`, with the number of observations it keeps), or `none`. The session itself
        if the total fits both or is missing.
    """
    recorded_sent = session.details.get("input_tokens")
    if not recorded_sent:
        return session
    estimated_full, estimated_masked = _estimate_sent_tokens(session)
    if estimated_full < _MIN_RATIO * estimated_masked:
        return session
    is_masked_closer = abs(estimated_masked - recorded_sent) < abs(estimated_full - recorded_sent)
    has_run = estimated_full > _MIN_RATIO * recorded_sent and is_masked_closer
    if not has_run and estimated_full * _MIN_RATIO < recorded_sent:
        return session
    processor = {"name": "swe_agent_mask", "n": KEPT_OBSERVATIONS} if has_run else {"name": "none"}
    note = (
        f"The run says that it sent {recorded_sent:,} tokens; its whole history at each call "
        f"would be about {estimated_full:,}, with all but the last {KEPT_OBSERVATIONS} "
        f"observations masked about {estimated_masked:,}: "
    )
    note += (
        "such a history processor ran (swe_agent_mask, inferred)."
        if has_run
        else "no history processor ran (inferred)."
    )
    details = {**session.details, "history_processor": processor}
    return msgspec.structs.replace(session, details=details, notes=(*session.notes, note))


def _estimate_sent_tokens(session: Session) -> tuple[int, int]:
    """Return the tokens of all prompts with the whole history, and with observations masked."""
    counter = tokens.get_counter("chars/4")
    full_total = masked_total = history_tokens = 0
    observation_tokens: list[int] = []
    masked_tokens = 0
    for message in session.messages:
        if message.role == "assistant":
            full_total, masked_total = (
                full_total + history_tokens,
                masked_total + history_tokens - masked_tokens,
            )
        message_tokens = counter.message(message)
        history_tokens += message_tokens
        if message.role == "tool":
            observation_tokens.append(message_tokens)
            if len(observation_tokens) > KEPT_OBSERVATIONS:
                masked_tokens += max(
                    observation_tokens[-KEPT_OBSERVATIONS - 1] - MASKED_LINE_TOKENS, 0
                )
    return full_total, masked_total
