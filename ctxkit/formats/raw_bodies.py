"""Reading of a folder of raw request and response bodies as one session.

Claude Code writes one with `OTEL_LOG_RAW_API_BODIES=file:DIR`: `UUID.request.json`,
`REQUEST_ID.response.json`, and from 2.1.274 on a line for each response in `index.jsonl`. Requests
are whole prompts, so system prompt and tool schemas are known.
"""

from __future__ import annotations

import json
import os
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ctxkit.errors import ReadError
from ctxkit.formats.fields import as_dict, as_list, as_str, parse_timestamp, str_or_none
from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ctxkit.formats.anthropic_compaction import AnthropicConversation
    from ctxkit.session.session import Session

# One file is open at a time: a conversation holds its messages and the last request alone, so that
# memory does not grow with the number of files, each of which repeats the prompt before.
#   1. names and times are listed, and the index is read: which response answers which request
#   2. a request without a line in the index is answered by the response that was written next,
#      before the following request
#   3. requests go in the order of their responses to conversations by session id and tools: a side
#      call (a title, a subagent) has other tools than the main agent, and becomes a child
MAX_FILES = 20_000
"""Files of a folder that are read; further ones are named in a fault."""
MAX_BODY_BYTES = 64_000_000
"""Bytes of the largest body that is read."""
_MAX_INDEX_BYTES = 64_000_000
_REQUEST, _RESPONSE, _INDEX = ".request.json", ".response.json", "index.jsonl"
_SESSION_ID = re.compile(r"session_([0-9A-Za-z-]{8,64})")
_BILLING_HEADER = "x-anthropic-billing-header"
"""Beginning of a system block that names the request and differs in each."""
_SNIFFED_FILES = 256


class _Body(NamedTuple):
    """A request file with what is known of its response."""

    request: str
    response: str | None
    time: float | None
    session_id: str | None
    source: str
    """The part of the program that asked, as the index names it."""


def has_raw_bodies(folder: Path) -> bool:
    """Return whether one of the first files of a folder is a request's body."""
    try:
        with os.scandir(folder) as entries:
            names = (entry.name for entry, _ in zip(entries, range(_SNIFFED_FILES), strict=False))
            return any(name.endswith(_REQUEST) for name in names)
    except OSError:
        return False


def read_raw_bodies(
    folder: Path,
    read_call: Callable[[AnthropicConversation, dict[str, Any]], None],
    open_conversation: Callable[[], AnthropicConversation],
) -> list[Session]:
    """Read a folder of bodies: a session for each session id, with its side calls as children.

    Args:
        folder: the folder.
        read_call: adds a request with its response to a conversation.
        open_conversation: makes an empty conversation of the format.

    Raises:
        ReadError: no request of the folder can be read.
    """
    faults: list[Fault] = []
    conversations: dict[tuple[str, str, tuple[str, ...]], AnthropicConversation] = {}
    for body in _list_bodies(folder, faults):
        request = _read_json(folder / body.request, faults)
        if not as_list(request.get("messages")):
            continue
        response = _read_json(folder / body.response, faults) if body.response else {}
        session_id = body.session_id or _find_session_id(request) or folder.name
        tools = tuple(sorted(as_str(as_dict(t).get("name")) for t in as_list(request.get("tools"))))
        key = session_id, body.source, tools
        conversation = conversations.get(key)
        if conversation is None:
            conversation = conversations[key] = open_conversation()
        request["system"] = _without_billing_header(request.get("system"))
        record = {"request": request, "response": response, "endTime": body.time}
        read_call(conversation, record)
    sessions = list(_build_sessions(conversations, folder))
    if not sessions:
        raise ReadError("the folder holds no request body that can be read.", folder)
    sessions[0] = msgspec.structs.replace(sessions[0], faults=(*faults, *sessions[0].faults))
    return sessions


def _list_bodies(folder: Path, faults: list[Fault]) -> list[_Body]:
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
    bodies: dict[str, _Body] = {}
    for line in _read_index(folder / _INDEX, faults):
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
        bodies[request] = _Body(request, answer, time, session_id, source)
    bodies |= _pair_by_time(times, bodies, faults)
    return sorted(bodies.values(), key=lambda body: (body.time or 0.0, body.request))


def _pair_by_time(
    times: dict[str, float], linked: dict[str, _Body], faults: list[Fault]
) -> dict[str, _Body]:
    """Pair the requests and responses that the index does not name by the order of writing."""
    answers = {body.response for body in linked.values()}
    rest = [name for name in times if name not in linked and name not in answers]
    rest.sort(key=lambda name: (times[name], name.endswith(_RESPONSE), name))
    paired: dict[str, _Body] = {}
    for name, following in zip_longest(rest, rest[1:], fillvalue=""):
        if name.endswith(_REQUEST):
            answer = following if following.endswith(_RESPONSE) else None
            time = times[answer or name]
            paired[name] = _Body(name, answer, time, None, "")
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
            faults.append(Fault(number, f"{_INDEX}: the line is no whole JSON"))


def _read_json(path: Path, faults: list[Fault]) -> dict[str, Any]:
    """Return the object of a file; a damaged one becomes a fault and an empty object."""
    try:
        if path.stat().st_size > MAX_BODY_BYTES:
            faults.append(Fault(0, f"{path.name}: larger than {MAX_BODY_BYTES:,} bytes"))
            return {}
        return as_dict(msgspec.json.decode(path.read_bytes()))
    except (OSError, msgspec.MsgspecError, RecursionError):
        faults.append(Fault(0, f"{path.name}: the body is no whole JSON"))
        return {}


def _base_name(value: Any) -> str:
    """Return the file name of a path in the index, which may be of another machine."""
    return as_str(value).replace("\\", "/").rsplit("/", 1)[-1]


def _find_session_id(request: dict[str, Any]) -> str | None:
    """Return the session id in the metadata of a request."""
    user = as_dict(request.get("metadata")).get("user_id")
    found = (
        _SESSION_ID.search(user.replace('session_id":"', "session_")) if type(user) is str else None
    )
    return found[1] if found else None


def _without_billing_header(system: Any) -> Any:
    if type(system) is not list:
        return system
    return [b for b in system if not as_str(as_dict(b).get("text")).startswith(_BILLING_HEADER)]


def _build_sessions(
    conversations: dict[tuple[str, str, tuple[str, ...]], AnthropicConversation], folder: Path
) -> Iterator[Session]:
    """Yield a session for each id: the conversation with most entries, the others as children."""
    by_id: dict[str, list[tuple[str, AnthropicConversation]]] = {}
    for (session_id, source, _), conversation in conversations.items():
        by_id.setdefault(session_id, []).append((source, conversation))
    for session_id, group in by_id.items():
        for _, conversation in group:
            conversation.close()
        main = max(group, key=lambda pair: len(pair[1].log.entries))
        children = tuple(
            msgspec.structs.replace(
                side.session(f"{session_id}/{source or 'side'}-{n}"),
                parent=session_id,
                agent=source or f"side-{n}",
            )
            for n, (source, side) in enumerate(group)
            if side is not main[1]
        )
        session = main[1].session(session_id)
        yield msgspec.structs.replace(
            session,
            children=children,
            path_=str(folder),
            details={**session.details, "whole_prompts": True},
        )
