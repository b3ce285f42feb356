"""Sizes of the prompt before and after each compaction, and detection of unmarked ones from size
drops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ctxkit.errors import BadArguments, did_you_mean
from ctxkit.metrics.message_token_counts import count_messages
from ctxkit.session.compactions_and_prunings import CompactionEdits, group_edits, has_sealed_summary
from ctxkit.session.messages import Edit, Message, is_sealed_summary
from ctxkit.session.session import apply_edit
from ctxkit.tokens.live_prompt_sizes import get_sizes_around_compaction
from ctxkit.tokens.message_sizes_from_recorded_prompts import group_prompts_by_agent
from ctxkit.tokens.message_token_counting import estimate_message_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

    from ctxkit.metrics.message_token_counts import Count
    from ctxkit.session.session import Session

    SizeOf = Callable[[Message], int]


class MeasuredCompaction(NamedTuple):
    """A compaction, and the prompt sizes around it in tokens; None: unknown."""

    group: CompactionEdits
    call: int | None
    """The first call after it; None where none followed."""
    model: str | None
    """The last model that answered before it, else the session's."""
    before: int | None
    after: int | None
    source: str | None
    """recorded, derived or estimated: the weaker source of the two sizes."""
    messages_before: int
    messages_after: int
    inserted: int | None
    """Tokens of its summaries (`count_summary_tokens`); None: it has none, or one is sealed."""
    summary: int | None
    """Tokens of the inserted messages that are summaries; None where a part is sealed."""

    @property
    def savings(self) -> float | None:
        """Share of the tokens that it saved; negative where the prompt grew."""
        return 1 - self.after / self.before if self.before and self.after is not None else None

    @property
    def message_savings(self) -> float | None:
        """Share of the messages that it removed."""
        return 1 - self.messages_after / self.messages_before if self.messages_before else None


def measure_compactions(
    session: Session, count: Count = None, *, summaries: bool = True
) -> list[MeasuredCompaction]:
    """Return the compactions of a recorded session, a live one or a replay, in order.

    Args:
        session: any session.
        count: how to count messages whose size neither a bill nor the log gives, as for `frame`;
            None: as `frame` by default, but anchored sizes for a log without usage.
        summaries: False: `inserted` and `summary` are None, so that no message need be counted of a
            session whose prompts are recorded.

    Returns:
        One value a compaction; sizes are None where neither a bill nor a count gives them.
    """
    if not session.edits:
        return []
    if count is None and not session.has_usage:
        count = "anchored"
    size, counted = _get_size_function(session, count)
    # the bill around a compaction scales its summary, too, as every view of a prompt does
    summary_size = size
    if summaries and count is None:
        summary_size = _get_size_function(session, "anchored")[0]
    out = []
    for moment in _iter_compaction_moments(session):
        before, after, source = _sizes_around_compaction(
            session, moment, size if session.has_sizes else None, counted
        )
        inserted, summary = None, None
        if summaries:
            inserted, summary = _count_inserted(session, moment, summary_size)
        out.append(
            MeasuredCompaction(
                group=moment.group,
                call=moment.calls if moment.calls < len(session.calls) else None,
                model=moment.model,
                before=before,
                after=after,
                source=source,
                messages_before=len(moment.visible_before),
                messages_after=len(moment.visible_after),
                inserted=inserted,
                summary=summary,
            )
        )
    return out


def _count_inserted(
    session: Session, moment: _CompactionMoment, size: SizeOf
) -> tuple[int | None, int | None]:
    """Return the fields `inserted` and `summary` of a compaction."""
    visible_ids = set(map(id, moment.visible_before))
    inserted = [m for m in moment.visible_after if id(m) not in visible_ids]
    if has_sealed_summary(moment.group) or any(map(is_sealed_summary, inserted)):
        return None, None
    counts = [count_summary_tokens(session, edit, size) for edit in moment.group.edits]
    known = [n for n in counts if n is not None]
    summary = sum(size(m) for m in inserted if m.role == "summary")
    return sum(known) if known else None, summary


def count_summary_tokens(session: Session, edit: Edit, size: SizeOf) -> int | None:
    """Return the tokens of the text that an edit puts in the place of the messages that it removes.

    A stub in a message's own place is no summary. A replay states the tokens by the counter of its
    prompts, so that frame and score are equal.

    Args:
        session: the session of the edit.
        edit: one edit of a compaction.
        size: a function from a message to its tokens, for the edits of a record.

    Returns:
        Tokens; None where the edit is no summary.
    """
    if session.origin is not None:
        return edit.details.get("summary_tokens") or None
    new = [m for m in edit.inserted if m.id not in edit.targets]
    return sum(map(size, new)) if new and edit.kind == "summarised" else None


