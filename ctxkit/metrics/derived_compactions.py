"""Compactions that a log does not mark: found in the sizes of its prompts by a rule, and always
labelled as derived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.messages import Edit
from ctxkit.sizes.falls import billed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ctxkit.session import Session


class SizeRule(Protocol):
    """Finds compactions in a series of prompt sizes."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the places of the prompts that were the first after a compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLab:
    """TraceLab's rule: a large fall, from near the session's largest prompt, that does not come
    back at once.
    """

    drop: int = 64_000
    """A fall of at least so many tokens."""
    share: float = 0.75
    """The prompt before was at least this share of the session's largest, and is not reached to
    this share again ...
    """
    steps: int = 3
    """... within so many prompts, the first one counted."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the places of the prompts that were the first after a compaction."""
        most = max(prompts, default=0)
        out = []
        for i in range(1, len(prompts)):
            before = prompts[i - 1]
            if before - prompts[i] < self.drop or before < self.share * most:
                continue
            if all(p < self.share * before for p in prompts[i : i + self.steps]):
                out.append(i)
        return out


@dataclass(frozen=True, slots=True, kw_only=True)
class CtxMap:
    """CtxMap's rule: a prompt that is less than a share of the one before."""

    share: float = 0.5
    """A fall below this share of the prompt before."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the places of the prompts that were the first after a compaction."""
        return [i for i in range(1, len(prompts)) if prompts[i] < self.share * prompts[i - 1]]


RULES: dict[str, SizeRule] = {"tracelab": TraceLab(), "ctxmap": CtxMap()}
"""The rules by name, with the settings of their authors."""


def derive(session: Session, rule: str | SizeRule = "tracelab") -> tuple[Edit, ...]:
    """Return the compactions that a rule finds in the recorded prompt sizes; none where the log has
    no usage.

    Each is an edit of `source="derived"` without targets (the sizes do not say what went), with the
    sizes of the prompts before and after, and in `details` the number of the first call after it.
    Agents are looked at apart.

    Raises:
        BadArguments: no rule has that name.
    """
    name, found = _rule(rule)
    out = []
    for calls in billed(session).values():
        prompts = [p for _, p in calls]
        for i in found(prompts):
            call = calls[i][0]
            out.append(
                Edit(
                    kind="summarised",
                    id=f"derived-{call.index}",
                    reason=f"the prompt fell from {prompts[i - 1]:,} to {prompts[i]:,} tokens",
                    method=name,
                    agent=call.message.agent,
                    time=call.message.time,
                    tokens_before=prompts[i - 1],
                    tokens_after=prompts[i],
                    source="derived",
                    details={"call": call.index},
                )
            )
    return tuple(sorted(out, key=lambda e: e.details["call"]))


def agreement(
    sessions: Session | Iterable[Session], rules: Iterable[str | SizeRule] = ("tracelab", "ctxmap")
) -> pd.DataFrame:
    """Return how far derived compactions agree with the marks of logs that have both marks and
    usage.

    One row a session and rule: `calls` with usage, compactions `marked` (those before a later
    billed call, that a rule could find), `derived`, `agreed` (at the same billed call), `missed`,
    `invented`, and the shares `found` (agreed / marked) and `true` (agreed / derived), missing
    where nothing was derived.
    """
    import pandas as pd

    from ctxkit.session import Session

    given = [sessions] if isinstance(sessions, Session) else list(sessions)
    rows = [row for s in given for rule in rules if (row := _agreed(s, rule)) is not None]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    return frame.astype(_COLUMNS)


_COLUMNS = {
    "session": "string",
    "format": "string",
    "rule": "string",
    "calls": "Int64",
    "marked": "Int64",
    "derived": "Int64",
    "agreed": "Int64",
    "missed": "Int64",
    "invented": "Int64",
    "found": "Float64",
    "true": "Float64",
}


def _agreed(session: Session, rule: str | SizeRule) -> dict[str, Any] | None:
    marked = _marked(session)
    if not marked:
        return None
    name, _ = _rule(rule)
    derived = {e.details["call"] for e in derive(session, rule)}
    both = len(marked & derived)
    return {
        "session": session.id,
        "format": session.format,
        "rule": name,
        "calls": sum(len(c) for c in billed(session).values()),
        "marked": len(marked),
        "derived": len(derived),
        "agreed": both,
        "missed": len(marked) - both,
        "invented": len(derived) - both,
        "found": both / len(marked),
        "true": both / len(derived) if derived else None,
    }


def _marked(session: Session) -> set[int]:
    """Numbers of the first billed calls after each recorded compaction that had billed calls before
    it.
    """
    places = {c.position: c.index for calls in billed(session).values() for c, _ in calls}
    out: set[int] = set()
    due = seen = False
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            due = due or (
                seen and entry.source == "recorded" and entry.kind in ("summarised", "dropped")
            )
        elif position in places:
            if due:
                out.add(places[position])
            due, seen = False, True
    return out


def _rule(rule: str | SizeRule) -> tuple[str, SizeRule]:
    if callable(rule):
        return str(getattr(rule, "__name__", type(rule).__name__.lower())), rule
    if rule not in RULES:
        raise BadArguments(
            f"There is no rule {rule!r}.{did_you_mean(str(rule), RULES)} Rules: {', '.join(RULES)}."
        )
    return rule, RULES[rule]
