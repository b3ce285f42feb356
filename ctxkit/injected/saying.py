"""Sections said in a session: at its beginning, and again with a prompt when one has changed.

What stands at the top never changes while the session lasts, as every word behind a change would
be billed as new. What is new is said behind all that a cache holds, just before the next prompt; it
is what the model is shown that counts, so what a compaction took away is said again, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments
from ctxkit.injected.blocks import Block, block
from ctxkit.injected.catalogue import BEGINNING, SECTIONS
from ctxkit.messages import INJECTED, Message, Text
from ctxkit.messages import SECTIONS as KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ctxkit.injected.blocks import Surroundings
    from ctxkit.session import Session

HOUR = 3600.0
"""Seconds after which the time is said again."""
_GONE = "[{name}: no longer there]"


class Sections:
    """The sections of a session.

    Args:
        names: those that are switched on; instructions of its own are among them where there are
            any.
        around: what they are made of.
    """

    def __init__(self, names: Sequence[str], around: Surroundings) -> None:
        wanted = {*names, "own"} if names and around.own else {*names}
        self.names, self.around = tuple(n for n in SECTIONS if n in wanted), around

    def due(self, session: Session, now: float) -> Message | None:
        """Return what must be said before the next prompt of a session; None: nothing new.

        Args:
            session: as it stands.
            now: seconds since 1970.
        """
        if not session.messages:
            return said("system", self._made(self.names, now))
        return said("user", list(self._changed(session, now)))

    def check(self, session: Session) -> None:
        """Let instructions pass with which a session began, or none.

        Raises:
            BadArguments: it began with others.
        """
        began = dict(_said(session.messages[:1])) if session.messages else None
        own = block("own", self.around.own)
        if began is None or own is None:
            return
        if own.text != plain(began.get("own", ("", None))[0]):
            which = "other" if "own" in began else "no"
            raise BadArguments(
                f"The session began with {which} instructions, and they stay: begin another one, "
                "or `%context reset`."
            )

    def _made(self, names: Iterable[str], now: float) -> list[Block]:
        made = (SECTIONS[name](self.around, now) for name in names)
        return [b for b in made if b is not None]

    def _changed(self, session: Session, now: float) -> Iterator[Block]:
        """Yield the sections that say something else than what is shown of them."""
        shown = dict(_said(session.view()))
        for name in self.names:
            if name in BEGINNING:
                continue
            text, time = shown.get(name, (None, None))
            if name == "time" and text is not None and now - (time or now) < HOUR:
                continue
            made = SECTIONS[name](self.around, now)
            gone = _GONE.format(name=name)
            if made is not None and made.text != text:
                yield made
            elif made is None and text not in (None, gone):
                yield Block(name, gone, 0)


def said(role: str, blocks: Sequence[Block]) -> Message | None:
    """Return a message whose parts are these sections; None where there are none.

    Its parts are joined by line breaks when they are sent: each but the last ends with one, so
    that an empty line stands between them.
    """
    if not blocks:
        return None
    texts = [*(f"{b.text}\n" for b in blocks[:-1]), blocks[-1].text]
    told = [{"name": b.name, "raw_chars": b.raw_chars} for b in blocks]
    return Message(
        role="system" if role == "system" else "user",
        kind="" if role == "system" else INJECTED,
        parts=tuple(Text(t) for t in texts),
        details={KEY: told},
    )


def _said(messages: Iterable[Message]) -> Iterator[tuple[str, tuple[str, float | None]]]:
    """Yield the sections that messages say, in order: name, text, and when."""
    for message in messages:
        for name, text, _ in message.sections:
            yield name, (text.strip(), message.time)
        if message.role == "system" and not message.sections:
            yield "own", (message.text.strip(), message.time)
