"""Reading of a folder of raw API request and response bodies as sessions."""

# Claude Code writes such a folder with `OTEL_LOG_RAW_API_BODIES=file:DIR`: `UUID.request.json`,
# `REQUEST_ID.response.json`, and from 2.1.274 on a line for each response in `index.jsonl`.
# Requests are whole prompts, so system prompt, tool schemas and attachments are known. Transcripts
# of Claude Code that are in the folder are joined with them.

from __future__ import annotations

import json
import os
import re
from hashlib import blake2b
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.anthropic_compaction_and_clearing import make_raw_message_key
from ctxkit.formats.claude_code_attachments import REMINDER_PREFIX, SUMMARY_PREFIX, WRAPPER_PREFIXES
from ctxkit.formats.transcript_and_raw_body_join import join_transcript, mark_compactions
from ctxkit.formats.untrusted_record_parsing import (
    as_dict,
    as_list,
    as_str,
    parse_timestamp,
    str_or_none,
)
from ctxkit.session.messages import (
    ATTACHMENT_KEY,
    INJECTED_KIND,
    WHOLE_PROMPTS_KEY,
    Edit,
    Fault,
    Message,
    Text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ctxkit.formats.anthropic_compaction_and_clearing import AnthropicConversation
    from ctxkit.session.session import Session

# One file is open at a time: a conversation holds only its messages and the last request, so that
# memory does not grow with the number of files, each of which repeats the prompt before.
#   1. requests are assigned, in the order of their responses, to the threads of their session
#      (`_BodyThreads`): the main agent, its subagents, and side calls such as a title
#   2. the call that wrote a summary is no thread: it is the usage of the compaction that follows
#   3. what the program added to a prompt becomes messages of kind `injected`
#   4. a transcript of the same session gives times, kinds, compactions and titles
MAX_TRANSCRIPTS = 100
"""Largest number of transcripts that are joined; a fault says that there are more."""
_COMPACT_SOURCE = "compact"
_SESSION_ID = re.compile(r"session_([0-9A-Za-z-]{8,64})")
_BILLING_HEADER = "x-anthropic-billing-header"
"""Prefix of a system block that differs in each request."""
_VERSION = re.compile(r"\bcc_version=(\d+\.\d+\.\d+)")
_REMINDER = "reminder"
"""Name of an attachment of unknown kind."""


def read_raw_body_sessions(
    folder: Path,
    add_call_to_conversation: Callable[[AnthropicConversation, dict[str, Any]], None],
    open_conversation: Callable[[], AnthropicConversation],
    read_transcript: Callable[[Path], list[Session]],
) -> list[Session]:
    """Read a folder of bodies: a session for each session id, with its side calls as children.

    Args:
        folder: the folder.
        add_call_to_conversation: adds a request with its response to a conversation.
        open_conversation: makes an empty conversation of the format.
        read_transcript: reads a transcript that is in the folder.

    Raises:
        ReadError: no request of the folder can be read.
    """
    reading = _BodyReading(folder, add_call_to_conversation, open_conversation)
    for body in _list_requests(folder, reading.faults):
        reading.add(body)
    sessions = list(reading.build_sessions())
    if not sessions:
        raise ReadError("the folder holds no request body that can be read.", folder)
    transcripts = list(_read_transcripts(folder, read_transcript, reading.faults))
    sessions = [_join_first(session, transcripts) for session in sessions]
    sessions[0] = msgspec.structs.replace(
        sessions[0], faults=(*reading.faults, *sessions[0].faults)
    )
    return sessions


class _BodyReading:
    """The threads of a folder while its files are read one by one."""

    def __init__(
        self,
        folder: Path,
        read_call: Callable[[AnthropicConversation, dict[str, Any]], None],
        open_conversation: Callable[[], AnthropicConversation],
    ) -> None:
        self.folder, self._read_call = folder, read_call
        self.faults: list[Fault] = []
        self._threads = _BodyThreads(open_conversation)
        self._summaries: dict[str, list[Message]] = {}
        """Replies of the calls that wrote summaries, by session id."""
        self._versions: dict[str, str] = {}
        self._digests = set[tuple[bytes, str | None]]()
        """Digests of the requests with the ids of their responses; None: of any or none."""
        self._open_conversation = open_conversation

    def add(self, body: Any) -> None:
        """Add a request with its response to the thread that it continues."""
        request, digest = _read_body(self.folder / body.request, self.faults)
        if not as_list(request.get("messages")):
            return
        response = (
            _read_body(self.folder / body.response, self.faults).fields if body.response else {}
        )
        if self._is_copy(digest, str_or_none(response.get("id"))):
            self.faults.append(Fault(0, f"{body.request}: a copy of a body that was read before"))
            return
        session_id = body.session_id or _find_session_id(request) or self.folder.name
        self._note_version(session_id, request)
        request["system"] = _without_billing_header(request.get("system"))
        request["messages"] = _split_off_injected_texts(as_list(request["messages"]))
        record = {"request": request, "response": response, "endTime": body.time}
        if body.source == _COMPACT_SOURCE:
            self._add_summary(session_id, record)
            return
        thread = self._threads.choose(session_id, body.source, request)
        if thread is None:
            self.faults.append(Fault(0, f"{body.request}: {self._threads.refusal}"))
            return
        self._read_call(thread.conversation, record)
        thread.note_reply(response)

    def _is_copy(self, digest: bytes, response_id: str | None) -> bool:
        """Return whether a request was already read with this response (None: with any or none)."""
        is_copy = (digest, response_id) in self._digests
        self._digests |= {(digest, response_id), (digest, None)}
        return is_copy

    def _add_summary(self, session_id: str, record: dict[str, Any]) -> None:
        conversation = self._open_conversation()
        self._read_call(conversation, {**record, "request": {}})
        replies = [e for e in conversation.log.entries if type(e) is Message]
        self._summaries.setdefault(session_id, []).extend(replies)

    def _note_version(self, session_id: str, request: dict[str, Any]) -> None:
        system = request.get("system")
        for block in system[:2] if type(system) is list else ():
            text = as_str(as_dict(block).get("text"))
            match = _VERSION.search(text[:500]) if text.startswith(_BILLING_HEADER) else None
            if match:
                self._versions.setdefault(session_id, match[1])

    def build_sessions(self) -> Iterator[Session]:
        """Yield a session for each id: the main thread, the others as its children."""
        for session_id, group in self._threads.by_session.items():
            main = max(group, key=_rank_as_main)
            children = tuple(
                msgspec.structs.replace(
                    self._build(side, session_id, f"{session_id}/{side.source or 'side'}-{n}"),
                    parent=session_id,
                    agent=side.source or f"side-{n}",
                )
                for n, side in enumerate(group)
                if side is not main
            )
            yield msgspec.structs.replace(
                self._build(main, session_id, session_id), children=children
            )

    def _build(self, thread: _BodyThread, session_id: str, id_: str) -> Session:
        thread.conversation.close()
        session = thread.conversation.session(id_)
        version = self._versions.get(session_id)
        summaries = [] if id_ != session_id else self._summaries.get(session_id, [])
        log = mark_compactions(_mark_injected(session.log), summaries)
        return msgspec.structs.replace(
            session,
            log=tuple(log),
            path_=str(self.folder),
            product="claude-code" if version else None,
            version=version,
            details={**session.details, WHOLE_PROMPTS_KEY: True},
        )


def _rank_as_main(thread: _BodyThread) -> tuple[bool, int]:
    return not thread.source.startswith("agent:"), len(thread.conversation.log.entries)


def _read_transcripts(
    folder: Path, read_transcript: Callable[[Path], list[Session]], faults: list[Fault]
) -> Iterator[Session]:
    """Yield the transcripts in the folder; a file that cannot be read as one becomes a fault."""
    paths = sorted(p for p in folder.glob("*.jsonl") if p.name != INDEX and not p.is_symlink())
    for path in paths[:MAX_TRANSCRIPTS]:
        try:
            yield from read_transcript(path)
        except ReadError as e:
            faults.append(Fault(0, f"{path.name}: {e.why}"))
    if len(paths) > MAX_TRANSCRIPTS:
        faults.append(Fault(0, f"transcripts beyond the first {MAX_TRANSCRIPTS} were not read"))


def _join_first(session: Session, transcripts: Iterable[Session]) -> Session:
    same = next((t for t in transcripts if t.id == session.id), None)
    return session if same is None else join_transcript(session, same)


def _find_session_id(request: dict[str, Any]) -> str | None:
    """Return the session id in the metadata of a request."""
    user = as_dict(request.get("metadata")).get("user_id")
    match = (
        _SESSION_ID.search(user.replace('session_id":"', "session_")) if type(user) is str else None
    )
    return match[1] if match else None


def _without_billing_header(system: Any) -> Any:
    if type(system) is not list:
        return system
    return [b for b in system if not as_str(as_dict(b).get("text")).startswith(_BILLING_HEADER)]


def _mark_injected(log: Iterable[Message | Edit]) -> Iterator[Message | Edit]:
    """Yield the entries of a log, with kinds for the messages that the program wrote."""
    is_first = True
    for entry in log:
        if isinstance(entry, Edit):
            inserted = tuple(_mark_message(m, is_first=False) for m in entry.inserted)
            yield msgspec.structs.replace(entry, inserted=inserted) if inserted else entry
        else:
            yield _mark_message(entry, is_first=is_first)
            is_first = False


def _mark_message(message: Message, *, is_first: bool) -> Message:
    part = message.parts[0] if message.parts else None
    text = part.text if type(part) is Text else ""
    if message.role == "user" and text.startswith(WRAPPER_PREFIXES):
        return msgspec.structs.replace(message, kind="wrapper")
    is_reminder = message.role == "user" and text.startswith(REMINDER_PREFIX)
    if is_reminder or (message.role == "system" and not is_first):
        details = {**message.details, ATTACHMENT_KEY: _REMINDER}
        return msgspec.structs.replace(message, kind=INJECTED_KIND, details=details)
    return message


# A request continues the thread whose last request, with its reply, it repeats longest; both
# begin with the same head: what the program added to the prompt, and the first message after it.
# If no thread has that head:
#   - a subagent's request begins a thread, as several may run side by side with the same tools
#   - a request that begins with a summary, or shares a message, continues the thread before it:
#     it was compacted or trimmed
#   - where the index names no part of the program, anything else is a thread of its own
# A thread stores only digests of its messages, so that a comparison costs O(messages).
MAX_THREADS = 1_000
"""Largest number of conversations of a folder; requests that would begin more are left out."""
MAX_NEW_BYTES = 1_000_000_000
"""Bytes of messages, each counted once, that the requests of a folder may hold."""
_AGENT_SOURCE = "agent:"


class _BodyThread:
    """One conversation, and the digests of the messages that its next request should repeat."""

    def __init__(self, source: str, conversation: AnthropicConversation) -> None:
        self.source, self.conversation = source, conversation
        self.digests: list[bytes] = []

    def note_reply(self, response: dict[str, Any]) -> None:
        """Add the reply to what the next request should repeat."""
        if as_list(response.get("content")):
            self.digests.append(_digest(make_raw_message_key({"role": "assistant", **response}))[0])


class _BodyThreads:
    """The threads of a folder by session."""

    def __init__(self, open_conversation: Callable[[], AnthropicConversation]) -> None:
        self.by_session: dict[str, list[_BodyThread]] = {}
        self.refusal = ""
        """Why the last request had no thread."""
        self._open_conversation = open_conversation
        self._threads = self._new_bytes = 0

    def choose(self, session_id: str, source: str, request: dict[str, Any]) -> _BodyThread | None:
        """Return the thread of a request, a new one if need be, which notes the request's messages.

        None beyond the bounds on new bytes and threads; `refusal` says which.
        """
        messages = request["messages"]
        digests, sizes = [], []
        for raw in messages:
            digest, size = _digest(make_raw_message_key(raw))
            digests.append(digest)
            sizes.append(size)
        group = self.by_session.get(session_id, [])
        thread = _find_thread([t for t in group if t.source == source], digests, source, messages)
        n_common = _count_common(thread.digests, digests) if thread else 0
        if self._new_bytes + sum(sizes[n_common:]) > MAX_NEW_BYTES:
            self.refusal = f"the messages of the folder exceed {MAX_NEW_BYTES:,} bytes"
            return None
        if thread is None:
            if self._threads >= MAX_THREADS:
                self.refusal = f"a conversation beyond the first {MAX_THREADS:,}"
                return None
            self._threads += 1
            thread = _BodyThread(source, self._open_conversation())
            self.by_session.setdefault(session_id, []).append(thread)
        self._new_bytes += sum(sizes[n_common:])
        thread.digests = digests
        return thread


def _find_thread(
    threads: list[_BodyThread], digests: list[bytes], source: str, messages: list[Any]
) -> _BodyThread | None:
    """Return the thread that a request continues; None: it begins one."""
    is_agent = source.startswith(_AGENT_SOURCE)
    common = [(_count_common(t.digests, digests), t) for t in threads]
    n_common, best = max(common, key=lambda pair: pair[0], default=(0, None))
    if best is not None and n_common >= _count_head(messages):
        is_twin = is_agent and n_common == len(digests) < len(best.digests)
        return None if is_twin else best
    if not threads:
        return None
    if _begins_with_summary(messages):
        return threads[-1]
    if is_agent:
        return None
    request_digests = set(digests)
    sharing = [t for t in threads if not request_digests.isdisjoint(t.digests)]
    return sharing[-1] if sharing else threads[0] if source else None


def _count_head(messages: list[Any]) -> int:
    """Return the number of messages up to the first that the program did not add."""
    return 1 + next((i for i, m in enumerate(messages) if not _is_reminder(m)), 0)


def _is_reminder(raw: Any) -> bool:
    return _first_text(raw).startswith(REMINDER_PREFIX)


def _first_text(raw: Any) -> str:
    content = as_dict(raw).get("content")
    first = next(iter(as_list(content)), None)
    return content if type(content) is str else as_str(as_dict(first).get("text"))


def _count_common(old: list[bytes], new: list[bytes]) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))


