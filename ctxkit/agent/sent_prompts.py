"""What a live session's calls were sent: the runs that prepared them, and what was done to a prompt
after that.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ctxkit.engine.sent import FIXED, SentItem, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ctxkit.engine import Run
    from ctxkit.engine.sent import Turnover
    from ctxkit.messages import Message
    from ctxkit.session import Session


class _Made(NamedTuple):
    """A run, and the calls of it whose prompt was changed behind it: what went out, and by whom."""

    run: Run
    changed: dict[int, tuple[tuple[Message, ...], str]]
    schemas: int
    """Tokens of the tools' schemas, as counted."""


class Prompts:
    """The prompts of an agent. A reply names its call: branches and resumes do not mix."""

    def __init__(self) -> None:
        self._made: list[_Made] = []

    def begin(self, run: Run, schemas: int = 0) -> None:
        """Take the run that prepares the calls from now on.

        Args:
            run: prepares them.
            schemas: tokens of the tools' schemas in each of their prompts, as counted.
        """
        self._made = [m for m in self._made if m.run.call > m.run.begin]  # others made no call
        self._made.append(_Made(run, {}, schemas))

    def changed(self, messages: tuple[Message, ...], by: str) -> None:
        """Note that the last call goes out with these messages, and what changed them."""
        run, changed, _ = self._made[-1]
        changed[run.call - 1] = messages, by

    def of(self, session: Session) -> Told:
        """Return what the calls of a session were sent."""
        return Told(self, session)

    def made(self, call: int, reply: Message | None) -> _Made:
        """Return what made a call; made elsewhere: the latest, that has it as recorded."""
        for made in reversed(self._made):
            replies = made.run.log.replies
            if reply is not None and made.run.begin <= call < len(replies):
                then = replies[call]
                if then is not None and then.id == reply.id:
                    return made
        return self._made[-1]


class Told:
    """What the calls of one session were sent."""

    def __init__(self, prompts: Prompts, session: Session) -> None:
        self._prompts, self._session = prompts, session

    @property
    def _latest(self) -> Run:
        return self._prompts.made(-1, None).run

    @property
    def prunes(self) -> bool:
        """True where calls are sent less than what stands."""
        return self._latest.prunes

    @property
    def counter(self) -> str:
        """Name of the counter of its sizes."""
        return self._latest.counter

    @property
    def schemas(self) -> int:
        """Tokens of the tools' schemas in each prompt, as counted."""
        return self._prompts.made(-1, None).schemas

    @property
    def counted_next(self) -> int:
        """Tokens of what the next call would be sent, uncompacted, as counted: schemas included."""
        view = self._latest.coming()
        return self.schemas + view.tokens - view.fixed

    @property
    def row_sizes(self) -> list[int]:
        """Tokens of each message that can be sent, as it was said."""
        return self._latest.row_sizes

    def prompt_sizes(self, calls: int) -> list[int | None]:
        """Return the tokens of the prompts of the first so many calls."""
        return [self.prompt_size(call) for call in range(calls)]

    def prompt_size(self, call: int) -> int:
        """Return the tokens of the prompt of a call, as the triggers had it."""
        run, *_ = self._of(call)
        if run.begin <= call < run.call:
            return run.sizes(call, call + 1)[0]
        return sum(item.tokens for item in self.sent(call))

    def sent(self, call: int | None) -> tuple[SentItem, ...]:
        """Return what went out at a call; None: what would go out next."""
        if call is None:
            return self._latest.sent(None)
        run, changed, _ = self._of(call)
        items = run.sent(call)
        return tuple(_as_changed(items, *changed[call], run)) if call in changed else items

    def left_out(self, call: int | None) -> dict[int, str]:
        """Return the rows that stood at a call and that were left out of it, with what did that."""
        if call is None:
            return self._latest.left_out(None)
        run, changed, _ = self._of(call)
        out = dict(run.left_out(call))
        if call in changed:
            there = {item.row for item in self.sent(call)}
            out.update({i.row: changed[call][1] for i in run.sent(call) if i.row not in there})
        return out

    def turnovers(self, start: int = 0, stop: int | None = None) -> Iterator[Turnover]:
        """Yield what came into the prompt and went out of it at each call."""
        stop = len(self._session.calls) if stop is None else stop
        for _, calls in groupby(range(start, stop), key=self._stretch):
            span = list(calls)
            run, changed, _ = self._of(span[0])
            if any(call in changed for call in span):
                for call in span:
                    yield whole(call, self.sent(call))
            else:
                yield from run.turnovers(span[0], span[-1] + 1)

    def _of(self, call: int) -> _Made:
        return self._prompts.made(call, self._session.calls[call].message)

    def _stretch(self, call: int) -> tuple[int, bool]:
        made = self._of(call)
        return id(made.run), call in made.changed


def _as_changed(
    items: Sequence[SentItem], messages: tuple[Message, ...], by: str, run: Run
) -> Iterator[SentItem]:
    """Yield the items of a prompt as they went out after it was changed."""
    went = {_origin(m): m for m in messages}
    for item in items:
        message, row = went.get(_origin(item.message)), item.row
        if item.message.kind == FIXED:
            yield item
        elif message is None:
            continue
        elif message.parts == item.message.parts:
            yield item
        elif row >= 0 and run.log.messages[row].parts == message.parts:
            yield SentItem(message, item.raw_tokens, item.raw_tokens, None, row)
        else:
            tokens = run.log.measure(message, row)
            yield SentItem(message, tokens, item.raw_tokens, by, row, pruned=True)


def _origin(message: Message) -> str:
    """Return the id of the message that one was made from."""
    return message.id.split("~")[0]
