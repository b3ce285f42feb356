"""Reader of notebooks with `%%agent` cells: requests, displayed replies, calls, usage per turn."""

# Cells and outputs are read as text; nothing is executed.

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_message_and_usage_parsers import count_skipped
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    str_or_none,
)
from ctxkit.session.messages import Edit, Message, SizeOnly, Text, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.log_file_content import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

NAME = "notebook"
ALIASES = ("ipynb", "jupyter")
CAN = (
    "requests, answers, tool calls (shortened arguments) and the sizes of their results; usage "
    "per turn (cache reads), window, compactions with their sizes; several sessions per "
    "notebook"
)
CANNOT = (
    "tool results, thinking, single calls, times, model, system prompt; the middle of a long "
    "turn (all of it is in the session's own log in .ctxkit)"
)
TRAITS = (("all", "usage is of a whole turn: the reply that ends it is of kind `turn`"),)
# The display of a turn is text with a fixed form per line: calls, sizes of results and of thinking,
# compactions. All other lines are words of the reply. The last output of a cell is the bill of the
# turn, whose usage goes to the turn's last reply. Cells of one session may be anywhere in the
# notebook; `--session` names it and stays in force for later cells.
_AGENT_MAGIC = "%%agent"
_DEFAULT_SESSION = "main"
_NUMBER = r"([\d,]{1,20})"
_CALL_PATTERN = re.compile(r"▸ ([^\s(]{1,200})\((.*)\)")
_RESULT_PATTERN = re.compile(rf"  → {_NUMBER} characters( failed)?")
_THINKING_PATTERN = re.compile(rf"· thought {_NUMBER} characters")
_COMPACTION_PATTERN = re.compile(rf"✂ compacted {_NUMBER} → {_NUMBER} tokens")
_COMPACT_MAGIC_PATTERN = re.compile(rf"Compacted \({_NUMBER} → {_NUMBER} tokens")
_BILL_PATTERN = re.compile(
    rf"{_NUMBER} calls? · {_NUMBER} fresh / {_NUMBER} cached[^·]{{0,60}} / {_NUMBER} out"
)
_WINDOW_PATTERN = re.compile(rf"context {_NUMBER}/{_NUMBER}")


def sniff(source: Source) -> bool:
    """Return True for a notebook with an `%%agent` cell."""
    document = as_dict(source.document)
    return "nbformat" in document and any(
        _get_code(cell).startswith(_AGENT_MAGIC) for cell in as_list(document.get("cells"))[:2000]
    )


def read(source: Source) -> list[Session]:
    """Read one session per session name, in order of first cells."""
    readers: dict[str, _AgentSessionReader] = {}
    session_name = _DEFAULT_SESSION
    for number, cell in enumerate(as_list(as_dict(source.document).get("cells"))):
        source_text = _get_code(cell)
        if source_text.startswith(_AGENT_MAGIC):
            first_line, _, prompt = source_text.partition("\n")
            session_name = _parse_session_option(first_line) or session_name
            reader = readers.setdefault(session_name, _AgentSessionReader())
            with catch_damage(reader.builder.faults, number + 1, f"cell {number + 1}: "):
                reader.read_turn(prompt, cell)
        elif source_text.startswith("%compact") and session_name in readers:
            reader = readers[session_name]
            with catch_damage(reader.builder.faults, number + 1, f"cell {number + 1}: "):
                reader.read_compact_output(_iter_output_texts(cell))
    return [
        reader.build_session(f"{source.path.stem}/{name}", name) for name, reader in readers.items()
    ]


def _get_code(cell: Any) -> str:
    """Return the text of a code cell, or an empty string for other cells."""
    fields = as_dict(cell)
    return _join_lines(fields.get("source")).lstrip() if fields.get("cell_type") == "code" else ""


def _join_lines(value: Any) -> str:
    return "".join(map(as_str, value)) if type(value) is list else as_str(value)


def _parse_session_option(line: str) -> str | None:
    """Return the value of `--session` in the first line of a cell, or None."""
    try:
        words = shlex.split(line[:2000])
    except ValueError:
        words = line[:2000].split()
    for option, value in zip(words, [*words[1:], ""], strict=True):
        if option == "--session":
            return value or None
        if option.startswith("--session="):
            return option.partition("=")[2] or None
    return None


