"""The compaction frame: one row a compaction with what it removed, inserted, saved and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit.metrics.cost.call_prices import (
    CompactionSizes,
    has_summary_calls,
    is_sealed,
    pick_weakest_source,
    price_summary,
)
from ctxkit.metrics.frames.columns import FLOAT, INT, TEXT, TIME, FrameColumn
from ctxkit.metrics.frames.counting import count_messages
from ctxkit.metrics.recorded_compactions import group_edits
from ctxkit.session.messages import Message, join_summary_errors
from ctxkit.session.session import apply_edit
from ctxkit.tokens.live_prompt_sizes import get_sizes_around_compaction
from ctxkit.tokens.sizes import find_prompt_drops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ctxkit.metrics.frames.counting import Count
    from ctxkit.metrics.recorded_compactions import EditGroup
    from ctxkit.session.session import Session

COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn(
        "compaction",
        INT,
        "",
        "number of the compaction in its session, from 0; missing for an unmarked fall",
    ),
    FrameColumn(
        "call", INT, "", "the first call that was shown its outcome; missing where none followed"
    ),
    FrameColumn("turn", INT, "", "the turn in which it fired"),
    FrameColumn("position", INT, "entries", "place among the session's messages and edits"),
    FrameColumn("ts", TIME, "UTC", "when it fired"),
    FrameColumn("agent", TEXT, "", "whose context was compacted"),
    FrameColumn(
        "kind",
        TEXT,
        "",
        "dropped, shortened, replaced, summarised (several: a chain of policies); unmarked: see"
        " above",
    ),
    FrameColumn("trigger", TEXT, "", "what made it due"),
    FrameColumn("method", TEXT, "", "how it was done: the policy's or the program's own word"),
    FrameColumn("reason", TEXT, "", "why, for a person to read"),
    FrameColumn(
        "tokens_before",
        INT,
        "tokens",
        "size of the view before; in a live session of the prompt, as billed where it was sent",
    ),
    FrameColumn(
        "tokens_after", INT, "tokens", "size of the view after; in a live session as before"
    ),
    FrameColumn("messages_before", INT, "messages", "messages shown before"),
    FrameColumn("messages_after", INT, "messages", "messages shown after"),
    FrameColumn(
        "affected_messages_n", INT, "messages", "messages that it removed, shortened or replaced"
    ),
    FrameColumn(
        "summary_tokens",
        INT,
        "tokens",
        "size of what it put in their place; missing where it put nothing, and where the log does"
        " not hold the text of its summary",
    ),
    FrameColumn(
        "token_savings",
        FLOAT,
        "share",
        "1 - tokens_after / tokens_before; negative where the view grew",
    ),
    FrameColumn("message_savings", FLOAT, "share", "1 - messages_after / messages_before"),
    FrameColumn(
        "cost_usd",
        FLOAT,
        "US dollars",
        "what the summary call cost; missing where none was made or has a price",
    ),
    FrameColumn(
        "cost_source",
        TEXT,
        "",
        "where `cost_usd` comes from: recorded, derived, or estimated as for a replay",
    ),
    FrameColumn("model", TEXT, "", "the model that wrote the summary, or was asked for it"),
    FrameColumn(
        "error",
        TEXT,
        "",
        "why the summary failed, where something else stands in its place; missing where none did",
    ),
    FrameColumn(
        "tokens_source",
        TEXT,
        "",
        "where tokens_before and tokens_after come from, the weaker of the two",
    ),
    FrameColumn(
        "source", TEXT, "", "where the mark itself comes from: the log, or a rule that found it"
    ),
)


def rows(
    sessions: Sequence[Session], count: Count = None, *, unmarked: bool = False, reuse: bool = False
) -> dict[str, list[Any]]:
    """Return the columns of the compaction frame as lists.

    Args:
        sessions: any sessions.
        count: how messages are counted, as for `frame`.
        unmarked: include drops of the prompt that no edit explains.
        reuse: bill a summary that the log does not price as if its call had read the cached prompt.
    """
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    for session in sessions:
        columns: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
        if session.edits:
            _append_compactions(session, count, columns, reuse=reuse)
        if unmarked:
            _append_unmarked_drops(session, columns)
        order = sorted(range(len(columns["position"])), key=columns["position"].__getitem__)
        for name, values in columns.items():
            data[name] += [values[i] for i in order]
    return data


class SummaryBill(NamedTuple):
    """The cost of the model calls that wrote one compaction's summaries."""

    call: int | None
    """The first call after the compaction; None where none followed."""
    usd: float | None
    source: str | None
    """recorded, derived or estimated; None, as `usd`, where it has no price."""


def bill_summaries(session: Session, *, reuse: bool = False) -> list[SummaryBill]:
    """Return the bills of a session's summaries, one per compaction with model calls."""
    columns = rows([session], reuse=reuse)
    bills = map(SummaryBill, columns["call"], columns["cost_usd"], columns["cost_source"])
    return [
        bill
        for cut, bill in zip(group_edits(session), bills, strict=True)
        if has_summary_calls(cut)
    ]


def sum_summary_bills(bills: Sequence[SummaryBill]) -> tuple[float | None, str | None]:
    """Return the dollars of all bills and their source; both None where one has no price."""
    dollars = [bill.usd for bill in bills if bill.usd is not None]
    if len(dollars) < len(bills):
        return None, None
    return sum(dollars, 0.0), pick_weakest_source([bill.source for bill in bills])


def count_compactions(session: Session) -> int | None:
    """Return the number of compactions; None where the format would not tell of one."""
    n = len(group_edits(session))
    return None if not n and "compactions" in session.details.get("cannot_tell", ()) else n