def _digest(key: Any) -> tuple[bytes, int]:
    """Return a digest of a message's key, and the size of the key in bytes."""
    data = msgspec.json.encode(key)
    return blake2b(data, digest_size=16).digest(), len(data)


def _begins_with_summary(messages: list[Any]) -> bool:
    return bool(messages) and _first_text(messages[0]).startswith(SUMMARY_PREFIX)


def _split_off_injected_texts(messages: list[Any]) -> list[Any]:
    """Return the messages of a request, with the program's additions to user messages separate.

    Each block of text that begins like a reminder or a command's output is a message of its own.
    """
    return [piece for raw in messages for piece in _split_message(raw)]


def _split_message(raw: Any) -> Iterator[Any]:
    content = as_dict(raw).get("content")
    if as_dict(raw).get("role") != "user" or type(content) is not list or len(content) < 2:
        yield raw
        return
    together: list[Any] = []
    for block in content:
        if as_str(as_dict(block).get("text")).startswith((REMINDER_PREFIX, *WRAPPER_PREFIXES)):
            if together:
                yield {**raw, "content": together}
            together = []
            yield {**raw, "content": [block]}
        else:
            together.append(block)
    if together:
        yield {**raw, "content": together}


# 1. names and times are listed, and the index is read: which response answers which request
# 2. a request without a line in the index is answered by the response that was written next, before
#    the following request
MAX_FILES = 20_000
"""Largest number of files that are read; a fault counts further ones."""
MAX_BODY_BYTES = 64_000_000
"""Largest size of a body, in bytes, that is read."""
INDEX = "index.jsonl"
_MAX_INDEX_BYTES = 64_000_000
_REQUEST, _RESPONSE = ".request.json", ".response.json"
_SNIFFED_FILES = 256


