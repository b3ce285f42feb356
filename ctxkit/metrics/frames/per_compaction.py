"""The compaction frame: one row per compaction with what it removed, inserted, saved and cost."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from ctxkit.metrics.compaction_sizes_and_detection import measure_compactions
from ctxkit.metrics.cost.call_and_summary_charges import get_call_price_and_source
from ctxkit.metrics.cost.session_bill import bill_summaries
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.metrics.frames.frame_column import FLOAT, INT, TEXT, TIME, FrameColumn
from ctxkit.session.compactions_and_prunings import count_affected_messages
from ctxkit.session.messages import COMPACTION_ATTEMPT_KIND, Message, join_summary_errors
from ctxkit.tokens.message_sizes_from_recorded_prompts import find_prompt_drops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ctxkit.metrics.message_token_counts import Count
    from ctxkit.session.compactions_and_prunings import CompactionEdits
    from ctxkit.session.session import Session

COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn(
        "compaction",
        INT,
        "",
        "number of the compaction in its session, from 0; missing for an unmarked fall and for an"
        " attempt that changed nothing",
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
        " above; failed, refused or skipped: an attempt in a live session that changed nothing",
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
        "size of the text that it put in their place, scaled by the bill as all messages of its"
        " prompt unless `count` says otherwise, of a replay as its prompts are counted; missing"
        " where it put none, stubs alone, or a sealed item",
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
        "why the summary failed, or a compaction changed nothing; missing where none did",
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
    sessions: Sequence[Session],
    count: Count = None,
    *,
    unmarked: bool = False,
    attempts: bool = False,
    reuse: bool = False,
    summaries: bool = True,
) -> dict[str, list[Any]]:
    """Return the columns of the compaction frame as lists.

    Args:
        sessions: any sessions.
        count: how messages are counted, as for `frame`.
        unmarked: include drops of the prompt that no edit explains.
        attempts: include compactions of a live session that changed nothing.
        reuse: bill summaries that the log does not price as if their calls had read the cached
            prompt.
        summaries: False: leave out the tokens and the costs of summaries, which take a count of
            their texts.
    """
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    for session in sessions:
        columns: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
        if session.edits:
            _append_compactions(session, count, columns, reuse=reuse, summaries=summaries)
        if unmarked:
            _append_unmarked_drops(session, columns)
        if attempts:
            _append_attempts(session, columns)
        order = sorted(range(len(columns["position"])), key=columns["position"].__getitem__)
        for name, values in columns.items():
            data[name] += [values[i] for i in order]
    return data


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


def _append_attempts(session: Session, data: dict[str, list[Any]]) -> None:
    calls = 0
    for position, entry in enumerate(session.path):
        if not isinstance(entry, Message):
            continue
        calls += entry.role == "assistant"
        if entry.kind != COMPACTION_ATTEMPT_KIND:
            continue
        details = entry.details
        tokens, messages = details.get("tokens"), details.get("messages")
        usd, source = (
            (None, None) if entry.usage is None else get_call_price_and_source(entry, entry.model)
        )
        row = {
            "session": session.id,
            "call": calls if calls < len(session.calls) else None,
            "turn": session.turns[position],
            "position": position,
            "ts": entry.time,
            "agent": entry.agent or session.agent,
            "kind": details.get("outcome"),
            "trigger": details.get("trigger"),
            "tokens_before": tokens,
            "tokens_after": tokens,
            "messages_before": messages,
            "messages_after": messages,
            "affected_messages_n": 0,
            "token_savings": 0.0,
            "message_savings": 0.0,
            "cost_usd": usd,
            "cost_source": source,
            "model": entry.model,
            "error": entry.text,
            "tokens_source": "estimated",
            "source": "recorded",
        }
        for name, values in data.items():
            values.append(row.get(name))


def _append_compactions(
    session: Session, count: Count, data: dict[str, list[Any]], *, reuse: bool, summaries: bool
) -> None:
    measured = measure_compactions(session, count, summaries=summaries)
    billed = bill_summaries(session, measured, reuse=reuse) if summaries else ()
    bills = {b.compaction: b for b in billed}
    affected = count_affected_messages(session)
    for compaction in measured:
        group, bill = compaction.group, bills.get(compaction.group.number)
        data["compaction"].append(group.number)
        data["position"].append(group.position)
        data["turn"].append(session.turns[group.position])
        data["call"].append(compaction.call)
        data["tokens_before"].append(compaction.before)
        data["tokens_after"].append(compaction.after)
        data["tokens_source"].append(compaction.source)
        data["messages_before"].append(compaction.messages_before)
        data["messages_after"].append(compaction.messages_after)
        data["affected_messages_n"].append(affected[group.number])
        data["token_savings"].append(compaction.savings)
        data["message_savings"].append(compaction.message_savings)
        data["summary_tokens"].append(compaction.inserted)
        data["cost_usd"].append(None if bill is None else bill.usd)
        data["cost_source"].append(None if bill is None else bill.source)
        _append_descriptions(session, group, data)


def _append_descriptions(
    session: Session, group: CompactionEdits, data: dict[str, list[Any]]
) -> None:
    first = group.edits[0]
    data["session"].append(session.id)
    data["ts"].append(first.time)
    data["agent"].append(first.agent or session.agent)
    data["source"].append(first.source)
    for name in ("kind", "trigger", "method", "reason", "model"):
        words = dict.fromkeys(w for e in group.edits if (w := getattr(e, name)))
        data[name].append(", ".join(words) or None)
    data["error"].append(join_summary_errors(group.edits) or None)


@register_view_values('frame(per="compaction")')
def _read_figures(session: Session) -> dict[str, Any]:
    data = rows([session])
    if not data["compaction"]:
        return {}
    figures: dict[str, Any] = {
        "compactions_n": len(data["compaction"]),
        "last_affected_messages_n": data["affected_messages_n"][-1],
    }
    if session.prompt_source is not None:  # all sizes are those of prompts
        before, after = data["tokens_before"][-1], data["tokens_after"][-1]
        figures["last_removed_tokens"] = before - after
    if None not in data["token_savings"]:
        figures["token_savings"] = fmean(data["token_savings"])
    if session.origin is not None:  # of a record it goes by how messages are counted
        figures["summary_tokens"] = sum(n or 0 for n in data["summary_tokens"])
    # The cost is missing for a compaction without a model's summary or without a price, so the
    # costs add up to those of all summaries only if every billed summary has a price.
    is_priced = all(bill.usd is not None for bill in bill_summaries(session))
    if is_priced and any(usd is not None for usd in data["cost_usd"]):
        figures["summaries_usd"] = sum(usd or 0.0 for usd in data["cost_usd"])
    return figures