def _iter_output_texts(cell: Any) -> Iterator[str]:
    """Yield the texts of a cell's outputs."""
    for output in map(as_dict, as_list(as_dict(cell).get("outputs"))):
        text = _join_lines(as_dict(output.get("data")).get("text/plain")) or _join_lines(
            output.get("text")
        )
        if text.strip():
            yield text


class _AgentSessionReader:
    """Reader of one session, cell by cell."""

    def __init__(self) -> None:
        self.builder = SessionBuilder()
        self._window: int | None = None
        self._text_lines: list[str] = []
        self._thoughts: list[Part] = []
        self._open_calls: list[ToolCall] = []

    def read_turn(self, prompt: str, cell: Any) -> None:
        """Read a turn: the request, and the display of the turn."""
        request = Text(prompt.strip("\n"))
        self.builder.add_message("user", (request,))
        texts = list(_iter_output_texts(cell))
        bill_match = next(
            (match for text_of_output in texts if (match := _BILL_PATTERN.match(text_of_output))),
            None,
        )
        for text in texts:
            if not _BILL_PATTERN.match(text):
                for line in text.splitlines():
                    self._read_line(line)
        window_match = next(
            (
                match
                for text_of_output in texts
                if (match := _WINDOW_PATTERN.search(text_of_output[:500]))
            ),
            None,
        )
        self._window = _parse_count(window_match[2]) if window_match else self._window
        self._add_reply(
            usage=_parse_usage(bill_match) if bill_match else None,
            kind="turn" if bill_match else "",
        )

    def _read_line(self, line: str) -> None:
        if call_match := _CALL_PATTERN.fullmatch(line):
            call_id = self.builder.new_id()
            self._open_calls.append(ToolCall(call_id, call_match[1], {}, call_match[2]))
            self._add_reply(call=self._open_calls[-1])
        elif result_match := _RESULT_PATTERN.fullmatch(line):
            answered_call = self._open_calls.pop(0) if self._open_calls else None
            self.builder.add_message(
                "tool",
                (SizeOnly("result", chars=_parse_count(result_match[1])),),
                call_id=answered_call.id if answered_call else None,
                tool=answered_call.name if answered_call else None,
                is_error=bool(result_match[2]),
            )
        elif thought_match := _THINKING_PATTERN.fullmatch(line):
            self._thoughts.append(SizeOnly("thinking", chars=_parse_count(thought_match[1])))
        elif compaction_match := _COMPACTION_PATTERN.match(line):
            self._add_compaction(compaction_match)
        elif line.startswith(("· ", "! ", "… ", "[#", "[.")):
            count_skipped(self.builder.skipped, "line of the display")
        else:
            self._text_lines.append(line)

    def _add_reply(self, call: ToolCall | None = None, **fields: Any) -> None:
        text, self._text_lines = "\n".join(self._text_lines).strip("\n"), []
        parts = [*self._thoughts, *([Text(text)] if text else []), *([call] if call else [])]
        self._thoughts = []
        if parts or fields.get("usage"):
            message_id = self.builder.new_id()
            self.builder.add(Message(role="assistant", id=message_id, parts=tuple(parts), **fields))

    def read_compact_output(self, texts: Iterator[str]) -> None:
        """Read the output of `%compact`."""
        for text in texts:
            if match := _COMPACT_MAGIC_PATTERN.match(text):
                self._add_compaction(match)

    def _add_compaction(self, match: re.Match[str]) -> None:
        self.builder.add(
            Edit(
                kind="summarised",
                id=self.builder.new_id(),
                method="compacted",
                tokens_before=_parse_count(match[1]),
                tokens_after=_parse_count(match[2]),
                reason="what it took is not in the notebook",
            )
        )

    def build_session(self, session_id: str, name: str) -> Session:
        """Return the session."""
        return self.builder.session(
            id=session_id,
            format=NAME,
            product="ctxkit",
            title=str_or_none(name),
            context_window=self._window,
        )


def _parse_usage(match: re.Match[str]) -> Usage:
    return Usage(
        input_tokens=_parse_count(match[2]),
        cache_read_tokens=_parse_count(match[3]),
        output_tokens=_parse_count(match[4]),
    )


def _parse_count(text: str) -> int:
    return int(text.replace(",", "") or "0")
