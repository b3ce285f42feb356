"""How the compactions of a session held: refill, rebound, repeated tool calls, thrash."""

from __future__ import annotations

import json
from bisect import bisect_left
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ctxkit._internal.lazy import public_dir
from ctxkit.formats.inputs import accepts_session
from ctxkit.metrics.compactions import (
    Compaction,
    CompactionVerdict,
    filter_observed,
    get_replay_compactions,
    get_replay_prompts,
    judge_compactions,
    measure_longest_run,
    summarise_verdicts,
)
from ctxkit.metrics.cost.call_prices import MODEL_FREE_METHODS, price_call
from ctxkit.metrics.cost.replay_bill import ReplayCostModel, WrittenSummary
from ctxkit.metrics.item_index import MessageRows
from ctxkit.metrics.prompt_sizes import SentPrompts
from ctxkit.metrics.recorded_compactions import group_edits as placed
from ctxkit.metrics.stats import mean_or_none, median_or_none
from ctxkit.metrics.visibility import get_session_visibility
from ctxkit.session.messages import Message
from ctxkit.session.session import apply_edit
from ctxkit.session.tool_calls import get_call_path, is_read_only_tool, is_read_tool, is_write_tool
from ctxkit.tokens.live_prompt_sizes import get_sizes_around_compaction
from ctxkit.tokens.sizes import MessageSizes, measure_sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ctxkit.metrics.visibility import Visibility
    from ctxkit.session.messages import Edit, ToolCall
    from ctxkit.session.session import Session

    Ints = NDArray[np.int64]

__all__ = [
    "CompactionOutcome",
    "ThrashSummary",
    "get_compaction_outcomes",
    "get_compactions",
    "spiral",
    "thrash",
]
__dir__ = public_dir(__all__)


class CompactionOutcome(CompactionVerdict, frozen=True, kw_only=True):
    """One compaction, as its calls felt it. Sizes are tokens of the prompt; None: not known."""

    compaction: int
    """Its number, as ``frame(per="compaction")`` counts; of several before a call the last."""
    call: int
    """The first call that was shown its outcome."""
    before: int
    """The prompt without it; in a record the last one before."""
    after: int
    """What that came down to."""
    savings: float
    """Share of the tokens that it saved; 0 or less: it made the prompt larger."""
    written: tuple[WrittenSummary, ...]
    """The summaries that a model wrote for it."""
    minutes: float | None
    """Until the next one."""
    rebound_minutes: float | None
    """Until the prompt was back at three quarters of its size before; None: it never was."""
    reread_rate: float | None
    """Of the next 24 tool calls, the share that repeats one that went; None: none followed."""
    reorientation: int | None
    """Tool calls from it to the first that writes; None where none did."""


class ThrashSummary(msgspec.Struct, frozen=True):
    """The cuts of a session, summed up. Shares are 0..1; None: no cut can say."""

    cuts: tuple[CompactionOutcome, ...]
    unpaid_cuts_n: int | None
    anti_thrash: float | None
    """1 less the share of unpaid cuts, over those that can be said to be paid or not."""
    refill: float | None
    """Mean refill ratio ten calls after a cut."""
    rebound_calls: float | None
    """Median calls until three quarters full again."""
    no_progress_n: int
    """Longest run of cuts that each saved less than a tenth (OpenHands' minimum progress)."""
    reread_rate: float | None
    reorientation: float | None
    """Median tool calls to the first write."""
    thrash: bool
    """As the column of a score: three cuts in a row without progress, or most did not pay."""


@accepts_session
def thrash(session: Session, *, anchored: MessageSizes | None = None) -> ThrashSummary:
    """Return how the compactions of a session or a replay held, per cut and summed up."""
    every = get_compaction_outcomes(session, anchored=anchored)
    return ThrashSummary(
        cuts=every,
        **summarise_verdicts([c.savings for c in every], every),
        reread_rate=mean_or_none([c.reread_rate for c in every]),
        reorientation=median_or_none([c.reorientation for c in every]),
    )


@accepts_session
def spiral(session: Session, limit: int) -> int:
    """Return the longest run of calls above `limit` tokens: a trigger that changed nothing."""
    usages = (c.message.usage for c in session.calls)
    return measure_longest_run([u is not None and (u.prompt_tokens or 0) > limit for u in usages])


