"""OpenHands: evaluation outputs and trajectories (V0), conversations of one file an event (V1),
logs of completions.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.errors import ReadError
from ctxkit.messages import Fault, Message
from ctxkit.readers.damaged import noting
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import items, mapping, number, real, text, time, word
from ctxkit.readers.growing_logs import Threads, said
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.openhands_events import is_event, read_events
from ctxkit.readers.openhands_histories import is_history, is_run, read_history
from ctxkit.readers.source import Source, object_in
from ctxkit.readers.usages import to_schemas, to_stop, to_usage
from ctxkit.session import Session

if TYPE_CHECKING:
    from pathlib import Path

NAME = "openhands"
CAN = (
    "text, system prompt, tools, calls and results, condensations; usage per call (outputs,"
    " completion logs), latency"
)
CANNOT = (
    "usage of a V1 conversation without its base_state; time zone of V0 without a completion"
    " beside it"
)
TRAITS = (
    (
        "all",
        (
            "a failed command is told by its exit code, beside errors; money of completion logs is"
            " their own"
        ),
    ),
)
_LOGGED = re.compile(r".*-\d{9,}(\.\d+)?\.json$")
_FILES = 20_000


def sniff(source: Source) -> bool:
    """Say whether this is an output, a trajectory, an event or a completion log."""
    document = source.document
    if type(document) is list:
        return is_history(document) or bool(document and is_event(document[0]))
    if (
        is_event(document)
        or _is_completion(document)
        or is_history(mapping(document).get("trajectory"))
    ):
        return True
    if len(source.head) > 1 and all(is_event(r) for r in source.head[:4]):
        return True
    return any(is_run(r) or _is_newer(r) for r in source.head[:1])


def read(source: Source) -> list[Session]:
    """Return one session a run; an event reads as one message, a completion as one call."""
    document = source.document
    if type(document) is list:
        if is_history(document):
            return [read_history({"history": document}, source.path.stem)]
        return [read_events(document, {}, source.path.stem, [])]
    if is_event(document):
        return [read_events([document], {}, source.path.stem, [])]
    if type(document) is dict and is_history(document.get("trajectory")):
        return [read_history({"history": document["trajectory"]}, source.path.stem)]
    if document is None and all(is_event(r) for r in source.head[:4]):
        return [
            read_events([r for _, r in source.records], {}, source.path.stem, list(source.faults))
        ]
    if _is_completion(document):
        return [_completions([(source.path.name, document)], source.path.stem, [])]
    out, faults = list[Session](), list(source.faults)
    for line, record in source.records:
        if is_run(record):
            out.append(read_history(record, f"{source.path.stem}/{line}"))
        elif _is_newer(record):
            out.append(_newer(record, f"{source.path.stem}/{line}"))
        else:
            faults.append(Fault(line, "expected a run with a 'history'"))
    if out:
        out[0] = replace(out[0], faults=(*faults, *out[0].faults))
    return out


def _is_newer(record: Any) -> bool:
    """Say whether a record is a V1 evaluation's run: its history is of events with a kind."""
    history = items(mapping(record).get("history"))
    return "instance_id" in mapping(record) and bool(history) and is_event(history[0])


def _newer(record: dict[str, Any], name: str) -> Session:
    own = text(record.get("instance_id")) or name
    return read_events(items(record.get("history")), {}, own, [])


def sniff_folder(path: Path) -> bool:
    """Say whether a folder is one conversation: events (or `events/`), or completion logs only."""
    try:
        if _numbered(path):
            return is_history([Source(_numbered(path)[0]).document])
        first = next(_events(path).glob("event-*.json"), None)
        names = os.listdir(path)[:_FILES]  # noqa: PTH208  a folder may have many, paths take longer
        if first is None and (len(names) < 2 or not all(map(_LOGGED.match, names))):
            return False
        document = Source(first or path / names[0]).document
    except (OSError, ReadError):
        return False
    return is_event(document) if first else _is_completion(document)


