"""What all rows of one recorded session share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ctxkit.cache.cuts import after_cuts, cut_error
from ctxkit.cache.predictions import NAIVE, prediction
from ctxkit.metrics.afterwards import Acts, Afterwards
from ctxkit.metrics.bills import Sheet
from ctxkit.metrics.forgotten import Forgotten
from ctxkit.metrics.indexes import Index
from ctxkit.metrics.item_arrays import ItemArrays
from ctxkit.metrics.loss import columns
from ctxkit.metrics.tellings import Telling
from ctxkit.sizes import Sizes, sizes
from ctxkit.sizes.windows import window_of
from ctxkit.sweeps.expectations import Expectation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ctxkit.cache.predictions import Prediction
    from ctxkit.metrics.tellings import Shown
    from ctxkit.session import Session

_FORETOLD = ("half_error", "split_error", *(f"{n}_error" for n in NAIVE))


class Base:
    """What all rows of one recorded session share: made once, whatever is replayed on it."""

    def __init__(self, session: Session) -> None:
        self.session = session

    @cached_property
    def anchored(self) -> Sizes:
        """The sizes of its messages."""
        return sizes(self.session)

    @cached_property
    def sheet(self) -> Sheet:
        """What it tells about the cost of replays."""
        return Sheet.of(self.session, self.anchored)

    @cached_property
    def foretold(self) -> Prediction:
        """What other sessions foretell of its input side."""
        return prediction(self.session)

    @cached_property
    def memory(self) -> ItemArrays:
        """What its messages hold, as arrays."""
        return ItemArrays(self.session, Index(self.anchored))

    @cached_property
    def acts(self) -> Acts:
        """What its calls did."""
        return Acts(self.memory)

    @cached_property
    def forecast(self) -> Expectation:
        """What its rows say of real runs."""
        return Expectation(self.session)

    @cached_property
    def window(self) -> int | None:
        """Tokens of its window, at its last call; None: neither log nor table knows it."""
        if not self.session.calls:
            return self.session.context_window
        last = self.session.calls[-1].message
        return window_of(self.session, last.model or self.session.model, last).tokens

    def over(
        self, prompts: Iterable[int | None], peak: int | None, own: Any = None
    ) -> dict[str, Any]:
        """Return the columns of the window: its size, and the first call that does not fit into it.

        Args:
            prompts: tokens of each call's prompt.
            peak: the largest of them.
            own: the window that rules are set to.
        """
        window = max(self.window, own) if self.window and type(own) is int else self.window
        if not window or peak is None or peak <= window:
            return {"window_tokens": window}
        first = next((i for i, n in enumerate(prompts) if n is not None and n > window), None)
        return {"window_tokens": window, "over_call": first}

    def head(self, rules: str, source: str | None) -> dict[str, Any]:
        """Return the columns that do not depend on a run."""
        return {"session": self.session.id, "rules": rules, **self._told, "source": source}

    @cached_property
    def _told(self) -> dict[str, Any]:
        sheet = self.sheet
        return {
            "calls_n": sum(sheet.billed),
            "output_tokens": sheet.output_tokens,
            **{n: getattr(self.foretold, n) for n in _FORETOLD},
            "prediction_error": self.foretold.error,
            "prediction_low": self.foretold.low,
            "prediction_high": self.foretold.high,
            "prediction_note": self.foretold.why,
            "cut_error": cut_error(after_cuts(self.session)),
            "closure_error": sheet.closure,
            "unexplained_misses": sheet.unexplained,
            "explained_loss": sheet.explained,
            "priced": sheet.priced,
            "counter": self.anchored.counter,
            "counter_error": self.anchored.error,
            "session_notes": " ".join(self.session.notes) or None,
        }

    def loss(self, shown: Shown) -> dict[str, Any]:
        """Return the columns of loss, and of what was done after what was taken out."""
        return dict(self._nothing_lost) if not len(shown.moments) else self._loss(shown)

    @cached_property
    def _nothing_lost(self) -> dict[str, Any]:
        return self._loss(Telling(self.memory).told())

    def _loss(self, shown: Shown) -> dict[str, Any]:
        forgotten = Forgotten(self.memory, shown)
        found = columns(forgotten) | Afterwards(forgotten, self.acts).columns()
        return found | {"loss_note": _why_missing(found)}

    @property
    def source(self) -> str:
        """Where the sizes of a replay come from."""
        return "derived" if self.sheet.has_usage else "estimated"


def _why_missing(found: dict[str, Any]) -> str | None:
    """Return why the shares of loss are missing where there is text."""
    if found["needed_later_loss"] is None:
        return "Nothing that was said is named again later, so what was needed cannot be said."
    if found["summary_recall"] is None and found["at_stake_n"]:
        return "No text was put in, so there is no summary to be judged."
    return None