class _RequestResponseFiles(NamedTuple):
    """A request file and its response."""

    request: str
    response: str | None
    time: float | None
    session_id: str | None
    source: str
    """The part of the program that sent the request, as the index names it."""


def has_raw_bodies(folder: Path) -> bool:
    """Return whether one of the first files of a folder is a request's body."""
    try:
        with os.scandir(folder) as entries:
            names = (entry.name for entry, _ in zip(entries, range(_SNIFFED_FILES), strict=False))
            return any(name.endswith(_REQUEST) for name in names)
    except OSError:
        return False


def _list_requests(folder: Path, faults: list[Fault]) -> list[_RequestResponseFiles]:
    """Return the requests in the order of their responses."""
    times: dict[str, float] = {}
    left_out = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((_REQUEST, _RESPONSE)) and entry.is_file(follow_symlinks=False):
                if len(times) < MAX_FILES:
                    times[entry.name] = entry.stat(follow_symlinks=False).st_mtime
                else:
                    left_out += 1
    if left_out:
        faults.append(Fault(0, f"{left_out} files beyond the first {MAX_FILES} were not read"))
    bodies: dict[str, _RequestResponseFiles] = {}
    for line in _read_index(folder / INDEX, faults):
        request, response = (
            _base_name(line.get(f"{part}_file")) for part in ("request", "response")
        )
        if request in bodies:
            continue
        if request not in times:
            faults.append(Fault(0, f"{request or 'a request'}: named in the index, not there"))
            continue
        if response not in times:
            faults.append(Fault(0, f"{response or 'a response'}: named in the index, not there"))
        time = parse_timestamp(line.get("timestamp")) or times[request]
        source, session_id = as_str(line.get("query_source")), str_or_none(line.get("session_id"))
        answer = response if response in times else None
        bodies[request] = _RequestResponseFiles(request, answer, time, session_id, source)
    bodies |= _pair_by_time(times, bodies, faults)
    return sorted(bodies.values(), key=lambda body: (body.time or 0.0, body.request))


