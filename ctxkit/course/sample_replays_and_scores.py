"""The sample sessions of the exercises, their replays and scores."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from ctxkit.errors import BadArguments
from ctxkit.formats import samples
from ctxkit.formats.reading import read
from ctxkit.formats.sessions_from_arguments import as_session
from ctxkit.presets.registry_and_setting_checks import resolve_rules

if TYPE_CHECKING:
    from ctxkit.formats.sessions_from_arguments import SessionLike
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.presets.registry_and_setting_checks import RulesLike
    from ctxkit.session.messages import Message
    from ctxkit.session.session import Session

__all__ = [
    "facts_kept",
    "find_first_call_of_last_turn",
    "items_of",
    "load_sample",
    "make_rules_with_trigger",
    "measure_cost_with_trigger",
    "measure_loss_with_trigger",
    "prices",
    "replay_sample",
    "score_replay",
]


def prices(session: SessionLike) -> dict[str, float]:
    """Return the prices of a session's model, by the four classes of tokens.

    Args:
        session: the session.

    Returns:
        Dollars a million tokens of `fresh`, `read`, `written` and `reply`; NaN: not known.

    Example:
        >>> import ctxkit as ck
        >>> prices(ck.samples.path("billing"))
        {'fresh': 3.0, 'read': 0.3, 'written': 3.75, 'reply': 15.0}
    """
    from ctxkit.tokens.prices import price

    p = price(as_session(session).model)
    if p is None:
        return dict.fromkeys(("fresh", "read", "written", "reply"), float("nan"))
    classes = {"fresh": p.input, "read": p.cache_read, "written": p.cache_write, "reply": p.output}
    return {k: float("nan") if v is None else round(1e6 * v, 6) for k, v in classes.items()}


def items_of(message: Message) -> set[tuple[str, str]]:
    """Return the items that a message names: pairs of family and item.

    Args:
        message: a message of any role.

    Returns:
        Pairs such as ``("path", "docs/runbook.md")``; the families are those of the loss.

    Example:
        >>> import ctxkit as ck
        >>> session = ck.read(ck.samples.path("billing"))
        >>> ("path", "docs/runbook.md") in items_of(session.edits[0].inserted[0])
        True
    """
    from ctxkit.metrics.losable_items import extract_items

    return set(extract_items(message))


@cache
def load_sample(name: str = "billing") -> Session:
    """Return a sample, read once.

    Args:
        name: one of `ck.samples.names()`.

    Returns:
        The recorded session; later calls return the same object.
    """
    return read(samples.path(name))


def make_rules_with_trigger(policy: str, tokens: int) -> Rules:
    """Return rules from a policy's words and the size above which they are due.

    Args:
        policy: the policy as text, such as `window:keep_tokens=2000`.
        tokens: size of the prompt above which it compacts.
    """
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.policies.triggers import Above

    return Rules(policy=policy, trigger=Above(tokens), name=f"{policy} above {tokens:,}")


def replay_sample(rules: RulesLike, name: str = "billing") -> Session:
    """Return the replay of a sample.

    Args:
        rules: rules, a preset or its name.
        name: name of the sample.

    Returns:
        The replay, a session whose `origin` is the sample.

    Raises:
        BadArguments: they are no rules.
    """
    from ctxkit.engine.replay import replay
    from ctxkit.policies.compaction_and_pruning_rules import Rules

    resolved = resolve_rules(rules)
    if not isinstance(resolved, Rules):
        raise BadArguments("Give rules: Rules(policy=..., trigger=...), or the name of a preset.")
    return replay(load_sample(name), resolved)


def score_replay(replay: Session, *, loss: bool = True) -> dict[str, Any]:
    """Return the score of a replay, as a comparison has it.

    Args:
        replay: replay of any session.
        loss: compute the columns of loss, too, which takes longer.

    Returns:
        The row of `ck.score`, by column.
    """
    from ctxkit.experiments.cost_and_loss_scores import score

    return dict(score(replay, loss=loss))


@cache
def measure_cost_with_trigger(policy: str, tokens: int) -> float:
    """Return the cost of the sample under a policy that is due above a size, in US dollars.

    Args:
        policy: the policy as text, such as `summary:keep_tokens=8000`.
        tokens: prompt size above which it is due.

    Returns:
        US dollars of the replay of `billing`, with its summaries.
    """
    return float(
        score_replay(replay_sample(make_rules_with_trigger(policy, tokens)), loss=False)["cost_usd"]
    )


@cache
def measure_loss_with_trigger(policy: str, tokens: int) -> float:
    """Return the loss of the sample under a policy that is due above a size, as a share.

    Args:
        policy: the policy as text, such as `summary:keep_tokens=8000`.
        tokens: prompt size above which it is due.

    Returns:
        The share of items needed later that were out of sight, 0 to 1.
    """
    return float(
        score_replay(replay_sample(make_rules_with_trigger(policy, tokens)))["needed_later_loss"]
    )


def find_first_call_of_last_turn(session: Session) -> int:
    """Return the first call of the last turn."""
    last = session.calls[-1].turn
    return next(c.index for c in session.calls if c.turn == last)


def facts_kept(session: SessionLike, call: int | None = None) -> dict[str, bool]:
    """Return of each fact that a sample lists whether a call is shown it.

    The sample `billing` carries fifteen facts that its last day rests on, each with a pattern that
    finds it in any words (`session.details["facts"]`).

    Args:
        session: the sample, or a replay of it.
        call: the call; None: the first one of the last turn.

    Returns:
        True by fact where the prompt of that call shows it.

    Raises:
        BadArguments: the session lists no facts.

    Example:
        >>> import ctxkit as ck
        >>> kept = ck.course.facts_kept(ck.samples.path("billing"))
        >>> len(kept)
        15
    """
    shown = as_session(session)
    # a replay has no details of its own: the facts are in the record
    listed = (shown.origin or shown).details.get("facts")
    if not listed:
        raise BadArguments("This session lists no facts; the sample 'billing' does.")
    at = find_first_call_of_last_turn(shown) if call is None else call
    prompt = "\n".join(item.message.text for item in shown.sent(at))
    return {fact: bool(re.search(pattern, prompt)) for fact, pattern in listed}
