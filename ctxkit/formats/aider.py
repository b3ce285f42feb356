"""Reader of aider chat histories: Markdown with requests, answers, quoted output and usage."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.formats.chat_message_and_usage_parsers import make_usage_from_total
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import parse_timestamp
from ctxkit.session.messages import Message, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.session import Session

NAME = "aider"
CAN = "requests, answers, output of the program; tokens and cost per request if reported (rounded)"
CANNOT = (
    "system prompt, repository map, file contents, summaries of old history, the answer behind "
    "a failed edit"
)
BLIND = ("compactions", "tool errors")
TRAITS = (
    (
        "all",
        ("aider rounds tokens and cost; $0.00 is missing"),
    ),
)

# A file has a section per start of aider. Within it, lines form blocks: `#### ` is a request, `>`
# is output of the program (among it lines of usage), all else is an answer; a code fence keeps
# quoted lines within an answer. An answer after output without a request between means that the
# output (of a run, lint or test) was sent to the model, so that it becomes visible.
_SESSION_HEADING = "# aider chat started at "
_AIDER_LINES = (
    "\n> Tokens: ",
    "\n> $ aider",
    "\n> Applied edit to ",
    "\n> Commit ",
    " to the chat  \n",
    "\n> Aider v",
)
_SENT_PATTERN = re.compile(r"Tokens: ([\d.,]+[kM]?) sent")
_CLASS_PATTERNS = {
    "write": re.compile(r"([\d.,]+[kM]?) cache write"),
    "read": re.compile(r"([\d.,]+[kM]?) (?:cache hit|cached)"),
    "output": re.compile(r"([\d.,]+[kM]?) received"),
}
_COST_PATTERN = re.compile(r"Cost: \$([\d.,]+) (?:request|message)")
_HTML_LINE_PATTERN = re.compile(r"\s*</?div[^>]*>\s*$")


def sniff(source: Source) -> bool:
    """Return True for a chat history: its heading, or requests and lines that aider writes."""
    text_start = source.data[: 1 << 16].decode("utf-8", "replace").replace("\r\n", "\n")
    if text_start.lstrip()[:1] in ("{", "["):
        return False
    return _SESSION_HEADING in text_start or (
        "\n#### " in text_start and any(sign in text_start for sign in _AIDER_LINES)
    )


def read(source: Source) -> list[Session]:
    """Read one session per start of aider (one for a page that shows no start)."""
    sessions = []
    for number, (started, lines) in enumerate(_split_sessions(source.text)):
        chat = _ChatReader()
        for block_kind, block_lines in _split_blocks(lines):
            chat.read_block(block_kind, block_lines)
        if chat.builder.entries or started is not None:
            sessions.append(
                chat.builder.session(
                    id=f"{source.path.stem}/{number}",
                    format=NAME,
                    product="aider",
                    started=started,
                    model=chat.model,
                    skipped={"line of the page around it": chat.page_lines}
                    if chat.page_lines
                    else {},
                )
            )
    return sessions


def _split_sessions(all_text: str) -> Iterator[tuple[float | None, list[str]]]:
    started: float | None = None
    lines: list[str] = []
    for line in all_text.splitlines():
        if line.startswith(_SESSION_HEADING):
            yield started, lines
            started, lines = parse_timestamp(line[len(_SESSION_HEADING) :].strip()), []
        else:
            lines.append(line)
    yield started, lines


def _split_blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield blocks of lines as (`request`, `output` or `answer`, lines)."""
    block_kind, block, is_fenced = "", list[str](), False
    for line in lines:
        if line.startswith("#### "):
            new_kind, text, is_fenced = "request", line[5:].rstrip(), False
        elif line.startswith(">") and not is_fenced:
            new_kind, text = "output", line[1:].removeprefix(" ").rstrip()
        else:
            new_kind, text = "answer", line
            if line.startswith("```"):
                is_fenced = not is_fenced
            if not line.strip() and block_kind != "answer":
                if block_kind == "request":  # an empty line separates two requests
                    yield block_kind, block
                    block_kind, block = "", []
                continue
        if new_kind != block_kind and block:
            yield block_kind, block
            block = []
        block_kind = new_kind
        block.append(text)
    if block:
        yield block_kind, block


