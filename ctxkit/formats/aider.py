"""aider's chat histories: Markdown with requests, answers, quoted output of the program, and lines
of usage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.formats.chat_messages import usage_from_total
from ctxkit.formats.fields import parse_timestamp
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Message, Text, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.source import Source
    from ctxkit.session.session import Session

NAME = "aider"
CAN = (
    "requests, answers, what the program said; tokens and money per request where the line stands"
    " (rounded)"
)
CANNOT = (
    "system prompt, repository map, file contents, the summaries of old history, which answer a"
    " failed edit caused"
)
BLIND = ("compactions", "tool errors")
TRAITS = (("all", "tokens and money are rounded by aider; $0.00 is missing"),)

_START = "# aider chat started at "
_SIGNS = (
    "\n> Tokens: ",
    "\n> $ aider",
    "\n> Applied edit to ",
    "\n> Commit ",
    " to the chat  \n",
    "\n> Aider v",
)
_TOKENS = re.compile(r"Tokens: ([\d.,]+[kM]?) sent")
_PIECES = {
    "write": re.compile(r"([\d.,]+[kM]?) cache write"),
    "read": re.compile(r"([\d.,]+[kM]?) (?:cache hit|cached)"),
    "output": re.compile(r"([\d.,]+[kM]?) received"),
}
_COST = re.compile(r"Cost: \$([\d.,]+) (?:request|message)")
_PAGE = re.compile(r"\s*</?div[^>]*>\s*$")


def sniff(source: Source) -> bool:
    """Say whether this is a chat history: its first heading, or requests and aider's own words."""
    start = source.data[: 1 << 16].decode("utf-8", "replace").replace("\r\n", "\n")
    if start.lstrip()[:1] in ("{", "["):
        return False
    return _START in start or ("\n#### " in start and any(s in start for s in _SIGNS))


def read(source: Source) -> list[Session]:
    """Return one session for each start of aider in the file (one for a page that shows none)."""
    sessions = []
    for n, (started, lines) in enumerate(_sessions(source.text)):
        chat = _Chat()
        for kind, said in _blocks(lines):
            chat.take(kind, said)
        if chat.log.entries or started is not None:
            sessions.append(
                chat.log.session(
                    id=f"{source.path.stem}/{n}",
                    format=NAME,
                    product="aider",
                    started=started,
                    model=chat.model,
                    skipped={"line of the page around it": chat.page} if chat.page else {},
                )
            )
    return sessions


def _sessions(all_text: str) -> Iterator[tuple[float | None, list[str]]]:
    started: float | None = None
    lines: list[str] = []
    for line in all_text.splitlines():
        if line.startswith(_START):
            yield started, lines
            started, lines = parse_timestamp(line[len(_START) :].strip()), []
        else:
            lines.append(line)
    yield started, lines


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield runs of lines (`request`, `output`, `answer`); a fence is answer, up to a request."""
    kind, run, fenced = "", list[str](), False
    for line in lines:
        if line.startswith("#### "):
            new, said, fenced = "request", line[5:].rstrip(), False
        elif line.startswith(">") and not fenced:
            new, said = "output", line[1:].removeprefix(" ").rstrip()
        else:
            new, said = "answer", line
            if line.startswith("```"):
                fenced = not fenced
            if not line.strip() and kind != "answer":
                if kind == "request":  # two requests with nothing between stay two
                    yield kind, run
                    kind, run = "", []
                continue
        if new != kind and run:
            yield kind, run
            run = []
        kind = new
        run.append(said)
    if run:
        yield kind, run


class _Chat:
    """Writes the blocks of a session as messages."""

    def __init__(self) -> None:
        self.log = SessionBuilder()
        self.model: str | None = None
        self.page = 0
        self._begun = False

    def take(self, kind: str, lines: list[str]) -> None:
        said = "\n".join(lines).strip()
        if kind == "request":
            self._begun = True
            command = said.startswith("/")
            self._add(
                Message(
                    role="user",
                    parts=(Text(said),),
                    kind="command" if command else "",
                    visible=not command,
                )
            )
        elif kind == "output":
            self._usage(said)
            self._add(Message(role="system", parts=(Text(said),), kind="output", visible=False))
        else:
            shown = [line for line in lines if not _PAGE.match(line)]
            self.page += len(lines) - len(shown)
            said = "\n".join(shown).strip()
            if not self._begun:  # the header of a published page
                self.page += len(shown)
            elif said:
                self._seen()
                self._add(Message(role="assistant", parts=(Text(said),)))

    def _seen(self) -> None:
        """Show the model output that an answer follows without a request: of a run, lint, test."""
        last = [e for e in self.log.entries[-2:] if isinstance(e, Message)]
        if (
            len(last) == 2
            and last[1].kind == "output"
            and (last[0].role == "assistant" or last[0].kind == "command")
        ):
            shown = replace(last[1], role="user", visible=True)
            self.log.replace(len(self.log.entries) - 1, shown)

    def _add(self, message: Message) -> None:
        self.log.add(replace(message, id=self.log.new_id()))

    def _usage(self, said: str) -> None:
        for line in said.split("\n"):
            if line.startswith(("Model: ", "Main model: ")) and self.model is None:
                self.model = line.split(": ", 1)[1].split(" with ")[0].strip()[:200] or None
            usage = parse_usage_line(line)
            if usage is not None:
                self._attach(usage)

    def _attach(self, usage: Usage) -> None:
        entries = self.log.entries
        for i in range(len(entries) - 1, max(len(entries) - 17, -1), -1):
            entry = entries[i]
            if isinstance(entry, Message) and entry.role == "assistant":
                if entry.usage is None:
                    self.log.replace(
                        i, replace(entry, usage=usage, details={"usage": "rounded by aider"})
                    )
                return


def parse_usage_line(line: str) -> Usage | None:
    """Return the usage in `Tokens: 5.2k sent, 604 received. Cost: ...` (rounded), or None."""
    sent = _TOKENS.search(line)
    if sent is None:
        return None
    found = {k: _count(m.group(1)) for k, p in _PIECES.items() if (m := p.search(line))}
    cost = _COST.search(line)
    read, write, output = (found.get(k) for k in ("read", "write", "output"))
    usd = _real(cost.group(1)) if cost else None
    return usage_from_total(_count(sent.group(1)), read, write, output, cost_usd=usd)


def _count(said: str) -> int | None:
    value = _real(said.rstrip("kM"))
    times = {"k": 1e3, "M": 1e6}.get(said[-1], 1.0)
    return None if value is None or value > 1e15 else round(value * times)


def _real(said: str) -> float | None:
    try:
        return float(said.replace(",", "").rstrip("."))
    except ValueError:
        return None
