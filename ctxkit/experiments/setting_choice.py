"""The choice between several settings: the cheapest within a bound on loss, in one sentence."""

# A choice between settings has two ends, the cheapest and the one that loses least. The advice is
# the cheapest setting whose loss is within a bound: the user's, else the loss of the record. A
# cheaper setting beyond the bound is mentioned with its loss.

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ctxkit._internal.formatting import format_percent, format_usd, sanitize_line
from ctxkit.errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Sequence


class SettingOutcome(NamedTuple):
    """The dollars and the needed-later loss of a setting that can be chosen."""

    name: str
    usd: float
    loss: float | None = None
    """Share of the reused items that were out of sight when used; None: unknown."""
    flaw: str = ""
    """Reason why it cannot be the best, as the end of a sentence ("it thrashes")."""
    caution: str = ""
    """What to know of it although it can be the best, in the same form."""


class SettingChoice(NamedTuple):
    """The ends of a choice between settings; None: no setting qualifies."""

    best: SettingOutcome | None
    """The cheapest within the bound."""
    cheapest: SettingOutcome | None
    """The cheapest of all."""
    loses_least: SettingOutcome | None
    max_loss: float | None
    """The bound; None: there is none."""
    is_record_bound: bool = False
    """True where the bound is the loss of the record."""
    record: SettingOutcome | None = None
    """The record, where it is among the settings."""
    outcomes_n: int = 0
    """Settings with a known cost that fit the window, the record among them."""

    @property
    def sentence(self) -> str:
        """The choice in words, with dollars and losses."""
        if self.cheapest is None:
            return "Nothing can be chosen: no setting that fits the window has a known cost."
        if self.outcomes_n == 1 and self.cheapest == self.record:
            return (
                "Nothing can be chosen: no setting that fits the window has a known cost, the"
                f" record {_describe(self.record, with_name=False)}."
            )
        first = self.best
        if self.max_loss is None:
            first = self.best or self.cheapest
            start = f"Cheapest: {_describe(first)}"
        else:
            whose = " (as the record did)" if self.is_record_bound else ""
            bound = f"no more than {format_percent(self.max_loss)}{whose}"
            if self.best is None:
                sound = " and has no drawback" if self._has_flawed_within() else ""
                start = f"No setting loses {bound}{sound}"
            elif self.best == self.record:
                start = (
                    f"Nothing that loses {bound} is cheaper than the record:"
                    f" {_describe(self.best, with_name=False)}"
                )
            else:
                start = f"Cheapest of those that lose {bound}: {_describe(self.best)}"
        return f"{start}.{self._describe_ends(first)}"

    def _has_flawed_within(self) -> bool:
        least = self.loses_least
        return (
            least is not None
            and least.loss is not None
            and self.max_loss is not None
            and least.loss <= self.max_loss
        )

    def _describe_ends(self, first: SettingOutcome | None) -> str:
        """Describe the ends of the choice that were not described first."""
        out = ""
        if self.cheapest not in (None, first):
            out += f" Cheapest of all: {_describe(self.cheapest)}."
        if self.loses_least not in (None, first, self.cheapest):
            out += f" Loses least: {_describe(self.loses_least)}."
        elif self.loses_least not in (None, first):
            out += " No other loses less."
        return out


def choose_setting(
    outcomes: Sequence[SettingOutcome],
    max_loss: float | None = None,
    *,
    record: SettingOutcome | None = None,
) -> SettingChoice:
    """Return the ends of the choice between some settings.

    Args:
        outcomes: the settings that can be chosen, including the record if it can be chosen.
        max_loss: share of the reused items that may be lost; None: the loss of the record.
        record: the record, whose loss is the default bound.

    Returns:
        The cheapest within the bound, the cheapest of all and the one that loses least; None in
        place of one that no setting qualifies for.

    Raises:
        BadArguments: `max_loss` is not a share.

    Example:
        >>> from ctxkit.experiments.setting_choice import SettingOutcome, choose_setting
        >>> cheap, safe = SettingOutcome("a", 1.0, 0.4), SettingOutcome("b", 2.0, 0.1)
        >>> choose_setting([cheap, safe], max_loss=0.2).best.name
        'b'
    """
    check_max_loss(max_loss)
    is_record_bound = max_loss is None and record is not None
    if is_record_bound and record is not None:
        max_loss = record.loss
    by_cost = sorted(outcomes, key=lambda o: (o.usd, o.loss or 0.0))
    sound = [o for o in by_cost if not o.flaw]
    within = [o for o in sound if max_loss is None or (o.loss is not None and o.loss <= max_loss)]
    with_loss = [o for o in by_cost if o.loss is not None]
    return SettingChoice(
        best=within[0] if within else None,
        cheapest=by_cost[0] if by_cost else None,
        loses_least=min(with_loss, key=lambda o: (o.loss, o.usd), default=None),
        max_loss=max_loss,
        is_record_bound=is_record_bound,
        record=record,
        outcomes_n=len(by_cost),
    )


def check_max_loss(max_loss: float | None) -> None:
    """Refuse a bound that is not a share.

    Args:
        max_loss: share of the items needed later that may be lost; None: no bound is given.

    Raises:
        BadArguments: the bound is not between 0 and 1.
    """
    if max_loss is not None and (isinstance(max_loss, bool) or not 0 <= max_loss <= 1):
        raise BadArguments(f"max_loss is a share from 0 to 1, as 0.2, not {max_loss!r}.")


def _describe(outcome: SettingOutcome | None, *, with_name: bool = True) -> str:
    if outcome is None:
        return ""
    lost = "loss unknown" if outcome.loss is None else f"{format_percent(outcome.loss)} lost"
    name = f"{sanitize_line(outcome.name, 60)}, " if with_name else ""
    drawback = outcome.flaw or outcome.caution
    but = f", but {drawback}" if drawback else ""
    return f"{name}{format_usd(outcome.usd)}, {lost}{but}"
