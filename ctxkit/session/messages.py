"""Messages, their parts, usage, edits and faults: frozen values without behaviour.

Everything here is pure data. A `None` means that the log cannot say; it is never a zero. Arguments
and details are JSON, so nothing here is in a circle, and the collector of garbage looks at none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


EVENT_KINDS = frozenset({"api_error", "synthetic"})
"""Kinds of messages that the program wrote beside the talk: a refused call that was tried again, a
reply that it made up. They have the role `system`, are shown to no model and are no calls."""
LOST_KIND = "lost"
"""Kind of the message that stands for a beginning that is not in its file: a size, no text."""

SECTIONS_KEY = "sections"
"""Where `Message.details` names the sections that the parts of a message are: for each of them
`{"name": ..., "raw_chars": ...}`, the characters of what it was made from."""
INJECTED_KIND = "injected"
"""Kind of a message that was said in the user's place."""
HEARD, FRAME = FROM_OTHERS = "heard", "frame"
"""Kinds of what another agent said, in the user's place: its words; a tool call with its result."""
CORRECTION = "correction"
"""Kind of what a team says in the user's place against what an agent did."""
RECALLED_KIND = "memory"
"""Kind of a message that recalls what is no longer shown."""

APPROVAL_KEY, APPROVAL_DECISIONS = "approval", ("allowed", "refused")
"""Where `Message.details` of a result says what a person said to its call, and the words."""
SENT_ROLE_KEY = "said_by"
"""Where `Message.details` of a summary names the role that it is sent under, if not the user's."""
USER_VISIBLE_KEY = "user_visible"
"""Where `Message.details` says False of what the user is not shown (ai's `userVisible`)."""

Role = Literal["system", "user", "assistant", "tool", "summary"]
Provenance = Literal["recorded", "derived", "estimated"]


class Text(msgspec.Struct, frozen=True, tag="text", gc=False):
    """Plain text."""

    text: str


class Thinking(msgspec.Struct, frozen=True, tag="thinking", omit_defaults=True, gc=False):
    """Reasoning that the model wrote before its answer.

    `hidden` is the number of characters of an encrypted or signed blob that goes back to the
    provider unread. `redacted` thinking has no text: its `signature` holds all of it, sealed by the
    provider.
    """

    text: str
    signature: str | None = None
    hidden: int = 0
    redacted: bool = False


