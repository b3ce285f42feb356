"""`plots.diff`: what one compaction did to every message."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ctxkit._internal.formatting import sanitize_line
from ctxkit.errors import BadArguments
from ctxkit.formats.session_arguments import accepts_session
from ctxkit.metrics.context_report import preview_message
from ctxkit.metrics.figure_sources import shows_figures
from ctxkit.metrics.recorded_compactions import get_message_fates
from ctxkit.plots.chart import Chart, with_notes
from ctxkit.plots.xy_figure import Axes, Trace
from ctxkit.session.compaction_groups import group_edits
from ctxkit.session.messages import Message
from ctxkit.session.session import apply_edit
from ctxkit.session.titles import get_title
from ctxkit.session.tool_calls import describe_message, format_message_number, pair_with_calls
from ctxkit.tokens import counters
from ctxkit.tokens.message_sizes import measure_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.session.session import Session
    from ctxkit.tokens.counters import TokenCounter

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
"""The look of the bars of each word, in the same order."""
_TABLE = "One bar a message, in order; the table has those that changed."


class MessageChange(NamedTuple):
    """One message of the window, before and after."""

    id: str
    role: str
    tool: str | None
    what: str
    """kept, shortened, replaced, summarised, dropped or inserted."""
    before: int
    after: int
    reason: str
    preview: str
    position: int | None
    """Its place in `session.path`, as all views number messages; None: it was inserted."""
    name: str
    """What it is in a line, as all views name messages."""


# The edits of the compaction are applied to the window before it, and both windows are compared.
# Messages are compared by identity, since equal ones may occur twice. A message of the window
# before either stays (the same object), is shortened (its fate names the new object), or is gone.
# What else is in the window after was inserted, and is placed before the first message that
# went. Fates are those after all edits up to this compaction, so `done` counts the edits before it.
@accepts_session
def diff_data(
    session: Session, compaction: int = 0, *, counter: TokenCounter | None = None
) -> tuple[MessageChange, ...]:
    """Return each message of the window at a compaction, and each that it put in, in order.

    Args:
        session: a recorded session or a replay.
        compaction: its number, from 0, negatives from the end.
        counter: counts of a record what usage does not tell; by default the exact o200k_base where
            its vocabulary is here. Of a replay and a live session sizes are those that were sent,
            prunings included.

    Raises:
        BadArguments: the session has no such compaction.
    """
    compactions = group_edits(session)
    try:
        cut = compactions[compaction]
    except IndexError:
        range_text = (
            f"it has compactions 0 to {len(compactions) - 1}" if compactions else "it has none"
        )
        raise BadArguments(
            f"Session {session.id!r} has no compaction {compaction}: {range_text}."
        ) from None
    before_of, after_of = _sizes_around(session, cut.position, counter)
    window = _window_at(session, cut.position)
    done = sum(len(c.edits) for c in compactions[: cut.number])
    after = window
    for edit in cut.edits:
        after = apply_edit(after, edit)
    ids_by_message = _ids_by_message(session, done, window)
    position_by_id = {e.id: i for i, e in enumerate(session.path) if isinstance(e, Message)}
    tool_calls = {id(m): call for m, call in pair_with_calls((*window, *after))}

    def describe(message: Message) -> tuple[int | None, str]:
        original = ids_by_message.get(id(message))
        name = describe_message(message, tool_calls.get(id(message)), session.cwd)
        return position_by_id.get(original) if original else None, name

    touched = get_message_fates(session, done + len(cut.edits))
    stays = {id(m) for m in after}
    out: list[MessageChange] = []
    for message in window:
        fate = None if id(message) in stays else touched.get(ids_by_message[id(message)])
        left = message if fate is None else fate.shown
        state, reason = ("shown", "") if fate is None else (fate.state, fate.reason or "")
        after_size = 0 if left is None else after_of(left)
        sizes = before_of(message), after_size
        out.append(_make_change(message, state, sizes, reason, describe(message)))
    shortened = {id(f.shown) for f in touched.values() if f.shown is not None}
    there = {id(m) for m in window}
    new = [m for m in after if id(m) not in there and id(m) not in shortened]
    at = next((i for i, c in enumerate(out) if c.what in ("summarised", "dropped")), len(out))
    why = {id(m): e.reason for e in cut.edits for m in e.inserted}
    put_in = [_make_change(m, "new", (0, after_of(m)), why[id(m)], describe(m)) for m in new]
    return (*out[:at], *put_in, *out[at:])


@accepts_session
@with_notes
def diff(session: Session, compaction: int = 0, *, counter: TokenCounter | None = None) -> Chart:
    """Chart what one compaction did to every message of the window.

    Args:
        session: a recorded session or a replay.
        compaction: its number, from 0, negatives from the end.
        counter: as in `ctxkit.report`.

    Returns:
        The chart, a bar a message; its table has the messages that changed.

    Raises:
        BadArguments: the session has no such compaction.

    Example:
        >>> import ctxkit as ck
        >>> ck.plots.diff(ck.samples.path(), -1).title
        'Compaction 1 of BILL-4127: the nightly export fails'
    """
    data = diff_data(session, compaction, counter=counter)
    number = compaction if compaction >= 0 else len(group_edits(session)) + compaction
    return _draw_changes(f"Compaction {number} of {get_title(session)}", data)


def _sizes_around(
    session: Session, position: int, counter: TokenCounter | None
) -> tuple[Size, Size]:
    """Return the size of a message before and after the compaction at a position.

    Of a replay and a live session what was sent: by the call before, and by the one that followed.
    """
    if session.behind is None:
        of = measure_sizes(session, counter).of
        return of, of
    # The number of calls before the compaction is the index of the call after it.
    call = sum(c.position < position for c in session.calls)
    following = call if call < len(session.calls) else None
    ids = (m.id for m in session.messages if m.visible)
    rows = dict(zip(ids, session.behind.row_sizes, strict=False))
    after = _sent_tokens(session, following)
    before = {**rows, **_sent_tokens(session, call - 1)} if call else rows
    return (lambda m: before.get(_original_id(m), counters.estimate_message_tokens(m))), (
        lambda m: after.get(_original_id(m), 0)
    )


def _sent_tokens(session: Session, call: int | None) -> dict[str, int]:
    """Return the tokens of each message that stood at a call; 0 where a rule left it out."""
    ids = [m.id for m in session.messages if m.visible]
    out = {ids[row]: 0 for row in session.left_out(call) if 0 <= row < len(ids)}
    return out | {_original_id(i.message): i.tokens for i in session.sent(call)}


def _original_id(message: Message) -> str:
    # A changed copy has the id of its original, then `~` and a suffix.
    return message.id.split("~")[0]


def _window_at(session: Session, position: int) -> list[Message]:
    return list(session.branch(session.indices[position - 1]).view()) if position else []


def _ids_by_message(session: Session, done: int, window: Sequence[Message]) -> dict[int, str]:
    """By identity of a message in the window: the id by which its fate is known."""
    before = {
        id(f.shown): first
        for first, f in get_message_fates(session, done).items()
        if f.shown is not None
    }
    return {id(m): before.get(id(m), m.id) for m in window}


def _make_change(
    m: Message,
    state: str,
    sizes: tuple[int, int],
    reason: str,
    label: tuple[int | None, str],
) -> MessageChange:
    what, preview = _ACTION_NAMES[state], preview_message(m)
    return MessageChange(m.id, m.role, m.tool, what, *sizes, reason, preview, *label)


def _draw_changes(title: str, data: Sequence[MessageChange]) -> Chart:
    def hover(k: int) -> str:
        one = data[k]
        sizes_ = f"{one.what}: {one.before:,} → {one.after:,} tokens"
        return "\n".join(
            filter(None, [f"{format_message_number(one.position)} {one.name}", sizes_, one.reason])
        )

    counts = Counter(c.what for c in data)
    kinds = [
        (what, i)
        for what, i in zip(_ACTION_NAMES.values(), _ACTION_LOOKS, strict=True)
        if counts[what]
    ]
    traces = [
        Trace(
            name=f"{what} ({counts[what]})",
            x=range(len(data)),
            y=[max(c.before, c.after) if c.what == what else None for c in data],
            kind="bar",
            look=look,
            hover=hover,
        )
        for what, look in kinds
    ]
    before, after = sum(c.before for c in data), sum(c.after for c in data)
    summary = ", ".join(f"{counts[what]} {what}" for what, _ in kinds)
    return Chart(
        title=title,
        caption=f"{summary}; {before:,} → {after:,} tokens in messages. {_TABLE}",
        drawing=Axes(x="message in the window", y="tokens", traces=tuple(traces), stacked=True),
        head=("message", "name", "what", "before", "after", "why"),
        rows=tuple(_change_row(c) for c in data if c.what != "kept"),
        shown=40,
    )


def _change_row(one: MessageChange) -> tuple[str, ...]:
    return (
        format_message_number(one.position),
        sanitize_line(one.name, 60),
        one.what,
        f"{one.before:,}",
        f"{one.after:,}",
        sanitize_line(one.reason, 60),
    )


@shows_figures("plots.diff")
def _read_figures(session: Session) -> dict[str, Any]:
    if not session.edits:
        return {}
    data = diff_data(session, -1)
    changed = Counter(one.what for one in data if one.what not in ("kept", "inserted"))
    figures: dict[str, Any] = {"last_affected_messages_n": changed.total()}
    if session.behind is not None:  # all sizes are those of prompts
        figures["last_removed_tokens"] = sum(one.before - one.after for one in data)
    return figures
