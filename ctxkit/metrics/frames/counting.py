"""How frames count messages: estimate, exact tokenizer, anchored on usage, a user's counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.tokens import counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

Count = Any
"""None, ``"exact"``, ``"anchored"``, the name of an estimate such as ``"pi"``, or a counter of the
user's.
"""


def get_counter(count: Count) -> Any:
    """Return the token counter of a name; a counter is itself.

    Raises:
        BadArguments: it is neither a known name nor a counter.
    """
    from ctxkit import tokens

    if count == "exact":
        return tokens.exact_counter()
    if isinstance(count, str):
        return tokens.get_counter(count)
    if callable(getattr(count, "message", None)) and hasattr(count, "source"):
        return count
    raise BadArguments(
        'count= takes None, "exact", "anchored", the name of an estimate, or a token counter.'
    )


def count_messages(
    session: Session, count: Count, chars: list[int | None] | None = None
) -> tuple[list[int | None], list[str | None], Callable[[Message], int]]:
    """Return the tokens of each message of a session, where each comes from, and a counter for
    inserted messages.

    Tokens and sources are missing where the log holds no content. `chars` takes the characters of
    each message besides.
    """
    messages = session.messages
    measured = (
        [counters.measure_message(m) for m in messages]
        if count is None or chars is not None
        else []
    )
    unknown = [
        i
        for i, m in enumerate(messages)
        if not m.parts and (m.kind == "turn" or not session.has_sizes)
    ]
    if chars is not None:
        chars += _without([n for n, _ in measured], unknown)
    sizes: Iterable[int]
    sources: list[str | None]
    of: Callable[[Message], int]
    if count is None:
        sizes, sources, of = (
            [n for _, n in measured],
            ["estimated"] * len(messages),
            counters.estimate_message_tokens,
        )
    elif count == "anchored":
        sizes, sources, of = _anchored(session)
    else:
        named = get_counter(count)
        sizes, sources, of = (
            map(named.message, messages),
            [named.source] * len(messages),
            named.message,
        )
    return _without(list(sizes), unknown), _without(sources, unknown), of


def _anchored(session: Session) -> tuple[list[int], list[str | None], Callable[[Message], int]]:
    """Return sizes scaled to the recorded usage; a replay's are the sizes it was made with."""
    from ctxkit.tokens.sizes import measure_sizes

    found = measure_sizes(session.origin or session)
    by_id = {
        m.id: (n, s)
        for m, n, s in zip(found.session.messages, found.tokens, found.source, strict=True)
    }
    scale = 1.0 if found.error is None else 1 / (1 + found.error)
    plain: list[tuple[int, str]] = [(0, "estimated")] * len(session.messages)
    same = len(found.session.messages) == len(session.messages)
    for i, m in enumerate(session.messages):
        said = (found.tokens[i], found.source[i]) if same else by_id.get(m.id)
        plain[i] = said or (round(counters.estimate_message_tokens(m) * scale), "estimated")
    own = {id(m): n for m, (n, _) in zip(session.messages, plain, strict=True)}

    def of(message: Message) -> int:
        if id(message) in own:
            return own[id(message)]
        try:
            return found.of(message)
        except KeyError:  # what a rule put there is in no log
            return round(counters.estimate_message_tokens(message) * scale)

    return [n for n, _ in plain], [s for _, s in plain], of


def _without(values: list[Any], unknown: list[int]) -> list[Any]:
    for i in unknown:
        values[i] = None
    return values
