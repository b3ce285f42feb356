"""Transcript of a live session: messages and edits, redacted and appended as they are produced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit._internal.redaction import REDACTION_MARK, get_environment_secrets, redact_json
from ctxkit.engine import with_message_ids
from ctxkit.errors import BadArguments
from ctxkit.session.messages import Edit, Message, Part, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ctxkit.session.session import Session

AppendEntries = Callable[..., "Session"]
"""Appends entries to the session, in memory or by `SessionLog.append`, and returns it."""
LOST_RESULT = "The session ended before this call's result was kept; whether it ran is not known."
INTERRUPTED_RESULT = "Interrupted by the user before it ended."


class Transcript:
    """A growing session.

    Every text is redacted before it is stored. Ids of entries are unique in the whole log,
    branches included; ids of tool calls are unique in the session, as providers require.

    Args:
        session: the session so far.
        append: appends entries; None: in memory only.
        clock: returns seconds since 1970.
    """

    def __init__(
        self, session: Session, append: AppendEntries | None, clock: Callable[[], float]
    ) -> None:
        self.session = session if append else with_message_ids(session)
        self.clock = clock
        self._append = append or self._append_in_memory
        self.turn = self.session.turns[-1] if self.session.path else -1
        """Number of the current turn; entries written before the next one begins belong to it."""
        self._ids = {e.id for e in self.session.log}
        self._call_ids = {
            c.id for e in self.session.path if isinstance(e, Message) for c in e.tool_calls
        }

    def _append_in_memory(self, *entries: Message | Edit) -> Session:
        return self.session.append(*entries)

    def begin(self) -> int:
        """Begin a turn; return its number."""
        turns = self.session.turns
        has_prompts = any(isinstance(e, Message) and e.role != "system" for e in self.session.path)
        self.turn = turns[-1] + 1 if has_prompts else 0
        return self.turn

    def find_unanswered_calls(self) -> list[ToolCall]:
        """Return the tool calls of the last reply that have no result."""
        # Walk back over the results at the end to the reply that made the calls.
        answered: set[str | None] = set()
        for entry in reversed(self.session.path):
            if not isinstance(entry, Message) or not entry.visible:
                continue
            if entry.role == "assistant":
                return [c for c in entry.tool_calls if c.id not in answered]
            if entry.role != "tool":
                break
            answered.add(entry.call_id)
        return []

    def add(self, message: Message, kind: str) -> Message:
        """Store a redacted message under a new id that starts with `kind`; return it as stored."""
        time, secrets = message.time or self.clock(), get_environment_secrets()
        clean = {
            "parts": self._clean_parts(message.parts, secrets),
            "error": message.error and _clean_text(message.error, secrets),
            "model": message.model and _clean_text(message.model, secrets),
            "tool": message.tool and _clean_name(message.tool, secrets),
            "call_id": message.call_id and _clean_name(message.call_id, secrets),
        }
        stored = replace(message, id=self._new_id(kind), turn=self.turn, time=time, **clean)
        self.session = self._append(stored)
        return stored

    def edit(self, edits: tuple[Edit, ...]) -> None:
        """Store the edits of a compaction."""
        now = self.clock()
        self.session = self._append(*(replace(e, time=now) for e in edits))
        self._ids.update(e.id for e in edits)

    def add_user_message(
        self, text: str, *, kind: str = "", details: dict[str, Any] | None = None
    ) -> Message:
        """Store a user message; `kind` marks one that ctxkit writes in the user's place."""
        message = Message(role="user", kind=kind, parts=(Text(text),), details=details or {})
        return self.add(message, "u")

    @property
    def instructions(self) -> str:
        """The instructions that the session began with, as stored; empty if it began with a
        prompt.
        """
        first = next((e for e in self.session.path if isinstance(e, Message)), None)
        return first.text if first is not None and first.role == "system" else ""

    def instruct(self, text: str) -> Message | None:
        """Store the instructions that every prompt begins with; None if they are stored already.

        Raises:
            BadArguments: the session began with others, or with none.
        """
        if not self.session.log:
            self.turn = 0
            return self.add(Message(role="system", parts=(Text(text),)), "s")
        if _clean_text(text, get_environment_secrets()) == self.instructions:
            return None
        began = "other instructions" if self.instructions else "no instructions"
        raise BadArguments(
            f"The session began with {began}, and they stay: begin another one, or `%context"
            " reset`."
        )

    def store_failure(  # noqa: PLR0917  the fields of one reply
        self,
        model: str,
        why: str,
        stop: str = "error",
        text: str = "",
        window: int | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Message:
        """Store a reply that failed or was interrupted; it stays in the log and is never sent."""
        parts: tuple[Part, ...] = (Text(text),) if text else ()
        reply = Message(role="assistant", parts=parts, is_error=True, visible=False)
        fields = {"model": model, "stop": stop, "error": why, "context_window": window}
        return self.add(replace(reply, **fields, details=dict(details or {})), "a")

    def store_unrun(self, call: ToolCall, why: str = INTERRUPTED_RESULT) -> Message:
        """Store a result for a tool call that did not end, so that no call is without one."""
        parts, name = (Text(why),), call.name
        result = Message(role="tool", tool=name, call_id=call.id, parts=parts, is_error=True)
        return self.add(result, "r")

    # -- inside -----------------------------------------------------------------------------------

    def _new_id(self, kind: str) -> str:
        name = f"{kind}{len(self.session.log)}"
        while name in self._ids:
            name += "'"
        self._ids.add(name)
        return name

    def _clean_parts(self, parts: tuple[Part, ...], secrets: list[str]) -> tuple[Part, ...]:
        out: list[Part] = []
        for part in parts:
            if isinstance(part, Text):
                out.append(Text(_clean_text(part.text, secrets)))
            elif isinstance(part, Thinking):
                out.append(_clean_thinking(part, secrets))
            elif isinstance(part, ToolCall):
                out.append(self._clean_call(part, secrets))
            else:
                out.append(part)
        return tuple(out)

    def _clean_call(self, call: ToolCall, secrets: list[str]) -> ToolCall:
        """Return a redacted call with an id that is unique in the session."""
        model_id, n = _clean_name(call.id, secrets) or "call", 1
        call_id = model_id
        while call_id in self._call_ids:
            n += 1
            call_id = f"{model_id}_{n}"
        self._call_ids.add(call_id)
        arguments: dict[str, Any] = redact_json(_replace_surrogates(call.arguments), secrets)
        raw = None if call.raw is None else _clean_text(call.raw, secrets)
        name = _clean_name(call.name, secrets)
        return replace(call, id=call_id, name=name, arguments=arguments, raw=raw)


def _clean_thinking(part: Thinking, secrets: list[str]) -> Thinking:
    """Return thinking redacted; its signature is dropped if the text changed, as it no longer
    fits.
    """
    text = _clean_text(part.text, secrets)
    return part if text == part.text else Thinking(text)


def _clean_text(text: str, secrets: list[str]) -> str:
    """Return text redacted, and with lone surrogates replaced, which UTF-8 cannot hold."""
    return str(redact_json(_replace_surrogates(text), secrets))


def _clean_name(name: str, secrets: list[str]) -> str:
    """Return a redacted name in characters that providers accept in names and ids."""
    return _clean_text(name, secrets).replace(REDACTION_MARK, "redacted")


def _replace_surrogates(value: Any) -> Any:
    """Return a JSON value with lone surrogates replaced by question marks."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        if isinstance(value, dict):
            return {_replace_surrogates(k): _replace_surrogates(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [_replace_surrogates(v) for v in value]
    return value