class Image(msgspec.Struct, frozen=True, tag="image", omit_defaults=True, gc=False):
    """An image or other attachment; `data` is base64, or empty where the log holds none."""

    media_type: str = "image/png"
    data: str = ""
    url: str | None = None
    kind: Literal["image", "audio", "document"] = "image"


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True, gc=False):
    """A model's request to run a tool.

    `arguments` is the JSON object; `raw` is the text as written where it is no JSON object.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    raw: str | None = None


class SizeOnly(msgspec.Struct, frozen=True, tag="sized", omit_defaults=True, gc=False):
    """Content of which a log gives only `chars` characters, or `tokens`, of the `kind` named."""

    kind: str
    chars: int | None = None
    tokens: int | None = None


Part = Text | Thinking | Image | ToolCall | SizeOnly


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one call was billed for, in tokens, by disjoint classes.

    `input_tokens` is the uncached part only; the whole prompt is `prompt_tokens`.
    `cache_write_tokens` holds writes that live five minutes (or whose life is not known),
    `cache_write_1h_tokens` those that live an hour. `reasoning_tokens` are part of `output_tokens`.
    `cost_usd` is what the log recorded, never computed here.
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
        """Size of the whole prompt: input, cache reads, cache writes; None without any."""
        fresh, read = self.input_tokens, self.cache_read_tokens
        write, long = self.cache_write_tokens, self.cache_write_1h_tokens
        if fresh is None and read is None and write is None and long is None:
            return None
        return (fresh or 0) + (read or 0) + (write or 0) + (long or 0)


class Message(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One item of the conversation. A tool result is a message of its own, with role `tool`.

    An assistant message is the reply of exactly one call, so `usage`, `model`, `stop` and `latency`
    describe that call.
    """

    role: Role
    """`summary` is what a compaction put in the place of older messages."""
    id: str = ""
    """Unique in the session; edits and branches point to it."""
    parts: tuple[Part, ...] = ()
    agent: str | None = None
    """Who wrote it, where a session has several agents."""
    turn: int | None = None
    """fuseraft's zero-based turn, where the log records one."""
    time: float | None = None
    """Seconds since 1970, UTC. For a reply: when it was written (its end)."""
    kind: str = ""
    """A finer word than the role: `wrapper`, `injected`, `bash`, `custom`, `developer`, ..."""
    tool: str | None = None
    """Name of the tool, for a tool result."""
    call_id: str | None = None
    """Id of the tool call that a tool result answers."""
    is_error: bool = False
    """A tool result that reports failure, or a call that failed."""
    error: str | None = None
    """What the provider or the tool said of the failure."""
    visible: bool = True
    """False where no model is sent it (for instance a command kept out of the context)."""
    pinned: bool = False
    """True where no policy may remove it."""
    pending: bool = False
    """True where an approval or an unfinished tool waits on it."""
    usage: Usage | None = None
    model: str | None = None
    stop: str | None = None
    """Why the reply ended: `stop`, `tool`, `length`, `error`, `aborted`, or a provider's word."""
    latency: float | None = None
    """Seconds that the call took."""
    context_window: int | None = None
    """The model's limit, where the log names it at this call."""
    details: dict[str, Any] = {}
    """What the format says beyond this, small and JSON; kept by the native format."""

    @property
    def text(self) -> str:
        """All readable text, thinking too, joined by newlines; no arguments of tools."""
        return "\n".join(p.text for p in self.parts if isinstance(p, (Text, Thinking)) and p.text)

    @property
    def sent_as(self) -> str:
        """The role that it is sent under: a summary is the user's, unless it says otherwise."""
        if self.role != "summary":
            return self.role
        return "assistant" if self.details.get(SENT_ROLE_KEY) == "assistant" else "user"

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of a reply, in order."""
        return tuple([p for p in self.parts if isinstance(p, ToolCall)])

    @property
    def thinks(self) -> bool:
        """True where it holds thinking."""
        return any(isinstance(p, Thinking) for p in self.parts)

    @property
    def sections(self) -> tuple[tuple[str, str, int], ...]:
        """Name, text and raw characters of each section that its parts are, if any."""
        told = self.details.get(SECTIONS_KEY)
        if not isinstance(told, list) or len(told) != len(self.parts):
            return ()
        pairs = [(t, p) for t, p in zip(told, self.parts, strict=True) if isinstance(t, dict)]
        if len(pairs) < len(told):
            return ()
        return tuple(
            (
                str(t.get("name", "")),
                p.text if isinstance(p, Text) else "",
                _count(t.get("raw_chars")),
            )
            for t, p in pairs
        )


def _count(value: object) -> int:
    """Return a number out of a log, where it is one."""
    return value if isinstance(value, int) and value > 0 else 0


ERROR = "error"
"""In the details of a summary, or of the edit that put something in its place: why a summariser
failed."""
EditKind = Literal["dropped", "shortened", "replaced", "summarised"]


class Edit(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """What a policy did to a history.

    `targets` are ids of messages that stood in the view. What came for them is in `inserted`:

    * `dropped`: nothing;
    * `shortened`, `replaced`: one message for each target, in the same order;
    * `summarised`: any number of messages, which stand where the first target stood (at the end
      without targets).
    """

    kind: EditKind
    id: str = ""
    targets: tuple[str, ...] = ()
    inserted: tuple[Message, ...] = ()
    reason: str = ""
    """Why these messages: for a person to read."""
    trigger: str | None = None
    """What made it due: `auto`, `manual`, `overflow`, `tokens`, ..."""
    method: str | None = None
    """How it was done: the policy's or the tool's own word."""
    agent: str | None = None
    time: float | None = None
    tokens_before: int | None = None
    """Size of the view before, in tokens."""
    tokens_after: int | None = None
    source: Provenance = "recorded"
    """Where the mark itself comes from: the log, or a rule that found it."""
    usage: Usage | None = None
    """What the summary call cost, where one was made and is known."""
    model: str | None = None
    details: dict[str, Any] = {}


def error_of(edits: Iterable[Edit]) -> str:
    """Return why the summaries failed in whose place a compaction put something else; empty: none
    failed.
    """
    return "; ".join(dict.fromkeys(str(e.details[ERROR]) for e in edits if ERROR in e.details))


class Fault(msgspec.Struct, frozen=True, gc=False):
    """A place that could not be read: its line from 1 (0: the file), and what was expected."""

    line: int
    why: str


class ToolSchema(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A tool offered to the model, as far as a log shows it; `chars` of its JSON."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    chars: int | None = None


def plain_text(message: Message) -> str:
    """Return the plain text parts, joined by newlines."""
    return "\n".join([p.text for p in message.parts if isinstance(p, Text)])
