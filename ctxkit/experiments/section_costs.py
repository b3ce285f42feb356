"""Costs of prompt sections (`sections`) by ablation: a bill with and without each section."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ctxkit._internal.lazy import public_dir
from ctxkit.engine.replay import compute_shared_tokens, run_replay
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.experiments.cost_and_loss_scores import SessionScoreCache
from ctxkit.formats.session_arguments import accepts_session
from ctxkit.metrics.compactions import get_run_compactions
from ctxkit.metrics.cost.replay_bill import bill_replay
from ctxkit.metrics.frames.building import build_frame
from ctxkit.metrics.frames.columns import FLOAT, INT, TEXT, FrameColumn
from ctxkit.metrics.means_with_unknowns import sum_if_complete
from ctxkit.metrics.prompt_composition import separate_schemas, split_message_tokens
from ctxkit.metrics.prompt_composition import split_sections as cut
from ctxkit.metrics.prompt_sizes import SentPromptSizes
from ctxkit.policies.context_rules import RecordedCompactionsPolicy, recorded_rules
from ctxkit.presets.registry import resolve_rules
from ctxkit.session.messages import SECTIONS_KEY, Message, Text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from ctxkit.engine import Run
    from ctxkit.metrics.cost.replay_bill import ReplayBill
    from ctxkit.policies.context_rules import Rules
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
        "cost_usd",
        FLOAT,
        "US dollars",
        "the bill with it less the bill without it; missing without a price",
    ),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
TOOL_SCHEMAS_ROW, TIME_AT_TOP_ROW = "tool schemas", "time, at the top"


@accepts_session
def sections(session: Session, rules: RulesLike | None = None) -> pd.DataFrame:
    """Measure what each section of a session's prompts costs over the whole session.

    The dollars of a row are the difference between two bills, with the section and without it, by
    the cache behaviour of the record (see `metrics.cost.replay_bill`). Each section is removed
    alone. Where the prompts state the time, a last row gives the extra cost of stating it again at
    the top of each turn, which makes everything behind it fresh input.

    Args:
        session: any session, the path of a log, or a list of messages.
        rules: rules or a preset to bill under; None: the compactions as recorded.

    Returns:
        One row per section in the order of first appearance; columns: `SECTION_COLUMNS`.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.experiments.section_costs import sections
        >>> sections(ck.samples.path())["section"].tolist()
        ['preamble', 'Tools', 'Habits', 'Answers', 'tool schemas']
    """
    costs = _SectionCosts(session, rules)
    rows = [*map(costs.make_row, costs.names), *costs.make_tool_rows(), *costs.make_time_rows()]
    return build_frame(
        SECTION_COLUMNS, {c.name: [row.get(c.name) for row in rows] for c in SECTION_COLUMNS}
    )


# Ablation study: the cost of a section is the bill of the recorded prompts less the bill of the
# same prompts without it. Both bills come from one cost model and from the recorded message sizes,
# so the counter's error cancels in the difference. Invariant: the calls are the same in both runs.
# Tokens of a message are shared among its sections (`split_message_tokens`). Costs of sections do
# not add up to the whole, because removing one also shifts where the cached prefix ends. Cost: one
# replay and one bill per section.
class _SectionCosts:
    """Sections of a session with their tokens, and the bill of the prompts that hold them all."""

    def __init__(self, session: Session, rules: RulesLike | None) -> None:
        self.session, self.billing = session, PromptBilling(session, rules)
        self.sections = [get_named_sections(m) for m in session.messages]
        self.names = list(dict.fromkeys(name for each in self.sections for name, _ in each))
        triples = zip(session.messages, self.billing.sizes.tokens, self.sections, strict=True)
        self.section_tokens = [_share_section_tokens(m, n, f) for m, n, f in triples]
        self.recorded_run = self.billing.run(session)
        self.recorded_bill = self.billing.bill(self.recorded_run)

    def make_row(self, name: str) -> dict[str, Any]:
        """Return the row of one section."""
        section_tokens = [
            sum(n for (section, _), n in zip(named, sizes, strict=True) if section == name)
            for named, sizes in zip(self.sections, self.section_tokens, strict=True)
        ]
        tokens = [
            n - part for n, part in zip(self.billing.sizes.tokens, section_tokens, strict=True)
        ]
        bill_without = self.billing.bill(self.billing.run(without(self.session, name), tokens))
        texts = [text for f in self.sections for section, text in f if section == name]
        raws = [
            raw for m in self.session.messages for section, _, raw in m.sections if section == name
        ]
        figures = {
            "section": name,
            "said_n": len(texts),
            "raw_chars": sum(raws) if raws else None,
            "chars": sum(map(len, texts)),
            "tokens": sum(section_tokens),
        }
        return self._price_row(figures, self.recorded_bill, bill_without)

    def make_tool_rows(self) -> list[dict[str, Any]]:
        """Return the row of the tool schemas; no row where the session has none."""
        schema_tokens = [sum(separate_schemas(self.session, n)[1]) for n in self.billing.fixed]
        if not any(schema_tokens):
            return []
        fixed = [n - less for n, less in zip(self.billing.fixed, schema_tokens, strict=True)]
        less = self.billing.bill(self.billing.run(self.session, fixed=fixed))
        return [
            self._price_row(
                {"section": TOOL_SCHEMAS_ROW, "tokens": schema_tokens[-1]}, self.recorded_bill, less
            )
        ]

    def make_time_rows(self) -> list[dict[str, Any]]:
        """Return the row of a time stated again at each turn; no row where no time is stated."""
        if "time" not in self.names or not self.session.calls:
            return []
        # At the first call of each turn only the text before the time can be read from the cache.
        firsts, before = dict[int, int](), self.session.calls[0].turn
        for call in self.session.calls:
            if call.turn != before:
                before = call.turn
                firsts[call.index] = (
                    max(self.billing.fixed[call.index], 0) + self._count_before_time()
                )
        return [
            self._price_row(
                {"section": TIME_AT_TOP_ROW},
                self.billing.bill(self.recorded_run, firsts),
                self.recorded_bill,
            )
        ]

    def _count_before_time(self) -> int:
        """Return the tokens in front of the time in the first message that states it."""
        for sections, tokens in zip(self.sections, self.section_tokens, strict=True):
            names = [name for name, _ in sections]
            if "time" in names:
                return sum(tokens[: names.index("time")])
        raise BadArguments("No section says the time.")

    def _price_row(
        self, figures: dict[str, Any], more: ReplayBill, less: ReplayBill
    ) -> dict[str, Any]:
        is_priced = more.cost_usd is not None and less.cost_usd is not None
        usd = more.cost_usd - less.cost_usd if is_priced else None  # type: ignore[operator]
        billed = more.prompts - less.prompts
        head = {"session": self.session.id, "source": self.billing.base.source}
        return {**head, **figures, "billed_tokens": billed, "cost_usd": usd}


def _share_section_tokens(message: Any, tokens: int, sections: list[tuple[str, str]]) -> list[int]:
    """Return the tokens of each section of a message; their sum is at most the message's."""
    return [n for _, n in split_message_tokens(message, tokens)][: len(sections)]


