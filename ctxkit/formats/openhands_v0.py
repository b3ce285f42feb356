"""Histories of OpenHands V0: actions and observations tied to completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_messages import (
    count_skipped,
    parse_chat_message,
    parse_parts,
    parse_stop_reason,
    parse_tool_schemas,
    parse_usage,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    is_failed_exit,
    parse_timestamp,
    read_each_object,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.session.messages import Edit, Message, Part, Text, ToolCall, ToolSchema, Usage

if TYPE_CHECKING:
    from ctxkit.session.session import Session

_QUIET = {"condensation_request", "recall", "change_agent_state", "agent_state_changed", "null"}
"""Events that no model sees; the observation of a recall is seen, and taken."""


def is_v0_history(events: Any) -> bool:
    """Say whether a list is a history: events with a source and an action or observation, or pairs
    of such.

    The pairs of 2024 name no source.
    """
    first = as_list(events)[0] if as_list(events) else None
    known = "source"
    if type(first) is list:
        first, known = (first[0] if first else None), "args"
    keys = as_dict(first).keys()
    return bool({"source", known} & keys) and bool({"action", "observation"} & keys)


def is_v0_run(record: Any) -> bool:
    """Say whether a record is a run of an evaluation."""
    return (
        type(record) is dict
        and ("instance_id" in record or "metrics" in record)
        and is_v0_history(record.get("history"))
    )


def read_v0_run(run: dict[str, Any], name: str) -> Session:
    """Return one run as a session; events that are damaged are counted by their place."""
    teller = _Teller(as_dict(run.get("metrics")))
    flat = [
        e
        for n, entry in enumerate(as_list(run.get("history")))
        for e in (_tied(entry, n) if type(entry) is list else [entry])
    ]
    teller.offset = _offset(flat)
    read_each_object(flat, "event", teller.take, teller.log.faults)
    told = as_dict(run.get("metadata"))
    error, log = str_or_none(run.get("error")), teller.log
    return log.session(
        id=as_str(run.get("instance_id")) or name,
        format="openhands",
        product="openhands",
        version=teller.version,
        agent=as_str(told.get("agent_class")) or "main",
        started=next((e.time for e in log.entries if e.time), None),
        model=str_or_none(as_dict(told.get("llm_config")).get("model")),
        tools=teller.tools,
        details={"error": error[:2000]} if error else {},
    )


def _tied(pair: list[Any], n: int) -> list[Any]:
    """Return action and observation, tied where they name no cause themselves; n is their place."""
    if len(pair) != 2 or type(pair[0]) is not dict or type(pair[1]) is not dict:
        return pair
    action, seen = pair
    if (
        "source" not in action and "source" not in seen
    ):  # the first ones wrote neither source nor id
        action = {"id": _UNNAMED + n, "source": _said_by(action, n), **action}
    if count_or_none(seen.get("cause")) is not None or action.get("id") is None:
        return [action, seen]
    return [action, {**seen, "cause": action["id"]}]


_UNNAMED = 1 << 40
"""Ids from here on are made for events that have none."""


def _said_by(action: dict[str, Any], n: int) -> str:
    """Say who acted where a pair does not: the user begins, and answers where the agent waited."""
    waits = as_dict(action.get("args")).get("wait_for_response") is True
    return "user" if action.get("action") == "message" and (n == 0 or not waits) else "agent"


def _offset(events: list[Any]) -> float:
    """Seconds by which the events' clock, which names no zone, is ahead of the completions'."""
    for event in map(as_dict, events):
        made = as_dict(as_dict(event.get("tool_call_metadata")).get("model_response")).get(
            "created"
        )
        shown, created = parse_timestamp(event.get("timestamp")), parse_timestamp(made)
        if (
            shown is not None
            and created is not None
            and not _has_zone(as_str(event.get("timestamp")))
        ):
            ahead = round((shown - created) / 900) * 900
            return ahead if abs(ahead) <= 14 * 3600 else 0.0
    return 0.0


def _has_zone(stamp: str) -> bool:
    return stamp.endswith("Z") or "+" in stamp or "-" in stamp[11:]


class _Teller:
    """Writes events as messages: a completion is one reply, however many actions came of it."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self.log = SessionBuilder()
        self.tools: tuple[ToolSchema, ...] = ()
        self.version: str | None = None
        self.offset = 0.0
        self._usages = {
            as_str(u.get("response_id")): u
            for u in map(as_dict, as_list(metrics.get("token_usages")))
        }
        took = map(as_dict, as_list(metrics.get("response_latencies")))
        self._latencies = {
            as_str(t.get("response_id")): float_or_none(t.get("latency")) for t in took
        }
        self._replies: dict[str, str] = {}
        """Response id to id of the message that it became."""
        self._calls: dict[int, ToolCall] = {}
        """Event id of an action to its call."""
        self._messages: dict[int, str] = {}
        """Event id to id of the message that it became."""

    def take(self, event: dict[str, Any]) -> None:
        action, seen = str_or_none(event.get("action")), str_or_none(event.get("observation"))
        if action == "condensation":
            self._condense(event)
        elif action in _QUIET or (seen in _QUIET and seen != "recall"):
            count_skipped(self.log.skipped, f"event: {action or seen}")
        elif action == "system":
            self._system(event)
        elif action == "message" and event.get("source") != "agent":
            self._add(event, "user", self._content(event))
        elif action is not None:
            self._act(action, event)
        elif seen is not None:
            self._observe(seen, event)
        else:
            count_skipped(self.log.skipped, "event: neither action nor observation")

    def _add(self, event: dict[str, Any], role: Any, parts: list[Part], **more: Any) -> None:
        when = parse_timestamp(event.get("timestamp"))
        id_ = self.log.new_id()
        self.log.add(
            Message(role=role, id=id_, parts=tuple(parts), time=when and when - self.offset, **more)
        )
        self._know(event, id_)

    def _know(self, event: dict[str, Any], id_: str) -> None:
        number_ = count_or_none(event.get("id"))
        if number_ is not None:
            self._messages[number_] = id_

    def _content(self, event: dict[str, Any]) -> list[Part]:
        args = as_dict(event.get("args"))
        said = as_str(args.get("content")) or as_str(event.get("content"))
        urls = [u for u in as_list(args.get("image_urls")) if type(u) is str]
        pictures, _ = parse_parts(
            [{"type": "image_url", "image_url": {"url": u}} for u in urls], self.log.skipped
        )
        return [*([Text(said)] if said else []), *pictures]

    def _system(self, event: dict[str, Any]) -> None:
        args = as_dict(event.get("args"))
        self.tools = parse_tool_schemas(args.get("tools")) or self.tools
        self.version = str_or_none(args.get("openhands_version")) or self.version
        self._add(event, "system", self._content(event))

    def _act(self, action: str, event: dict[str, Any]) -> None:
        told = as_dict(event.get("tool_call_metadata"))
        response = as_dict(told.get("model_response"))
        made = as_str(response.get("id"))
        if response and event.get("source") == "agent":
            reply = self._replies.get(made) if made else None
            if reply is None:
                self._reply(event, made, response)
            else:
                self._know(event, reply)
            call_id, number_ = str_or_none(told.get("tool_call_id")), count_or_none(event.get("id"))
            if call_id and number_ is not None:
                self._calls[number_] = ToolCall(call_id, as_str(told.get("function_name")))
            return
        args = as_dict(event.get("args"))
        thought = as_str(args.get("thought")) or (
            as_str(args.get("content")) if action == "message" else ""
        )
        parts: list[Part] = [Text(thought)] if thought else []
        if action != "message":  # older versions, and models without tools: the action is the call
            rest = {
                k: v
                for k, v in args.items()
                if k not in ("thought", "confirmation_state", "hidden", "blocking")
            }
            call = ToolCall(
                f"action-{to_text(event.get('id'))[:40] or len(self.log.entries)}", action, rest
            )
            parts.append(call)
            number_ = count_or_none(event.get("id"))
            self._calls[-1 if number_ is None else number_] = call
        role = "assistant" if event.get("source") == "agent" else "user"
        self._add(
            event, role, parts if role == "assistant" else [p for p in parts if isinstance(p, Text)]
        )

    def _reply(self, event: dict[str, Any], made: str, response: dict[str, Any]) -> None:
        choice = as_dict(next(iter(as_list(response.get("choices"))), None))
        when = parse_timestamp(event.get("timestamp"))
        messages = parse_chat_message(
            choice.get("message"),
            self.log,
            self.log.skipped,
            time=when and when - self.offset,
            usage=self._usage(made, response),
            model=str_or_none(response.get("model")),
            stop=parse_stop_reason(choice.get("finish_reason")),
            latency=self._latencies.get(made),
        )
        for m in messages:
            self.log.add(m)
            if m.role == "assistant":
                self._know(event, m.id)
                if made:
                    self._replies[made] = m.id

    def _usage(self, made: str, response: dict[str, Any]) -> Usage | None:
        told = self._usages.get(made)
        usage = parse_usage(told) if told else parse_usage(response.get("usage"))
        if usage and not usage.prompt_tokens and not usage.output_tokens:
            return None
        return usage

    def _observe(self, seen: str, event: dict[str, Any]) -> None:
        told = as_dict(event.get("tool_call_metadata"))
        cause = count_or_none(event.get("cause"))
        call = self._calls.get(-1 if cause is None else cause)
        parts: list[Part] = [*self._content(event), *self._recalled(event)]
        called = str_or_none(told.get("tool_call_id")) or (call.id if call else None)
        if called is None:
            wrong = seen == "error"
            self._add(event, "user", parts, kind="error" if wrong else "injected", is_error=wrong)
            return
        tool = str_or_none(told.get("function_name")) or (call.name if call else None)
        extras = as_dict(event.get("extras"))
        code = as_dict(extras.get("metadata")).get("exit_code", extras.get("exit_code"))
        wrong = seen == "error" or (code != -1 and is_failed_exit(code))  # -1: it still runs
        self._add(event, "tool", parts, tool=tool, call_id=called, is_error=wrong)

    @staticmethod
    def _recalled(event: dict[str, Any]) -> list[Part]:
        extras = as_dict(event.get("extras"))
        known = [
            as_str(as_dict(k).get("content")) for k in as_list(extras.get("microagent_knowledge"))
        ]
        return [Text(k) for k in (as_str(extras.get("repo_instructions")), *known) if k]

    def _condense(self, event: dict[str, Any]) -> None:
        args = as_dict(event.get("args"))
        forgotten = {
            n
            for i in as_list(args.get("forgotten_event_ids"))
            if (n := count_or_none(i)) is not None
        }
        first, last = (
            count_or_none(args.get(f"forgotten_events_{end}_id")) for end in ("start", "end")
        )
        may = self.log.may_edit()
        if last is not None and may:
            forgotten.update(n for n in self._messages if (first or 0) <= n <= last)
        gone = [self._messages[n] for n in sorted(forgotten) if n in self._messages] if may else []
        said, when = as_str(args.get("summary")), parse_timestamp(event.get("timestamp"))
        shown = set(self.log.shown) if may else set[str]()
        summary = Message(
            role="summary",
            id=self.log.new_id(),
            parts=(Text(said),),
            time=when and when - self.offset,
        )
        edit = Edit(
            kind="summarised" if said else "dropped",
            id=self.log.new_id(),
            targets=tuple(dict.fromkeys(m for m in gone if m in shown)),
            reason="" if may else TOO_MANY_COMPACTIONS,
            method="condensation",
            time=summary.time,
        )
        self.log.add(replace(edit, inserted=(summary,)) if said else edit)
