"""What the exercises are about: the samples, each read once, and what is worked out of them."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit import samples
from ctxkit.errors import BadArguments
from ctxkit.presets.naming import as_rules
from ctxkit.readers.given import as_session
from ctxkit.readers.reader_names import read

if TYPE_CHECKING:
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.naming import AnyRules
    from ctxkit.readers.given import Given
    from ctxkit.session import Session

__all__ = ["above", "dollars_above", "facts_kept", "figures", "last_turn", "replayed", "sample"]


@cache
def sample(name: str = "billing") -> Session:
    """Return a sample, read once."""
    return read(samples.path(name))


def above(words: str, tokens: int) -> Rules:
    """Return rules from a policy's words and the size above which they are due."""
    from ctxkit.policies.rules import Rules
    from ctxkit.policies.triggers import Above

    return Rules(policy=words, trigger=Above(tokens), name=f"{words} above {tokens:,}")


def replayed(rules: AnyRules, name: str = "billing") -> Session:
    """Return the replay of a sample.

    Raises:
        BadArguments: they are no rules.
    """
    from ctxkit.policies.rules import Rules
    from ctxkit.replays import replay

    asked = as_rules(rules)
    if not isinstance(asked, Rules):
        raise BadArguments("Give rules: Rules(policy=..., trigger=...), or the name of a preset.")
    return replay(sample(name), asked)


def figures(replay: Session, *, loss: bool = True) -> dict[str, Any]:
    """Return the score of a replay, as a comparison has it."""
    from ctxkit.sweeps import score

    return dict(score(replay, loss=loss))


def dollars_above(words: str, tokens: int) -> float:
    """Return what the sample costs under a policy that is due above a size."""
    return float(figures(replayed(above(words, tokens)), loss=False)["cost_usd"])


def last_turn(session: Session) -> int:
    """Return the first call of the last turn."""
    last = session.calls[-1].turn
    return next(c.index for c in session.calls if c.turn == last)


def facts_kept(of: Given, call: int | None = None) -> dict[str, bool]:
    """Return of each fact that a sample lists whether a call is shown it.

    The sample `billing` carries fifteen facts that its last day rests on, each with a pattern that
    finds it in any words (`session.details["facts"]`).

    Args:
        of: the sample, or a replay of it.
        call: the call; None: the first one of the last turn.

    Raises:
        BadArguments: the session lists no facts.
    """
    session = as_session(of)
    listed = (session.origin or session).details.get("facts")
    if not listed:
        raise BadArguments("This session lists no facts; the sample 'billing' does.")
    at = last_turn(session) if call is None else call
    shown = "\n".join(item.message.text for item in session.sent(at))
    return {fact: bool(re.search(pattern, shown)) for fact, pattern in listed}