@accepts_session
def get_compaction_outcomes(
    session: Session, *, anchored: MessageSizes | None = None
) -> tuple[CompactionOutcome, ...]:
    """Return the compactions that a later call was shown; those that free nothing are cuts too.

    Several between two calls were felt as one. Of a replay they are those that its score counts.
    """
    if not session.edits:
        return ()
    origin, anchored = (
        session.origin or session,
        anchored or measure_sizes(session.origin or session),
    )
    every, prompts = get_compactions(session, anchored)
    found = filter_observed(every, len(prompts))
    sheet = ReplayCostModel.of(origin, anchored)
    told = judge_compactions(found, prompts, sheet, [sheet.summaries_usd(c.written) for c in found])
    rows = MessageRows(session)
    shown, rereads = get_session_visibility(rows, session), ToolCallRepeats(rows)
    out = []
    for cut, verdict in zip(found, told, strict=True):
        end = None if verdict.interval is None else cut.call + verdict.interval
        full = None if verdict.rebound_calls is None else cut.call + verdict.rebound_calls
        again, write = rereads.after(shown, cut.call) if cut.call else (None, None)
        out.append(
            CompactionOutcome(
                **msgspec.structs.asdict(verdict),
                compaction=cut.number,
                call=cut.call,
                before=cut.before,
                after=cut.after,
                savings=cut.savings,
                written=cut.written,
                minutes=_minutes_between(session, cut.call, end),
                rebound_minutes=_minutes_between(session, cut.call, full),
                reread_rate=again,
                reorientation=write,
            )
        )
    return tuple(out)


def get_compactions(
    session: Session, anchored: MessageSizes
) -> tuple[list[Compaction], SentPrompts]:
    """Return all compactions of a session or a replay, and its prompts."""
    if session.origin is not None:
        return get_replay_compactions(session), get_replay_prompts(session)
    prompts = _recorded_prompts(session, anchored)
    return _recorded_compactions(session, anchored, prompts), SentPrompts(prompts)


def _recorded_prompts(session: Session, anchored: MessageSizes) -> list[int]:
    """Return the size of each prompt: recorded, else modelled."""
    usages = (c.message.usage for c in session.calls)
    recorded = (u.prompt_tokens if u else None for u in usages)
    return [size or n for size, n in zip(recorded, anchored.modelled, strict=True)]


def _recorded_compactions(
    session: Session, anchored: MessageSizes, prompts: list[int]
) -> list[Compaction]:
    """Return those of a record, also where no call came before or after."""
    replies = [c.position for c in session.calls]
    one: dict[int, tuple[int, int, int, list[Edit]]] = {}
    for cut in placed(session):
        call = bisect_left(replies, cut.position)
        _, first, _, edits = one.get(call, (0, cut.position, 0, []))
        last = cut.position + len(cut.edits) - 1
        one[call] = cut.number, first, last, [*edits, *cut.edits]
    out, shown, at = [], list[Message](), 0
    for call, (number, first, position, edits) in one.items():
        before = next((p for p in reversed(prompts[:call]) if p), None)
        was, source = shown, dict[int, int]()  # an edit leaves `was` as it is: it makes a new list
        for entry in session.path[at : position + 1]:
            if isinstance(entry, Message):
                if entry.visible:
                    shown.append(entry)
                continue
            targets = set(entry.targets)
            source[id(entry)] = sum(anchored.of(m) for m in shown if m.id in targets)
            shown = apply_edit(shown, entry)
        at = position + 1
        had, left = (sum(map(anchored.of, messages)) for messages in (was, shown))
        live = get_sizes_around_compaction(session, first, position)
        if live is not None:
            before, after, _ = live
        elif before is None or call >= len(replies):
            before = max(before or 0, had)
            after = max(before - had + left, 0)
        else:
            after = _size_after(session, anchored, prompts, call, position)
        size = {id(e): sum(anchored.of(m) for m in e.inserted) for e in edits}
        written = [
            _written_summary_of_edit(session, e, call, source[id(e)], before, size[id(e)])
            for e in edits
        ]
        told = tuple(w for w in written if w is not None)
        counts, put = (len(was), len(shown)), sum(size.values())
        alike = sum(
            anchored.of(a) for a, _ in takewhile(_is_same_pair, zip(was, shown, strict=False))
        )
        front = min(max(before - had, 0) + alike, after)
        out.append(Compaction(call, before, after, *counts, put, told, number, front))
    return out


def _is_same_pair(pair: tuple[Message, Message]) -> bool:
    return pair[0] is pair[1]


def _size_after(
    session: Session, anchored: MessageSizes, prompts: list[int], call: int, position: int
) -> int:
    """Return the first known prompt after a cut less what came since; failed calls are none."""
    for k in range(call, len(prompts)):
        if session.calls[k].message.usage is not None and prompts[k]:
            return max(prompts[k] - _tokens_since(session, anchored, position, k), 0)
    return anchored.modelled[call] - _tokens_since(session, anchored, position, call)


