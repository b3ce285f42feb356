"""A session as if a section of its prompts had never been there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ctxkit.composition.sections import sections as cut
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.messages import SECTIONS, Message, Text
from ctxkit.readers.given import of_session

if TYPE_CHECKING:
    from collections.abc import Collection

    from ctxkit.session import Session


@of_session
def without(session: Session, *names: str) -> Session:
    """Return a session whose prompts do not hold some sections, to be replayed under any rules.

    Sections are those that a live session names (`base`, `runtime`, `gitignore`, ...), and of a
    system prompt in another program's log its headings and tagged blocks, as `ck.report` has them.
    A message that said nothing else is no longer sent. Recorded usage stays as it was: what the
    prompts would have been billed tells `ck.sections`.

    Args:
        session: any session, the path of a log, or a list of messages.
        names: sections.

    Raises:
        BadArguments: a section is not in the session.
    """
    known = list(dict.fromkeys(name for m in session.messages for name, _ in named(m)))
    for name in names:
        if name not in known:
            has = ", ".join(known) or "none"
            raise BadArguments(
                f"The session has no section {name!r}; it has {has}.{did_you_mean(name, known)}"
            )
    log = tuple(_left(e, names) if isinstance(e, Message) else e for e in session.log)
    return replace(session, log=log)


def named(message: Message) -> list[tuple[str, str]]:
    """Return name and text of the sections of a message; of one that has none, nothing."""
    if message.sections:
        return [(name, text) for name, text, _ in message.sections]
    if message.role != "system" or not message.visible:
        return []
    return [s for p in message.parts if isinstance(p, Text) for s in cut(p.text)]


def _left(message: Message, names: Collection[str]) -> Message:
    """Return a message without sections; one of which nothing is left is not sent."""
    found = named(message)
    if all(name not in names for name, _ in found):
        return message
    if message.sections:
        told = message.details[SECTIONS]
        kept = [
            (t, p) for t, p, s in zip(told, message.parts, found, strict=True) if s[0] not in names
        ]
        details = {**message.details, SECTIONS: [t for t, _ in kept]}
        parts = tuple(p for _, p in kept)
        sent = bool(parts) and message.visible
        return replace(message, parts=parts, details=details, visible=sent)
    others = [p for p in message.parts if not isinstance(p, Text)]
    text = "".join(text for name, text in found if name not in names)
    parts = (*([Text(text)] if text.strip() else []), *others)
    return replace(message, parts=parts, visible=bool(parts) and message.visible)
