"""Cline and Roo Code: task folders, sessions of Cline 4, XML tool calls, usage of requests."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.formats.chat_messages import (
    fill_tool_names,
    is_known_part,
    parse_chat_message,
    subtract_cached,
    usage_from_total,
)
from ctxkit.formats.fields import (
    as_dict,
    as_list,
    as_str,
    catch_damage,
    count_or_none,
    float_or_none,
    parse_timestamp,
    read_each_object,
    str_or_none,
    to_text,
)
from ctxkit.formats.session_builder import SessionBuilder, match_rewritten_history
from ctxkit.formats.source import Source, read_neighbour_json
from ctxkit.session.messages import Edit, Message, Text, ToolCall, Usage
from ctxkit.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ctxkit.session.messages import Part


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
_HISTORY_FILE = "api_conversation_history.json"
_UI_FILES = ("ui_messages.json", "claude_messages.json")
_CLINE_FIELDS = {"ts", "modelInfo", "metrics", "condenseParent", "isSummary", "truncationParent"}


def sniff(source: Source) -> bool:
    """Say whether this is a task's API history: Anthropic's messages with times or marks."""
    found = source.document
    if type(found) is not list or not found:
        return is_cline_session(found)
    first = [as_dict(m) for m in found[:4]]
    return all(m.get("role") in ("user", "assistant") and "content" in m for m in first) and any(
        _CLINE_FIELDS & m.keys() for m in first
    )


def read(source: Source) -> list[Session]:
    """Return a history's one task, with the window's messages from the file beside it, if any."""
    if is_cline_session(source.document):
        return [read_cline_session(source)]
    folder = source.path.parent
    name = folder.name if source.on_disk and source.path.name == _HISTORY_FILE else source.path.stem
    window = _window(folder) if source.on_disk and source.path.name == _HISTORY_FILE else []
    return [_Task(as_list(source.document), window).session(name)]


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is a task, with the history of the API, or a session."""
    return (path / _HISTORY_FILE).is_file() or is_cline_session_folder(path)


def read_folder(path: Path) -> list[Session]:
    """Return the one task or session of a folder.

    Raises:
        ReadError: its history is no list.
    """
    if is_cline_session_folder(path):
        return [read_cline_session(Source(get_messages_file(path)))]
    found = Source(path / _HISTORY_FILE).document
    if type(found) is not list:
        raise ReadError("expected a list of messages in api_conversation_history.json.", path)
    return [
        replace(_Task(found, _window(path)).session(path.name), path_=str(path / _HISTORY_FILE))
    ]


def _window(folder: Path) -> list[Any]:
    found = (read_neighbour_json(folder / name) for name in _UI_FILES)
    return next((as_list(value) for value in found if value is not None), [])


class _Task:
    """A task while its messages go by."""

    def __init__(self, talk: list[Any], window: list[Any]) -> None:
        self.log = SessionBuilder()
        self.asked: dict[str, str] = {}
        self._talk, self._requests = talk, parse_window_requests(window)
        self._usages = match_requests_to_replies(talk, self._requests)
        self._title = next((as_str(as_dict(m).get("text")) for m in window[:1]), "")
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
            with catch_damage(self.log.faults, 0, f"message {n}: "):
                self._take(n, as_dict(raw))
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
        more: dict[str, Any] = {"time": parse_timestamp(raw.get("ts"))}
        if raw.get("role") == "assistant":
            more |= self._about(raw, request)
        made = [
            m
            for m in parse_chat_message(
                _plain_task_message(raw), self.log, self.log.skipped, **more
            )
            if m.parts or m.usage
        ]
        made = unwrap_xml_results(made, self.log, n)
        mark = str_or_none(raw.get("condenseId")) if raw.get("isSummary") is True else None
        if mark or raw.get("isTruncationMarker") is True:
            self._compact(mark or as_str(raw.get("truncationId")), made, summary=bool(mark))
        else:
            for m in fill_tool_names(made, self.asked):
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
        model = str_or_none(as_dict(raw.get("modelInfo")).get("modelId"))
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