@accepts_session
def without(session: Session, *names: str) -> Session:
    """Return a session without some sections of its prompts, for replays under any rules.

    A live session names its sections (`base`, `runtime`, `gitignore`, ...). In the log of another
    program, headings and tagged blocks of the system prompt are sections, as in `ck.report`. A
    message with no other content is no longer sent. Recorded usage is not changed: `sections` gives
    the change of the bill.

    Args:
        session: any session, the path of a log, or a list of messages.
        names: names of the sections to remove.

    Returns:
        A session with the same calls whose messages lack these sections.

    Raises:
        BadArguments: a section is not in the session.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.experiments.section_costs import sections, without
        >>> shorter = without(ck.samples.path(), "Habits")
        >>> sections(shorter)["section"].tolist()
        ['preamble', 'Tools', 'Answers', 'tool schemas']
    """
    section_names = list(
        dict.fromkeys(name for m in session.messages for name, _ in get_named_sections(m))
    )
    for name in names:
        if name not in section_names:
            has = ", ".join(section_names) or "none"
            raise BadArguments(
                f"The session has no section {name!r}; it has {has}."
                f"{did_you_mean(name, section_names)}"
            )
    log = tuple(_without_sections(e, names) if isinstance(e, Message) else e for e in session.log)
    return replace(session, log=log)


