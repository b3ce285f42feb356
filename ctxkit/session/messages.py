"""Messages, their parts, usage, edits and faults: frozen values without behaviour.

`None` means that the log does not say; it never means zero. Arguments and details are JSON, so no
value is in a reference cycle, and the garbage collector tracks none of them (`gc=False`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


COMPACTION_ATTEMPT_KIND = "compaction_attempt"
"""Kind of the event for a compaction that was due and changed nothing; its details say why."""
ATTEMPT_OUTCOMES = ("failed", "refused", "skipped")
"""Outcomes of such a compaction."""
EVENT_KINDS = frozenset({"api_error", "synthetic", COMPACTION_ATTEMPT_KIND})
"""Kinds of messages that the program wrote outside the conversation: a refused call that was tried
again, a reply of its own, or a compaction without an effect. They have the role `system`, are sent
to no model and are no calls.
"""
MISSING_START_KIND = "lost"
"""Kind of the message for a beginning that is missing in the file: it has a size and no text."""

SECTIONS_KEY = "sections"
"""Key of `Message.details` for the prompt sections of a message, one a part: each is
`{"name": ..., "raw_chars": ...}`, with the characters of the section before it was shortened.
"""
INJECTED_KIND = "injected"
"""Kind of a message that the program wrote in the role of the user."""
ATTACHMENT_KEY = "attachment"
"""Key of `Message.details` for content that the program added to the prompt (a memory file, a
list of skills): its kind by the program's own name. Such a message begins no turn.
"""
WHOLE_PROMPTS_KEY = "whole_prompts"
"""Key of `Session.details` that is True where the log has each prompt whole, tools included."""
CONTINUATION_KEY = "continues"
"""Key of `Message.details` that is True for the program's request to continue a reply that was
cut: it belongs to the turn of that reply.
"""
OTHER_AGENT_KIND, OTHER_AGENT_CALL_KIND = OTHER_AGENT_KINDS = "heard", "frame"
"""Kinds of another agent's messages in the role of the user: its text; a tool call with result."""
CORRECTION_KIND = "correction"
"""Kind of a team's message in the role of the user that corrects an agent."""
RECALLED_KIND = "memory"
"""Kind of a message that recalls earlier content which is no longer in the prompt."""

APPROVAL_KEY, APPROVAL_DECISIONS = "approval", ("allowed", "refused")
"""Key of the details of a tool result for a person's decision on its call, and the decisions."""
SENT_ROLE_KEY = "said_by"
"""Key of the details of a summary for the role under which it is sent, if not the user's."""
USER_VISIBLE_KEY = "user_visible"
"""Key of `Message.details` that is False where the user does not see it (ai's `userVisible`)."""

Role = Literal["system", "user", "assistant", "tool", "summary"]
Provenance = Literal["recorded", "derived", "estimated"]


class Text(msgspec.Struct, frozen=True, tag="text", gc=False):
    """Plain text.

    Example:
        >>> Text("Fix the test.").text
        'Fix the test.'
    """

    text: str


class Thinking(msgspec.Struct, frozen=True, tag="thinking", omit_defaults=True, gc=False):
    """Reasoning that the model wrote before its answer.

    `hidden` is the length, in characters, of an encrypted or signed blob that is sent back to the
    provider. `redacted` thinking has no text: its `signature` holds all of it, sealed by the
    provider.

    Example:
        >>> Thinking("The test fails first.", hidden=420).hidden
        420
    """

    text: str
    signature: str | None = None
    hidden: int = 0
    redacted: bool = False


class Attachment(msgspec.Struct, frozen=True, tag="image", omit_defaults=True, gc=False):
    """An image or other attachment; `data` is base64, or empty where the log holds none.

    Example:
        >>> from ctxkit.session import Attachment
        >>> Attachment("application/pdf", url="https://example.org/a.pdf", kind="document").kind
        'document'
    """

    media_type: str = "image/png"
    """MIME type."""
    data: str = ""
    url: str | None = None
    """Address of the content; None: it is in `data`, or nowhere."""
    kind: Literal["image", "audio", "document"] = "image"
    """`document` for any content that is neither an image nor audio."""


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True, gc=False):
    """A model's request to run a tool.

    `arguments` is the JSON object; `raw` is the text as written where it is no JSON object.

    Example:
        >>> ToolCall("call-1", "read_file", {"path": "src/a.py"}).arguments["path"]
        'src/a.py'
    """

    id: str
    """Id by which the result refers to it; empty where the log has none."""
    name: str
    """Name of the tool."""
    arguments: dict[str, Any] = {}
    raw: str | None = None


