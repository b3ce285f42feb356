"""The context store read on demand, against all of it pasted into the prompt at the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ctxkit.composition.groups import shares
from ctxkit.errors import BadArguments
from ctxkit.frames.frame_columns import FLOAT, INT, TEXT, FrameColumn, build
from ctxkit.library import Library
from ctxkit.messages import Edit, Message, Text, ToolCall
from ctxkit.readers.given import of_session
from ctxkit.sweeps.bases import Base
from ctxkit.tokens import default
from ctxkit.worth.invoices import Invoices

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

    from ctxkit.metrics.tallies import Bill
    from ctxkit.presets.naming import AnyRules
    from ctxkit.session import Session

COLUMNS = (
    FrameColumn("session", TEXT, "", "id of the session"),
    FrameColumn("way", TEXT, "", "as it ran: index and reads on demand; or pasted whole"),
    FrameColumn("calls_n", INT, "calls", "that are billed"),
    FrameColumn(
        "store_tokens", INT, "tokens", "of the store in the first prompt: its index, or all text"
    ),
    FrameColumn("prompt_tokens", INT, "tokens", "of the prompts of all calls"),
    FrameColumn("peak_tokens", INT, "tokens", "of the largest prompt"),
    FrameColumn("cache_read_tokens", INT, "tokens", "of them read from the cache"),
    FrameColumn("output_tokens", INT, "tokens", "of all replies"),
    FrameColumn("usd", FLOAT, "US dollars", "by the one bill; missing where no price is known"),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
ON_DEMAND, PASTED = "index, read on demand", "pasted whole"
_STORE = "store"


class _Other(NamedTuple):
    """The session as it would have been, and where its messages and calls are in the real one."""

    session: Session
    kept: list[int]
    calls: list[int]


@of_session
def index_or_paste(
    session: Session, store: Library | None = None, *, rules: AnyRules | None = None
) -> pd.DataFrame:
    """Return what a session cost with an index of its context store, and with all text pasted.

    Pasted, the whole text of the items that its index names stands in the place of the index, and
    calls that did nothing but read the store are not made, with what they were answered. What else
    the agent did is left as it was; that it would have done the same is assumed, as in any replay.

    Args:
        session: a session that was shown the index of a store.
        store: where the text is; None: the store of the current folder.
        rules: rules or a preset to ask about; None: as it was compacted.

    Raises:
        BadArguments: the session was shown no index, or the store has nothing of it.
    """
    first = next((m for m in session.messages if any(n == _STORE for n, _, _ in m.sections)), None)
    if first is None:
        raise BadArguments(
            "The session was shown no index of a context store: fill one before it begins, with "
            "`%context add FILE --name N`."
        )
    text = _text(first, store or Library())
    asked, other = Invoices(session, rules), _pasted(session, first, text)
    place = next(i for i, m in enumerate(session.messages) if m is first)
    index = _index_tokens(first, asked.sizes.tokens[place])
    scale = 1.0 if asked.sizes.error is None else 1 / (1 + asked.sizes.error)
    count = default().message
    more = round((count(_with(first, text)) - count(first)) * scale)
    tokens = [asked.sizes.tokens[i] for i in other.kept]
    tokens[other.kept.index(place)] += more
    fixed = [asked.fixed[i] for i in other.calls]
    base = Base(other.session)
    rows = [
        (ON_DEMAND, index, asked.base, asked.bill(asked.run(session))),
        (
            PASTED,
            index + more,
            base,
            asked.bill(asked.run(other.session, tokens, fixed), base=base),
        ),
    ]
    told = [_row(session, *row) for row in rows]
    return build(COLUMNS, {c.name: [row[c.name] for row in told] for c in COLUMNS})


def _row(session: Session, way: str, store: int, base: Base, bill: Bill) -> dict[str, object]:
    sheet = base.sheet
    return {
        "session": session.id,
        "way": way,
        "calls_n": sum(sheet.billed),
        "store_tokens": store,
        "prompt_tokens": bill.prompts,
        "peak_tokens": bill.peak,
        "cache_read_tokens": bill.read if sheet.has_cache else None,
        "output_tokens": sheet.output_tokens,
        "usd": bill.total_usd,
        "source": base.source,
    }


def _text(first: Message, store: Library) -> str:
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


def _index_tokens(message: Message, tokens: int) -> int:
    return sum(n for p, n in shares(message, tokens) if p.name == _STORE)


def _pasted(session: Session, first: Message, text: str) -> _Other:
    """Return the session with the text in the place of the index, and without the reads."""
    store, dropped = Library(), set[str]()
    log: list[Message | Edit] = []
    kept, calls, n, call = list[int](), list[int](), 0, 0
    for entry in session.path:
        if isinstance(entry, Edit):
            log.append(entry)
            continue
        left: Message | None = _with(entry, text) if entry is first else entry
        asked = [c.id for c in entry.tool_calls if _reads(c, store)]
        dropped.difference_update(c.id for c in entry.tool_calls)  # an id may be used again
        dropped.update(asked)
        if entry.role == "assistant":
            alone = asked and len(asked) == len(entry.tool_calls)
            left = None if alone else _but(entry, asked)
        elif entry.role == "tool" and entry.call_id in dropped:
            left = None
        if left is not None:
            log.append(left)
            kept.append(n)
            calls += [call] if entry.role == "assistant" else []
        n, call = n + 1, call + (entry.role == "assistant")
    stay = set(kept)
    gone = {m.id for i, m in enumerate(session.messages) if i not in stay}
    sound = [_pruned(e, gone) if isinstance(e, Edit) else e for e in log]
    whole = tuple(e for e in sound if e is not None)
    return _Other(replace(session, log=whole, parents=(), leaf=-1), kept, calls)


def _reads(call: ToolCall, store: Library) -> bool:
    """Say whether a call only looks at the store."""
    return any(isinstance(v, str) and store.holds(v) for v in call.arguments.values())


def _but(message: Message, ids: Collection[str]) -> Message:
    if not ids:
        return message
    parts = tuple(p for p in message.parts if not (isinstance(p, ToolCall) and p.id in ids))
    return replace(message, parts=parts)


def _with(message: Message, text: str) -> Message:
    """Return the message that showed the index with the whole text instead."""
    names = [name for name, _, _ in message.sections]
    parts = list(message.parts)
    parts[names.index(_STORE)] = Text(text)
    return replace(message, parts=tuple(parts))


def _pruned(edit: Edit, gone: Collection[str]) -> Edit | None:
    """Return a compaction without what is not there; None where nothing of it is left."""
    targets = tuple(t for t in edit.targets if t not in gone)
    if len(targets) == len(edit.targets):
        return edit
    inserted = edit.inserted
    if edit.kind in ("shortened", "replaced"):
        pairs = zip(edit.targets, edit.inserted, strict=True)
        inserted = tuple(m for t, m in pairs if t not in gone)
    return replace(edit, targets=targets, inserted=inserted) if targets else None
