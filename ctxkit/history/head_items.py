"""One message of a head: a row as it was said, a row that was changed, or a message that stands for
others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from ctxkit.history.columns import ROLE_CODES, SUMMARY, chars
from ctxkit.messages import Message, Sized, Text, ToolCall

if TYPE_CHECKING:
    from ctxkit.history.log import Log

_replace = msgspec.structs.replace


def _key(*content: object) -> int:
    """Return a number above 0 that fits a column."""
    return (hash(content) & 0x3FFF_FFFF_FFFF_FFFF) + 1


def _content(message: Message) -> bytes:
    """Return what a message says as bytes, equal for equal parts."""
    try:
        return msgspec.json.encode(message.parts)
    except (TypeError, ValueError, OverflowError):  # lone surrogates, odd arguments
        return repr(message.parts).encode("utf-8", "backslashreplace")


def content_key(message: Message) -> int:
    """Return a number above 0 that is equal for messages that say the same, whatever their ids."""
    parts = message.parts
    if len(parts) == 1 and type(parts[0]) is Text:
        return _key("text", parts[0].text)
    return _key(_content(message))


def content_at(row: int, content: int) -> int:
    """Return a number above 0 for what a row of the log says instead (row -1: no row does).

    The same text in the place of two results is sent twice differently: each names its own call.
    """
    return content if row < 0 else _key(row, content)


def with_text(message: Message, text: str) -> Message:
    """Return a message that says only a text, and keeps its tool calls."""
    calls = tuple([p for p in message.parts if isinstance(p, ToolCall)])
    return _replace(message, parts=(Text(text), *calls) if text else calls)


class Given(msgspec.Struct, frozen=True, gc=False):
    """A message as it is."""

    given: Message

    @property
    def content(self) -> int:
        """What it says, as `content_key` has it."""
        return content_key(self.given)

    @property
    def key(self) -> int:
        """Equal messages have equal keys, within one process: that is how a cached prefix is
        recognised.
        """
        return _key(self.given.id, _content(self.given))

    def message(self, _log: Log, _row: int) -> Message:
        """Return the message."""
        return self.given

    def role(self, _log: Log, _row: int) -> int:
        """Return the code of its role."""
        return ROLE_CODES[self.given.role]

    def chars(self) -> int:
        """Return its characters."""
        return chars(self.given)

    @property
    def pinned(self) -> bool:
        """True where no policy may remove it."""
        return self.given.pinned


class Placeholder(msgspec.Struct, frozen=True, gc=False):
    """A text in place of all that a row said; the message is made only when it is asked for."""

    text: str

    @property
    def key(self) -> int:
        """Equal texts have equal keys."""
        return _key("placeholder", self.text)

    @property
    def content(self) -> int:
        """What it says, as `content_key` has it."""
        return content_key(Message(role="tool", parts=(Text(self.text),)))

    def message(self, log: Log, row: int) -> Message:
        """Return the row's message with this text alone."""
        return renamed(_replace(log.messages[row], parts=(Text(self.text),)), log.messages[row].id)

    def role(self, log: Log, row: int) -> int:
        """Return the code of the row's role."""
        return log.roles[row]

    def chars(self) -> int:
        """Return the characters of the text."""
        return len(self.text)

    pinned = False


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """A summary of which only the size is known."""

    tokens: int
    call: int
    """The call before which it was made."""
    step: int = 0
    """Which verb of that call made it."""

    @property
    def id(self) -> str:
        """Its id as a message."""
        return f"summary@{self.call}" + (f".{self.step}" if self.step else "")

    @property
    def key(self) -> int:
        """Each is its own."""
        return _key("tokens", self.call, self.step, self.tokens)

    @property
    def content(self) -> int:
        """Each says something of its own."""
        return self.key

    def message(self, _log: Log, _row: int) -> Message:
        """Return a summary that holds a size instead of a text."""
        return Message(role="summary", id=self.id, parts=(Sized("summary", tokens=self.tokens),))

    def role(self, _log: Log, _row: int) -> int:
        """Return the code of `summary`."""
        return SUMMARY

    def chars(self) -> int:
        """Return four characters a token."""
        return 4 * self.tokens

    pinned = False


Maker = Given | Placeholder | Tokens


def renamed(message: Message, origin: str) -> Message:
    """Return a changed message under an id of its own: the origin's and a mark of the content."""
    mark = f"{crc32(_content(message)):08x}"
    return _replace(message, id=f"{origin}~{mark}")


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message of a head."""

    row: int
    """Its row in the log, changed or not; -1: it stands for others."""
    tokens: int
    estimate: int
    maker: Maker | None = None
    """None: the row stands as it was said."""
    stands: int = -1
    """The last row that it stands for, where it is none itself."""

    def message(self, log: Log) -> Message:
        """Return the message itself."""
        return log.messages[self.row] if self.maker is None else self.maker.message(log, self.row)

    def role(self, log: Log) -> int:
        """Return the code of its role."""
        return log.roles[self.row] if self.maker is None else self.maker.role(log, self.row)

    def stays(self, log: Log, call: int) -> bool:
        """Return True where no policy may remove it as of a call."""
        if self.row >= 0:
            return log.stays_in(self.row, call)
        return self.maker is not None and self.maker.pinned
