"""Notebooks with `%%agent` cells: what was asked, what each turn showed, and what it was billed.

Nothing of a notebook is run: cells and outputs are text.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from ctxkit.formats.chat_messages import count_skipped
from ctxkit.formats.fields import as_dict, as_list, as_str, catch_damage, str_or_none
from ctxkit.formats.session_builder import SessionBuilder
from ctxkit.session.messages import Edit, Message, SizeOnly, Text, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ctxkit.formats.source import Source
    from ctxkit.session.messages import Part
    from ctxkit.session.session import Session

NAME = "notebook"
ALIASES = ("ipynb", "jupyter")
CAN = (
    "requests, answers, calls of tools (arguments in short) and the sizes of their results; usage"
    " per turn (cache reads), window, compactions with their sizes; several sessions a notebook"
)
CANNOT = (
    "what tools answered, thinking, single calls, times, model, system prompt; a long turn's"
    " middle (the session's own log in .ctxkit has all of it)"
)
TRAITS = (("all", "usage is of a whole turn: the reply that ends it is of kind `turn`"),)
_AGENT = "%%agent"
_FIRST = "main"
_N = r"([\d,]{1,20})"
_CALL = re.compile(r"▸ ([^\s(]{1,200})\((.*)\)")
_RESULT = re.compile(rf"  → {_N} characters( failed)?")
_THOUGHT = re.compile(rf"· thought {_N} characters")
_CUT = re.compile(rf"✂ compacted {_N} → {_N} tokens")
_BY_HAND = re.compile(rf"Compacted \({_N} → {_N} tokens")
_BILL = re.compile(rf"{_N} calls? · {_N} fresh / {_N} cached[^·]{{0,60}} / {_N} out")
_WINDOW = re.compile(rf"context {_N}/{_N}")


def sniff(source: Source) -> bool:
    """Say whether this is a notebook with a cell that an agent was asked in."""
    document = as_dict(source.document)
    return "nbformat" in document and any(
        _source(cell).startswith(_AGENT) for cell in as_list(document.get("cells"))[:2000]
    )


def read(source: Source) -> list[Session]:
    """Return one session for each name that the cells ask for, in order of their first cell."""
    talks: dict[str, _Talk] = {}
    standing = _FIRST
    for n, cell in enumerate(as_list(as_dict(source.document).get("cells"))):
        said = _source(cell)
        if said.startswith(_AGENT):
            first, _, prompt = said.partition("\n")
            standing = _named(first) or standing
            talk = talks.setdefault(standing, _Talk())
            with catch_damage(talk.log.faults, n + 1, f"cell {n + 1}: "):
                talk.turn(prompt, cell)
        elif said.startswith("%compact") and standing in talks:
            talk = talks[standing]
            with catch_damage(talk.log.faults, n + 1, f"cell {n + 1}: "):
                talk.compacted(_shown(cell))
    return [talk.session(f"{source.path.stem}/{name}", name) for name, talk in talks.items()]


def _source(cell: Any) -> str:
    """The text of a code cell; empty for any other."""
    held = as_dict(cell)
    return _joined(held.get("source")).lstrip() if held.get("cell_type") == "code" else ""


def _joined(value: Any) -> str:
    return "".join(map(as_str, value)) if type(value) is list else as_str(value)


def _named(line: str) -> str | None:
    """The session that the line of a cell names with `--session`."""
    try:
        words = shlex.split(line[:2000])
    except ValueError:
        words = line[:2000].split()
    for before, after in zip(words, [*words[1:], ""], strict=True):
        if before == "--session":
            return after or None
        if before.startswith("--session="):
            return before.partition("=")[2] or None
    return None


def _shown(cell: Any) -> Iterator[str]:
    """What a cell's outputs say as text."""
    for output in map(as_dict, as_list(as_dict(cell).get("outputs"))):
        said = _joined(as_dict(output.get("data")).get("text/plain")) or _joined(output.get("text"))
        if said.strip():
            yield said


class _Talk:
    """A session while its cells go by."""

    def __init__(self) -> None:
        self.log = SessionBuilder()
        self._window: int | None = None
        self._words: list[str] = []
        self._thoughts: list[Part] = []
        self._asked: list[ToolCall] = []

    def turn(self, prompt: str, cell: Any) -> None:
        """Take a turn: what was asked, and what the cell showed of it."""
        asked = Text(prompt.strip("\n"))
        self.log.say("user", (asked,))
        shown = list(_shown(cell))
        bill = next((found for s in shown if (found := _BILL.match(s))), None)
        for said in shown:
            if not _BILL.match(said):
                for line in said.splitlines():
                    self._line(line)
        window = next((found for s in shown if (found := _WINDOW.search(s[:500]))), None)
        self._window = _number(window[2]) if window else self._window
        self._reply(usage=_usage(bill) if bill else None, kind="turn" if bill else "")

    def _line(self, line: str) -> None:
        if call := _CALL.fullmatch(line):
            own = self.log.new_id()
            self._asked.append(ToolCall(own, call[1], {}, call[2]))
            self._reply(call=self._asked[-1])
        elif result := _RESULT.fullmatch(line):
            answered = self._asked.pop(0) if self._asked else None
            self.log.say(
                "tool",
                (SizeOnly("result", chars=_number(result[1])),),
                call_id=answered.id if answered else None,
                tool=answered.name if answered else None,
                is_error=bool(result[2]),
            )
        elif thought := _THOUGHT.fullmatch(line):
            self._thoughts.append(SizeOnly("thinking", chars=_number(thought[1])))
        elif cut := _CUT.match(line):
            self._cut(cut)
        elif line.startswith(("· ", "! ", "… ", "[#", "[.")):
            count_skipped(self.log.skipped, "line of the display")
        else:
            self._words.append(line)

    def _reply(self, call: ToolCall | None = None, **told: Any) -> None:
        words, self._words = "\n".join(self._words).strip("\n"), []
        parts = [*self._thoughts, *([Text(words)] if words else []), *([call] if call else [])]
        self._thoughts = []
        if parts or told.get("usage"):
            own = self.log.new_id()
            self.log.add(Message(role="assistant", id=own, parts=tuple(parts), **told))

    def compacted(self, shown: Iterator[str]) -> None:
        """Take a compaction by hand."""
        for said in shown:
            if cut := _BY_HAND.match(said):
                self._cut(cut)

    def _cut(self, cut: re.Match[str]) -> None:
        self.log.add(
            Edit(
                kind="summarised",
                id=self.log.new_id(),
                method="compacted",
                tokens_before=_number(cut[1]),
                tokens_after=_number(cut[2]),
                reason="what it took is not in the notebook",
            )
        )

    def session(self, own: str, name: str) -> Session:
        """Return it as it was shown."""
        return self.log.session(
            id=own,
            format=NAME,
            product="ctxkit",
            title=str_or_none(name),
            context_window=self._window,
        )


def _usage(bill: re.Match[str]) -> Usage:
    return Usage(
        input_tokens=_number(bill[2]),
        cache_read_tokens=_number(bill[3]),
        output_tokens=_number(bill[4]),
    )


def _number(said: str) -> int:
    return int(said.replace(",", "") or "0")
