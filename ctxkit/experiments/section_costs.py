"""`ctxkit.sections` and `ctxkit.without`: what each section of the prompts costs, by leaving it
out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit._internal.lazy import public_dir
from ctxkit.engine.replay import compute_shared_tokens, run_replay
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.experiments.scores import SessionScoreCache
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.compactions import get_run_compactions
from ctxkit.metrics.cost.replay_bill import bill_replay
from ctxkit.metrics.frames.columns import FLOAT, INT, TEXT, FrameColumn, build_frame
from ctxkit.metrics.prompt_groups import separate_schemas, share_message_tokens
from ctxkit.metrics.prompt_groups import split_sections as cut
from ctxkit.metrics.prompt_sizes import SentPrompts
from ctxkit.metrics.stats import sum_if_complete
from ctxkit.policies.rules import RecordedCompactions, recorded_rules
from ctxkit.presets.registry import resolve_rules
from ctxkit.session.messages import SECTIONS_KEY, Message, Text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from ctxkit.engine import Run
    from ctxkit.metrics.cost.replay_bill import ReplayBill
    from ctxkit.policies.rules import Rules
    from ctxkit.presets.registry import RulesLike
    from ctxkit.session.session import Session


__all__ = ["sections", "without"]
__dir__ = public_dir(__all__)


SECTION_COLUMNS = (
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
TOOL_SCHEMAS_ROW, TIME_AT_TOP_ROW = "tool schemas", "time, at the top"


@accepts_session
def sections(session: Session, rules: RulesLike | None = None) -> pd.DataFrame:
    """Return what each section of a session's prompts costs: one row a section, in their order.

    A row's dollars are those of the whole session: "without this section, so many dollars less".
    Each is worked out alone, by the cache's behaviour in the record (see
    `metrics.cost.replay_bill`). The last row is what the time would add if it were said anew at the
    top of each turn's prompt, where all that stands behind it is billed as new.

    Args:
        session: any session, the path of a log, or a list of messages.
        rules: rules or a preset to ask about; None: as it was compacted.
    """
    asked = _SectionCosts(session, rules)
    rows = [*map(asked.row, asked.names), *asked.tools(), *asked.top()]
    return build_frame(
        SECTION_COLUMNS, {c.name: [row.get(c.name) for row in rows] for c in SECTION_COLUMNS}
    )


class _SectionCosts:
    """One question about the sections of a session."""

    def __init__(self, session: Session, rules: RulesLike | None) -> None:
        self.session, self.invoices = session, PromptBilling(session, rules)
        self.found = [get_named_sections(m) for m in session.messages]
        self.names = list(dict.fromkeys(name for each in self.found for name, _ in each))
        held = zip(session.messages, self.invoices.sizes.tokens, self.found, strict=True)
        self.parts = [_section_tokens(m, n, f) for m, n, f in held]
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
        held = [sum(separate_schemas(self.session, n)[1]) for n in self.invoices.fixed]
        if not any(held):
            return []
        fixed = [n - less for n, less in zip(self.invoices.fixed, held, strict=True)]
        less = self.invoices.bill(self.invoices.run(self.session, fixed=fixed))
        return [self._priced({"section": TOOL_SCHEMAS_ROW, "tokens": held[-1]}, self.whole, less)]

    def top(self) -> list[dict[str, Any]]:
        """Return what the time would add, said anew at the top of each turn, where it is said."""
        if "time" not in self.names or not self.session.calls:
            return []
        firsts, before = dict[int, int](), self.session.calls[0].turn
        for call in self.session.calls:
            if call.turn != before:
                before = call.turn
                firsts[call.index] = max(self.invoices.fixed[call.index], 0) + self._before_time()
        return [
            self._priced(
                {"section": TIME_AT_TOP_ROW}, self.invoices.bill(self.done, firsts), self.whole
            )
        ]

    def _before_time(self) -> int:
        """Return the tokens of what stands before the time in the message that first says it."""
        for found, tokens in zip(self.found, self.parts, strict=True):
            told = [name for name, _ in found]
            if "time" in told:
                return sum(tokens[: told.index("time")])
        raise BadArguments("No section says the time.")

    def _priced(self, told: dict[str, Any], more: ReplayBill, less: ReplayBill) -> dict[str, Any]:
        known = more.total_usd is not None and less.total_usd is not None
        usd = more.total_usd - less.total_usd if known else None  # type: ignore[operator]
        billed = more.prompts - less.prompts
        head = {"session": self.session.id, "source": self.invoices.base.source}
        return {**head, **told, "billed_tokens": billed, "usd": usd}


def _section_tokens(message: Any, tokens: int, found: list[tuple[str, str]]) -> list[int]:
    """Return the tokens of each section of a message: together no more than the message has."""
    return [n for _, n in share_message_tokens(message, tokens)][: len(found)]


@accepts_session
def without(session: Session, *names: str) -> Session:
    """Return a session whose prompts do not hold some sections, to be replayed under any rules.

    Sections are those that a live session names (`base`, `runtime`, `gitignore`, ...), and of a
    system prompt in another program's log its headings and tagged blocks, as `ck.report` has them.
    A message that said nothing else is no longer sent. Recorded usage stays as it was: what the
    prompts would have been billed tells `ck.experiments.sections`.

    Args:
        session: any session, the path of a log, or a list of messages.
        names: sections.

    Raises:
        BadArguments: a section is not in the session.
    """
    known = list(dict.fromkeys(name for m in session.messages for name, _ in get_named_sections(m)))
    for name in names:
        if name not in known:
            has = ", ".join(known) or "none"
            raise BadArguments(
                f"The session has no section {name!r}; it has {has}.{did_you_mean(name, known)}"
            )
    log = tuple(_without_sections(e, names) if isinstance(e, Message) else e for e in session.log)
    return replace(session, log=log)


def get_named_sections(message: Message) -> list[tuple[str, str]]:
    """Return name and text of the sections of a message; of one that has none, nothing."""
    if message.sections:
        return [(name, text) for name, text, _ in message.sections]
    if message.role != "system" or not message.visible:
        return []
    return [s for p in message.parts if isinstance(p, Text) for s in cut(p.text)]


def _without_sections(message: Message, names: Collection[str]) -> Message:
    """Return a message without sections; one of which nothing is left is not sent."""
    found = get_named_sections(message)
    if all(name not in names for name, _ in found):
        return message
    if message.sections:
        told = message.details[SECTIONS_KEY]
        kept = [
            (t, p) for t, p, s in zip(told, message.parts, found, strict=True) if s[0] not in names
        ]
        details = {**message.details, SECTIONS_KEY: [t for t, _ in kept]}
        parts = tuple(p for _, p in kept)
        sent = bool(parts) and message.visible
        return replace(message, parts=parts, details=details, visible=sent)
    others = [p for p in message.parts if not isinstance(p, Text)]
    text = "".join(text for name, text in found if name not in names)
    parts = (*([Text(text)] if text.strip() else []), *others)
    return replace(message, parts=parts, visible=bool(parts) and message.visible)


class PromptBilling:
    """Bills of a session's prompts under rules, as they were and as they might have been.

    All are worked out alike, from the sizes that the record gives its messages, so that their
    differences come from the prompts alone.

    Args:
        session: as it was.
        rules: None: as it was compacted.
    """

    def __init__(self, session: Session, rules: RulesLike | None = None) -> None:
        self.rules: Rules = recorded_rules() if rules is None else resolve_rules(rules)
        self.base = SessionScoreCache(session)
        self.sizes = self.base.anchored
        exactly = isinstance(self.rules.policy, RecordedCompactions)
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
        return run_replay(
            session, self.rules, tokens=tokens or self.sizes.tokens, fixed=fixed or self.fixed
        )

    def bill(
        self,
        done: Run,
        shared: Mapping[int, int] | None = None,
        base: SessionScoreCache | None = None,
    ) -> ReplayBill:
        """Return the bill of a run.

        Args:
            done: the run.
            shared: calls that share no more than so many tokens with the prompt before.
            base: the session whose cache and prices are taken; None: the one that is asked about.
        """
        alike = compute_shared_tokens(done).tolist()
        for call, most in (shared or {}).items():
            alike[call] = min(alike[call], most)
        sent = SentPrompts(done.prompts.tolist(), alike)
        sheet = (base or self.base).sheet
        return bill_replay(
            sheet,
            sent,
            sum_if_complete(sheet.summaries_usd(s.written) for s in get_run_compactions(done)),
        )
