"""An entry of memory, and the file that holds it (fuseraft's `MemoryStore.cs`).

A file is front matter between lines of three hyphens (`guid`, `name`, `description`, `type`), then
the body. It may come with a folder from anybody: what it says is data, cleaned and bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from ctxkit.display.markup import line, plain
from ctxkit.errors import BadArguments
from ctxkit.redaction import redacted, secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPES = ("user", "feedback", "project", "reference", "preference", "fact", "procedure")
"""fuseraft's four, then Tyrum's; fuseraft takes any word."""
MOST_BYTES = 64_000
"""Of a file; a larger one is not used."""
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_WORD, _WORDS = re.compile(r"\w{3,}"), 6
_GUID = re.compile(r"[A-Za-z0-9-]{1,64}")
_END = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is remembered."""

    name: str
    description: str = ""
    type: str = "project"
    body: str = ""
    guid: str = ""

    @property
    def head(self) -> str:
        """Its line in a prompt."""
        return f"[{self.type}] {self.name}: {self.description}"


def entry(
    name: str,
    description: str = "",
    type: str = "project",  # noqa: A002
    body: str = "",
    guid: str = "",
    *,
    known: Sequence[str] | None = None,
) -> MemoryEntry:
    """Return an entry of texts that are cleaned: without keys and controls, in one line but the
    body.

    Args:
        name: what it is called.
        description: what it says, in a line.
        type: a word, such as one of `TYPES`.
        body: more of what it says.
        guid: its id; empty: a new one.
        known: what `redaction.secrets()` gave, where many entries are made one after the other.

    Raises:
        BadArguments: it has no name, or the type is no word.
    """
    known = secrets() if known is None else known
    short = line(redacted(name, known), 120).strip()
    if not short:
        raise BadArguments("An entry of memory needs a name.")
    if not _TYPE.fullmatch(type):
        known = ", ".join(TYPES)
        raise BadArguments(f"{line(type, 60)!r} is no type of memory: use one of {known}.")
    return MemoryEntry(
        name=short,
        description=line(redacted(description, known), 300).strip(),
        type=type.lower(),
        body=redacted(plain(body), known)[: MOST_BYTES // 8].strip() if body else "",
        guid=guid or str(uuid4()),
    )


def decoded(data: bytes) -> MemoryEntry | None:
    """Return the entry of a file; None where it is none. A missing type is `project`."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if len(data) > MOST_BYTES or not text.startswith("---\n"):
        return None
    end = _END.search(text, 4)
    if end is None:
        return None
    told = dict(_pair(row) for row in text[4 : end.start()].split("\n") if ":" in row)
    guid, kind = told.get("guid", ""), told.get("type", "")
    if not _GUID.fullmatch(guid):
        return None
    try:
        return entry(
            told.get("name", ""),
            told.get("description", ""),
            kind if _TYPE.fullmatch(kind) else "project",
            text[end.end() :],
            guid,
        )
    except BadArguments:
        return None


def encoded(kept: MemoryEntry) -> bytes:
    """Return an entry as the bytes of its file."""
    keys = ("guid", "name", "description", "type")
    head = "\n".join(f"{key}: {getattr(kept, key)}" for key in keys)
    body = f"{kept.body}\n" if kept.body else ""
    return f"---\n{head}\n---\n{body}".encode("utf-8", "replace")


def safe_name(agent: str) -> str:
    """Return the folder of an agent's memory (fuseraft's `SafeFileName`).

    Raises:
        BadArguments: nothing of the name is left.
    """
    kept = re.sub(r"[^a-z0-9_-]", "", agent.lower().replace(" ", "_"))[:100]
    if not kept:
        raise BadArguments(f"{line(agent, 60)!r} has no letter or digit to name a folder by.")
    return kept


def short_name(text: str) -> str:
    """Return a name for what a sentence says: its first words of three letters or more."""
    return "-".join(_WORD.findall(text[:400].lower())[:_WORDS])[:80]


def _pair(row: str) -> tuple[str, str]:
    key, _, value = row.partition(":")
    return key.strip().lower(), value.strip()
