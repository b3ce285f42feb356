"""Cline and Roo Code: a task's folder with the API's messages and the window's, joined for the
usage of each call; or a session as Cline keeps it since 4.0 (`cline_sessions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.messages import Edit, Message
from ctxkit.readers.cline_requests import TaskRequest, requests, usages
from ctxkit.readers.cline_results import unwrapped
from ctxkit.readers.cline_sessions import is_session, is_session_folder, messages_of, read_session
from ctxkit.readers.damaged import noting
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import items, mapping, text, time, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.source import Source, beside
from ctxkit.session import Session

if TYPE_CHECKING:
    from pathlib import Path

NAME = "cline"
ALIASES = ("roo", "roo-code", "cline-roo")
CAN = (
    "text, thinking, calls and results (also those written as XML), times; usage per call (cache) "
    "and money where ui_messages.json lies beside, or in each reply (Cline from 4.0); summaries"
    " (Roo; Cline from 4.0: the latest), cut ranges (Cline before), subagents"
)
CANNOT = (
    "system prompt (but Cline's from 4.0), tool schemas; file contents that Cline shortened in"
    " requests (context_history.json); Cline's compactions before the latest"
)
TRAITS = (
    (
        "Cline",
        (
            "a cut is told by the range that the next request left out; tokensIn is what was not"
            " cached"
        ),
    ),
    ("Roo", "tokensIn holds the cached tokens where it is at least as large as they are"),
)
_TALK = "api_conversation_history.json"
_WINDOW = ("ui_messages.json", "claude_messages.json")
_MARKS = {"ts", "modelInfo", "metrics", "condenseParent", "isSummary", "truncationParent"}


def sniff(source: Source) -> bool:
    """Say whether this is a task's API history: Anthropic's messages with times or marks."""
    found = source.document
    if type(found) is not list or not found:
        return is_session(found)
    first = [mapping(m) for m in found[:4]]
    return all(m.get("role") in ("user", "assistant") and "content" in m for m in first) and any(
        _MARKS & m.keys() for m in first
    )


def read(source: Source) -> list[Session]:
    """Return a history's one task, with the window's messages from the file beside it, if any."""
    if is_session(source.document):
        return [read_session(source)]
    folder = source.path.parent
    name = folder.name if source.on_disk and source.path.name == _TALK else source.path.stem
    window = _window(folder) if source.on_disk and source.path.name == _TALK else []
    return [_Task(items(source.document), window).session(name)]


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is a task, with the history of the API, or a session."""
    return (path / _TALK).is_file() or is_session_folder(path)


def read_folder(path: Path) -> list[Session]:
    """Return the one task or session of a folder.

    Raises:
        ReadError: its history is no list.
    """
    if is_session_folder(path):
        return [read_session(Source(messages_of(path)))]
    found = Source(path / _TALK).document
    if type(found) is not list:
        raise ReadError("expected a list of messages in api_conversation_history.json.", path)
    return [replace(_Task(found, _window(path)).session(path.name), path_=str(path / _TALK))]


def _window(folder: Path) -> list[Any]:
    found = (beside(folder / name) for name in _WINDOW)
    return next((items(value) for value in found if value is not None), [])


class _Task:
    """A task while its messages go by."""

    def __init__(self, talk: list[Any], window: list[Any]) -> None:
        self.log = ReaderLog()
        self.asked: dict[str, str] = {}
        self._talk, self._requests = talk, requests(window)
        self._usages = usages(talk, self._requests)
        self._title = next((text(mapping(m).get("text")) for m in window[:1]), "")
        self._of: list[list[str]] = []
        """Ids of ours for each message of the API."""
        self._hidden: dict[str, list[str]] = {}
        """Ids of ours by the summary or marker that hides them."""
        self._cut = -1
        """Index of the last message of the API that a request left out."""

    def session(self, name: str) -> Session:
        """Return the task as a session."""
        for n, raw in enumerate(self._talk):
            self._of.append([])
            with noting(self.log.faults, 0, f"message {n}: "):
                self._take(n, mapping(raw))
        entries = self.log.entries
        model = next((e.model for e in entries if e.model), None)
        return Session(
            id=name,
            format=NAME,
            product="roo" if any(r.is_roo for r in self._requests) or self._hidden else "cline",
            log=tuple(entries),
            title=self._title[:200] or None,
            model=model,
            started=next((e.time for e in entries if e.time), None),
        )

    def _take(self, n: int, raw: dict[str, Any]) -> None:
        before = len(self.log.entries)
        request = self._usages.get(n)
        if request is not None:
            self._leave_out(request)
        more: dict[str, Any] = {"time": time(raw.get("ts"))}
        if raw.get("role") == "assistant":
            more |= self._about(raw, request)
        made = [
            m
            for m in to_messages(_plain(raw), self.log, self.log.skipped, **more)
            if m.parts or m.usage
        ]
        made = unwrapped(made, self.log, n)
        mark = word(raw.get("condenseId")) if raw.get("isSummary") is True else None
        if mark or raw.get("isTruncationMarker") is True:
            self._compact(mark or text(raw.get("truncationId")), made, summary=bool(mark))
        else:
            for m in named(made, self.asked):
                self.log.add(m)
        own = [
            m.id
            for e in self.log.entries[before:]
            for m in (e.inserted if isinstance(e, Edit) else (e,))
        ]
        self._of[n] = own
        for key in ("condenseParent", "truncationParent"):
            if type(raw.get(key)) is str:
                self._hidden.setdefault(raw[key], []).extend(own)

    @staticmethod
    def _about(raw: dict[str, Any], request: TaskRequest | None) -> dict[str, Any]:
        model = word(mapping(raw.get("modelInfo")).get("modelId"))
        if request is None:
            return {"model": model}
        told: dict[str, Any] = {"usage": request.usage, "model": model or request.model}
        if request.failed:
            told |= {"stop": request.failed, "is_error": request.failed == "error"}
        return told

    def _compact(self, mark: str, made: list[Message], *, summary: bool) -> None:
        """Compact as Roo does: a summary in place of what it hides, or a marker before the rest."""
        shown = set(self.log.shown) if self.log.may_edit() else set[str]()
        gone = tuple(i for i in self._hidden.get(mark, ()) if i in shown)
        when = made[0].time if made else None
        new = tuple(replace(m, role="summary") for m in made) if summary else tuple(made)
        kind = "condense" if summary else "truncation"
        edit = Edit(
            kind="summarised",
            id=self.log.new_id(),
            targets=gone,
            inserted=new,
            method=kind,
            time=when,
        )
        self.log.add(edit)

    def _leave_out(self, request: TaskRequest) -> None:
        """Cline's way: each request says which messages it leaves out, from one place on."""
        first, last = request.cut
        last = min(last, len(self._of) - 1)
        if last <= self._cut or first < 0 or not self.log.may_edit():
            return
        shown = set(self.log.shown)
        found = (i for ids in self._of[max(first, self._cut + 1) : last + 1] for i in ids)
        gone = tuple(i for i in found if i in shown)
        self._cut = last
        if gone:
            own = self.log.new_id()
            self.log.add(
                Edit(kind="dropped", id=own, targets=gone, method="truncation", time=request.time)
            )


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a message's own fields; a lone item of reasoning becomes the reply it is part of."""
    if raw.get("type") == "reasoning" and "content" not in raw:
        said = items(raw.get("summary")) or text(raw.get("text"))
        return {"role": "assistant", "content": [{"type": "reasoning", "summary": said}]}
    return {k: v for k, v in raw.items() if k in ("role", "content", "id", "reasoning_content")}