def read_folder(path: Path) -> list[Session]:
    """Return the one session of a conversation folder, or of completion logs in order of time."""
    faults: list[Fault] = []
    numbered = _numbered(path)
    name = path.parent.name if path.name == "events" else path.name
    if numbered:
        made = read_history({"history": [object_in(f, faults) for f in numbered]}, name)
        return [replace(made, faults=(*made.faults, *faults))]
    files = sorted(_events(path).glob("event-*.json"))
    if files:
        base = path if (path / "base_state.json").is_file() else path.parent
        held = base / "base_state.json"
        state = object_in(held, []) if held.is_file() else {}
        events = [object_in(f, faults) for f in files]
        return [read_events(events, state, text(state.get("id")) or name, faults)]
    found = [(f.name, object_in(f, faults)) for f in path.iterdir()]
    logs = [(n, d) for n, d in found if _is_completion(d)]
    if not logs:
        raise ReadError("expected completion logs or event files, found none.", path)
    logs.sort(key=lambda log: real(log[1].get("timestamp")) or 0)
    return [_completions(logs, path.name, faults)]


def _events(path: Path) -> Path:
    return path / "events" if (path / "events").is_dir() else path


def _numbered(path: Path) -> list[Path]:
    """V0's store of a session: a file an event, named by its number (`events/0.json`)."""
    if not (path / "events" / "0.json").is_file() and not (
        path.name == "events" and (path / "0.json").is_file()
    ):
        return []
    found = [f for f in _events(path).glob("*.json") if f.stem.isascii() and f.stem.isdigit()]
    return sorted(found, key=lambda f: int(f.stem[:18]))


# -- completion logs ------------------------------------------------------------------------------


def _is_completion(document: Any) -> bool:
    if type(document) is not dict or type(document.get("messages")) is not list:
        return False
    answered = type(mapping(document.get("response")).get("choices")) is list
    return answered and ("latency_sec" in document or "kwargs" in document)


def _completions(logs: list[tuple[str, dict[str, Any]]], name: str, faults: list[Fault]) -> Session:
    threads, skipped, asked = Threads(), dict[str, int](), dict[str, str]()
    for file, log in logs:
        with noting(faults, 0, f"{file[:80]}: "):
            heard = [
                m
                for raw in log["messages"]
                for m in named(to_messages(raw, ReaderLog(), skipped), asked)
            ]
            threads.call([said(m) for m in heard], named([_reply(log, skipped)], asked)[0])
    last = logs[-1][1]
    found = sorted(threads.all, key=lambda t: -t.size)
    kwargs = mapping(last.get("kwargs"))
    return Session(
        id=name,
        format=NAME,
        product="openhands",
        log=tuple(found[0].log.entries) if found else (),
        children=tuple(
            t.log.session(id=f"{name}/{i}", format=NAME, parent=name, agent="subagent")
            for i, t in enumerate(found[1:], 1)
        ),
        model=word(mapping(last.get("response")).get("model")),
        context_window=number(last.get("context_window")),
        tools=to_schemas(last.get("tools") or kwargs.get("tools")),
        skipped=skipped,
        faults=tuple(faults),
    )


def _reply(log: dict[str, Any], skipped: dict[str, int]) -> Message:
    response = mapping(log.get("response"))
    choice = mapping(next(iter(items(response.get("choices"))), None))
    fields: dict[str, Any] = {
        "time": time(log.get("timestamp")),
        "usage": to_usage(response.get("usage"), real(log.get("cost"))),
        "model": word(response.get("model")),
        "stop": to_stop(choice.get("finish_reason")),
        "latency": real(log.get("latency_sec")),
        "context_window": number(log.get("context_window")),
    }
    made = to_messages(choice.get("message"), ReaderLog(), skipped, **fields)
    return next((m for m in made if m.role == "assistant"), None) or Message(
        role="assistant", **fields
    )