def _get_size_function(session: Session, count: Count) -> tuple[SizeOf, str]:
    """Return a function from a message to its tokens, and the source of what it counts."""
    if count is None and any(m.parts for m in session.messages):
        return _cache_sizes(estimate_message_tokens), "estimated"
    sizes, sources, of = count_messages(session, count)
    pairs = zip(session.messages, sizes, strict=True) if session.has_sizes else ()
    size_by_id = {id(m): n for m, n in pairs}

    def size(message: Message) -> int:
        n = size_by_id.get(id(message))
        return of(message) if n is None else n

    return size, "derived" if sources and "estimated" not in sources else "estimated"


def _cache_sizes(size: SizeOf) -> SizeOf:
    """Return a function that measures each message once, and only those that are asked for.

    Recorded prompts give the sizes around most compactions: few messages are ever measured.
    """
    known: dict[int, tuple[Message, int]] = {}  # the message is kept, so that its id stays its own

    def measure(message: Message) -> int:
        if id(message) not in known:
            known[id(message)] = message, size(message)
        return known[id(message)][1]

    return measure


class _CompactionMoment(NamedTuple):
    """A compaction, and the state of the session around it."""

    group: CompactionEdits
    calls: int
    """Calls made before it."""
    model: str | None
    """The last model that answered before it, else the session's."""
    billed: int | None
    """Recorded tokens in the window after the last call; None also if another compaction came
    after that call.
    """
    visible_before: list[Message]
    visible_after: list[Message]
    following: tuple[int, list[Message]] | None
    """The next recorded prompt before another compaction, and the messages that came in between."""


def _iter_compaction_moments(session: Session) -> Iterator[_CompactionMoment]:
    starts = {group.position: group for group in group_edits(session)}
    visible: list[Message] = []
    calls, model, billed = 0, session.model, None
    for position, entry in enumerate(session.path):
        if isinstance(entry, Message):
            if entry.visible:
                visible.append(entry)
            if entry.role == "assistant":
                calls += 1
                model = entry.model or model
                billed = _window_after_reply(entry) or billed
        elif position in starts:
            after = visible
            for edit in starts[position].edits:
                after = apply_edit(after, edit)
            last = position + len(starts[position].edits)
            next_prompt = _find_next_prompt(session, last)
            yield _CompactionMoment(
                starts[position], calls, model, billed, visible, after, next_prompt
            )
            visible, billed = after, None


def _find_next_prompt(session: Session, position: int) -> tuple[int, list[Message]] | None:
    messages: list[Message] = []
    for at in range(position, len(session.path)):
        entry = session.path[at]
        if not isinstance(entry, Message):
            return None
        if entry.role == "assistant" and entry.prompt_tokens:
            return entry.prompt_tokens, messages
        if entry.visible:
            messages.append(entry)
    return None


def _window_after_reply(reply: Message) -> int | None:
    """Return the recorded tokens in the window after a reply."""
    if reply.usage is None or reply.kind == "turn":
        return reply.prompt_tokens
    prompt = reply.prompt_tokens
    return prompt + (reply.usage.output_tokens or 0) if prompt else None


def _sizes_around_compaction(
    session: Session,
    moment: _CompactionMoment,
    size: SizeOf | None,
    count_source: str,
) -> tuple[int | None, int | None, str | None]:
    """Return the sizes before and after a compaction, and their source.

    In order of preference: prompts that were sent, sizes in the log, recorded prompts around it,
    counts of messages.
    """
    live = get_sizes_around_compaction(
        session, moment.group.position, moment.group.position + len(moment.group.edits) - 1
    )
    if live is not None:
        return live
    first, last = moment.group.edits[0], moment.group.edits[-1]
    size_before, size_after = first.tokens_before, last.tokens_after
    if (size_before is not None and size_after is not None) or size is None:
        return (
            size_before,
            size_after,
            None if size_before is None and size_after is None else first.source,
        )
    tokens_before: int | None = None  # counted only where it is needed
    if size_before is None:
        tokens_before = sum(map(size, moment.visible_before))
        size_before = tokens_before if moment.billed is None else max(moment.billed, tokens_before)
    if size_after is None and moment.following is not None:
        prompt, since = moment.following
        return size_before, max(prompt - sum(map(size, since)), 0), "derived"
    if size_after is None:  # only the difference is counted: what no log shows stays as it was
        if tokens_before is None:
            tokens_before = sum(map(size, moment.visible_before))
        tokens_after = sum(map(size, moment.visible_after))
        size_after = max(size_before - tokens_before + tokens_after, 0)
    return size_before, size_after, count_source


class SizeDropRule(Protocol):
    """Finds compactions in a series of prompt sizes."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the indices of the first prompt after each compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLabRule:
    """TraceLab's rule: a large, persistent drop from near the session's largest prompt."""

    drop: int = 64_000
    """Smallest drop in tokens."""
    share: float = 0.75
    """The previous prompt has at least this share of the session's largest, and the next prompts
    stay below it.
    """
    steps: int = 3
    """Number of prompts that must stay below, including the first after the drop."""

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
class CtxMapRule:
    """CtxMap's rule: a prompt that is smaller than a share of the previous prompt."""

    share: float = 0.5
    """The share of the previous prompt."""

    def __call__(self, prompts: Sequence[int]) -> list[int]:
        """Return the places of the prompts that were the first after a compaction."""
        return [i for i in range(1, len(prompts)) if prompts[i] < self.share * prompts[i - 1]]


