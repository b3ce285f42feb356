"""Reader of OpenHands V0 histories: actions and observations linked to completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import (
    count_skipped,
    parse_chat_message,
    parse_parts_and_results,
    parse_stop_reason,
    parse_tool_schemas,
    parse_usage,
)
from ctxkit.formats.session_builder import TOO_MANY_COMPACTIONS, SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    count_or_none,
    float_or_none,
    is_failed_exit,
    json_to_text,
    parse_timestamp,
    read_each_object,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, Part, Text, ToolCall, ToolSchema, Usage

if TYPE_CHECKING:
    from ctxkit.session.session import Session

# An agent's action carries the completion that it came from; all actions of one completion become
# one reply. Actions without a completion (older versions, models without tools) are calls
# themselves. An observation names its action as cause. The pairs of 2024 have neither ids nor
# sources; both are filled in. Event times have no zone: their offset to UTC is estimated from the
# first event with a completion, in quarters of an hour.
_IGNORED_EVENTS = {
    "condensation_request",
    "recall",
    "change_agent_state",
    "agent_state_changed",
    "null",
}
"""Events that are not sent to the model, except for the observation of a recall."""


def is_v0_history(events: Any) -> bool:
    """Return True for a list of events with a source and an action or observation, or of pairs.

    The pairs of 2024 have no source.
    """
    first_entry = as_list(events)[0] if as_list(events) else None
    required_key = "source"
    if type(first_entry) is list:
        first_entry, required_key = (first_entry[0] if first_entry else None), "args"
    keys = as_dict(first_entry).keys()
    return bool({"source", required_key} & keys) and bool({"action", "observation"} & keys)


def is_v0_run(record: Any) -> bool:
    """Return True for a run of an evaluation."""
    return (
        type(record) is dict
        and ("instance_id" in record or "metrics" in record)
        and is_v0_history(record.get("history"))
    )


def read_v0_run(run: dict[str, Any], name: str) -> Session:
    """Read one run; a damaged event becomes a fault with its index.

    Args:
        run: the raw run, with `history` and `metrics`.
        name: name of the session where the run has no id of its own.
    """
    reader = _V0EventReader(as_dict(run.get("metrics")))
    events = [
        event
        for number, entry in enumerate(as_list(run.get("history")))
        for event in (_link_pair(entry, number) if type(entry) is list else [entry])
    ]
    reader.clock_offset = _find_clock_offset(events)
    read_each_object(events, "event", reader.read_event, reader.builder.faults)
    metadata = as_dict(run.get("metadata"))
    error, builder = str_or_none(run.get("error")), reader.builder
    return builder.session(
        id=as_str(run.get("instance_id")) or name,
        format="openhands",
        product="openhands",
        version=reader.version,
        agent=as_str(metadata.get("agent_class")) or "main",
        started=next((event.time for event in builder.entries if event.time), None),
        model=str_or_none(as_dict(metadata.get("llm_config")).get("model")),
        tools=reader.tools,
        details={"error": error[:2000]} if error else {},
    )


def _link_pair(pair: list[Any], number: int) -> list[Any]:
    """Return an action and its observation, linked by a cause if they have none."""
    if len(pair) != 2 or type(pair[0]) is not dict or type(pair[1]) is not dict:
        return pair
    action, observation = pair
    if (
        "source" not in action and "source" not in observation
    ):  # the first versions: no source, no id
        action = {"id": _FIRST_MADE_ID + number, "source": _infer_source(action, number), **action}
    if count_or_none(observation.get("cause")) is not None or action.get("id") is None:
        return [action, observation]
    return [action, {**observation, "cause": action["id"]}]


_FIRST_MADE_ID = 1 << 40
"""Ids from here on are given to events that have none."""


def _infer_source(action: dict[str, Any], number: int) -> str:
    """Infer the source of an action: the user begins, and answers when the agent waited."""
    waited = as_dict(action.get("args")).get("wait_for_response") is True
    return "user" if action.get("action") == "message" and (number == 0 or not waited) else "agent"


def _find_clock_offset(events: list[Any]) -> float:
    """Return by how many seconds the clock of events is ahead of that of completions (UTC)."""
    for event in map(as_dict, events):
        response_created = as_dict(
            as_dict(event.get("tool_call_metadata")).get("model_response")
        ).get("created")
        event_time, response_time = (
            parse_timestamp(event.get("timestamp")),
            parse_timestamp(response_created),
        )
        if (
            event_time is not None
            and response_time is not None
            and not _has_zone(as_str(event.get("timestamp")))
        ):
            difference = round((event_time - response_time) / 900) * 900
            return difference if abs(difference) <= 14 * 3600 else 0.0
    return 0.0


def _has_zone(timestamp: str) -> bool:
    return timestamp.endswith("Z") or "+" in timestamp or "-" in timestamp[11:]


class _V0EventReader:
    """Reader of V0 events; the actions of one completion become one reply."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self.builder = SessionBuilder()
        self.tools: tuple[ToolSchema, ...] = ()
        self.version: str | None = None
        self.clock_offset = 0.0
        self._usages = {
            as_str(usage.get("response_id")): usage
            for usage in map(as_dict, as_list(metrics.get("token_usages")))
        }
        latencies = map(as_dict, as_list(metrics.get("response_latencies")))
        self._latencies = {
            as_str(latency.get("response_id")): float_or_none(latency.get("latency"))
            for latency in latencies
        }
        self._message_by_response: dict[str, str] = {}
        """Message id by response id."""
        self._call_by_event: dict[int, ToolCall] = {}
        """Call by the event id of its action."""
        self._message_by_event: dict[int, str] = {}
        """Message id by event id."""

    def read_event(self, event: dict[str, Any]) -> None:
        action, observation = (
            str_or_none(event.get("action")),
            str_or_none(event.get("observation")),
        )
        if action == "condensation":
            self._read_condensation(event)
        elif action in _IGNORED_EVENTS or (
            observation in _IGNORED_EVENTS and observation != "recall"
        ):
            count_skipped(self.builder.skipped, f"event: {action or observation}")
        elif action == "system":
            self._read_system_event(event)
        elif action == "message" and event.get("source") != "agent":
            self._add_message(event, "user", self._parse_content(event))
        elif action is not None:
            self._read_action(action, event)
        elif observation is not None:
            self._read_observation(observation, event)
        else:
            count_skipped(self.builder.skipped, "event: neither action nor observation")

    def _add_message(
        self, event: dict[str, Any], role: Any, parts: list[Part], **fields: Any
    ) -> None:
        time = parse_timestamp(event.get("timestamp"))
        message_id = self.builder.new_id()
        self.builder.add(
            Message(
                role=role,
                id=message_id,
                parts=tuple(parts),
                time=time and time - self.clock_offset,
                **fields,
            )
        )
        self._note_message(event, message_id)

    def _note_message(self, event: dict[str, Any], message_id: str) -> None:
        event_id = count_or_none(event.get("id"))
        if event_id is not None:
            self._message_by_event[event_id] = message_id

    def _parse_content(self, event: dict[str, Any]) -> list[Part]:
        args = as_dict(event.get("args"))
        text = as_str(args.get("content")) or as_str(event.get("content"))
        urls = [url for url in as_list(args.get("image_urls")) if type(url) is str]
        images, _ = parse_parts_and_results(
            [{"type": "image_url", "image_url": {"url": url}} for url in urls], self.builder.skipped
        )
        return [*([Text(text)] if text else []), *images]

    def _read_system_event(self, event: dict[str, Any]) -> None:
        args = as_dict(event.get("args"))
        self.tools = parse_tool_schemas(args.get("tools")) or self.tools
        self.version = str_or_none(args.get("openhands_version")) or self.version
        self._add_message(event, "system", self._parse_content(event))

    def _read_action(self, action: str, event: dict[str, Any]) -> None:
        metadata = as_dict(event.get("tool_call_metadata"))
        response = as_dict(metadata.get("model_response"))
        response_id = as_str(response.get("id"))
        if response and event.get("source") == "agent":
            reply = self._message_by_response.get(response_id) if response_id else None
            if reply is None:
                self._read_reply(event, response_id, response)
            else:
                self._note_message(event, reply)
            call_id, event_id = (
                str_or_none(metadata.get("tool_call_id")),
                count_or_none(event.get("id")),
            )
            if call_id and event_id is not None:
                self._call_by_event[event_id] = ToolCall(
                    call_id, as_str(metadata.get("function_name"))
                )
            return
        args = as_dict(event.get("args"))
        thought = as_str(args.get("thought")) or (
            as_str(args.get("content")) if action == "message" else ""
        )
        parts: list[Part] = [Text(thought)] if thought else []
        if action != "message":  # older versions and models without tools: the action is a call
            arguments = {
                k: v
                for k, v in args.items()
                if k not in ("thought", "confirmation_state", "hidden", "blocking")
            }
            call = ToolCall(
                f"action-{json_to_text(event.get('id'))[:40] or len(self.builder.entries)}",
                action,
                arguments,
            )
            parts.append(call)
            event_id = count_or_none(event.get("id"))
            self._call_by_event[-1 if event_id is None else event_id] = call
        role = "assistant" if event.get("source") == "agent" else "user"
        self._add_message(
            event, role, parts if role == "assistant" else [p for p in parts if isinstance(p, Text)]
        )

    def _read_reply(
        self, event: dict[str, Any], response_id: str, response: dict[str, Any]
    ) -> None:
        choice = as_dict(next(iter(as_list(response.get("choices"))), None))
        time = parse_timestamp(event.get("timestamp"))
        messages = parse_chat_message(
            choice.get("message"),
            self.builder,
            self.builder.skipped,
            time=time and time - self.clock_offset,
            usage=self._find_usage(response_id, response),
            model=str_or_none(response.get("model")),
            stop=parse_stop_reason(choice.get("finish_reason")),
            latency=self._latencies.get(response_id),
        )
        for message in messages:
            self.builder.add(message)
            if message.role == "assistant":
                self._note_message(event, message.id)
                if response_id:
                    self._message_by_response[response_id] = message.id

    def _find_usage(self, response_id: str, response: dict[str, Any]) -> Usage | None:
        recorded = self._usages.get(response_id)
        usage = parse_usage(recorded) if recorded else parse_usage(response.get("usage"))
        if usage and not usage.prompt_tokens and not usage.output_tokens:
            return None
        return usage

    def _read_observation(self, observation: str, event: dict[str, Any]) -> None:
        metadata = as_dict(event.get("tool_call_metadata"))
        cause = count_or_none(event.get("cause"))
        call = self._call_by_event.get(-1 if cause is None else cause)
        parts: list[Part] = [*self._parse_content(event), *self._parse_recalled(event)]
        call_id = str_or_none(metadata.get("tool_call_id")) or (call.id if call else None)
        if call_id is None:
            is_error = observation == "error"
            self._add_message(
                event, "user", parts, kind="error" if is_error else "injected", is_error=is_error
            )
            return
        tool = str_or_none(metadata.get("function_name")) or (call.name if call else None)
        extras = as_dict(event.get("extras"))
        exit_code = as_dict(extras.get("metadata")).get("exit_code", extras.get("exit_code"))
        is_error = observation == "error" or (
            exit_code != -1 and is_failed_exit(exit_code)
        )  # -1: still running
        self._add_message(event, "tool", parts, tool=tool, call_id=call_id, is_error=is_error)

    @staticmethod
    def _parse_recalled(event: dict[str, Any]) -> list[Part]:
        extras = as_dict(event.get("extras"))
        knowledge = [
            as_str(as_dict(item).get("content"))
            for item in as_list(extras.get("microagent_knowledge"))
        ]
        return [
            Text(item) for item in (as_str(extras.get("repo_instructions")), *knowledge) if item
        ]

    # A condensation names the forgotten events by id or as a span of ids. Several events can be one
    # message, and some are none, so ids are mapped to messages, without duplicates and in order.
    # Only messages that are still visible become targets: a later span includes earlier ones again.
    # Beyond the bound on edits the event is kept as an edit without targets.
    def _read_condensation(self, event: dict[str, Any]) -> None:
        """Add a condensation as an edit of the visible messages of the events that it forgets."""
        args = as_dict(event.get("args"))
        forgotten = {
            event_id
            for i in as_list(args.get("forgotten_event_ids"))
            if (event_id := count_or_none(i)) is not None
        }
        first_id, last_id = (
            count_or_none(args.get(f"forgotten_events_{end}_id")) for end in ("start", "end")
        )
        has_budget = self.builder.may_edit()  # else too many to look up what each one took
        if last_id is not None and has_budget:
            forgotten.update(
                event_id
                for event_id in self._message_by_event
                if (first_id or 0) <= event_id <= last_id
            )
        forgotten_messages = (
            [
                self._message_by_event[event_id]
                for event_id in sorted(forgotten)
                if event_id in self._message_by_event
            ]
            if has_budget
            else []
        )
        summary_text, time = as_str(args.get("summary")), parse_timestamp(event.get("timestamp"))
        visible_ids = set(self.builder.visible_ids) if has_budget else set[str]()
        summary = Message(
            role="summary",
            id=self.builder.new_id(),
            parts=(Text(summary_text),),
            time=time and time - self.clock_offset,
        )
        edit = Edit(
            kind="summarised" if summary_text else "dropped",
            id=self.builder.new_id(),
            targets=tuple(
                dict.fromkeys(
                    message_id for message_id in forgotten_messages if message_id in visible_ids
                )
            ),
            reason="" if has_budget else TOO_MANY_COMPACTIONS,
            method="condensation",
            time=summary.time,
        )
        self.builder.add(replace(edit, inserted=(summary,)) if summary_text else edit)