class _ChatReader:
    """Reader of one session, block by block."""

    def __init__(self) -> None:
        self.builder = SessionBuilder()
        self.model: str | None = None
        self.page_lines = 0
        self._has_request = False

    def read_block(self, block_kind: str, lines: list[str]) -> None:
        text = "\n".join(lines).strip()
        if block_kind == "request":
            self._has_request = True
            is_command = text.startswith("/")
            self._add_message(
                Message(
                    role="user",
                    parts=(Text(text),),
                    kind="command" if is_command else "",
                    visible=not is_command,
                )
            )
        elif block_kind == "output":
            self._read_usage(text)
            self._add_message(
                Message(role="system", parts=(Text(text),), kind="output", visible=False)
            )
        else:
            content_lines = [line for line in lines if not _HTML_LINE_PATTERN.match(line)]
            self.page_lines += len(lines) - len(content_lines)
            text = "\n".join(content_lines).strip()
            if not self._has_request:  # the header of a published page
                self.page_lines += len(content_lines)
            elif text:
                self._reveal_last_output()
                self._add_message(Message(role="assistant", parts=(Text(text),)))

    def _reveal_last_output(self) -> None:
        """Make the last output visible, if it came after a reply or command without a request."""
        last_two = [e for e in self.builder.entries[-2:] if isinstance(e, Message)]
        if (
            len(last_two) == 2
            and last_two[1].kind == "output"
            and (last_two[0].role == "assistant" or last_two[0].kind == "command")
        ):
            visible = replace(last_two[1], role="user", visible=True)
            self.builder.replace(len(self.builder.entries) - 1, visible)

    def _add_message(self, message: Message) -> None:
        self.builder.add(replace(message, id=self.builder.new_id()))

    def _read_usage(self, output: str) -> None:
        for line in output.split("\n"):
            if line.startswith(("Model: ", "Main model: ")) and self.model is None:
                self.model = line.split(": ", 1)[1].split(" with ")[0].strip()[:200] or None
            usage = parse_usage_line(line)
            if usage is not None:
                self._attach_usage(usage)

    def _attach_usage(self, usage: Usage) -> None:
        entries = self.builder.entries
        for i in range(len(entries) - 1, max(len(entries) - 17, -1), -1):
            entry = entries[i]
            if isinstance(entry, Message) and entry.role == "assistant":
                if entry.usage is None:
                    self.builder.replace(
                        i, replace(entry, usage=usage, details={"usage": "rounded by aider"})
                    )
                return


def parse_usage_line(line: str) -> Usage | None:
    """Parse the usage in `Tokens: 5.2k sent, 604 received. Cost: ...` (rounded), or return None."""
    sent = _SENT_PATTERN.search(line)
    if sent is None:
        return None
    counts = {
        token_class: _parse_count(match.group(1))
        for token_class, pattern in _CLASS_PATTERNS.items()
        if (match := pattern.search(line))
    }
    cost = _COST_PATTERN.search(line)
    cache_read, cache_write, output = (
        counts.get(token_class) for token_class in ("read", "write", "output")
    )
    cost_usd = _parse_number(cost.group(1)) if cost else None
    return make_usage_from_total(
        _parse_count(sent.group(1)), cache_read, cache_write, output, cost_usd=cost_usd
    )


def _parse_count(text: str) -> int | None:
    value = _parse_number(text.rstrip("kM"))
    factor = {"k": 1e3, "M": 1e6}.get(text[-1], 1.0)
    return None if value is None or value > 1e15 else round(value * factor)


def _parse_number(text: str) -> float | None:
    try:
        return float(text.replace(",", "").rstrip("."))
    except ValueError:
        return None