INFERENCE_RULES: dict[str, SizeDropRule] = {"tracelab": TraceLabRule(), "ctxmap": CtxMapRule()}
"""The rules by name, with their authors' settings."""


def infer_compactions(session: Session, rule: str | SizeDropRule = "tracelab") -> tuple[Edit, ...]:
    """Infer compactions from drops of the recorded prompt sizes, for each agent separately.

    Args:
        session: a session; without usage the result is empty.
        rule: a name in `INFERENCE_RULES`, or a rule.

    Returns:
        Edits with `source="derived"` and the sizes of the prompts before and after. They have no
        targets, because sizes do not show what was removed. `details` has the number of the first
        call after the compaction.

    Raises:
        BadArguments: no rule has that name.
    """
    name, size_rule = _resolve_rule(rule)
    edits = []
    for calls in group_prompts_by_agent(session).values():
        prompts = [p for _, p in calls]
        for i in size_rule(prompts):
            call = calls[i][0]
            edits.append(
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
    return tuple(sorted(edits, key=lambda e: e.details["call"]))


def compare_inferred_with_recorded_compactions(
    sessions: Session | Iterable[Session],
    rules: Iterable[str | SizeDropRule] = ("tracelab", "ctxmap"),
) -> pd.DataFrame:
    """Compare inferred compactions with the marks of logs that have both marks and usage.

    Args:
        sessions: one session or several; those without marks have no row.
        rules: names of rules, or rules.

    Returns:
        One row per session and rule: `calls` with usage; `marked` compactions that a billed call
        follows; `derived` compactions; `true_positives_n` (marked and derived at the same billed
        call), `false_negatives_n` and `false_positives_n`; `recall` (true positives / marked) and
        `precision` (true positives / derived; missing if nothing was derived).
    """
    import pandas as pd

    from ctxkit.session.session import Session

    chosen = [sessions] if isinstance(sessions, Session) else list(sessions)
    rows = [
        row for s in chosen for rule in rules if (row := _make_agreement_row(s, rule)) is not None
    ]
    frame = pd.DataFrame(rows, columns=list(_AGREEMENT_COLUMNS))
    return frame.astype(_AGREEMENT_COLUMNS)


_AGREEMENT_COLUMNS = {
    "session": "string",
    "format": "string",
    "rule": "string",
    "calls": "Int64",
    "marked": "Int64",
    "derived": "Int64",
    "true_positives_n": "Int64",
    "false_negatives_n": "Int64",
    "false_positives_n": "Int64",
    "recall": "Float64",
    "precision": "Float64",
}


def _make_agreement_row(session: Session, rule: str | SizeDropRule) -> dict[str, Any] | None:
    marked = _find_marked_calls(session)
    if not marked:
        return None
    name, _ = _resolve_rule(rule)
    derived = {e.details["call"] for e in infer_compactions(session, rule)}
    both = len(marked & derived)
    return {
        "session": session.id,
        "format": session.format,
        "rule": name,
        "calls": sum(len(c) for c in group_prompts_by_agent(session).values()),
        "marked": len(marked),
        "derived": len(derived),
        "true_positives_n": both,
        "false_negatives_n": len(marked) - both,
        "false_positives_n": len(derived) - both,
        "recall": both / len(marked),
        "precision": both / len(derived) if derived else None,
    }


def _find_marked_calls(session: Session) -> set[int]:
    """Return the first billed call after each recorded compaction that follows a billed call."""
    call_at = {
        c.position: c.index for calls in group_prompts_by_agent(session).values() for c, _ in calls
    }
    marked: set[int] = set()
    is_pending = has_billed_call = False
    for position, entry in enumerate(session.path):
        if isinstance(entry, Edit):
            is_pending = is_pending or (
                has_billed_call
                and entry.source == "recorded"
                and entry.kind in ("summarised", "dropped")
            )
        elif position in call_at:
            if is_pending:
                marked.add(call_at[position])
            is_pending, has_billed_call = False, True
    return marked


def _resolve_rule(rule: str | SizeDropRule) -> tuple[str, SizeDropRule]:
    if callable(rule):
        return str(getattr(rule, "__name__", type(rule).__name__.lower())), rule
    if rule not in INFERENCE_RULES:
        raise BadArguments(
            f"There is no rule {rule!r}.{did_you_mean(str(rule), INFERENCE_RULES)} Rules: "
            f"{', '.join(INFERENCE_RULES)}."
        )
    return rule, INFERENCE_RULES[rule]