def _plain_task_message(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a message's own fields; a lone item of reasoning becomes the reply it is part of."""
    if raw.get("type") == "reasoning" and "content" not in raw:
        said = as_list(raw.get("summary")) or as_str(raw.get("text"))
        return {"role": "assistant", "content": [{"type": "reasoning", "summary": said}]}
    return {k: v for k, v in raw.items() if k in ("role", "content", "id", "reasoning_content")}


_ENDING = ".messages.json"
_AGENTS = ("lead", "subagent", "teammate")
_COMPACTION_KINDS = ("compaction", "compaction_summary")
_MAX_SUBAGENT_FILES = 200
"""Files of subagents that are read with a session, at most."""


def is_cline_session(document: Any) -> bool:
    """Say whether a document is the messages of a session, of its agent or a subagent."""
    about = as_dict(document)
    return (
        about.get("agent") in _AGENTS
        and type(about.get("messages")) is list
        and type(about.get("sessionId")) is str
    )


def get_messages_file(folder: Path) -> Path:
    """Return the file of the main agent's messages in the folder of a session."""
    return folder / (folder.name + _ENDING)


def is_cline_session_folder(path: Path) -> bool:
    """Say whether a folder is a session: it has the messages of its own name."""
    return get_messages_file(path).is_file()


def read_cline_session(source: Source) -> Session:
    """Return a file's session, with what its folder tells; the main agent's with its subagents."""
    about = as_dict(source.document)
    folder, stem = source.path.parent, source.path.name.removesuffix(_ENDING)
    if not source.on_disk or stem == source.path.name:
        return _session(about, {}, {}, source.path.stem)
    manifest, compaction = (
        read_neighbour_json(folder / f"{stem}{e}.json") for e in ("", ".compaction")
    )
    made = _session(about, as_dict(manifest), as_dict(compaction), stem)
    made = replace(made, path_=str(source.path))
    if about.get("agent") != "lead" or folder.name != stem:
        return made
    others = [p for p in sorted(folder.glob("*" + _ENDING)) if p != source.path][
        :_MAX_SUBAGENT_FILES
    ]
    return replace(made, children=tuple(_children(others, made)))


def _children(paths: Iterable[Path], parent: Session) -> Iterable[Session]:
    for path in paths:
        if not is_cline_session(found := read_neighbour_json(path)):
            continue
        below = _session(found, {}, {}, path.name.removesuffix(_ENDING))
        yield replace(below, parent=parent.id, path_=str(path))


def _session(
    about: dict[str, Any], manifest: dict[str, Any], compaction: dict[str, Any], stem: str
) -> Session:
    teller = _SessionReader(compaction)
    if said := str_or_none(about.get("system_prompt")):
        teller.first = {teller.log.new_id()}
        teller.log.add(Message(role="system", id=next(iter(teller.first)), parts=(Text(said),)))
    read_each_object(as_list(about.get("messages")), "message", teller.take, teller.log.faults)
    teller.compact_at_end()
    origin, entries = as_dict(about.get("origin")), teller.log.entries
    agent = str_or_none(origin.get("subagent")) or as_str(about.get("agent"))
    return Session(
        id=str_or_none(about.get("sessionId")) or stem,
        format="cline",
        product="cline",
        version=str_or_none(origin.get("version")),
        agent="main" if about.get("agent") == "lead" else agent,
        parent=str_or_none(origin.get("parentThreadId")),
        title=str_or_none(as_dict(manifest.get("metadata")).get("title")),
        cwd=str_or_none(manifest.get("cwd")),
        started=parse_timestamp(manifest.get("started_at"))
        or next((e.time for e in entries if e.time), None),
        model=next((e.model for e in entries if e.model), None)
        or str_or_none(manifest.get("model")),
        log=tuple(entries),
    )


class _SessionReader:
    """Takes all messages of a session; the file beside has what a compaction made of the first."""

    def __init__(self, compaction: dict[str, Any]) -> None:
        self.log, self.asked = SessionBuilder(), dict[str, str]()
        self.first = set[str]()
        """The id of the system message, which every request has."""
        self._state = compaction
        self._left = count_or_none(compaction.get("source_message_count")) if compaction else None
        """Messages until the compaction."""

    def take(self, raw: dict[str, Any]) -> None:
        """Take one message."""
        if self._left == 0:
            self._compact()
        self._left = None if self._left is None else self._left - 1
        about = as_dict(raw.get("metadata"))
        more: dict[str, Any] = {"time": parse_timestamp(raw.get("ts"))}
        if raw.get("role") == "assistant":
            used = _parse_metrics(as_dict(raw.get("metrics")))
            more |= {"usage": used, "model": str_or_none(as_dict(raw.get("modelInfo")).get("id"))}
        elif str_or_none(about.get("kind")) and about.get("displayRole") != "user":
            more["kind"] = "injected"
        made = fill_tool_names(
            parse_chat_message(_plain_session_message(raw), self.log, self.log.skipped, **more),
            self.asked,
        )
        if about.get("kind") in _COMPACTION_KINDS and made:  # what it stands for is in no file
            summary = replace(made[0], role="summary", kind="")
            own = self.log.new_id()
            self.log.add(
                Edit(kind="summarised", id=own, inserted=(summary,), method="compaction",
                     time=summary.time)
            )  # fmt: skip
            made = made[1:]
        for m in made:
            self.log.add(m)

    def compact_at_end(self) -> None:
        """Take a compaction that no message follows yet."""
        if self._left == 0:
            self._compact()

    def _compact(self) -> None:
        self._left = None
        raw = [as_dict(r) for r in as_list(self._state.get("messages"))]
        new = [
            m
            for r in raw
            for m in fill_tool_names(
                parse_chat_message(_plain_session_message(r), SessionBuilder(), self.log.skipped),
                self.asked,
            )
        ]
        if not new or not self.log.may_edit():
            return
        when = parse_timestamp(self._state.get("updated_at"))
        kept, inserted = match_rewritten_history(self.log, new, when)
        told = next(
            (a for r in raw if (a := as_dict(r.get("metadata"))).get("kind") in _COMPACTION_KINDS),
            {},
        )
        edit = Edit(
            kind="summarised",
            id=self.log.new_id(),
            inserted=tuple(inserted),
            trigger=str_or_none(told.get("reason")),
            method=str_or_none(told.get("kind")) or "compaction",
            time=when,
            tokens_before=count_or_none(told.get("tokensBefore")),
        )
        self.log.compact(edit, kept | self.first)


def _plain_session_message(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a message's own fields; results that are no parts become the JSON that was sent."""
    content = raw.get("content")
    if type(content) is list:
        content = [_result(b) if as_dict(b).get("type") == "tool_result" else b for b in content]
    return {"role": raw.get("role"), "content": content, "id": raw.get("id")}


def _result(block: dict[str, Any]) -> dict[str, Any]:
    held = block.get("content")
    if type(held) is list and not all(map(is_known_part, held)):
        return {**block, "content": to_text(held)}
    return block


def _parse_metrics(raw: dict[str, Any]) -> Usage | None:
    """What a reply was billed: the input holds what was read from the cache and written to it."""
    whole, output = count_or_none(raw.get("inputTokens")), count_or_none(raw.get("outputTokens"))
    read, write = (
        count_or_none(raw.get("cacheReadTokens")),
        count_or_none(raw.get("cacheWriteTokens")),
    )
    if not (whole or output or read or write):
        return None
    return usage_from_total(whole, read, write, output, cost_usd=float_or_none(raw.get("cost")))


_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """One request to the model, as the window shows it."""

    time: float | None
    usage: Usage | None
    model: str | None
    cut: tuple[int, int]
    """First and last message of the API that it left out; (-1, -1): none."""
    after: int | None
    """Index of the last message of the API before it, where it is told."""
    failed: str
    """`aborted`, `error` or empty."""
    is_roo: bool


def parse_window_requests(window: list[Any]) -> list[TaskRequest]:
    """Return the requests among the window's messages, in order."""
    out = []
    for raw in map(as_dict, window):
        if raw.get("say") != "api_req_started":
            continue
        try:
            told = as_dict(_decode(as_str(raw.get("text")) or "{}"))
        except (msgspec.DecodeError, ValueError, RecursionError):
            told = {}
        out.append(_request(raw, told))
    return out


def _request(raw: dict[str, Any], told: dict[str, Any]) -> TaskRequest:
    cut = [count_or_none(n) for n in as_list(raw.get("conversationHistoryDeletedRange"))]
    first, last = (cut[0], cut[1]) if len(cut) == 2 and None not in cut else (-1, -1)
    after = raw.get("conversationHistoryIndex")
    ended = as_str(told.get("cancelReason"))
    roo = "apiProtocol" in told
    return TaskRequest(
        time=parse_timestamp(raw.get("ts")),
        usage=_parse_request_usage(told, roo=roo),
        model=str_or_none(as_dict(raw.get("modelInfo")).get("modelId")),
        cut=(first if first is not None else -1, last if last is not None else -1),
        after=after if type(after) is int and -1 <= after < 1 << 32 else None,
        failed="" if not ended else "aborted" if ended == "user_cancelled" else "error",
        is_roo=roo,
    )


def _parse_request_usage(told: dict[str, Any], *, roo: bool) -> Usage | None:
    given, output = count_or_none(told.get("tokensIn")), count_or_none(told.get("tokensOut"))
    read, write = count_or_none(told.get("cacheReads")), count_or_none(told.get("cacheWrites"))
    cost = float_or_none(told.get("cost"))
    if given is None and output is None and cost is None:
        return None
    return Usage(
        input_tokens=subtract_cached(given, read, write) if roo else given,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_tokens=output,
        cost_usd=cost,
    )


def match_requests_to_replies(talk: list[Any], found: list[TaskRequest]) -> dict[int, TaskRequest]:
    """Return the request of each reply by the reply's index: by what it names, else by time, else
    by order.

    By order only where there are as many replies as requests: a request that failed may have no
    reply.
    """
    replies = [i for i, m in enumerate(talk) if as_dict(m).get("role") == "assistant"]
    if any(r.after is not None for r in found):
        known = set(replies)
        return {r.after + 2: r for r in found if r.after is not None and r.after + 2 in known}
    times = {
        i: when
        for i in replies
        if (when := parse_timestamp(as_dict(talk[i]).get("ts"))) is not None
    }
    if len(times) == len(replies) and all(r.time is not None for r in found):
        return _by_time(times, found)
    return dict(zip(replies, found, strict=True)) if len(replies) == len(found) else {}


def _by_time(times: dict[int, float], found: list[TaskRequest]) -> dict[int, TaskRequest]:
    out: dict[int, TaskRequest] = {}
    waiting = sorted(found, key=lambda r: r.time or 0.0)
    at = 0
    for i, when in sorted(times.items()):
        last = None
        while at < len(waiting) and (waiting[at].time or 0.0) <= when:
            last = waiting[at]
            at += 1
        if last is not None:
            out[i] = last
    return out


_XML_RESULT = re.compile(r"\[(\w{2,60})(?: for [^\n]{0,4000})?\] Result:\s*")
_OPENED, _CLOSED = re.compile(r"<(\w{1,60})>"), re.compile(r"</(\w{1,60})>")
_ENVIRONMENT = "<environment_details>"
_MAX_SEARCHED_CHARS = 1 << 20
"""Characters of a reply that are searched for a call."""


def unwrap_xml_results(made: list[Message], log: SessionBuilder, n: int) -> list[Message]:
    """Return messages with the result of an XML call as a result; the call is written into the
    reply before.

    Args:
        made: what one message of the API holds.
        log: what came before.
        n: index of the message, for the id of the call.
    """
    if len(made) != 1 or made[0].role != "user":
        return made
    (m,) = made
    found = _XML_RESULT.match(m.parts[0].text) if m.parts and isinstance(m.parts[0], Text) else None
    if found is None or not _write_xml_call(log, found[1], f"xml-{n}"):
        return made
    rest = m.parts[0].text[found.end() :] if isinstance(m.parts[0], Text) else ""
    parts: list[Part] = [*([Text(rest)] if rest else []), *m.parts[1:]]
    end = next(
        (i for i, p in enumerate(parts) if isinstance(p, Text) and p.text.startswith(_ENVIRONMENT)),
        len(parts),
    )
    said = tuple(parts[:end])
    wrong = (
        said[:1]
        and isinstance(said[0], Text)
        and said[0].text.startswith("The tool execution failed")
    )
    result = replace(
        m, role="tool", parts=said, tool=found[1], call_id=f"xml-{n}", is_error=bool(wrong)
    )
    if end == len(parts):
        return [result]
    return [result, replace(m, id=log.new_id(), parts=tuple(parts[end:]), kind="wrapper")]


def _write_xml_call(log: SessionBuilder, tool: str, own: str) -> bool:
    """Write the call into the reply that stands last, where it holds one; say whether it does."""
    at = log.at
    while at >= 0 and isinstance(log.entries[at], Edit):
        at -= 1
    reply = log.entries[at] if at >= 0 else None
    if not isinstance(reply, Message) or reply.role != "assistant":
        return False
    for i in range(len(reply.parts) - 1, -1, -1):
        part = reply.parts[i]
        if not isinstance(part, Text):
            continue
        said = part.text[-_MAX_SEARCHED_CHARS:]
        begin, end = said.find(f"<{tool}>"), said.rfind(f"</{tool}>")
        if begin < 0 or end < begin:
            continue
        inner = said[begin + len(tool) + 2 : end]
        call = ToolCall(own, tool, _parse_xml_arguments(inner))
        before = part.text[: len(part.text) - len(said) + begin].rstrip()
        parts = (*reply.parts[:i], *([Text(before)] if before else []), call, *reply.parts[i + 1 :])
        log.replace(at, replace(reply, parts=parts))
        return True
    return False


def _parse_xml_arguments(inner: str) -> dict[str, Any]:
    """Return what stands between marks, each up to the first that closes it; in linear time."""
    closed: dict[str, list[int]] = {}
    for found in _CLOSED.finditer(inner):
        closed.setdefault(found[1], []).append(found.start())
    out, at = dict[str, Any](), 0
    for found in _OPENED.finditer(inner):
        ends = closed.get(found[1], [])
        n = bisect_left(ends, found.end())
        if found.start() >= at and n < len(ends):
            out[found[1]] = inner[found.end() : ends[n]].strip("\n")
            at = ends[n]
    return out
