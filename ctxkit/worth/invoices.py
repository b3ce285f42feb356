"""The one bill, for a session and for what it would have been with other prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ctxkit.metrics.means import whole
from ctxkit.metrics.shared_prefixes import Sent
from ctxkit.metrics.size import spots_of
from ctxkit.metrics.tallies import bill
from ctxkit.policies.recorded import AsRecorded, recorded
from ctxkit.presets.naming import as_rules
from ctxkit.replays import replayed, shared_tokens
from ctxkit.sweeps.bases import Base

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ctxkit.engine import Run
    from ctxkit.metrics.tallies import Bill
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.naming import AnyRules
    from ctxkit.session import Session


class Invoices:
    """Bills of a session's prompts under rules, as they were and as they might have been.

    All are worked out alike, from the sizes that the record gives its messages, so that their
    differences come from the prompts alone.

    Args:
        session: as it was.
        rules: None: as it was compacted.
    """

    def __init__(self, session: Session, rules: AnyRules | None = None) -> None:
        self.rules: Rules = recorded() if rules is None else as_rules(rules)
        self.base = Base(session)
        self.sizes = self.base.anchored
        exactly = isinstance(self.rules.policy, AsRecorded)
        pairs = zip(self.sizes.fixed_at, self.sizes.unsent_at, strict=True)
        self.fixed = [n - gone for n, gone in pairs] if exactly else list(self.sizes.begun)
        """For each call the tokens that no message holds."""

    def run(
        self,
        session: Session,
        tokens: Sequence[int] | None = None,
        fixed: Sequence[int] | None = None,
    ) -> Run:
        """Return the run of a session with the same calls whose messages have other sizes."""
        return replayed(
            session, self.rules, tokens=tokens or self.sizes.tokens, fixed=fixed or self.fixed
        )

    def bill(
        self, done: Run, shared: Mapping[int, int] | None = None, base: Base | None = None
    ) -> Bill:
        """Return the bill of a run.

        Args:
            done: the run.
            shared: calls that share no more than so many tokens with the prompt before.
            base: the session whose cache and prices are taken; None: the one that is asked about.
        """
        alike = shared_tokens(done).tolist()
        for call, most in (shared or {}).items():
            alike[call] = min(alike[call], most)
        sent = Sent(done.prompts.tolist(), alike)
        sheet = (base or self.base).sheet
        return bill(sheet, sent, whole(sheet.summaries_usd(s.written) for s in spots_of(done)))
