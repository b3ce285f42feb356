"""What becomes of a hand-off whose contract failed: fuseraft's FailureHandling and Verifier."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ctxkit.display.markup import plain
from ctxkit.errors import BadArguments
from ctxkit.teams.config_fields import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.teams.config_fields import Fields

FailureKind = Literal["MissingEvidence", "InvalidTransition", "ConflictingEvidence", "NoProgress"]
FailureAction = Literal["Reinstruct", "ActivateRecovery", "EscalateToHuman", "Abort"]
KINDS: tuple[FailureKind, ...] = (
    "MissingEvidence", "InvalidTransition", "ConflictingEvidence", "NoProgress",
)  # fmt: skip
ACTIONS: tuple[FailureAction, ...] = (
    "Reinstruct", "ActivateRecovery", "EscalateToHuman", "Abort",
)  # fmt: skip
SILENT = 3
"""Turns in a row of one state without one clear signal, after which the team stops."""
FAILED = 4
"""Times in a row that a contract may fail before the team stops."""
RECOVER = 2
"""Times in a row that a contract fails before the agent for recovery gets a turn (fuseraft's)."""
_AGAINST = ("failed", "holds an assertion", "as not passed")
"""How the kit ends what it says of evidence that is there and speaks against the claim."""


@dataclass(frozen=True, kw_only=True)
class FailurePolicy:
    """How long a team goes on without a signal, and with contracts that fail."""

    silent: int = SILENT
    failed: int = FAILED
    of: dict[str, tuple[FailureAction, int]] = field(default_factory=dict)
    """By the kind of a failure: what is done, and how often in a row at most (0: as `failed`)."""

    def stops(self, kind: FailureKind, count: int) -> bool:
        """Say whether a contract that failed so often in a row stops the team."""
        action, most = self.of.get(kind, ("Reinstruct", 0))
        return action == "EscalateToHuman" or count >= (most or self.failed)

    def recovers(self, kind: FailureKind, count: int) -> bool:
        """Say whether the agent for recovery gets its turn, where there is one."""
        action, _ = self.of.get(kind, ("Reinstruct", 0))
        return action == "ActivateRecovery" or count >= RECOVER


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """An agent that looks, now and then, whether claims and evidence agree."""

    agent: str
    every: int = 0
    """After so many turns of the others; 0: only where something is odd."""
    suspicious: bool = True
    """After a failure that is ConflictingEvidence or NoProgress, too."""
    word: str = "INCONSISTENCY"
    """Where its reply holds this, the next agent is told of a finding."""

    def due(self, turns: int, kind: object) -> bool:
        """Say whether it looks after a turn: how many there were, the kind of its failure."""
        odd = self.suspicious and kind in ("ConflictingEvidence", "NoProgress")
        return odd or (self.every > 0 and turns % self.every == 0)


def kind_of(missing: Sequence[str], *, again: bool, worked: bool) -> FailureKind:
    """Return the kind of a failure.

    Args:
        missing: in words, what a contract lacks.
        again: it failed the turn before, too.
        worked: the agent called a tool in this turn.
    """
    if again and not worked:
        return "NoProgress"
    against = any(why.endswith(_AGAINST) for why in missing)
    return "ConflictingEvidence" if against else "MissingEvidence"


def policy_of(f: Fields | None) -> FailurePolicy:
    """Return the policy of a section `FailureHandling`."""
    if f is None:
        return FailurePolicy()
    of = dict[str, tuple[FailureAction, int]]()
    for kind in KINDS:
        row = f.section(kind)
        if row is None:
            continue
        known = {a.casefold(): a for a in ACTIONS}
        action = known.get((row.text("Action") or "Reinstruct").casefold())
        if action is None:
            raise BadArguments(
                f"FailureHandling.{kind}.Action is {plain(row.text('Action'), 40)!r}; there are "
                f"{listed(ACTIONS)}."
            )
        of[kind] = action, row.number("Threshold")
    return FailurePolicy(
        silent=f.number("MaxConsecutiveTurnsWithoutSignal") or SILENT,
        failed=f.number("MaxConsecutiveContractFailures") or FAILED,
        of=of,
    )


def verifier_of(f: Fields | None, names: Sequence[str]) -> Verifier | None:
    """Return the verifier of a section `Verifier`; None: there is none."""
    if f is None:
        return None
    wanted = f.text("AgentName")
    agent = next((n for n in names if n.casefold() == wanted.casefold()), None)
    if agent is None:
        raise BadArguments(
            f"Verifier.AgentName is {plain(wanted, 60)!r}, and there are {listed(names)}."
        )
    odd = f.get("TriggerOnSuspiciousTransition")
    return Verifier(
        agent=agent, every=f.number("EveryNTurns"),
        suspicious=True if odd is None else f.flag("TriggerOnSuspiciousTransition"),
        word=f.text("FindingsKeyword") or Verifier.word,
    )  # fmt: skip