class SizeOnly(msgspec.Struct, frozen=True, tag="sized", omit_defaults=True, gc=False):
    """Content that the log does not hold, only its `kind` and its size in `chars` or `tokens`.

    Example:
        >>> SizeOnly("compaction", tokens=1_200)
        SizeOnly(kind='compaction', chars=None, tokens=1200)
    """

    kind: str
    chars: int | None = None
    tokens: int | None = None


Part = Text | Thinking | Attachment | ToolCall | SizeOnly

ABANDONED = "abandoned"
"""Stop reason of a billed reply that no later prompt holds: the user continued from before it."""
SEALED_SUMMARY = "sealed_summary"
"""Key in the `details` of an edit: a model wrote a summary whose text the log does not hold."""

# Token classes are disjoint, so that sums over them are sums of billed tokens: a token of the
# prompt is uncached input, a cache read or a cache write, never two of them. Readers convert the
# formats of providers that count cached tokens as part of the input.


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The billed tokens of one call, by disjoint classes.

    `input_tokens` is the uncached part only; the whole prompt is `prompt_tokens`.
    `cache_write_tokens` are writes that live five minutes (or whose lifetime is unknown),
    `cache_write_1h_tokens` those that live an hour. `reasoning_tokens` are part of `output_tokens`.
    `cost_usd` is what the log recorded, never computed here.

    Example:
        >>> import ctxkit as ck
        >>> ck.Usage(input_tokens=100, cache_read_tokens=900, output_tokens=50).prompt_tokens
        1000
    """

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the whole prompt: input, cache reads and writes; None where none is known."""
        uncached, read = self.input_tokens, self.cache_read_tokens
        short_write, hour_write = self.cache_write_tokens, self.cache_write_1h_tokens
        if uncached is None and read is None and short_write is None and hour_write is None:
            return None
        return (uncached or 0) + (read or 0) + (short_write or 0) + (hour_write or 0)


REPORTED_CONTEXT_KEY = "used"
"""Key of a reply's details for the tokens in the context, as an agent of another program reports
them.
"""


