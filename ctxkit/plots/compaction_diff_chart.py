"""`plots.diff`: the effect of one compaction on every message."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting_and_sanitizing import (
    format_message_number,
    quote_line,
    sanitize_line,
)
from ctxkit.engine import RulesRun
from ctxkit.engine.run_segments_and_prompts import build_prompt_without_last_compaction
from ctxkit.errors import BadArguments
from ctxkit.formats.sessions_from_arguments import accepts_session
from ctxkit.metrics.context_window_report import preview_message
from ctxkit.metrics.figures_registered_by_view import register_view_values
from ctxkit.plots.chart import Chart, add_session_notes
from ctxkit.plots.xy_figure import Trace, XyDrawing
from ctxkit.session.compactions_and_prunings import get_message_fates, group_edits
from ctxkit.session.messages import Message
from ctxkit.session.session import apply_edit
from ctxkit.session.titles import get_title
from ctxkit.session.tool_call_paths_and_descriptions import describe_message, pair_with_calls
from ctxkit.tokens import message_token_counting
from ctxkit.tokens.message_sizes_from_recorded_prompts import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.session.session import Session
    from ctxkit.tokens.token_counters import TokenCounter

    Size = Callable[[Message], int]

_ACTION_NAMES: dict[str, str] = {
    "shown": "kept",
    "shortened": "shortened",
    "replaced": "replaced",
    "summarised": "summarised",
    "dropped": "dropped",
    "new": "inserted",
}
_ACTION_LOOKS = (0, 3, 5, 4, 1, 2)
"""The look of the bars of each action, in the same order."""
_TABLE = "One bar a message, in order; the table has those that changed."


class MessageChange(NamedTuple):
    """One message of the window, before and after a compaction."""

    id: str
    role: str
    tool: str | None
    action: str
    """kept, shortened, replaced, summarised, dropped or inserted."""
    before: int
    after: int
    reason: str
    preview: str
    position: int | None
    """Its position in `session.path`; None: it was inserted."""
    name: str
    """Its description in one line, the same in all views."""


# The edits of the compaction are applied to the window before it, and both windows are compared.
# Messages are compared by identity, because equal messages may occur twice. A message of the old
# window is unchanged (the same object), shortened (its fate names the new object) or removed. Other
# messages of the new window were inserted; they are placed before the first removed message. Fates
# include all edits up to this compaction; `edits_before` counts the edits before it.
@accepts_session
def get_diff_data(
    session: Session, compaction: int = 0, *, counter: TokenCounter | None = None
) -> tuple[MessageChange, ...]:
    """Return each message of the window before a compaction, and each inserted one, in order.

    Args:
        session: a recorded session or a replay.
        compaction: its number, from 0, negative from the end.
        counter: counts messages of a record where usage does not give their size; None: the exact
            o200k_base where its vocabulary is installed. For replays and live sessions the sizes
            are those that were sent, including prunings.

    Returns:
        One value a message: what happened to it, tokens before and after, and why.

    Raises:
        BadArguments: the session has no such compaction.
    """
    compactions = group_edits(session)
    try:
        group = compactions[compaction]
    except IndexError:
        range_text = f" {compaction}: it has compactions 0 to {len(compactions) - 1}"
        raise BadArguments(
            f"Session {quote_line(session.id)} has no compaction"
            f"{range_text if compactions else ''}."
        ) from None
    before_of, after_of = _sizes_around(session, group.position, counter)
    window = _window_at(session, group.position)
    edits_before = sum(len(c.edits) for c in compactions[: group.number])
    after = window
    for edit in group.edits:
        after = apply_edit(after, edit)
    ids_by_message = _ids_by_message(session, edits_before, window)
    position_by_id = {e.id: i for i, e in enumerate(session.path) if isinstance(e, Message)}
    tool_calls = {id(m): call for m, call in pair_with_calls((*window, *after))}

    def describe(message: Message) -> tuple[int | None, str]:
        original = ids_by_message.get(id(message))
        name = describe_message(message, tool_calls.get(id(message)), session.cwd)
        return position_by_id.get(original) if original else None, name

    fates = get_message_fates(session, edits_before + len(group.edits))
    unchanged_ids = {id(m) for m in after}
    out: list[MessageChange] = []
    for message in window:
        fate = None if id(message) in unchanged_ids else fates.get(ids_by_message[id(message)])
        replacement = message if fate is None else fate.replacement
        state, reason = ("shown", "") if fate is None else (fate.state, fate.reason or "")
        after_size = 0 if replacement is None else after_of(replacement)
        sizes = before_of(message), after_size
        out.append(_make_change(message, state, sizes, reason, describe(message)))
    shortened = {id(f.replacement) for f in fates.values() if f.replacement is not None}
    window_ids = {id(m) for m in window}
    new = [m for m in after if id(m) not in window_ids and id(m) not in shortened]
    at = next((i for i, c in enumerate(out) if c.action in ("summarised", "dropped")), len(out))
    why = {id(m): e.reason for e in group.edits for m in e.inserted}
    inserted = [_make_change(m, "new", (0, after_of(m)), why[id(m)], describe(m)) for m in new]
    return (*out[:at], *inserted, *out[at:])


@accepts_session
@add_session_notes
def diff(session: Session, compaction: int = 0, *, counter: TokenCounter | None = None) -> Chart:
    """Chart the effect of one compaction on every message of the window.

    Args:
        session: a recorded session or a replay.
        compaction: its number, from 0, negative from the end.
        counter: as in `ctxkit.report`.

    Returns:
        The chart with one bar per message; its table has the messages that changed.

    Raises:
        BadArguments: the session has no such compaction.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.diff(ck.samples.path(), -1).title
        'Compaction 1 of BILL-4127: the nightly export fails'
    """
    data = get_diff_data(session, compaction, counter=counter)
    number = compaction if compaction >= 0 else len(group_edits(session)) + compaction
    return _draw_changes(f"Compaction {number} of {get_title(session)}", data)


def _sizes_around(
    session: Session, position: int, counter: TokenCounter | None
) -> tuple[Size, Size]:
    """Return the size of a message before and after the compaction at a position.

    For replays and live sessions they are the sizes sent by the previous and the next call.
    """
    if session.prompt_source is None:
        of = measure_sizes(session, counter).of
        return of, of
    # The number of calls before the compaction is the index of the call after it.
    call = sum(c.position < position for c in session.calls)
    following = call if call < len(session.calls) else None
    ids = [m.id for m in session.messages if m.visible]
    before = dict(zip(ids, session.prompt_source.row_sizes, strict=False))
    after = _sent_tokens(session, following)
    if call:
        before |= _sent_tokens(session, call - 1)
    run = session.prompt_source
    if call and isinstance(run, RulesRun) and run.prunes and following is not None:
        # the pruning acts on what came since the last call, too
        items, left_out = build_prompt_without_last_compaction(run, following)
        before |= {ids[row]: 0 for row in left_out if 0 <= row < len(ids)}
        before |= {_original_id(i.message): i.tokens for i in items}
    return (
        lambda m: before.get(_original_id(m), message_token_counting.estimate_message_tokens(m))
    ), (lambda m: after.get(_original_id(m), 0))


def _sent_tokens(session: Session, call: int | None) -> dict[str, int]:
    """Return the tokens of each message at a call; 0 if a rule left it out."""
    ids = [m.id for m in session.messages if m.visible]
    out = {ids[row]: 0 for row in session.left_out(call) if 0 <= row < len(ids)}
    return out | {_original_id(i.message): i.tokens for i in session.sent(call)}


def _original_id(message: Message) -> str:
    # A changed copy has the id of its original, then `~` and a suffix.
    return message.id.split("~")[0]


def _window_at(session: Session, position: int) -> list[Message]:
    return list(session.branch(session.indices[position - 1]).view()) if position else []


def _ids_by_message(
    session: Session, edits_before: int, window: Sequence[Message]
) -> dict[int, str]:
    """Return the id under which the fate of each message of a window is recorded, by `id()`."""
    before = {
        id(f.replacement): first
        for first, f in get_message_fates(session, edits_before).items()
        if f.replacement is not None
    }
    return {id(m): before.get(id(m), m.id) for m in window}


def _make_change(
    m: Message,
    state: str,
    sizes: tuple[int, int],
    reason: str,
    label: tuple[int | None, str],
) -> MessageChange:
    action, preview = _ACTION_NAMES[state], preview_message(m)
    return MessageChange(m.id, m.role, m.tool, action, *sizes, reason, preview, *label)


def _draw_changes(title: str, data: Sequence[MessageChange]) -> Chart:
    def hover(k: int) -> str:
        change = data[k]
        sizes_ = f"{change.action}: {change.before:,} → {change.after:,} tokens"
        return "\n".join(
            filter(
                None,
                [f"{format_message_number(change.position)} {change.name}", sizes_, change.reason],
            )
        )

    counts = Counter(c.action for c in data)
    kinds = [
        (action, i)
        for action, i in zip(_ACTION_NAMES.values(), _ACTION_LOOKS, strict=True)
        if counts[action]
    ]
    traces = [
        Trace(
            name=f"{action} ({counts[action]})",
            x=range(len(data)),
            y=[max(c.before, c.after) if c.action == action else None for c in data],
            kind="bar",
            look=look,
            hover=hover,
        )
        for action, look in kinds
    ]
    before, after = sum(c.before for c in data), sum(c.after for c in data)
    summary = ", ".join(f"{counts[action]} {action}" for action, _ in kinds)
    changed = [c for c in data if c.action != "kept"]
    reasons = {c.reason for c in changed}
    # one reason for all is said once, whole; else each row has its own
    reason = reasons.pop().rstrip(".") if len(reasons) == 1 else ""
    shared = f" Reason: {sanitize_line(reason, 300)}." if reason else ""
    columns = 6 if reasons else 5
    return Chart(
        title=title,
        caption=f"{summary}; {before:,} → {after:,} tokens in messages.{shared} {_TABLE}",
        drawing=XyDrawing(
            x="message in the window", y="tokens", traces=tuple(traces), stacked=True
        ),
        head=("message", "name", "what", "before", "after", "why")[:columns],
        rows=tuple(_change_row(c)[:columns] for c in changed),
    )


def _change_row(change: MessageChange) -> tuple[str, ...]:
    return (
        format_message_number(change.position),
        sanitize_line(change.name, 60),
        change.action,
        f"{change.before:,}",
        f"{change.after:,}",
        sanitize_line(change.reason, 60),
    )


@register_view_values("plots.diff")
def _read_figures(session: Session) -> dict[str, Any]:
    if not session.edits:
        return {}
    data = get_diff_data(session, -1)
    affected = sum(one.action not in ("kept", "inserted") for one in data)
    figures: dict[str, Any] = {"last_affected_messages_n": affected}
    if session.prompt_source is not None:  # all sizes are those of prompts
        figures["last_removed_tokens"] = sum(one.before - one.after for one in data)
    return figures