def _append_unmarked_drops(session: Session, data: dict[str, list[Any]]) -> None:
    for fall in find_prompt_drops(session):
        call, before, after = fall
        row = {
            "session": session.id,
            "call": call.index,
            "turn": call.turn,
            "position": call.position,
            "ts": call.message.time,
            "agent": call.agent,
            "kind": "unmarked",
            "reason": fall.reason,
            "tokens_before": before,
            "tokens_after": after,
            "token_savings": 1 - after / before,
            "tokens_source": "recorded",
            "source": "derived",
        }
        for name, values in data.items():
            values.append(row.get(name))


def _append_compactions(
    session: Session, count: Count, data: dict[str, list[Any]], *, reuse: bool
) -> None:
    sizes, sources, of = count_messages(session, count)
    counted = "derived" if sources and "estimated" not in sources else "estimated"
    counted_sizes = (
        {id(m): n for m, n in zip(session.messages, sizes, strict=True)}
        if session.has_sizes
        else {}
    )

    def size(message: Message) -> int:
        n = counted_sizes.get(id(message))
        return of(message) if n is None else n

    for moment in _iter_compaction_moments(session):
        cut, visible, after = moment.cut, moment.shown, moment.after
        data["compaction"].append(cut.number)
        data["position"].append(cut.position)
        data["turn"].append(session.turns[cut.position])
        data["call"].append(moment.calls if moment.calls < len(session.calls) else None)
        size_before, size_after, source = _sizes_around_compaction(
            session, moment, size if session.has_sizes else None, counted
        )
        data["tokens_before"].append(size_before)
        data["tokens_after"].append(size_after)
        data["tokens_source"].append(source)
        data["messages_before"].append(len(visible))
        data["messages_after"].append(len(after))
        data["affected_messages_n"].append(len({t for e in cut.edits for t in e.targets}))
        data["token_savings"].append(
            1 - size_after / size_before if size_before and size_after is not None else None
        )
        data["message_savings"].append(1 - len(after) / len(visible) if visible else None)
        visible_ids = {id(m) for m in visible}
        inserted = [m for m in after if id(m) not in visible_ids]
        data["summary_tokens"].append(
            sum(map(size, inserted)) if inserted and not is_sealed(cut) else None
        )
        summary_size = sum(size(m) for m in inserted if m.role == "summary")
        compaction_sizes = CompactionSizes(size_before, size_after, summary_size)
        cost = price_summary(session, cut, compaction_sizes, moment.model, reuse=reuse)
        data["cost_usd"].append(cost[0])
        data["cost_source"].append(cost[1])
        _append_descriptions(session, cut, data)


class _CompactionMoment(NamedTuple):
    """A compaction, and the state of the session around it."""

    cut: EditGroup
    calls: int
    """Calls made before it."""
    model: str | None
    """The last model that answered before it, else the session's."""
    billed: int | None
    """Recorded tokens in the window after the last call; None also if another compaction came
    after that call.
    """
    shown: list[Message]
    after: list[Message]
    following: tuple[int, list[Message]] | None
    """The next recorded prompt before another compaction, and the messages that came in between."""


def _iter_compaction_moments(session: Session) -> Iterator[_CompactionMoment]:
    starts = {cut.position: cut for cut in group_edits(session)}
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
        if (
            entry.role == "assistant"
            and entry.kind != "turn"
            and entry.usage
            and entry.usage.prompt_tokens
        ):
            return entry.usage.prompt_tokens, messages
        if entry.visible:
            messages.append(entry)
    return None


def _window_after_reply(reply: Message) -> int | None:
    """Return the recorded tokens in the window after a reply."""
    if reply.usage is None or reply.kind == "turn":
        return None
    prompt = reply.usage.prompt_tokens
    return prompt + (reply.usage.output_tokens or 0) if prompt else None


def _sizes_around_compaction(
    session: Session,
    moment: _CompactionMoment,
    size: Callable[[Message], int] | None,
    count_source: str,
) -> tuple[int | None, int | None, str | None]:
    """Return the sizes before and after a compaction, and their source.

    In order of preference: prompts that were sent, sizes in the log, recorded prompts around it,
    counts of messages.
    """
    live = get_sizes_around_compaction(
        session, moment.cut.position, moment.cut.position + len(moment.cut.edits) - 1
    )
    if live is not None:
        return live
    first, last = moment.cut.edits[0], moment.cut.edits[-1]
    size_before, size_after = first.tokens_before, last.tokens_after
    if (size_before is not None and size_after is not None) or size is None:
        return (
            size_before,
            size_after,
            None if size_before is None and size_after is None else first.source,
        )
    tokens_before, tokens_after = sum(map(size, moment.shown)), sum(map(size, moment.after))
    if size_before is None:
        size_before = tokens_before if moment.billed is None else max(moment.billed, tokens_before)
    if size_after is None and moment.following is not None:
        prompt, since = moment.following
        return size_before, max(prompt - sum(map(size, since)), 0), "derived"
    if size_after is None:  # only the difference is counted: what no log shows stays as it was
        size_after = max(size_before - tokens_before + tokens_after, 0)
    return size_before, size_after, count_source


def _append_descriptions(session: Session, cut: EditGroup, data: dict[str, list[Any]]) -> None:
    first = cut.edits[0]
    data["session"].append(session.id)
    data["ts"].append(first.time)
    data["agent"].append(first.agent or session.agent)
    data["source"].append(first.source)
    for name in ("kind", "trigger", "method", "reason", "model"):
        words = dict.fromkeys(w for e in cut.edits if (w := getattr(e, name)))
        data[name].append(", ".join(words) or None)
    data["error"].append(join_summary_errors(cut.edits) or None)