def _tokens_since(session: Session, anchored: MessageSizes, position: int, call: int) -> int:
    new = session.path[position + 1 : session.calls[call].position]
    return sum(anchored.of(m) for m in new if isinstance(m, Message) and m.visible)


def _written_summary_of_edit(  # noqa: PLR0917  the fields of `WrittenSummary`
    session: Session, edit: Edit, call: int, source: int, prompt: int, size: int
) -> WrittenSummary | None:
    """Return the summary of an edit as a replay has it: made from what went, by one more call."""
    if edit.kind != "summarised" or not edit.inserted or edit.method in MODEL_FREE_METHODS:
        return None
    usd = None
    if edit.usage is not None:
        model = edit.model or session.model
        usd, _ = price_call(Message(role="assistant", usage=edit.usage), model)
    return WrittenSummary(call, source, prompt, size, usd)


def _minutes_between(session: Session, call: int, following: int | None) -> float | None:
    if following is None:
        return None
    a, b = session.calls[call].message.time, session.calls[following].message.time
    return None if a is None or b is None or b < a else (b - a) / 60


REREAD_WINDOW = 24
"""Tool calls after a cut that are looked at for repeats (the p75 of natural gaps between a call and
its repeat).
"""


class ToolCallRepeats:
    """The tool calls of a session, numbered by what they ask for."""

    def __init__(self, rows: MessageRows) -> None:
        keys: dict[Any, int] = {}
        session = rows.session
        told = [(at, call) for at, m in enumerate(session.messages) for call in m.tool_calls]
        self._keys = np.array(
            [keys.setdefault(_tool_call_key(call), len(keys)) for _, call in told], np.int64
        )
        replies = [at for at, m in enumerate(session.messages) if m.role == "assistant"]
        self._first = np.searchsorted([at for at, _ in told], replies)
        """For each call the first tool call from its reply on."""
        at = np.unique(self._keys, return_index=True)[1]
        new = sorted(i for i in at.tolist() if not is_read_only_tool(told[i][1].name))
        went_on = [*(np.searchsorted(self._first, new, "right") - 1).tolist(), None]
        self._went_on = [went_on[i] for i in np.searchsorted(new, self._first).tolist()]
        """For each call the first from it on that does what was not done before, and no look."""
        asked: dict[str, int] = {}
        """By the id of a call what it asks for; ids may be used again, then the last one counts."""
        pairs, numbers, row = list[tuple[int, int]](), iter(self._keys.tolist()), 0
        for message in session.messages:
            own = {call.id: next(numbers) for call in message.tool_calls}
            asked |= own
            answers = [asked[message.call_id]] if message.call_id in asked else []
            pairs += [(row, key) for key in (*own.values(), *answers) if message.visible]
            row += message.visible
        self._row, self._asked = np.array(pairs, np.int64).reshape(-1, 2).T
        """Each row that asks or answers, and what is asked."""
        writing = [i for i, (_, call) in enumerate(told) if is_write_tool(call.name)]
        self._writes = np.array(writing, np.int64)

    def resumed(self, call: int) -> int | None:
        """Return how many calls after a cut the agent went on; None where it never did.

        That is when it did what it had not done before, and not only looked at something.
        """
        at = self._went_on[call]
        return None if at is None else at - call

    def after(self, shown: Visibility, call: int) -> tuple[float | None, int | None]:
        """Return what followed a compaction before a call.

        First the share of repeats among the next tool calls, of calls whose request or result went
        with it (None where no tool call followed); then how many tool calls came before the first
        that writes (None where none did).
        """
        start, time = int(self._first[call]), 2 * call + 1
        near = self._keys[start : start + REREAD_WINDOW].tolist()
        gone = shown.until[self._row] == time
        back = shown.again[shown.again[:, 2] == time, 0]
        if len(back):
            gone |= np.isin(self._row, back)
        asked = set(self._asked[gone].tolist())
        again = sum(key in asked for key in near) / len(near) if near else None
        write = int(np.searchsorted(self._writes, start))
        return again, int(self._writes[write]) - start if write < len(self._writes) else None


def _tool_call_key(call: ToolCall) -> tuple[str, str]:
    """Two calls are the same where tool and arguments are; a read is the same where the path is."""
    path = get_call_path(call) if is_read_tool(call.name) else None
    if path is not None:
        return call.name.lower(), path
    return call.name.lower(), call.raw or json.dumps(call.arguments, sort_keys=True, default=str)
