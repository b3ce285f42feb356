"""Memory entries and their files: decode, encode, name.

A file is front matter between lines of three hyphens (`guid`, `name`, `description`, `type`), then
the body. Files may come from anywhere: their content is data, cleaned and bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from ctxkit._internal.environment_secrets import get_environment_secrets
from ctxkit._internal.formatting_and_sanitizing import (
    redact_text,
    sanitize_line,
    sanitize_redacted_text,
    sanitize_text,
)
from ctxkit._internal.redaction import redact_json
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Sequence


MEMORY_TYPES = ("user", "feedback", "project", "reference", "preference", "fact", "procedure")
"""Types of entries: fuseraft's four, then Tyrum's three. fuseraft accepts any word."""
MAX_ENTRY_BYTES = 64_000
"""Largest file that is read, in bytes."""
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_NAME_WORD, _NAME_WORDS = re.compile(r"\w{3,}"), 6
_GUID = re.compile(r"[A-Za-z0-9-]{1,64}")
_FRONT_MATTER_END = re.compile(r"^---[ \t]*(?:\n|\Z)", re.MULTILINE)


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a memory.

    Example:
        >>> MemoryEntry(name="tests", description="Run them with make test.").head
        '[project] tests: Run them with make test.'
    """

    name: str
    """Title, unique in its memory."""
    description: str = ""
    """One line that is in the prompt."""
    type: str = "project"
    """Kind of entry; it orders and ranks entries."""
    body: str = ""
    """More lines, which are in the prompt where they fit."""
    guid: str = ""
    """Id under which sessions refer to it."""

    @property
    def head(self) -> str:
        """The entry's line in a prompt."""
        return f"[{self.type}] {self.name}: {self.description}"


def make_entry(
    name: str,
    description: str = "",
    type: str = "project",  # noqa: A002
    body: str = "",
    guid: str = "",
    *,
    secrets: Sequence[str] | None = None,
) -> MemoryEntry:
    """Return an entry with cleaned texts: secrets redacted, no control characters, one line each.

    Args:
        name: the name.
        description: the content in one line.
        type: a word, such as one of `MEMORY_TYPES`.
        body: further text; it may have several lines.
        guid: the id; empty: a new one.
        secrets: result of `get_environment_secrets()`, to compute it once for many entries.

    Returns:
        An entry whose texts may be put into a prompt.

    Raises:
        BadArguments: there is no name, or the type is no word.

    Example:
        >>> make_entry("runner", "Use pytest -q.", "feedback").head
        '[feedback] runner: Use pytest -q.'
    """
    secrets = get_environment_secrets() if secrets is None else secrets
    short = _clean_line(name, 120, secrets)
    if not short:
        raise BadArguments("An entry of memory needs a name.")
    if not _TYPE.fullmatch(type):
        secrets = ", ".join(MEMORY_TYPES)
        raise BadArguments(
            f"{sanitize_line(type, 60)!r} is no type of memory: use one of {secrets}."
        )
    return MemoryEntry(
        name=short,
        description=_clean_line(description, 300, secrets),
        type=type.lower(),
        body=redact_json(sanitize_text(body), secrets)[: MAX_ENTRY_BYTES // 8].strip()
        if body
        else "",
        guid=guid or str(uuid4()),
    )


def _clean_line(text: str, limit: int, secrets: Sequence[str]) -> str:
    """Return what `sanitize_line` does, with secrets that are computed once for many entries."""
    return sanitize_redacted_text(" ".join(redact_text(text, secrets).split()), limit).strip()


def decode_entry(data: bytes) -> MemoryEntry | None:
    """Decode the bytes of a file; None where they are no entry. A type that is missing or no word
    is `project`.
    """
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if len(data) > MAX_ENTRY_BYTES or not text.startswith("---\n"):
        return None
    end = _FRONT_MATTER_END.search(text, 4)
    if end is None:
        return None
    front_matter = dict(_split_row(row) for row in text[4 : end.start()].split("\n") if ":" in row)
    guid, kind = front_matter.get("guid", ""), front_matter.get("type", "")
    if not _GUID.fullmatch(guid):
        return None
    try:
        return make_entry(
            front_matter.get("name", ""),
            front_matter.get("description", ""),
            kind if _TYPE.fullmatch(kind) else "project",
            text[end.end() :],
            guid,
        )
    except BadArguments:
        return None


def encode_entry(entry: MemoryEntry) -> bytes:
    """Encode an entry as the bytes of its file."""
    keys = ("guid", "name", "description", "type")
    head = "\n".join(f"{key}: {getattr(entry, key)}" for key in keys)
    body = f"{entry.body}\n" if entry.body else ""
    return f"---\n{head}\n---\n{body}".encode("utf-8", "replace")


def get_memory_folder_name(agent: str) -> str:
    """Return the name of an agent's memory folder (fuseraft's `SafeFileName`).

    Raises:
        BadArguments: the agent's name has no valid character.
    """
    safe_name = re.sub(r"[^a-z0-9_-]", "", agent.lower().replace(" ", "_"))[:100]
    if not safe_name:
        raise BadArguments(
            f"{sanitize_line(agent, 60)!r} has no letter or digit to name a folder by."
        )
    return safe_name


def make_entry_name(text: str) -> str:
    """Return a name for a sentence: its first words of three letters or more."""
    return "-".join(_NAME_WORD.findall(text[:400].lower())[:_NAME_WORDS])[:80]


def _split_row(row: str) -> tuple[str, str]:
    key, _, value = row.partition(":")
    return key.strip().lower(), value.strip()
