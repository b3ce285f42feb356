"""Token counts of messages for frames: estimated, exact, anchored on usage, or by a counter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.tokens import message_token_counting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

Count = Any
"""None, ``"exact"``, ``"anchored"``, the name of an estimate such as ``"pi"``, or a token counter.
"""


def resolve_counter(count: Count) -> Any:
    """Return the token counter of a name; a counter is returned unchanged.

    Raises:
        BadArguments: the argument is neither a known name nor a counter.
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
    """Return the tokens of each message, their sources, and a counter for inserted messages.

    Tokens and sources are None where the log has no content.

    Args:
        session: the session of the messages.
        count: how to count them, as for `frame`.
        chars: a list to which the number of characters of each message is appended.
    """
    messages = session.messages
    measured = (
        [message_token_counting.count_chars_and_estimate_tokens(m) for m in messages]
        if count is None or chars is not None
        else []
    )
    without_content = [
        i
        for i, m in enumerate(messages)
        if not m.parts and (m.kind == "turn" or not session.has_sizes)
    ]
    if chars is not None:
        chars += _blank_values([n for n, _ in measured], without_content)
    sizes: Iterable[int]
    sources: list[str | None]
    of: Callable[[Message], int]
    if count is None:
        sizes, sources, of = (
            [n for _, n in measured],
            ["estimated"] * len(messages),
            message_token_counting.estimate_message_tokens,
        )
    elif count == "anchored":
        sizes, sources, of = _count_anchored(session)
    else:
        counter = resolve_counter(count)
        sizes, sources, of = (
            map(counter.message, messages),
            [counter.source] * len(messages),
            counter.message,
        )
    return _blank_values(list(sizes), without_content), _blank_values(sources, without_content), of


def _count_anchored(
    session: Session,
) -> tuple[list[int], list[str | None], Callable[[Message], int]]:
    """Count like `count_messages`, scaled to recorded usage; a replay has its record's sizes."""
    from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes

    sizes = measure_sizes(session.origin or session)
    by_id = {
        m.id: (n, s)
        for m, n, s in zip(sizes.session.messages, sizes.tokens, sizes.source, strict=True)
    }
    scale = 1.0 if sizes.plain_count_error is None else 1 / (1 + sizes.plain_count_error)
    pairs: list[tuple[int, str]] = [(0, "estimated")] * len(session.messages)
    has_same_messages = len(sizes.session.messages) == len(session.messages)
    for i, m in enumerate(session.messages):
        size_and_source = (
            (sizes.tokens[i], sizes.source[i]) if has_same_messages else by_id.get(m.id)
        )
        pairs[i] = size_and_source or (
            round(message_token_counting.estimate_message_tokens(m) * scale),
            "estimated",
        )
    tokens_of = {id(m): n for m, (n, _) in zip(session.messages, pairs, strict=True)}

    def of(message: Message) -> int:
        if id(message) in tokens_of:
            return tokens_of[id(message)]
        try:
            return sizes.of(message)
        except KeyError:  # inserted by a rule, so not in the log
            return round(message_token_counting.estimate_message_tokens(message) * scale)

    return [n for n, _ in pairs], [s for _, s in pairs], of


def _blank_values(values: list[Any], indices: list[int]) -> list[Any]:
    for i in indices:
        values[i] = None
    return values
