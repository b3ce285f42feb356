"""Pairing of the request and response files in a folder of raw bodies.

Claude Code writes such a folder with `OTEL_LOG_RAW_API_BODIES=file:DIR`: `UUID.request.json`,
`REQUEST_ID.response.json`, and from 2.1.274 on a line for each response in `index.jsonl`.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ctxkit.formats.untrusted_fields import as_dict, as_str, parse_timestamp, str_or_none
from ctxkit.session.messages import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


class RawBody(NamedTuple):
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


def list_bodies(folder: Path, faults: list[Fault]) -> list[RawBody]:
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
    bodies: dict[str, RawBody] = {}
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
        bodies[request] = RawBody(request, answer, time, session_id, source)
    bodies |= _pair_by_time(times, bodies, faults)
    return sorted(bodies.values(), key=lambda body: (body.time or 0.0, body.request))


def _pair_by_time(
    times: dict[str, float], linked: dict[str, RawBody], faults: list[Fault]
) -> dict[str, RawBody]:
    """Pair the requests and responses that the index does not name by the order of writing."""
    answers = {body.response for body in linked.values()}
    rest = [name for name in times if name not in linked and name not in answers]
    rest.sort(key=lambda name: (times[name], name.endswith(_RESPONSE), name))
    paired: dict[str, RawBody] = {}
    for name, following in zip_longest(rest, rest[1:], fillvalue=""):
        if name.endswith(_REQUEST):
            answer = following if following.endswith(_RESPONSE) else None
            time = times[answer or name]
            paired[name] = RawBody(name, answer, time, None, "")
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


class BodyContent(NamedTuple):
    """The content of a file, and its digest."""

    fields: dict[str, Any]
    digest: bytes


def read_body(path: Path, faults: list[Fault]) -> BodyContent:
    """Return the object of a file; a damaged one becomes a fault and an empty object."""
    try:
        if path.stat().st_size > MAX_BODY_BYTES:
            faults.append(Fault(0, f"{path.name}: larger than {MAX_BODY_BYTES:,} bytes"))
            return BodyContent({}, b"")
        data = path.read_bytes()
        return BodyContent(
            as_dict(msgspec.json.decode(data)), blake2b(data, digest_size=16).digest()
        )
    except (OSError, msgspec.MsgspecError, RecursionError):
        faults.append(Fault(0, f"{path.name}: the body is no whole JSON"))
        return BodyContent({}, b"")


def _base_name(value: Any) -> str:
    """Return the file name of a path in the index, which may be of another machine."""
    return as_str(value).replace("\\", "/").rsplit("/", 1)[-1]
