"""Cline 4.0 on: messages of a session; manifest, last compaction, subagents' files beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit.messages import Edit, Message, Text, Usage
from ctxkit.readers.damaged import each_of
from ctxkit.readers.dialects import named, to_messages
from ctxkit.readers.fields import as_text, items, mapping, number, real, text, time, word
from ctxkit.readers.logs import ReaderLog
from ctxkit.readers.parts import is_content
from ctxkit.readers.retold import retold
from ctxkit.readers.source import Source, beside
from ctxkit.readers.usages import whole_usage
from ctxkit.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ENDING = ".messages.json"
_AGENTS = ("lead", "subagent", "teammate")
_SUMMED = ("compaction", "compaction_summary")
_MOST = 200
"""Files of subagents that are read with a session, at most."""


def is_session(document: Any) -> bool:
    """Say whether a document is the messages of a session, of its agent or a subagent."""
    about = mapping(document)
    return (
        about.get("agent") in _AGENTS
        and type(about.get("messages")) is list
        and type(about.get("sessionId")) is str
    )


def messages_of(folder: Path) -> Path:
    """Return the file of the main agent's messages in the folder of a session."""
    return folder / (folder.name + _ENDING)


def is_session_folder(path: Path) -> bool:
    """Say whether a folder is a session: it has the messages of its own name."""
    return messages_of(path).is_file()


def read_session(source: Source) -> Session:
    """Return a file's session, with what its folder tells; the main agent's with its subagents."""
    about = mapping(source.document)
    folder, stem = source.path.parent, source.path.name.removesuffix(_ENDING)
    if not source.on_disk or stem == source.path.name:
        return _session(about, {}, {}, source.path.stem)
    manifest, compaction = (beside(folder / f"{stem}{e}.json") for e in ("", ".compaction"))
    made = _session(about, mapping(manifest), mapping(compaction), stem)
    made = replace(made, path_=str(source.path))
    if about.get("agent") != "lead" or folder.name != stem:
        return made
    others = [p for p in sorted(folder.glob("*" + _ENDING)) if p != source.path][:_MOST]
    return replace(made, children=tuple(_children(others, made)))


def _children(paths: Iterable[Path], parent: Session) -> Iterable[Session]:
    for path in paths:
        if not is_session(found := beside(path)):
            continue
        below = _session(found, {}, {}, path.name.removesuffix(_ENDING))
        yield replace(below, parent=parent.id, path_=str(path))


def _session(
    about: dict[str, Any], manifest: dict[str, Any], compaction: dict[str, Any], stem: str
) -> Session:
    teller = _Teller(compaction)
    if said := word(about.get("system_prompt")):
        teller.first = {teller.log.new_id()}
        teller.log.add(Message(role="system", id=next(iter(teller.first)), parts=(Text(said),)))
    each_of(items(about.get("messages")), "message", teller.take, teller.log.faults)
    teller.compact_at_end()
    origin, entries = mapping(about.get("origin")), teller.log.entries
    agent = word(origin.get("subagent")) or text(about.get("agent"))
    return Session(
        id=word(about.get("sessionId")) or stem,
        format="cline",
        product="cline",
        version=word(origin.get("version")),
        agent="main" if about.get("agent") == "lead" else agent,
        parent=word(origin.get("parentThreadId")),
        title=word(mapping(manifest.get("metadata")).get("title")),
        cwd=word(manifest.get("cwd")),
        started=time(manifest.get("started_at")) or next((e.time for e in entries if e.time), None),
        model=next((e.model for e in entries if e.model), None) or word(manifest.get("model")),
        log=tuple(entries),
    )


class _Teller:
    """Takes all messages of a session; the file beside has what a compaction made of the first."""

    def __init__(self, compaction: dict[str, Any]) -> None:
        self.log, self.asked = ReaderLog(), dict[str, str]()
        self.first = set[str]()
        """The id of the system message, which every request has."""
        self._state = compaction
        self._left = number(compaction.get("source_message_count")) if compaction else None
        """Messages until the compaction."""

    def take(self, raw: dict[str, Any]) -> None:
        """Take one message."""
        if self._left == 0:
            self._compact()
        self._left = None if self._left is None else self._left - 1
        about = mapping(raw.get("metadata"))
        more: dict[str, Any] = {"time": time(raw.get("ts"))}
        if raw.get("role") == "assistant":
            used = _usage(mapping(raw.get("metrics")))
            more |= {"usage": used, "model": word(mapping(raw.get("modelInfo")).get("id"))}
        elif word(about.get("kind")) and about.get("displayRole") != "user":
            more["kind"] = "injected"
        made = named(to_messages(_plain(raw), self.log, self.log.skipped, **more), self.asked)
        if about.get("kind") in _SUMMED and made:  # what it stands for is in no file
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
        raw = [mapping(r) for r in items(self._state.get("messages"))]
        new = [m for r in raw for m in named(to_messages(_plain(r), ReaderLog(), self.log.skipped),
                                             self.asked)]  # fmt: skip
        if not new or not self.log.may_edit():
            return
        when = time(self._state.get("updated_at"))
        kept, inserted = retold(self.log, new, when)
        told = next(
            (a for r in raw if (a := mapping(r.get("metadata"))).get("kind") in _SUMMED), {}
        )
        edit = Edit(
            kind="summarised",
            id=self.log.new_id(),
            inserted=tuple(inserted),
            trigger=word(told.get("reason")),
            method=word(told.get("kind")) or "compaction",
            time=when,
            tokens_before=number(told.get("tokensBefore")),
        )
        self.log.compact(edit, kept | self.first)


def _plain(raw: dict[str, Any]) -> dict[str, Any]:
    """Return a message's own fields; results that are no parts become the JSON that was sent."""
    content = raw.get("content")
    if type(content) is list:
        content = [_result(b) if mapping(b).get("type") == "tool_result" else b for b in content]
    return {"role": raw.get("role"), "content": content, "id": raw.get("id")}


def _result(block: dict[str, Any]) -> dict[str, Any]:
    held = block.get("content")
    if type(held) is list and not all(map(is_content, held)):
        return {**block, "content": as_text(held)}
    return block


def _usage(raw: dict[str, Any]) -> Usage | None:
    """What a reply was billed: the input holds what was read from the cache and written to it."""
    whole, output = number(raw.get("inputTokens")), number(raw.get("outputTokens"))
    read, write = number(raw.get("cacheReadTokens")), number(raw.get("cacheWriteTokens"))
    if not (whole or output or read or write):
        return None
    return whole_usage(whole, read, write, output, cost_usd=real(raw.get("cost")))