def get_named_sections(message: Message) -> list[tuple[str, str]]:
    """Return name and text of each section of a message; empty where it has none."""
    if message.sections:
        return [(name, text) for name, text, _ in message.sections]
    if message.role != "system" or not message.visible:
        return []
    return [s for p in message.parts if isinstance(p, Text) for s in cut(p.text)]


def _without_sections(message: Message, names: Collection[str]) -> Message:
    """Return a message without some sections; one that becomes empty is marked as not sent."""
    sections = get_named_sections(message)
    if all(name not in names for name, _ in sections):
        return message
    if message.sections:
        section_details = message.details[SECTIONS_KEY]
        remaining = [
            (t, p)
            for t, p, s in zip(section_details, message.parts, sections, strict=True)
            if s[0] not in names
        ]
        details = {**message.details, SECTIONS_KEY: [t for t, _ in remaining]}
        parts = tuple(p for _, p in remaining)
        is_sent = bool(parts) and message.visible
        return replace(message, parts=parts, details=details, visible=is_sent)
    others = [p for p in message.parts if not isinstance(p, Text)]
    text = "".join(text for name, text in sections if name not in names)
    parts = (*([Text(text)] if text.strip() else []), *others)
    return replace(message, parts=parts, visible=bool(parts) and message.visible)


class PromptBilling:
    """Bills of the prompts of a session under rules, as recorded and with changed messages.

    All bills use the message sizes of the record, so that a difference of two bills comes from the
    prompts alone.

    Args:
        session: the recorded session.
        rules: rules or a preset; None: the compactions as recorded.
    """

    def __init__(self, session: Session, rules: RulesLike | None = None) -> None:
        self.rules: Rules = recorded_rules() if rules is None else resolve_rules(rules)
        self.base = SessionScoreCache(session)
        self.sizes = self.base.anchored
        # recorded compactions keep the recorded overhead of each call; rules start from the first
        as_recorded = isinstance(self.rules.policy, RecordedCompactionsPolicy)
        pairs = zip(self.sizes.fixed_at, self.sizes.unsent_at, strict=True)
        self.fixed = (
            [n - gone for n, gone in pairs] if as_recorded else list(self.sizes.first_fixed_at)
        )
        """Prompt tokens of each call that belong to no message, such as tool schemas."""

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
        run: Run,
        shared: Mapping[int, int] | None = None,
        base: SessionScoreCache | None = None,
    ) -> ReplayBill:
        """Return the bill of a run.

        Args:
            run: the run.
            shared: upper limit of the tokens that a call shares with the previous prompt, by call.
            base: the session whose cache and prices are used; None: the recorded one.
        """
        # tokens that a prompt shares with the previous one: longest common prefix, by messages
        shared_tokens = compute_shared_tokens(run).tolist()
        for call, limit in (shared or {}).items():
            shared_tokens[call] = min(shared_tokens[call], limit)
        sent = SentPromptSizes(run.prompts.tolist(), shared_tokens)
        cost_model = (base or self.base).sheet
        return bill_replay(
            cost_model,
            sent,
            sum_if_complete(
                cost_model.summaries_usd(s.summaries) for s in get_run_compactions(run)
            ),
        )