class Message(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One item of the conversation. A tool result is a message of its own, with role `tool`.

    An assistant message is the reply of exactly one call, so `usage`, `model`, `stop` and `latency`
    describe that call.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.session.messages import Text
        >>> ck.Message(role="user", parts=(Text("Hello"),)).text
        'Hello'
    """

    role: Role
    """`summary` is a message by which a compaction replaced older ones."""
    id: str = ""
    """Unique in the session; edits and branches point to it."""
    parts: tuple[Part, ...] = ()
    agent: str | None = None
    """The agent that wrote it, where a session has several."""
    turn: int | None = None
    """fuseraft's zero-based turn, where the log records one."""
    time: float | None = None
    """Seconds since 1970, UTC. For a reply: when it was written (its end)."""
    kind: str = ""
    """A subdivision of the role: `wrapper`, `injected`, `bash`, `custom`, `developer`, ..."""
    tool: str | None = None
    """Name of the tool, for a tool result."""
    call_id: str | None = None
    """Id of the tool call that a tool result answers."""
    is_error: bool | None = False
    """A tool result that reports failure, or a call that failed; None: the format cannot say."""
    error: str | None = None
    """The error text of the provider or the tool."""
    visible: bool = True
    """False where it is sent to no model (for instance a command outside of the context)."""
    pinned: bool = False
    """True where no policy may remove it."""
    pending: bool = False
    """True where an approval or an unfinished tool still refers to it."""
    usage: Usage | None = None
    model: str | None = None
    stop: str | None = None
    """Why the reply ended: `stop`, `tool`, `length`, `error`, `aborted`, or a provider's value."""
    latency: float | None = None
    """Seconds that the call took."""
    context_window: int | None = None
    """The model's context window in tokens, where the log has it at this call."""
    details: dict[str, Any] = {}
    """Further small JSON values of the format; the native format stores them."""

    @property
    def text(self) -> str:
        """All text and thinking, joined by newlines, without tool arguments."""
        texts = [p.text for p in self.parts if isinstance(p, (Text, Thinking)) and p.text]
        return texts[0] if len(texts) == 1 else "\n".join(texts)

    @property
    def prompt_tokens(self) -> int | None:
        """Recorded prompt tokens of a reply; None if unknown, as for usage of a whole turn.

        They are those of its own usage, else the context size that its program reported.
        """
        prompt = None if self.usage is None or self.kind == "turn" else self.usage.prompt_tokens
        if prompt or not self.details:
            return prompt
        reported = self.details.get(REPORTED_CONTEXT_KEY)
        return prompt or (reported if isinstance(reported, int) and reported > 0 else prompt)

    @property
    def sent_as(self) -> str:
        """The role under which it is sent; a summary's is `user` unless its details differ."""
        if self.role != "summary":
            return self.role
        return "assistant" if self.details.get(SENT_ROLE_KEY) == "assistant" else "user"

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of a reply, in order."""
        return tuple([p for p in self.parts if isinstance(p, ToolCall)])

    @property
    def thinks(self) -> bool:
        """True where it has thinking."""
        return Thinking in map(type, self.parts)

    @property
    def sections(self) -> tuple[tuple[str, str, int], ...]:
        """Name, text and raw characters of each prompt section (one per part); may be empty."""
        rows = self.details.get(SECTIONS_KEY)
        if not isinstance(rows, list) or len(rows) != len(self.parts):
            return ()
        if not all(isinstance(row, dict) for row in rows):
            return ()
        return tuple(
            (
                str(row.get("name", "")),
                part.text if isinstance(part, Text) else "",
                _positive_or_zero(row.get("raw_chars")),
            )
            for row, part in zip(rows, self.parts, strict=True)
        )


def _positive_or_zero(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def is_sealed_summary(message: Message) -> bool:
    """Return whether a provider encrypted a summary, so that its tokens are unknown.

    The length of an encrypted text says nothing about the size of its content.
    """
    return message.role == "summary" and any(
        isinstance(p, SizeOnly) and p.tokens is None for p in message.parts
    )


SUMMARY_ERROR_KEY = "error"
"""Key of the details of a summary, or of the edit in its place, for why a summariser failed."""
RECORD_CHARS_KEY = "record_chars"
"""Key of the details of a summary for the number of its first characters that were derived from
the record; a model wrote the rest, which alone is billed.
"""
EditKind = Literal["dropped", "shortened", "replaced", "summarised"]


class Edit(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """A change of the prompt by a policy: messages removed, shortened, replaced or summarised.

    `targets` are ids of visible messages. `inserted` are the messages that replace them:

    * `dropped`: none;
    * `shortened`, `replaced`: one for each target, in the same order;
    * `summarised`: any number, at the place of the first target (at the end without targets).

    Example:
        >>> import ctxkit as ck
        >>> ck.Edit(kind="dropped", targets=("m1", "m2"), reason="the older half").targets
        ('m1', 'm2')
    """

    kind: EditKind
    id: str = ""
    """Unique in the session."""
    targets: tuple[str, ...] = ()
    inserted: tuple[Message, ...] = ()
    reason: str = ""
    """Why these messages, as a phrase for a person to read."""
    trigger: str | None = None
    """Cause of the compaction: `auto`, `manual`, `overflow`, `tokens`, ..."""
    method: str | None = None
    """The method by its own name in the policy or tool."""
    agent: str | None = None
    """The agent whose prompt changed; None: the session's."""
    time: float | None = None
    """Seconds since 1970, UTC."""
    tokens_before: int | None = None
    """Tokens of the prompt before."""
    tokens_after: int | None = None
    """Tokens of the prompt after."""
    source: Provenance = "recorded"
    """Whether the log has the edit (`recorded`), or a rule derived it."""
    usage: Usage | None = None
    """Usage of the summary call, where one was made and is known."""
    model: str | None = None
    """The model that wrote the summary."""
    details: dict[str, Any] = {}
    """Further small JSON values, such as the error of a summary."""


def join_summary_errors(edits: Iterable[Edit]) -> str:
    """Return why the summaries of some edits failed, joined; empty where none did."""
    return "; ".join(
        dict.fromkeys(
            str(e.details[SUMMARY_ERROR_KEY]) for e in edits if SUMMARY_ERROR_KEY in e.details
        )
    )


class Fault(msgspec.Struct, frozen=True, gc=False):
    """A place that could not be read: its line from 1 (0: the file), and what was expected.

    Example:
        >>> Fault(12, "expected a JSON object")
        Fault(line=12, why='expected a JSON object')
    """

    line: int
    why: str


class ToolSchema(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A tool offered to the model, as far as a log has it; `chars` is the length of its JSON.

    Example:
        >>> ToolSchema(name="read_file", parameters={"type": "object"}, chars=310).chars
        310
    """

    name: str
    """Name of the tool."""
    description: str = ""
    """Description that the model reads."""
    parameters: dict[str, Any] = {}
    """JSON schema of its arguments."""
    chars: int | None = None


def get_plain_text(message: Message) -> str:
    """Return the plain text parts of a message, joined by newlines, without thinking.

    Args:
        message: any message; calls, images and reasoning in it are left out.

    Returns:
        The text, `""` where the message has no text part.

    Example:
        >>> from ctxkit.session import Message, Text
        >>> parts = (Text("Read the log."), Text("Then answer."))
        >>> get_plain_text(Message(role="user", parts=parts)).splitlines()
        ['Read the log.', 'Then answer.']
    """
    return "\n".join([p.text for p in message.parts if isinstance(p, Text)])
