"""`ctxkit.index_or_paste` and `ctxkit.with_memory`: what a context store and a memory are worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ctxkit._internal.gc_pause import pause_gc
from ctxkit.agent.context_store import ContextStore
from ctxkit.errors import BadArguments
from ctxkit.experiments.scores import SessionScoreCache, score_run
from ctxkit.experiments.section_costs import PromptBilling
from ctxkit.experiments.session_runner import SessionRunner
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.frames.columns import FLOAT, INT, TEXT, FrameColumn, build_frame
from ctxkit.metrics.prompt_groups import share_message_tokens
from ctxkit.policies.base import flatten_chain
from ctxkit.policies.memory import Recall, promote_lessons
from ctxkit.policies.rules import RecordedCompactions
from ctxkit.presets.registry import resolve_rules
from ctxkit.session.messages import RECALLED_KIND, Edit, Message, Text, ToolCall
from ctxkit.tokens import default_counter

if TYPE_CHECKING:
    from collections.abc import Collection

    import pandas as pd

    from ctxkit.engine import Run
    from ctxkit.metrics.cost.replay_bill import ReplayBill
    from ctxkit.presets.registry import RulesLike
    from ctxkit.session.session import Session


PASTE_COLUMNS = (
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


class _PastedSession(NamedTuple):
    """The session as it would have been, and where its messages and calls are in the real one."""

    session: Session
    kept: list[int]
    calls: list[int]


@accepts_session
def index_or_paste(
    session: Session, store: ContextStore | None = None, *, rules: RulesLike | None = None
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
    text = _pasted_text(first, store or ContextStore())
    asked, other = PromptBilling(session, rules), _pasted(session, first, text)
    place = next(i for i, m in enumerate(session.messages) if m is first)
    index = _index_tokens(first, asked.sizes.tokens[place])
    scale = 1.0 if asked.sizes.error is None else 1 / (1 + asked.sizes.error)
    count = default_counter().message
    more = round((count(_with_text(first, text)) - count(first)) * scale)
    tokens = [asked.sizes.tokens[i] for i in other.kept]
    tokens[other.kept.index(place)] += more
    fixed = [asked.fixed[i] for i in other.calls]
    base = SessionScoreCache(other.session)
    rows = [
        (ON_DEMAND, index, asked.base, asked.bill(asked.run(session))),
        (
            PASTED,
            index + more,
            base,
            asked.bill(asked.run(other.session, tokens, fixed), base=base),
        ),
    ]
    told = [_paste_row(session, *row) for row in rows]
    return build_frame(
        PASTE_COLUMNS, {c.name: [row[c.name] for row in told] for c in PASTE_COLUMNS}
    )


def _paste_row(
    session: Session, way: str, store: int, base: SessionScoreCache, bill: ReplayBill
) -> dict[str, object]:
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


def _index_tokens(message: Message, tokens: int) -> int:
    return sum(n for p, n in share_message_tokens(message, tokens) if p.name == _STORE)


def _pasted(session: Session, first: Message, text: str) -> _PastedSession:
    """Return the session with the text in the place of the index, and without the reads."""
    store, dropped = ContextStore(), set[str]()
    log: list[Message | Edit] = []
    kept, calls, n, call = list[int](), list[int](), 0, 0
    for entry in session.path:
        if isinstance(entry, Edit):
            log.append(entry)
            continue
        left: Message | None = _with_text(entry, text) if entry is first else entry
        asked = [c.id for c in entry.tool_calls if _reads(c, store)]
        dropped.difference_update(c.id for c in entry.tool_calls)  # an id may be used again
        dropped.update(asked)
        if entry.role == "assistant":
            alone = asked and len(asked) == len(entry.tool_calls)
            left = None if alone else _without_calls(entry, asked)
        elif entry.role == "tool" and entry.call_id in dropped:
            left = None
        if left is not None:
            log.append(left)
            kept.append(n)
            calls += [call] if entry.role == "assistant" else []
        n, call = n + 1, call + (entry.role == "assistant")
    stay = set(kept)
    gone = {m.id for i, m in enumerate(session.messages) if i not in stay}
    sound = [_without_targets(e, gone) if isinstance(e, Edit) else e for e in log]
    whole = tuple(e for e in sound if e is not None)
    return _PastedSession(replace(session, log=whole, parents=(), leaf=-1), kept, calls)


def _reads(call: ToolCall, store: ContextStore) -> bool:
    """Say whether a call only looks at the store."""
    return any(isinstance(v, str) and store.holds(v) for v in call.arguments.values())


def _without_calls(message: Message, ids: Collection[str]) -> Message:
    if not ids:
        return message
    parts = tuple(p for p in message.parts if not (isinstance(p, ToolCall) and p.id in ids))
    return replace(message, parts=parts)


def _with_text(message: Message, text: str) -> Message:
    """Return the message that showed the index with the whole text instead."""
    names = [name for name, _, _ in message.sections]
    parts = list(message.parts)
    parts[names.index(_STORE)] = Text(text)
    return replace(message, parts=tuple(parts))


def _without_targets(edit: Edit, gone: Collection[str]) -> Edit | None:
    """Return a compaction without what is not there; None where nothing of it is left."""
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
    FrameColumn("way", TEXT, "", "without memory, with it, or how much more that is"),
    FrameColumn("cuts_n", INT, "compactions", "that were made"),
    FrameColumn("promoted_n", INT, "entries", "that memory holds at the end"),
    FrameColumn("recalled_tokens", INT, "tokens", "of the digests, each as often as it was sent"),
    FrameColumn("prompt_tokens", INT, "tokens", "of the prompts of all calls"),
    FrameColumn("needed_lost_n", INT, "items", "that were needed later and in sight no more"),
    FrameColumn(
        "needed_later_loss", FLOAT, "share", "of the items used again, those that were lost"
    ),
    FrameColumn(
        "rules_kept", FLOAT, "share", "of the user's rules that were taken, those in sight"
    ),
    FrameColumn("usd", FLOAT, "US dollars", "by the one bill; missing where no price is known"),
    FrameColumn("source", TEXT, "", "derived from recorded usage, or estimated"),
)
WITHOUT_MEMORY, WITH_MEMORY, DIFFERENCE = "without memory", "with memory", "difference"
_DIFFER = ("cuts_n", "recalled_tokens", "prompt_tokens", "needed_lost_n", "needed_later_loss",
           "rules_kept", "usd")  # fmt: skip


@accepts_session
def with_memory(
    session: Session, rules: RulesLike = "pi", recall: Recall | None = None
) -> pd.DataFrame:
    """Return what a session's compactions lose without and with a memory, and what that costs.

    With memory, the same rules promote what they take out and recall a digest of it behind the
    summary (`policies.memory`); found without a model, so that promoting costs nothing. The bill
    holds the digest at every call that is sent it, cache included. Needed-later loss says what was
    named again by the record (`metrics.loss_analysis`): an opportunity for loss, not what an agent
    would have done.

    Args:
        session: any session, the path of a log, or a list of messages.
        rules: rules, a preset, or words for a policy, without a memory of their own.
        recall: how much is recalled; None: Tyrum's budgets.

    Raises:
        BadArguments: the rules compact nothing of their own, or recall already.
    """
    plain = resolve_rules(rules)
    if isinstance(plain.policy, RecordedCompactions) or plain.bare is None:
        raise BadArguments(
            'Memory recalls what rules take out: name rules that compact, such as "pi".'
        )
    if any(isinstance(part, Recall) for part in flatten_chain(plain.bare)):
        raise BadArguments("These rules recall already: name them without it.")
    bench, told = SessionRunner(session), []
    with pause_gc():
        for way, each in ((WITHOUT_MEMORY, plain), (WITH_MEMORY, plain | (recall or Recall()))):
            done = bench.run(each)
            told.append(
                _memory_row(session, way, done, score_run(bench.base, done, way, loss=True))
            )
    more = {"session": session.id, "way": DIFFERENCE, "source": told[0]["source"]}
    more |= {c: _difference(told[1][c], told[0][c]) for c in _DIFFER}
    rows = [*told, more]
    return build_frame(
        MEMORY_COLUMNS, {c.name: [row.get(c.name) for row in rows] for c in MEMORY_COLUMNS}
    )


def _memory_row(session: Session, way: str, done: Run, scored: dict[str, Any]) -> dict[str, Any]:
    recalls = way == WITH_MEMORY
    gone = promote_lessons(done.coming()) if recalls and done.cuts else []
    return {
        "session": session.id,
        "way": way,
        "cuts_n": len(done.cuts),
        "promoted_n": len(gone) if recalls else None,
        "recalled_tokens": _recalled(done) if recalls else 0,
        "prompt_tokens": done.total,
        "needed_lost_n": scored.get("needed_lost_n"),
        "needed_later_loss": scored.get("needed_later_loss"),
        "rules_kept": scored.get("rules_kept"),
        "usd": scored.get("cost_usd"),
        "source": scored["source"],
    }


def _recalled(done: Run) -> int:
    """Return the tokens of the digests, over all calls."""
    total, size, cuts = 0, 0, {cut.call: cut.new for cut in done.cuts}
    for call in range(done.log.calls):
        if call in cuts:
            view = cuts[call]
            held = (p for p in range(view.head.size) if view[p].kind == RECALLED_KIND)
            size = sum(int(view.item(p).tokens) for p in held)
        total += size
    return total


def _difference(more: Any, less: Any) -> Any:
    return None if more is None or less is None else more - less
