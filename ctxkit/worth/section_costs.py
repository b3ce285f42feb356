"""What each section of the prompts costs in a session: tokens at every call, and dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.composition.groups import shares
from ctxkit.composition.groups_by_call import schemas_of
from ctxkit.errors import BadArguments
from ctxkit.frames.frame_columns import FLOAT, INT, TEXT, FrameColumn, build
from ctxkit.readers.given import of_session
from ctxkit.worth.invoices import Invoices
from ctxkit.worth.leaving import named, without

if TYPE_CHECKING:
    import pandas as pd

    from ctxkit.metrics.tallies import Bill
    from ctxkit.presets.naming import AnyRules
    from ctxkit.session import Session

COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn(
        "section", TEXT, "", "its name; `time, at the top`: what saying it anew there would add"
    ),
    FrameColumn("said_n", INT, "messages", "times that it was said"),
    FrameColumn("raw_chars", INT, "characters", "of what it was made from, where the log says it"),
    FrameColumn("chars", INT, "characters", "as it was put in"),
    FrameColumn("tokens", INT, "tokens", "as it was put in, all times together"),
    FrameColumn("billed_tokens", INT, "tokens", "prompts of all calls with it, less those without"),
    FrameColumn(
        "usd",
        FLOAT,
        "US dollars",
        "the bill with it less the bill without it; missing without a price",
    ),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
TOOLS, TOP = "tool schemas", "time, at the top"


@of_session
def sections(session: Session, rules: AnyRules | None = None) -> pd.DataFrame:
    """Return what each section of a session's prompts costs: one row a section, in their order.

    A row's dollars are those of the whole session: "without this section, so many dollars less".
    Each is worked out alone, by the cache's behaviour in the record (see `metrics.bills`). The last
    row is what the time would add if it were said anew at the top of each turn's prompt, where all
    that stands behind it is billed as new.

    Args:
        session: any session, the path of a log, or a list of messages.
        rules: rules or a preset to ask about; None: as it was compacted.
    """
    asked = _Asked(session, rules)
    rows = [*map(asked.row, asked.names), *asked.tools(), *asked.top()]
    return build(COLUMNS, {c.name: [row.get(c.name) for row in rows] for c in COLUMNS})


class _Asked:
    """One question about the sections of a session."""

    def __init__(self, session: Session, rules: AnyRules | None) -> None:
        self.session, self.invoices = session, Invoices(session, rules)
        self.found = [named(m) for m in session.messages]
        self.names = list(dict.fromkeys(name for each in self.found for name, _ in each))
        held = zip(session.messages, self.invoices.sizes.tokens, self.found, strict=True)
        self.parts = [_tokens(m, n, f) for m, n, f in held]
        self.done = self.invoices.run(session)
        self.whole = self.invoices.bill(self.done)

    def row(self, name: str) -> dict[str, Any]:
        """Return what one section costs."""
        each = [sum(n for (found, _), n in zip(f, p, strict=True) if found == name)
                for f, p in zip(self.found, self.parts, strict=True)]  # fmt: skip
        tokens = [n - less for n, less in zip(self.invoices.sizes.tokens, each, strict=True)]
        less = self.invoices.bill(self.invoices.run(without(self.session, name), tokens))
        texts = [text for f in self.found for found, text in f if found == name]
        raws = [raw for m in self.session.messages for found, _, raw in m.sections if found == name]
        told = {
            "section": name,
            "said_n": len(texts),
            "raw_chars": sum(raws) if raws else None,
            "chars": sum(map(len, texts)),
            "tokens": sum(each),
        }
        return self._priced(told, self.whole, less)

    def tools(self) -> list[dict[str, Any]]:
        """Return what the schemas of the tools cost, where the session has any."""
        held = [sum(schemas_of(self.session, n)[1]) for n in self.invoices.fixed]
        if not any(held):
            return []
        fixed = [n - less for n, less in zip(self.invoices.fixed, held, strict=True)]
        less = self.invoices.bill(self.invoices.run(self.session, fixed=fixed))
        return [self._priced({"section": TOOLS, "tokens": held[-1]}, self.whole, less)]

    def top(self) -> list[dict[str, Any]]:
        """Return what the time would add, said anew at the top of each turn, where it is said."""
        if "time" not in self.names or not self.session.calls:
            return []
        firsts, before = dict[int, int](), self.session.calls[0].turn
        for call in self.session.calls:
            if call.turn != before:
                before = call.turn
                firsts[call.index] = max(self.invoices.fixed[call.index], 0) + self._before_time()
        return [self._priced({"section": TOP}, self.invoices.bill(self.done, firsts), self.whole)]

    def _before_time(self) -> int:
        """Return the tokens of what stands before the time in the message that first says it."""
        for found, tokens in zip(self.found, self.parts, strict=True):
            told = [name for name, _ in found]
            if "time" in told:
                return sum(tokens[: told.index("time")])
        raise BadArguments("No section says the time.")

    def _priced(self, told: dict[str, Any], more: Bill, less: Bill) -> dict[str, Any]:
        known = more.total_usd is not None and less.total_usd is not None
        usd = more.total_usd - less.total_usd if known else None  # type: ignore[operator]
        billed = more.prompts - less.prompts
        head = {"session": self.session.id, "source": self.invoices.base.source}
        return {**head, **told, "billed_tokens": billed, "usd": usd}


def _tokens(message: Any, tokens: int, found: list[tuple[str, str]]) -> list[int]:
    """Return the tokens of each section of a message: together no more than the message has."""
    return [n for _, n in shares(message, tokens)][: len(found)]