def _pair_by_time(
    times: dict[str, float], linked: dict[str, _RequestResponseFiles], faults: list[Fault]
) -> dict[str, _RequestResponseFiles]:
    """Pair the requests and responses that the index does not name by the order of writing."""
    answers = {body.response for body in linked.values()}
    rest = [name for name in times if name not in linked and name not in answers]
    rest.sort(key=lambda name: (times[name], name.endswith(_RESPONSE), name))
    paired: dict[str, _RequestResponseFiles] = {}
    for name, following in zip_longest(rest, rest[1:], fillvalue=""):
        if name.endswith(_REQUEST):
            answer = following if following.endswith(_RESPONSE) else None
            time = times[answer or name]
            paired[name] = _RequestResponseFiles(name, answer, time, None, "")
            if answer is None:
                faults.append(Fault(0, f"{name}: no response was found"))
    used = {body.response for body in paired.values()}
    orphans = [name for name in rest if name.endswith(_RESPONSE) and name not in used]
    faults += [Fault(0, f"{name}: no request was found") for name in orphans]
    return paired


def _read_index(path: Path, faults: list[Fault]) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_INDEX_BYTES)
    except OSError:
        return
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield as_dict(json.loads(line))
        except (ValueError, RecursionError):
            faults.append(Fault(number, f"{INDEX}: the line is no whole JSON"))


class _BodyContent(NamedTuple):
    """The content of a file, and its digest."""

    fields: dict[str, Any]
    digest: bytes


def _read_body(path: Path, faults: list[Fault]) -> _BodyContent:
    """Return the object of a file; a damaged one becomes a fault and an empty object."""
    try:
        if path.stat().st_size > MAX_BODY_BYTES:
            faults.append(Fault(0, f"{path.name}: larger than {MAX_BODY_BYTES:,} bytes"))
            return _BodyContent({}, b"")
        data = path.read_bytes()
        return _BodyContent(
            as_dict(msgspec.json.decode(data)), blake2b(data, digest_size=16).digest()
        )
    except (OSError, msgspec.MsgspecError, RecursionError):
        faults.append(Fault(0, f"{path.name}: the body is no whole JSON"))
        return _BodyContent({}, b"")


def _base_name(value: Any) -> str:
    """Return the file name of a path in the index, which may be of another machine."""
    return as_str(value).replace("\\", "/").rsplit("/", 1)[-1]
