"""Ablations of what is in the context: bills with and without prompt sections (`sections`), a
context store (`index_or_paste`) and a memory (`with_memory`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ctxkit._internal.gc_pause import pause_gc
from ctxkit._internal.lazy_exports_and_late_bound_calls import make_dunder_dir
from ctxkit.engine.replay import compute_shared_tokens, run_replay
from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.experiments.cost_and_loss_scores import SessionAnalysisCache, measure_cost_and_loss
from ctxkit.experiments.sweep_workers import SessionRunner
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.compaction_savings_and_payback import get_rules_run_compactions
from ctxkit.metrics.cost.replay_cost_model import bill_replay
from ctxkit.metrics.frames.frame_column import FLOAT, INT, TEXT, FrameColumn
from ctxkit.metrics.frames.typed_frame_builder import build_frame
from ctxkit.metrics.means_and_prediction_intervals import sum_if_complete
from ctxkit.metrics.prompt_composition import separate_schemas, split_message_tokens
from ctxkit.metrics.prompt_composition import split_sections as cut
from ctxkit.metrics.prompt_sizes_and_contents import PromptAndSharedPrefixSizes
from ctxkit.policies.compaction_and_pruning_rules import RecordedCompactionsPolicy, recorded_rules
from ctxkit.policies.lesson_extraction_and_recall import LessonRecall, find_removed_lessons
from ctxkit.policies.policy_base_and_chains import flatten_chain
from ctxkit.presets.registry_and_setting_checks import resolve_rules
from ctxkit.session.messages import RECALLED_KIND, SECTIONS_KEY, Edit, Message, Text, ToolCall
from ctxkit.tokens import default_counter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from ctxkit.agent.document_store import ContextStore
    from ctxkit.engine import RulesRun
    from ctxkit.metrics.cost.replay_cost_model import ReplayBill
    from ctxkit.policies.compaction_and_pruning_rules import Rules
    from ctxkit.presets.registry_and_setting_checks import RulesLike
    from ctxkit.session.session import Session


__all__ = ["sections", "without"]
__dir__ = make_dunder_dir(__all__)


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
    the cache behaviour of the record (see `metrics.cost.replay_cost_model`). Each section is
    removed alone. Where the prompts state the time, a last row gives the extra cost of stating it
    again at the top of each turn, which makes everything behind it fresh input.

    Args:
        session: any session, the path of a log, or a list of messages.
        rules: rules or a preset to bill under; None: the compactions as recorded.

    Returns:
        One row per section in the order of first appearance; columns: `SECTION_COLUMNS`.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.experiments.ablations_of_sections_store_and_memory import sections
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
        self.session, self.billing = session, PromptVariantBiller(session, rules)
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
        usd = _subtract_figures(more.cost_usd, less.cost_usd)
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
        >>> from ctxkit.experiments.ablations_of_sections_store_and_memory import sections, without
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


class PromptVariantBiller:
    """Bills of the prompts of a session under rules, as recorded and with changed messages.

    All bills use the message sizes of the record, so that a difference of two bills comes from the
    prompts alone.

    Args:
        session: the recorded session.
        rules: rules or a preset; None: the compactions as recorded.
    """

    def __init__(self, session: Session, rules: RulesLike | None = None) -> None:
        self.rules: Rules = recorded_rules() if rules is None else resolve_rules(rules)
        self.base = SessionAnalysisCache(session)
        self.sizes = self.base.message_sizes
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
    ) -> RulesRun:
        """Run a session's calls with messages of other sizes.

        Args:
            session: the session.
            tokens: size of each message; None: as measured.
            fixed: fixed part of each call, in tokens; None: as measured.

        Returns:
            The run, with the prompts and their shared prefixes.
        """
        return run_replay(
            session, self.rules, tokens=tokens or self.sizes.tokens, fixed=fixed or self.fixed
        )

    def bill(
        self,
        run: RulesRun,
        shared: Mapping[int, int] | None = None,
        base: SessionAnalysisCache | None = None,
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
        sent = PromptAndSharedPrefixSizes(run.prompts.tolist(), shared_tokens)
        cost_model = (base or self.base).sheet
        return bill_replay(
            cost_model,
            sent,
            sum_if_complete(
                cost_model.summaries_usd(s.summaries) for s in get_rules_run_compactions(run)
            ),
        )


PASTE_COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("variant", TEXT, "", "as it ran: index and reads on demand; or pasted whole"),
    FrameColumn("calls_n", INT, "calls", "that are billed"),
    FrameColumn(
        "store_tokens", INT, "tokens", "of the store in the first prompt: its index, or all text"
    ),
    FrameColumn("prompt_tokens", INT, "tokens", "of the prompts of all calls"),
    FrameColumn("peak_tokens", INT, "tokens", "of the largest prompt"),
    FrameColumn("cache_read_tokens", INT, "tokens", "of them read from the cache"),
    FrameColumn("output_tokens", INT, "tokens", "of all replies"),
    FrameColumn(
        "cost_usd", FLOAT, "US dollars", "by the one bill; missing where no price is known"
    ),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
ON_DEMAND, PASTED = "index, read on demand", "pasted whole"
_STORE = "store"


class _PastedSession(NamedTuple):
    """The session with pasted text, and the positions of its messages and calls in the real one."""

    session: Session
    message_places: list[int]
    call_places: list[int]


@accepts_session
def index_or_paste(
    session: Session, store: ContextStore | None = None, *, rules: RulesLike | None = None
) -> pd.DataFrame:
    """Compare the cost of a session with an indexed context store and with all its text pasted.

    In the pasted variant the full text of the indexed items replaces the index, and calls that only
    read the store are removed with their results. All other steps stay as recorded, as in any
    replay.

    Args:
        session: a session whose prompt holds the index of a context store.
        store: the store that holds the text; None: the store of the current folder.
        rules: rules or a preset to bill under; None: the compactions as recorded.

    Returns:
        Two rows, ``"index, read on demand"`` and ``"pasted whole"``; columns: `PASTE_COLUMNS`.

    Raises:
        BadArguments: the session has no index, or the store holds none of its items.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.experiments.ablations_of_sections_store_and_memory import index_or_paste
        >>> index_or_paste(ck.read(ck.samples.path()))
        Traceback (most recent call last):
        ctxkit.errors.BadArguments: The session was shown no index of a context store: ...
    """
    from ctxkit.agent.document_store import ContextStore  # the other ablation needs no agent

    first = next((m for m in session.messages if any(n == _STORE for n, _, _ in m.sections)), None)
    if first is None:
        raise BadArguments(
            "The session was shown no index of a context store: fill one before it begins, with "
            "`%context add FILE --name N`."
        )
    text = _pasted_text(first, store or ContextStore())
    billing, pasted = PromptVariantBiller(session, rules), _paste_session(session, first, text)
    index_at = next(i for i, m in enumerate(session.messages) if m is first)
    index = _count_index_tokens(first, billing.sizes.tokens[index_at])
    # The counter's estimate of the added text is scaled by its measured error on this session.
    scale = (
        1.0
        if billing.sizes.plain_count_error is None
        else 1 / (1 + billing.sizes.plain_count_error)
    )
    count = default_counter().message
    added_tokens = round((count(_with_text(first, text)) - count(first)) * scale)
    # Sizes of the pasted session are those of the same messages in the record, plus the text.
    tokens = [billing.sizes.tokens[i] for i in pasted.message_places]
    tokens[pasted.message_places.index(index_at)] += added_tokens
    fixed = [billing.fixed[i] for i in pasted.call_places]
    base = SessionAnalysisCache(pasted.session)
    rows = [
        (ON_DEMAND, index, billing.base, billing.bill(billing.run(session))),
        (
            PASTED,
            index + added_tokens,
            base,
            billing.bill(billing.run(pasted.session, tokens, fixed), base=base),
        ),
    ]
    paste_rows = [_paste_row(session, *row) for row in rows]
    return build_frame(
        PASTE_COLUMNS, {c.name: [row[c.name] for row in paste_rows] for c in PASTE_COLUMNS}
    )


def _paste_row(
    session: Session, way: str, store: int, base: SessionAnalysisCache, bill: ReplayBill
) -> dict[str, object]:
    sheet = base.sheet
    return {
        "session": session.id,
        "variant": way,
        "calls_n": sum(sheet.billed),
        "store_tokens": store,
        "prompt_tokens": bill.prompts,
        "peak_tokens": bill.peak,
        "cache_read_tokens": bill.read if sheet.has_cache else None,
        "output_tokens": sheet.output_tokens,
        "cost_usd": bill.cost_usd,
        "source": base.source,
    }


def _pasted_text(first: Message, store: ContextStore) -> str:
    """Return the text of the items that an index names.

    Raises:
        BadArguments: the store has none of them.
    """
    index = next(text for name, text, _ in first.sections if name == _STORE)
    paths = [path for path in store.items() if f"{path}/" in index]
    if not paths:
        raise BadArguments(
            "The context store has nothing of what the session's index names: give the one it had."
        )
    return "\n\n".join(f"## {path}\n\n{store.text(path)}" for path in paths)


def _count_index_tokens(message: Message, tokens: int) -> int:
    return sum(n for p, n in split_message_tokens(message, tokens) if p.name == _STORE)


def _paste_session(session: Session, first: Message, text: str) -> _PastedSession:
    """Return the session with the text in place of the index, and without calls that read it."""
    from ctxkit.agent.document_store import ContextStore

    store, dropped = ContextStore(), set[str]()
    log: list[Message | Edit] = []
    messages, calls, n, call = list[int](), list[int](), 0, 0
    # One pass over the log: `n` and `call` count recorded messages and calls, so that the places
    # of the remaining ones are known.
    for entry in session.path:
        if isinstance(entry, Edit):
            log.append(entry)
            continue
        replaced: Message | None = _with_text(entry, text) if entry is first else entry
        read_ids = [c.id for c in entry.tool_calls if _is_store_read(c, store)]
        dropped.difference_update(c.id for c in entry.tool_calls)  # an id may be used again
        dropped.update(read_ids)
        if entry.role == "assistant":
            only_reads = read_ids and len(read_ids) == len(entry.tool_calls)
            # a reply with other calls stays, without its reads of the store
            replaced = None if only_reads else _without_calls(entry, read_ids)
        elif entry.role == "tool" and entry.call_id in dropped:
            replaced = None
        if replaced is not None:
            log.append(replaced)
            messages.append(n)
            calls += [call] if entry.role == "assistant" else []
        n, call = n + 1, call + (entry.role == "assistant")
    # compactions must not name messages that are gone
    remaining = set(messages)
    gone = {m.id for i, m in enumerate(session.messages) if i not in remaining}
    repaired = [_without_targets(e, gone) if isinstance(e, Edit) else e for e in log]
    entries = tuple(e for e in repaired if e is not None)
    return _PastedSession(replace(session, log=entries, parents=(), leaf=-1), messages, calls)


def _is_store_read(call: ToolCall, store: ContextStore) -> bool:
    """Return whether a call reads a path of the store."""
    return any(isinstance(v, str) and store.contains(v) for v in call.arguments.values())


def _without_calls(message: Message, ids: Collection[str]) -> Message:
    if not ids:
        return message
    parts = tuple(p for p in message.parts if not (isinstance(p, ToolCall) and p.id in ids))
    return replace(message, parts=parts)


def _with_text(message: Message, text: str) -> Message:
    """Return the message with the full text in place of the index."""
    names = [name for name, _, _ in message.sections]
    parts = list(message.parts)
    parts[names.index(_STORE)] = Text(text)
    return replace(message, parts=tuple(parts))


def _without_targets(edit: Edit, gone: Collection[str]) -> Edit | None:
    """Return a compaction without the removed targets; None where no target is left."""
    targets = tuple(t for t in edit.targets if t not in gone)
    if len(targets) == len(edit.targets):
        return edit
    inserted = edit.inserted
    if edit.kind in ("shortened", "replaced"):
        pairs = zip(edit.targets, edit.inserted, strict=True)
        inserted = tuple(m for t, m in pairs if t not in gone)
    return replace(edit, targets=targets, inserted=inserted) if targets else None


MEMORY_COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("variant", TEXT, "", "without memory, with it, or how much more that is"),
    FrameColumn("compactions_n", INT, "compactions", "that were made"),
    FrameColumn("promoted_n", INT, "entries", "that memory holds at the end"),
    FrameColumn("recalled_tokens", INT, "tokens", "of the digests, each as often as it was sent"),
    FrameColumn("prompt_tokens", INT, "tokens", "of the prompts of all calls"),
    FrameColumn("needed_lost_n", INT, "items", "that were needed later and in sight no more"),
    FrameColumn(
        "needed_later_loss", FLOAT, "share", "of the items used again, those that were lost"
    ),
    FrameColumn(
        "user_rules_kept", FLOAT, "share", "of the user's rules that were taken, those in sight"
    ),
    FrameColumn(
        "cost_usd", FLOAT, "US dollars", "by the one bill; missing where no price is known"
    ),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
WITHOUT_MEMORY, WITH_MEMORY, DIFFERENCE = "without memory", "with memory", "difference"
_DIFFERENCE_COLUMNS = (
    *("compactions_n", "recalled_tokens", "prompt_tokens"),
    *("needed_lost_n", "needed_later_loss", "user_rules_kept", "cost_usd"),
)


@accepts_session
def with_memory(
    session: Session, rules: RulesLike = "pi", recall: LessonRecall | None = None
) -> pd.DataFrame:
    """Compare loss and cost of compactions without and with a memory.

    With memory, the rules extract lessons from what they remove (without a model, at no cost) and
    add a digest of them behind the summary (`policies.lesson_extraction_and_recall`). The bill
    includes the digest in every prompt that holds it. Needed-later loss counts items that the
    record names again (`metrics.loss_analysis`): an opportunity for loss, not what an agent would
    have done.

    Args:
        session: any session, the path of a log, or a list of messages.
        rules: rules, a preset, or a policy chain, without a memory of their own.
        recall: limits of the digest; None: Tyrum's.

    Returns:
        Three rows: without memory, with memory, and the difference; columns: `MEMORY_COLUMNS`.

    Raises:
        BadArguments: the rules do not compact, or recall already.

    Example:
        >>> import ctxkit as ck
        >>> from ctxkit.experiments.ablations_of_sections_store_and_memory import with_memory
        >>> frame = with_memory(ck.read(ck.samples.path()), "pi")
        >>> frame["variant"].tolist()
        ['without memory', 'with memory', 'difference']
    """
    plain = resolve_rules(rules)
    if isinstance(plain.policy, RecordedCompactionsPolicy) or plain.bare is None:
        raise BadArguments(
            'Memory recalls what rules take out: name rules that compact, such as "pi".'
        )
    if any(isinstance(part, LessonRecall) for part in flatten_chain(plain.bare)):
        raise BadArguments("These rules recall already: name them without it.")
    runner, memory_rows = SessionRunner(session), []
    with pause_gc():
        for way, each in (
            (WITHOUT_MEMORY, plain),
            (WITH_MEMORY, plain | (recall or LessonRecall())),
        ):
            run = runner.run(each)
            measured = measure_cost_and_loss(runner.base, run)
            memory_rows.append(_memory_row(session, way, run, measured))
    difference = {"session": session.id, "variant": DIFFERENCE, "source": runner.base.source}
    difference |= {
        c: _subtract_figures(memory_rows[1][c], memory_rows[0][c]) for c in _DIFFERENCE_COLUMNS
    }
    rows = [*memory_rows, difference]
    return build_frame(
        MEMORY_COLUMNS, {c.name: [row.get(c.name) for row in rows] for c in MEMORY_COLUMNS}
    )


# Both variants are measured on the same runner, so that sizes, cost model and item index are shared
# and the difference of two rows comes from the digest alone.
def _memory_row(
    session: Session, way: str, run: RulesRun, measured: dict[str, Any]
) -> dict[str, Any]:
    recalls = way == WITH_MEMORY
    lessons = find_removed_lessons(run.coming()) if recalls else []
    return {
        "session": session.id,
        "variant": way,
        "compactions_n": len(run.compactions),
        "promoted_n": len(lessons) if recalls else None,
        "recalled_tokens": _count_recalled_tokens(run) if recalls else 0,
        "prompt_tokens": run.total,
        "needed_lost_n": measured.get("needed_lost_n"),
        "needed_later_loss": measured.get("needed_later_loss"),
        "user_rules_kept": measured.get("user_rules_kept"),
        "cost_usd": measured.get("cost_usd"),
        "source": measured["source"],
    }


def _count_recalled_tokens(run: RulesRun) -> int:
    """Return the tokens of the digests, summed over the calls whose prompts hold them."""
    total, size, views = 0, 0, {compaction.call: compaction.new for compaction in run.compactions}
    # the digest of the last compaction is in each prompt until the next compaction
    for call in range(run.log.calls):
        if call in views:
            view = views[call]
            digests = (p for p in range(view.head.size) if view[p].kind == RECALLED_KIND)
            size = sum(int(view.item(p).tokens) for p in digests)
        total += size
    return total


def _subtract_figures(more: Any, less: Any) -> Any:
    return None if more is None or less is None else more - less
