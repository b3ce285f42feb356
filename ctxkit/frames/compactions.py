"""One row a compaction: what it took out, what it put in, what that saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxkit.frames.columns import FLOAT, INT, TEXT, TIME, Column
from ctxkit.frames.costs import Costs
from ctxkit.frames.counts import counting
from ctxkit.messages import Edit, Message
from ctxkit.session import apply_edit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ctxkit.frames.counts import Count
    from ctxkit.session import Session

COLUMNS = (
    Column("session", TEXT, "", "id of the session"),
    Column("compaction", INT, "", "number of the compaction in its session, from 0"),
    Column("call", INT, "", "the first call that was shown its outcome; missing where none followed"),
    Column("turn", INT, "", "the turn in which it fired"),
    Column("position", INT, "entries", "place among the session's messages and edits"),
    Column("ts", TIME, "UTC", "when it fired"),
    Column("agent", TEXT, "", "whose context was compacted"),
    Column("kind", TEXT, "", "dropped, shortened, replaced or summarised"),
    Column("trigger", TEXT, "", "what made it due"),
    Column("method", TEXT, "", "how it was done: the policy's or the program's own word"),
    Column("reason", TEXT, "", "why, for a person to read"),
    Column("tokens_before", INT, "tokens", "size of the view before"),
    Column("tokens_after", INT, "tokens", "size of the view after"),
    Column("messages_before", INT, "messages", "messages shown before"),
    Column("messages_after", INT, "messages", "messages shown after"),
    Column("targets_n", INT, "messages", "messages that it removed, shortened or replaced"),
    Column("summary_tokens", INT, "tokens", "size of what it put in their place; missing where it put nothing"),
    Column("token_savings", FLOAT, "share", "1 - tokens_after / tokens_before; negative where the view grew"),
    Column("message_savings", FLOAT, "share", "1 - messages_after / messages_before"),
    Column("cost_usd", FLOAT, "US dollars", "what the summary call cost; missing where none is known"),
    Column("model", TEXT, "", "the model that wrote the summary"),
    Column("tokens_source", TEXT, "", "where tokens_before and tokens_after come from, the weaker of the two"),
    Column("source", TEXT, "", "where the mark itself comes from: the log, or a rule that found it"),
)


def rows(sessions: Sequence[Session], count: Count = None) -> dict[str, list[Any]]:
    """Return the columns of the compaction frame as lists."""
    data: dict[str, list[Any]] = {c.name: [] for c in COLUMNS}
    costs = Costs()
    for session in sessions:
        if session.edits:
            _session(session, count, data, costs)
    return data


def _session(session: Session, count: Count, data: dict[str, list[Any]], costs: Costs) -> None:
    sizes, sources, of = counting(session, count)
    source = "derived" if sources and "estimated" not in sources else "estimated"
    known = {id(m): n for m, n in zip(session.messages, sizes, strict=True)} if session.has_sizes else {}

    def size(message: Message) -> int:
        n = known.get(id(message))
        return of(message) if n is None else n

    can = size if session.has_sizes else None
    shown: list[Message] = []
    calls, number, billed = 0, 0, None
    for position, entry in enumerate(session.path):
        if isinstance(entry, Message):
            if entry.visible:
                shown.append(entry)
            if entry.role == "assistant":
                calls += 1
                billed = _occupancy(entry) or billed
            continue
        after = apply_edit(shown, entry)
        data["compaction"].append(number)
        data["position"].append(position)
        data["turn"].append(session.turns[position])
        data["call"].append(calls if calls < len(session.calls) else None)
        before, then, where = _tokens(entry, shown, after, billed=billed, size=can, source=source)
        _sizes(entry, (before, then), (len(shown), len(after)), size, data)
        data["tokens_source"].append(where)
        _words(session, entry, data, costs)
        shown, number, billed = after, number + 1, then if billed is not None else None


def _occupancy(reply: Message) -> int | None:
    """Tokens in the window once a reply has been written, as recorded."""
    if reply.usage is None or reply.kind == "turn":
        return None
    prompt = reply.usage.prompt_tokens
    return prompt + (reply.usage.output_tokens or 0) if prompt else None


def _tokens(
    edit: Edit,
    shown: list[Message],
    after: list[Message],
    *,
    billed: int | None,
    size: Callable[[Message], int] | None,
    source: str,
) -> tuple[int | None, int | None, str | None]:
    """Sizes before and after: recorded, else from the last recorded prompt, else counted; with the weakest source."""
    before, then = edit.tokens_before, edit.tokens_after
    if before is not None and then is not None:
        return before, then, "recorded"
    if size is None:
        return before, then, "recorded" if before is not None or then is not None else None
    counted, counted_then = sum(map(size, shown)), sum(map(size, after))
    if before is None:
        before = counted if billed is None else max(billed, counted)
    if then is None:  # only the difference is counted: what no log shows stays as it was
        then = max(before - counted + counted_then, 0)
    return before, then, source


def _sizes(
    edit: Edit,
    tokens: tuple[int | None, int | None],
    messages: tuple[int, int],
    size: Callable[[Message], int],
    data: dict[str, list[Any]],
) -> None:
    before, after = tokens
    data["tokens_before"].append(before)
    data["tokens_after"].append(after)
    data["messages_before"].append(messages[0])
    data["messages_after"].append(messages[1])
    data["targets_n"].append(len(edit.targets))
    data["summary_tokens"].append(sum(map(size, edit.inserted)) if edit.inserted else None)
    data["token_savings"].append(1 - after / before if before and after is not None else None)
    data["message_savings"].append(1 - messages[1] / messages[0] if messages[0] else None)


def _words(session: Session, edit: Edit, data: dict[str, list[Any]], costs: Costs) -> None:
    data["session"].append(session.id)
    data["ts"].append(edit.time)
    data["agent"].append(edit.agent or session.agent)
    for name in ("kind", "trigger", "method", "reason", "model", "source"):
        data[name].append(getattr(edit, name) or None)
    reply = Message(role="assistant", usage=edit.usage)
    data["cost_usd"].append(costs.cost(reply, edit.model or session.model)[0])
