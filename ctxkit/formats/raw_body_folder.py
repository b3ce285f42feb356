"""Reading of a folder of raw request and response bodies as sessions.

Requests are whole prompts, so system prompt, tool schemas and attachments are known. Transcripts of
Claude Code that are in the folder are joined with them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.claude_code_texts import REMINDER_PREFIX, WRAPPER_PREFIXES
from ctxkit.formats.raw_body_files import INDEX, list_bodies, read_body
from ctxkit.formats.request_body_threads import BodyThreads, split_request_messages
from ctxkit.formats.transcript_join import join_transcript, mark_compactions
from ctxkit.formats.untrusted_fields import as_dict, as_list, as_str, str_or_none
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

    from ctxkit.formats.anthropic_compaction import AnthropicConversation
    from ctxkit.formats.request_body_threads import BodyThread
    from ctxkit.session.session import Session

# One file is open at a time: a conversation holds only its messages and the last request, so that
# memory does not grow with the number of files, each of which repeats the prompt before.
#   1. requests are assigned, in the order of their responses, to the threads of their session
#      (`request_body_threads.py`): the main agent, its subagents, and side calls such as a title
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


def read_raw_bodies(
    folder: Path,
    read_call: Callable[[AnthropicConversation, dict[str, Any]], None],
    open_conversation: Callable[[], AnthropicConversation],
    read_transcript: Callable[[Path], list[Session]],
) -> list[Session]:
    """Read a folder of bodies: a session for each session id, with its side calls as children.

    Args:
        folder: the folder.
        read_call: adds a request with its response to a conversation.
        open_conversation: makes an empty conversation of the format.
        read_transcript: reads a transcript that is in the folder.

    Raises:
        ReadError: no request of the folder can be read.
    """
    reading = _BodyReading(folder, read_call, open_conversation)
    for body in list_bodies(folder, reading.faults):
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
        self._threads = BodyThreads(open_conversation)
        self._summaries: dict[str, list[Message]] = {}
        """Replies of the calls that wrote summaries, by session id."""
        self._versions: dict[str, str] = {}
        self._digests = set[tuple[bytes, str | None]]()
        """Digests of the requests with the ids of their responses; None: of any or none."""
        self._open_conversation = open_conversation

    def add(self, body: Any) -> None:
        """Add a request with its response to the thread that it continues."""
        request, digest = read_body(self.folder / body.request, self.faults)
        if not as_list(request.get("messages")):
            return
        response = (
            read_body(self.folder / body.response, self.faults).fields if body.response else {}
        )
        if self._is_copy(digest, str_or_none(response.get("id"))):
            self.faults.append(Fault(0, f"{body.request}: a copy of a body that was read before"))
            return
        session_id = body.session_id or _find_session_id(request) or self.folder.name
        self._note_version(session_id, request)
        request["system"] = _without_billing_header(request.get("system"))
        request["messages"] = split_request_messages(as_list(request["messages"]))
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
        self._summaries.setdefault(session_id, []).extend(replies[-1:])

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

    def _build(self, thread: BodyThread, session_id: str, id_: str) -> Session:
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


def _rank_as_main(thread: BodyThread) -> tuple[bool, int]:
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
